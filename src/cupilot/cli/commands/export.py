"""Write a kernel for use elsewhere: a torch extension, a KernelBench ModelNew file, or a package with an operator."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from cupilot.cli.choices import add_call, add_json, add_precision
from cupilot.cli.terminal import Terminal
from cupilot.errors import UserError
from cupilot.languages import languages, read_kernel
from cupilot.records.verdict import ADVICE

if TYPE_CHECKING:
    from cupilot.export import Subject

HELP = "write a kernel as an extension, a ModelNew file or a package"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("kernel", metavar="RUN", help="a run's folder, a result.json, or with --task a .cu file")
    parser.add_argument("--to", metavar="TARGET", required=True, help="torch-extension, modelnew or library")
    parser.add_argument("--out", metavar="DIR", help="the folder to write (<task>-<target>)")
    parser.add_argument("--task", metavar="TASK.py", help="of a .cu file that is not a run's")
    add_call(parser)
    add_precision(parser)
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.export import export, load_target

    load_target(options.to)  # a mistake in the name is said before anything is done
    subject = subject_of_options(options)
    out = Path(options.out or f"{subject.name}-{options.to}")
    written = [str(path) for path in export(subject, options.to, out)]
    for path in written:
        terminal.line(path)
    if subject.recorded is None:
        terminal.warn(f"{options.kernel} is not verified here: cupilot evaluate does that")
    elif subject.recorded.standing in ADVICE:
        terminal.warn(f"{subject.name} is {ADVICE[subject.recorded.standing]}")
    terminal.report({"task": subject.name, "target": options.to, "files": written, "verified": bool(subject.recorded)})
    return 0


def subject_of_options(options: Namespace) -> Subject:
    from cupilot.evolution.recorded_result import read_recorded_result
    from cupilot.evolution.result import RESULT
    from cupilot.export import subject_of
    from cupilot.tasks import load_source, load_task

    path = Path(options.kernel)
    if options.task is not None:
        if path.is_dir():
            raise UserError(f"{path} is a folder: a run has its own task, and --task is for a .cu file")
        kernel = read_kernel(path, options.entry, options.args)
        return subject_of(load_task(Path(options.task), options.precision), kernel)
    if path.suffix in {language.suffix for language in languages().values()}:
        raise UserError(f"{path} is a kernel without a task: give --task TASK.py")
    if path.is_dir() and not (path / RESULT).exists():
        raise UserError(f"{path} holds no finished kernel: there is no {RESULT} in it")
    recorded = read_recorded_result(path / RESULT if path.is_dir() else path)
    return subject_of(load_source(recorded.task_text), recorded.kernel, recorded)
