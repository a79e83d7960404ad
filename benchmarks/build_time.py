"""Processor and wall time of building kernels from scratch: nvcc's own command line against our confined steps.

Both build the same kernels in turns, each kernel with an empty folder, and both end with the machine code listed
(nvcc, ptxas, nvdisasm).  nvcc gets the flags and the translation unit that cupilot gave it before it ran nvcc's
commands itself: all of <vector>, <optional> and <functional>, host code with -O1.  Our way includes starting the
sandbox and watching it.
Prints one line of JSON last::

    python benchmarks/build_time.py --kernels 12
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from cupilot.contracts import Built
from cupilot.records import Failure, Kernel
from cupilot.sandbox import tools
from cupilot.sandbox.bubblewrap import SANDBOXES, chosen
from cupilot.toolchain import nvcc
from cupilot.toolchain.cuda import Cuda, find_cuda, find_nvdisasm
from cupilot.toolchain.source import translation_unit

KERNELS = Path(__file__).parents[1] / "kernels" / "level1" / "kernels"
ARCH = "sm_80"
FORMER_FLAGS = (*(flag for flag in nvcc.FLAGS if flag != "-O0"), "-O1", nvcc.LAMBDA_FLAG)
ADDED_PARTS = ("CUPILOT_WITHOUT_OPTIONAL", "CUPILOT_WITHOUT_TUPLE", "CUPILOT_WITHOUT_VECTOR")


@dataclass(frozen=True)
class Spent:
    """Seconds of one build."""

    cpu_s: float
    wall_s: float


def used() -> float:
    """Processor time of this process and of all that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in both)


def with_nvcc(kernel: Kernel, cuda: Cuda) -> Spent:
    """One command after the other, without a sandbox."""
    made = translation_unit(kernel, nvcc.SOURCE)
    assert not isinstance(made, Failure), made
    known, unit = made
    unit = "".join(line for line in unit.splitlines(keepends=True) if not line.rstrip().endswith(ADDED_PARTS))
    with TemporaryDirectory(prefix="cupilot-") as name:
        before, start_s = used(), time.monotonic()
        nvcc._write_sources(known, unit, Path(name), cuda)
        virtual = ARCH.replace("sm_", "compute_")
        files = ("-I", nvcc.INCLUDE, "-I", nvcc.HEADERS, "--keep", "--keep-dir", nvcc.KEEP, nvcc.UNIT)
        target = ("-gencode", f"arch={virtual},code={virtual}", f"--frandom-seed={kernel.digest}")
        ptx = Path(nvcc.KEEP, nvcc.UNIT).with_suffix(".ptx")
        tool = find_nvdisasm(cuda)
        commands = [
            (cuda.nvcc, "-ccbin", cuda.host_compiler, *FORMER_FLAGS, *target, *files, "-o", nvcc.LIBRARY),
            (cuda.ptxas, *nvcc.PTXAS_FLAGS, f"-arch={ARCH}", ptx, "-o", nvcc.CUBIN),
            *([(tool, *nvcc.NVDISASM_FLAGS, nvcc.CUBIN)] if tool is not None else []),
        ]
        for command in commands:
            subprocess.run([str(word) for word in command], cwd=name, capture_output=True, check=True)
        return Spent(used() - before, time.monotonic() - start_s)


def with_steps(kernel: Kernel, cuda: Cuda, sandbox: str) -> Spent:
    """`build_kernel`; what runs inside bubblewrap's namespace is not among our children and is counted there."""
    inside: list[float] = []
    run_tools, boxed = tools.run_tools, bool(chosen(sandbox).program)

    def counted(*arguments, **options):  # type: ignore[no-untyped-def]
        ended = run_tools(*arguments, **options)
        inside.append(ended.cpu_s if boxed else 0.0)
        return ended

    setattr(nvcc, "run_tools", counted)  # noqa: B010
    try:
        with TemporaryDirectory(prefix="cupilot-") as name:
            before, start_s = used(), time.monotonic()
            built = nvcc.build_kernel(kernel, ARCH, Path(name), cuda, sandbox=sandbox)
            assert isinstance(built, Built), built
            return Spent(used() - before + sum(inside), time.monotonic() - start_s)
    finally:
        setattr(nvcc, "run_tools", run_tools)  # noqa: B010


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=12, help="how many of kernels/level1, evenly spread")
    parser.add_argument("--sandbox", choices=SANDBOXES, default="auto")
    options = parser.parse_args()
    cuda = find_cuda()
    paths = sorted(KERNELS.glob("*.cu"), key=lambda path: int(path.name.partition("_")[0]))
    paths = [paths[i * len(paths) // options.kernels] for i in range(options.kernels)]
    first = Kernel(paths[0].read_text())
    with_nvcc(first, cuda), with_steps(first, cuda, options.sandbox)  # files into memory, nvcc's commands
    ratios, walls = [], []
    print(f"{'kernel':44} {'nvcc':>13} {'steps':>13}   ratio")
    for path in paths:
        kernel = Kernel(path.read_text())
        old, new = with_nvcc(kernel, cuda), with_steps(kernel, cuda, options.sandbox)
        ratios.append(new.cpu_s / old.cpu_s)
        walls.append(new.wall_s / old.wall_s)
        seconds = " ".join(f"{spent.cpu_s:5.2f} {spent.wall_s:5.2f} s" for spent in (old, new))
        print(f"{path.stem[:44]:44} {seconds}   {ratios[-1]:.2f} {walls[-1]:.2f}", flush=True)
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    told = {"kernels": len(paths), "cpu_ratio": median(ratios), "wall_ratio": median(walls), "load_per_core": load}
    print(json.dumps({key: round(value, 3) for key, value in told.items()}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
