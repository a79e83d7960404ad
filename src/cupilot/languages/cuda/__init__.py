"""CUDA C++: a torch extension in one ``.cu`` file, with kernels and a host function that launches them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from cupilot.contracts import Built
from cupilot.languages.contract import Attempt, FunctionCall, Language, Program, Results, Target
from cupilot.languages.cuda.program import CudaProgram
from cupilot.records import Failure, Kernel, Launch
from cupilot.records.evaluation import SassFunction
from cupilot.toolchain.cuda import find_cuda
from cupilot.toolchain.imports import guard_failure
from cupilot.toolchain.nvcc import CUBIN, build_kernel
from cupilot.toolchain.sass import kernel_sass
from cupilot.toolchain.signature import fills_outputs, signature_of
from cupilot.toolchain.source import without_comments

toolkit = cache(find_cuda)
PATH_CHARACTERS = 200
_KERNEL = re.compile(r"__global__\b([^{;]*)")
_ATTRIBUTE = re.compile(r"\b__\w+__\s*\((?:[^()]|\([^()]*\))*\)")
_INCLUDE = re.compile(r'^\s*#\s*(?:include|embed)\s*["<]\s*(?P<path>[^">]*)', re.MULTILINE)
_OUTSIDE = re.compile(r"^(/|~|[A-Za-z]:)|\.\.|\\")


class Cuda:
    """Implements `Language`; languages that are translated to CUDA can start from it."""

    name = "cuda"
    suffix = ".cu"
    fences: tuple[str, ...] = ("cuda", "cu", "cpp", "c++", "c", "cc", "cxx", "cuda-cpp", "cuda-c++")
    options: tuple[str, ...] = ()
    on_real_gpus = True
    prompts = Path(__file__).parent

    def detect(self, source: str) -> float:
        return 0.5 if self.kernels_in(source) else 0.0

    def kernels_in(self, source: str) -> tuple[str, ...]:
        heads = (_ATTRIBUTE.sub(" ", head) for head in _KERNEL.findall(without_comments(source)))
        names = (re.search(r"(\w+)\s*\(", head) for head in heads)
        return tuple(name[1] if name else "unnamed" for name in names)

    def fault(self, kernel: Kernel) -> Failure | None:
        # with an end for an open comment at hand, looking for it takes no more than one pass
        code = without_comments(kernel.source + "*/")
        if not code.endswith("*/"):
            return Failure("build", "open-comment", "the source has a comment that is never closed")
        if not self.kernels_in(kernel.source):
            return Failure("build", "no-kernel", "the source has no __global__ function")
        if not re.search(rf"\b{kernel.entry}\s*\(", code):
            return Failure("build", "no-such-entry", f"the source has no function {kernel.entry}")
        return forbidden_include(code)

    def convention(self, kernel: Kernel) -> FunctionCall:
        parameters = signature_of(kernel.source, kernel.entry)
        return FunctionCall(parameters, fills_outputs(kernel.source, kernel.entry))

    def source_lines(self, kernel: Kernel, launch: Launch) -> list[str]:
        return kernel.source.split("\n")

    def extension(self, kernel: Kernel) -> Kernel | None:
        return kernel

    def build(self, kernel: Kernel, target: Target, load: Attempt) -> Built | Failure:
        runtime = () if target.runtime is None else (target.runtime,)
        kept = target.cache / "kernels"
        built = build_kernel(kernel, target.arch, kept, toolkit(), link=runtime, sandbox=target.sandbox)
        if isinstance(built, Failure) or runtime:
            return built
        return guard_failure(built.library, target.sandbox) or built

    def run(self, built: Built, target: Target, attempt: Attempt) -> Results:
        return attempt(built)

    def sass(self, built: Built, target: Target) -> tuple[SassFunction, ...]:
        cubin, kept = built.library.with_name(CUBIN), target.cache / "sass"
        return kernel_sass(cubin, built.ptx, toolkit(), kept, sandbox=target.sandbox)

    def program(self, library: Path, folder: Path) -> Program:
        return CudaProgram(library)


def forbidden_include(code: str) -> Failure | None:
    """An include outside of the usual folders: the compiler quotes lines of it, and its log may go into a prompt."""
    outside = [found["path"] for found in _INCLUDE.finditer(code) if _OUTSIDE.search(found["path"])]
    if not outside:
        return None
    path = " ".join(outside[0].split())[:PATH_CHARACTERS]
    return Failure("build", "forbidden-include", f"a kernel must not include {path!r}")


LANGUAGE: Language = Cuda()
