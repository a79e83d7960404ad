"""A language of one's own: lines like ``scale 2.0`` and ``shift 1.0``, applied to every element of a tensor.

It is translated to CUDA, whose ``#line`` directives name the lines of the file.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from cupilot.contracts import Built
from cupilot.languages.contract import Attempt, FunctionCall, Language, Target
from cupilot.languages.cuda import Cuda
from cupilot.records import Failure, Kernel

STEP = re.compile(r"(scale|shift) (-?\d+(?:\.\d+)?)")
OPERATORS = {"scale": "*", "shift": "+"}
TEMPLATE = """#include <torch/extension.h>
#line 1 "kernel.toy"
__global__ void toy(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; \
if (i < n) y[i] = RESULT; }
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    toy<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""


class Toy(Cuda):
    name = "toy"
    suffix = ".toy"
    fences = ("toy",)
    prompts = Path(__file__).parent

    def detect(self, source: str) -> float:
        return 1.0 if self.kernels_in(source) else 0.0

    def kernels_in(self, source: str) -> tuple[str, ...]:
        return ("toy",) if source.strip() and all(map(STEP.fullmatch, source.splitlines())) else ()

    def fault(self, kernel: Kernel) -> Failure | None:
        for number, line in enumerate(kernel.source.splitlines() or [""], start=1):
            if not STEP.fullmatch(line):
                return Failure("build", "compile-error", f"kernel.toy:{number}: {line!r} is no step")
        return None

    def convention(self, kernel: Kernel) -> FunctionCall:
        return super().convention(self.extension(kernel))

    def extension(self, kernel: Kernel) -> Kernel:
        text = "x[i]"
        for number, line in enumerate(kernel.source.splitlines(), start=1):
            step = STEP.fullmatch(line)
            if step is not None:
                text = f'({text}\n#line {number} "kernel.toy"\n{OPERATORS[step[1]]} float({step[2]}))'
        return replace(kernel, source=TEMPLATE.replace("RESULT", text), language="cuda")

    def build(self, kernel: Kernel, target: Target, load: Attempt) -> Built | Failure:
        built = self.fault(kernel) or super().build(self.extension(kernel), target, load)
        return built if isinstance(built, Failure) else replace(built, kernel=kernel)


LANGUAGE: Language = Toy()
