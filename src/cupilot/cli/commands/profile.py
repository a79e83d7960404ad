"""Show where a kernel's time goes on a device, and where it stands on the roofline.

One run at the task's true shape on sampled blocks: counted and modelled, not verified.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cupilot.cli.choices import TIMEOUT_S, add_call, add_json, add_precision, open_chosen, seconds
from cupilot.cli.commands.evaluate import LOG_LINES, add_torch_ops
from cupilot.cli.terminal import Terminal
from cupilot.contracts import Device
from cupilot.errors import UserError
from cupilot.languages import read_kernel
from cupilot.records import Failure, to_plain
from cupilot.text import first_lines

if TYPE_CHECKING:
    from cupilot.evaluation.profiling import Profiled

HELP = "show where a kernel's time goes"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kernel", metavar="KERNEL", help="a .cu file as a torch extension, or a .py with ModelNew or Model"
    )
    parser.add_argument("--task", metavar="TASK.py", required=True, help="the PyTorch module, in KernelBench form")
    parser.add_argument("--device", metavar="D[,D...]", help="whose time counts, several to compare them")
    add_call(parser)
    add_precision(parser)
    parser.add_argument("--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="seconds it may run (60)")
    add_torch_ops(parser)
    parser.add_argument(
        "--plot", metavar="FILE", help="also draw the roofline, as .svg or .png; with several devices one file each"
    )
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    names = device_names(options.device)
    plot = plot_path(options.plot)
    kernel = read_kernel(Path(options.kernel), options.entry, options.args, options=options.options)

    from cupilot.cli import profile_view
    from cupilot.evaluation.profiling import Profiler, ProfileReport
    from cupilot.tasks import load_task

    task = load_task(Path(options.task), options.precision)
    devices = [open_chosen(name, terminal) for name in names]
    profiler = Profiler(task, timeout_s=options.timeout)
    found: list[tuple[Profiled, Device]] = []
    failures: list[tuple[str, Failure]] = []
    for device in devices:
        with terminal.status(f"profiling on {device.name}"):
            result = profiler(device, kernel)
        if isinstance(result, Failure):
            failures.append((device.name, result))
        else:
            found.append((result, device))
    if len(devices) > 1 and found:
        profile_view.compare([(profiled, device.spec) for profiled, device in found], terminal)
        terminal.line(profile_view.NOT_VERIFIED)
    elif found:
        profile_view.show(found[0][0], found[0][1].spec, kernel, terminal)
    for name, failure in failures:
        show_failure(options.kernel, name, failure, terminal)
    if plot is not None:
        about = f"{Path(options.kernel).name} for {task.name}"
        draw([profiled for profiled, _ in found], plot, len(devices) > 1, about, terminal)
    report = ProfileReport(
        task.name,
        kernel.digest,
        task.precision,
        tuple(profiled for profiled, _ in found),
        tuple(failures),
        failure=failures[0][1] if failures else None,
    )
    terminal.report(to_plain(report))
    return 1 if failures else 0


def device_names(text: str | None) -> Sequence[str | None]:
    """The names between commas; None stands for the default."""
    if text is None:
        return (None,)
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserError(f"--device {text}: a name is missing between the commas")
    if len(set(names)) < len(names):
        raise UserError(f"--device {text}: a device is named twice")
    return names


def plot_path(text: str | None) -> Path | None:
    """Looked at before any work is done."""
    if text is None:
        return None
    path = Path(text)
    if path.suffix not in (".svg", ".png"):
        raise UserError(f"--plot {text}: the file's name must end in .svg or .png")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--plot {text}: there is no folder {path.absolute().parent}")
    from cupilot.report.chart import renderer

    renderer()
    return path


def show_failure(kernel: str, device: str, failure: Failure, terminal: Terminal) -> None:
    """Findings and compiler messages, then the failure in one sentence."""
    if failure.details.strip():
        terminal.line(first_lines(failure.details, LOG_LINES))
    terminal.warn(f"{kernel} has no profile on {device} ({failure.stage}, {failure.kind}): {failure.message}")


def draw(found: Sequence[Profiled], path: Path, several: bool, about: str, terminal: Terminal) -> None:
    """The roofline of each device; of several, the file's name gets the device's."""
    from cupilot.cli.profile_view import picture_line
    from cupilot.evolution.result import replace_file
    from cupilot.report.roofline_chart import launches_picture

    for profiled in found:
        file = path.with_name(f"{path.stem}-{profiled.device.replace(':', '-')}{path.suffix}") if several else path
        title = f"{about} on {profiled.device}"
        replace_file(file, launches_picture(profiled.roof, profiled.places, title, picture_line(profiled), file.suffix))
        terminal.line(f"picture: {file}")
