"""List the devices that kernels can be evaluated on."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from cupilot.cli.terminal import Terminal

if TYPE_CHECKING:
    from cupilot.gpu import GpuSpec

HELP = "list the devices"
HEAD = ("device", "GPU", "SMs", "TFLOP/s", "GB/s", "L2", "memory")
LEFT = ("device", "GPU")


def configure(parser: ArgumentParser) -> None:
    """No options."""


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.devices import default_device, device_names

    rows = [HEAD, *(row(name, spec_of(name)) for name in device_names())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        columns = zip(HEAD, cells, widths, strict=True)
        terminal.line("  ".join(f"{text:{'<' if head in LEFT else '>'}{width}}" for head, text, width in columns))
    terminal.line("TFLOP/s are the CUDA cores' in fp32, GB/s those of DRAM, both at their peak.")
    default, reason = default_device()
    terminal.line(f"The default is {default}: {reason}.")
    return 0


def row(name: str, spec: GpuSpec) -> tuple[str, ...]:
    """One line of the list, short enough for eighty columns."""
    title = spec.title.removeprefix("NVIDIA ")
    rates = (f"{spec.fp32_flop_per_s / 1e12:.1f}", f"{spec.dram_bytes_per_s / 1e9:.0f}")
    return name, title, str(spec.sms), *rates, f"{spec.l2_bytes / 2**20:.0f} MB", f"{spec.dram_bytes / 2**30:.0f} GB"


def spec_of(device: str) -> GpuSpec:
    """What is known of a device without opening it."""
    kind, _, name = device.partition(":")
    if kind == "virtual":
        from cupilot.gpu import load_spec

        return load_spec(name)
    from cupilot.devices import cuda
    from cupilot.devices.cuda_probe import find_gpus

    return next(cuda.spec_of(gpu)[0] for gpu in find_gpus().gpus if str(gpu.index) == name)
