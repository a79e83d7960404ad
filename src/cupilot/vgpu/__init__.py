"""The virtual GPU: kernels' PTX, executed on the CPU."""

from pathlib import Path


def translations(runtime: Path) -> Path:
    """Where translated kernels are kept: beside the runtime library that they call."""
    return runtime.parent / "translations"
