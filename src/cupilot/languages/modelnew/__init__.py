"""KernelBench answers: a Python file with a class ``ModelNew`` that builds CUDA extensions and calls them.

Files that call the class ``Model``, like the task, and have no ``ModelNew`` are understood too.
The file's Python code runs in a confined process of its own.  With the option ``torch-ops`` PyTorch may compute in it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from cupilot.languages.contract import Language, ModuleCall
from cupilot.languages.cuda import LANGUAGE as CUDA
from cupilot.languages.cuda import forbidden_include
from cupilot.languages.modelnew.build import TORCH_OPS, build_file, run_file, sass_of
from cupilot.languages.modelnew.extension import UNREADABLE, literals
from cupilot.languages.modelnew.program import ModelNewProgram
from cupilot.records import Failure, Kernel, Launch
from cupilot.toolchain.names import short_name

_NEW = re.compile(r"^(class\s+ModelNew\b|ModelNew\s*=)", re.MULTILINE)
_PLAIN = re.compile(r"^class\s+Model\b", re.MULTILINE)


class ModelNew:
    """Implements `Language`."""

    name = "modelnew"
    suffix = ".py"
    fences: tuple[str, ...] = ("python", "py")
    options: tuple[str, ...] = (TORCH_OPS,)
    on_real_gpus = False
    prompts = Path(__file__).parent

    def detect(self, source: str) -> float:
        plain = _PLAIN.search(source) and self.kernels_in(source)
        return 0.8 if plain or _NEW.search(source) else 0.0

    def kernels_in(self, source: str) -> tuple[str, ...]:
        return tuple(name for text, _ in literals(source) for name in CUDA.kernels_in(text))

    def fault(self, kernel: Kernel) -> Failure | None:
        try:
            ast.parse(kernel.source)
        except UNREADABLE as error:
            return Failure("build", "syntax-error", f"the source is not Python: {error}")
        if not self.kernels_in(kernel.source):
            return Failure("build", "no-kernel", "no text in the source has a __global__ function")
        if not _NEW.search(kernel.source) and not _PLAIN.search(kernel.source):
            return Failure("build", "no-such-entry", "the source has no class ModelNew, and no class Model either")
        found = (forbidden_include(text) for text, _ in literals(kernel.source))
        return next((failure for failure in found if failure is not None), None)

    def convention(self, kernel: Kernel) -> ModuleCall:
        return ModuleCall()

    def source_lines(self, kernel: Kernel, launch: Launch) -> list[str]:
        """Only the literals that hold the kernel have lines of the file; a source that is put together has none."""
        name = short_name(launch.kernel).partition("<")[0].rpartition("::")[2]
        lines, known = kernel.source.split("\n"), set[int]()
        for text, numbers in literals(kernel.source):
            if "__global__" in text and name in text:
                known |= set(numbers)
        most = max((cost.line for cost in launch.lines), default=0)
        return [lines[n - 1] if n in known else "" for n in range(1, max(most, len(lines)) + 1)]

    def extension(self, kernel: Kernel) -> Kernel | None:
        return None

    build, run, sass = staticmethod(build_file), staticmethod(run_file), staticmethod(sass_of)
    program = staticmethod(ModelNewProgram)


LANGUAGE: Language = ModelNew()
