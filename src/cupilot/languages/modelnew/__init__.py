"""KernelBench answers: a Python file with a class ``ModelNew`` that builds CUDA extensions and calls them.

The file's Python code runs in a confined process of its own.  With the option ``torch-ops`` PyTorch may compute in it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from cupilot.contracts import Built
from cupilot.languages.contract import Attempt, Language, ModuleCall, Program, Results, Target
from cupilot.languages.cuda import LANGUAGE as CUDA
from cupilot.languages.cuda import forbidden_include
from cupilot.languages.modelnew import build
from cupilot.languages.modelnew.program import ModelNewProgram
from cupilot.records import Failure, Kernel, Launch
from cupilot.records.evaluation import SassFunction
from cupilot.toolchain.names import short_name

UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_CLASS = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)


class ModelNew:
    """Implements `Language`."""

    name = "modelnew"
    suffix = ".py"
    options: tuple[str, ...] = (build.TORCH_OPS,)
    on_real_gpus = False
    prompts = Path(__file__).parent

    def detect(self, source: str) -> float:
        return 0.8 if _CLASS.search(source) else 0.0

    def kernels_in(self, source: str) -> tuple[str, ...]:
        return tuple(name for text, _ in _texts(source) for name in CUDA.kernels_in(text))

    def fault(self, kernel: Kernel) -> Failure | None:
        try:
            ast.parse(kernel.source)
        except UNREADABLE as error:
            return Failure("build", "syntax-error", f"the source is not Python: {error}")
        if not self.kernels_in(kernel.source):
            return Failure("build", "no-kernel", "no text in the source has a __global__ function")
        if not _CLASS.search(kernel.source):
            return Failure("build", "no-such-entry", "the source has no class ModelNew")
        found = (forbidden_include(text) for text, _ in _texts(kernel.source))
        return next((failure for failure in found if failure is not None), None)

    def convention(self, kernel: Kernel) -> ModuleCall:
        return ModuleCall()

    def source_lines(self, kernel: Kernel, launch: Launch) -> list[str]:
        """Only the literals that hold the kernel have lines of the file; a source that is put together has none."""
        name = short_name(launch.kernel).partition("<")[0].rpartition("::")[2]
        lines, known = kernel.source.split("\n"), set[int]()
        for text, numbers in _texts(kernel.source):
            if "__global__" in text and name in text:
                known |= set(numbers)
        most = max((cost.line for cost in launch.lines), default=0)
        return [lines[n - 1] if n in known else "" for n in range(1, max(most, len(lines)) + 1)]

    def extension(self, kernel: Kernel) -> Kernel | None:
        return None

    def build(self, kernel: Kernel, target: Target, load: Attempt) -> Built | Failure:
        return build.build(kernel, target, load)

    def run(self, built: Built, target: Target, attempt: Attempt) -> Results:
        return build.run(built, target, attempt)

    def sass(self, built: Built, target: Target) -> tuple[SassFunction, ...]:
        return build.sass(built, target)

    def program(self, library: Path, folder: Path) -> Program:
        return ModelNewProgram(library, folder)


def _texts(source: str) -> Iterator[tuple[str, range]]:
    """String literals of the file with the lines they are on; none where the file is not Python."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except UNREADABLE:
        return
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, range(node.lineno, (node.end_lineno or node.lineno) + 1)


LANGUAGE: Language = ModelNew()
