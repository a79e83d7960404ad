"""Pointwise operators: the table against PyTorch, matching with broadcasting and numbers, and kernels."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from family_tasks import drawn_kernels_are_right, small_task

from cupilot.contracts import Brief, Device
from cupilot.errors import UnmatchedTask
from cupilot.expert import Expert
from cupilot.expert.broadcast import arrange
from cupilot.expert.matching import match
from cupilot.expert.pointwise import _table, chain, is_loss, is_pointwise
from cupilot.expert.recipe import load_recipes
from cupilot.records import Kernel, Op, TensorSpec
from cupilot.strategies import load_deck, parse
from cupilot.tasks.operators import base_name
from cupilot.testing.samples import SPEC

RECIPES = load_recipes()
MATRIX = "torch.rand(A, B)"

# every operator of the table once or more; one operator of ATen for each entry
OPERATORS = [
    "torch.acos(x)", "torch.acosh(x)", "torch.asin(x)", "torch.asinh(x)", "torch.atan(x)", "torch.atanh(x)",
    "torch.ceil(x)", "torch.cos(x)", "torch.cosh(x)", "torch.erf(x)", "torch.erfc(x)", "torch.exp(x)",
    "torch.exp2(x)", "torch.expm1(x)", "torch.floor(x)", "torch.log(x)", "torch.log10(x)", "torch.log1p(x)",
    "torch.log2(x)", "torch.sin(x)", "torch.sinh(x)", "torch.tan(x)", "torch.tanh(x)", "torch.trunc(x)",
    "torch.round(x)", "torch.frac(x)", "torch.sign(x)", "torch.abs(x)", "torch.neg(x)", "torch.reciprocal(x)",
    "torch.rsqrt(x)", "torch.sqrt(x)", "torch.square(x)", "torch.relu(x)", "torch.sigmoid(x)", "torch.selu(x)",
    "F.relu6(x)", "F.celu(x,1.5)", "F.elu(x,0.7)", "F.logsigmoid(x)", "F.hardshrink(x,0.4)", "F.softshrink(x,0.4)",
    "F.threshold(x,0.1,20.0)", "F.gelu(x)", 'F.gelu(x,approximate="tanh")', "F.hardsigmoid(x)", "F.hardswish(x)",
    "F.hardtanh(x,-0.5,0.8)", "F.leaky_relu(x,0.2)", "F.mish(x)", "F.silu(x)", "F.softplus(x)",
    "F.softplus(x,2.0,5.0)", "x+y", "x-y", "x*y", "x/y", "torch.add(x,y,alpha=2.5)", "torch.sub(x,y,alpha=2.5)",
    "1.5-x", "torch.rsub(x,y)", "x+0.3", "x*0.3", "x/0.3", "torch.clamp(x,min=-0.5)", "torch.clamp(x,-0.5,0.5)",
    "torch.clamp(x,max=0.5)", "torch.clamp_min(x,0.1)", "torch.clamp_max(x,0.1)", "torch.pow(x,2)",
    "torch.pow(x,3.0)", "torch.pow(x,0.5)", "torch.pow(x,-1)", "torch.pow(x,1.7)", "torch.pow(x,y)",
    "torch.pow(2.5,x)", "torch.maximum(x,y)", "torch.minimum(x,y)", "torch.fmax(x,y)", "torch.fmin(x,y)",
    "torch.atan2(x,y)", "torch.hypot(x,y)", "torch.fmod(x,y)", "x==y", "x!=y", "x<y", "x<=0.2", "x>y", "x>=y",
    "torch.isnan(x)", "torch.logical_and(b,x>y)", "torch.logical_or(b,x<y)", "torch.logical_not(b)",
    "x.to(torch.bool)", "torch.ops.aten._to_copy(x,dtype=torch.float32)", "x.type_as(y)",
    "torch.where(b,x,y)", "x.masked_fill(b,-2.0)", "torch.lerp(x,y,0.3)", "torch.addcmul(x,y,x,value=0.5)",
    "torch.addcdiv(x,y,x)", 'F.mse_loss(x,y,reduction="none")', 'F.l1_loss(x,y,reduction="none")',
    'F.smooth_l1_loss(x,y,reduction="none",beta=0.7)', 'F.huber_loss(x,y,reduction="none",delta=0.7)',
    'F.kl_div(x,y,reduction="none")', 'F.kl_div(x,y,reduction="none",log_target=True)',
    'F.binary_cross_entropy_with_logits(x,y,reduction="none")', 'F.soft_margin_loss(x,y,reduction="none")',
    'F.binary_cross_entropy(torch.where(x==x,torch.sigmoid(x),0.5),torch.where(y==y,torch.sigmoid(y),0.5),reduction="none")',
]  # fmt: skip
VALUES = (0.0, 0.25, -0.25, 0.6, 1.0, -1.0, 1.5, -2.5, 3.0, -3.0, 7.0, 30.0, -30.0, math.inf, -math.inf, math.nan)


def test_every_operator_of_the_table_is_what_pytorch_says(tmp_path: Path) -> None:

    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    source = (
        "import torch\nimport torch.nn.functional as F\nclass Model(torch.nn.Module):\n    def forward(self, x, y):\n"
        "        b = x > y\n        return (" + ", ".join(OPERATORS) + ")\n"
        "def get_inputs():\n    return [torch.rand(256), torch.rand(256)]\ndef get_init_inputs():\n    return []\n"
    )
    from cupilot.tasks.execute import build_model, run_source
    from cupilot.tasks.load import task_from_source

    graph = task_from_source(source, "all", "fp32", where="all").graph
    steps = [op for op in graph if is_pointwise(op)]
    assert {base_name(op.target) for op in steps} == set(_table())
    # losses take their operands from `broadcast_tensors`
    items = {op.name: "xy"[int(str(op.attribute("index")))] for op in graph if base_name(op.target) == "getitem"}
    code = chain(steps, {"x": "x", "y": "y", **items})
    file = tmp_path / "all.cpp"
    lines = "\n".join(code.lines) + "".join(f"out[{n}] = v{n + 1};" for n in range(len(steps)))
    rsqrt = "static float rsqrtf(float x) { return 1.0f / sqrtf(x); }\n"
    file.write_text(f'#include <cmath>\n{rsqrt}extern "C" void all(float x, float y, float* out) {{{lines}}}\n')
    library = tmp_path / "all.so"
    subprocess.run([compiler, "-shared", "-fPIC", str(file), "-o", str(library)], check=True)
    run = ctypes.CDLL(str(library)).all
    run.argtypes = [ctypes.c_float, ctypes.c_float, ctypes.POINTER(ctypes.c_float)]
    x, y = (t.reshape(-1) for t in torch.meshgrid(torch.tensor(VALUES), torch.tensor(VALUES), indexing="ij"))
    got = torch.empty(x.numel(), len(steps))
    out = (ctypes.c_float * len(steps))()
    for row in range(x.numel()):
        run(float(x[row]), float(y[row]), out)
        got[row] = torch.tensor(list(out))
    namespace = run_source(source, "all")
    model = build_model(namespace, "all")
    # in both precisions: what the narrower makes of infinity depends on the processor (gelu)
    wanted = list(zip(model(x, y), model(x.double(), y.double()), strict=True))
    # both are in the order of the graph, which has a few operators more
    columns = iter(range(len(steps)))
    for text, values in zip(OPERATORS, wanted, strict=True):
        fits = (_close(got[:, c], values).all() for c in columns)
        assert any(fits), f"{text}: no operator gives this"


def _close(got: torch.Tensor, either: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where a result is one of those that PyTorch has."""
    near = [torch.isclose(got, value.float(), rtol=2e-5, atol=1e-6, equal_nan=True) for value in either]
    return near[0] | near[1]


def test_losses_are_pointwise_when_nothing_is_reduced() -> None:
    spec = TensorSpec((8,))
    loss = Op("l", "aten.mse_loss.default", ("x", "y"), (("reduction", 0),), spec)
    mean = Op("l", "aten.mse_loss.default", ("x", "y"), (("reduction", 1),), TensorSpec(()))
    assert (is_pointwise(loss), is_loss(loss)) == (True, False)
    assert (is_pointwise(mean), is_loss(mean)) == (False, True)


@pytest.mark.parametrize(
    ("tensors", "result", "indices"),
    [
        ({"a": (4, 6), "b": (6,)}, (4, 6), ["@", "@ % d1"]),
        ({"a": (4, 6), "b": (4, 1)}, (4, 6), ["@", "@ / d1"]),
        ({"a": (2, 3, 4, 5), "b": (1, 3, 1, 1)}, (2, 3, 4, 5), ["@", "@ / d2 % d1"]),
        ({"a": (4, 1), "b": (6,)}, (4, 6), ["@ / d1", "@ % d1"]),
        ({"a": (2, 1, 4, 1), "b": (2, 3, 4, 5)}, (2, 3, 4, 5), ["@ / (d1 * d2 * d3) * d2 + @ / d3 % d2", "@"]),
        ({"a": (4, 6), "b": ()}, (4, 6), ["@", "0"]),
        ({"a": (1, 6), "b": (1, 6)}, (1, 6), ["@", "@"]),
    ],
)
def test_every_tensor_finds_its_elements(
    tensors: dict[str, tuple[int, ...]], result: tuple[int, ...], indices: list[str]
) -> None:
    import numpy as np

    layout = arrange({name: (shape, shape) for name, shape in tensors.items()}, result)
    assert layout is not None
    assert [operand.index for operand in layout.operands] == indices
    sized = {name: _Sized(shape) for name, shape in tensors.items()}
    sizes = {f"d{n}": eval(text, {}, sized) for n, text in enumerate(layout.sizes)}
    for name, operand in zip(tensors, layout.operands, strict=True):
        own = np.arange(math.prod(tensors[name])).reshape(tensors[name])
        wanted = np.broadcast_to(own, result).reshape(-1)
        found = [eval(operand.index.replace("@", str(i)).replace("/", "//"), {}, sizes) for i in range(wanted.size)]
        assert found == wanted.tolist()
        assert eval(operand.elements, {}, sizes) == own.size


class _Sized:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def size(self, dim: int) -> int:
        return self._shape[dim]


@pytest.mark.parametrize(
    ("result", "arguments", "inputs", "has"),
    [
        ("A * s", "A, s", f"{MATRIX}, 2.5", ["double s", "apply(float x, float s)", "float(s)"]),
        ("torch.diag(d) @ x", "d, x", f"torch.rand(A), {MATRIX}", ["d[i / d1]", "v1 = d * x"]),
        ("x @ torch.diag(w)", "x, w", f"{MATRIX}, torch.rand(B)", ["w[i % d1]"]),
        ("x + b.view(1, -1)", "x, b", f"{MATRIX}, torch.rand(B)", ["b[i % d1]"]),
        ("f.unsqueeze(1) * g", "f, g", "torch.rand(A), torch.rand(B)", ["torch::empty({f.size(0), g.size(0)}"]),
        ("torch.where(x > 0, x, y)", "x, y", f"{MATRIX}, {MATRIX}", ["const bool v1 = x > 0.0f;", "y_in"]),
    ],
)
def test_forms_of_pointwise_tasks(result: str, arguments: str, inputs: str, has: list[str]) -> None:
    task = small_task(result, arguments, inputs)
    assert match(task, RECIPES).recipe.name == "elementwise"
    source = Expert().generate(Brief(task, SPEC)).source
    for text in has:
        assert text in source


@pytest.mark.parametrize(
    ("result", "arguments", "inputs"),
    [
        ("x * (2 * s)", "x, s", f"{MATRIX}, 2.5"),
        ("x * 2.5 + s", "x, s", f"{MATRIX}, 2.5"),
        ("x.T * y", "x, y", "torch.rand(A, A), torch.rand(A, A)"),
        ("x * 2", "x", "torch.randint(0, 5, (A, B))"),
    ],
)
def test_what_is_not_certain_is_refused(result: str, arguments: str, inputs: str) -> None:
    with pytest.raises(UnmatchedTask):
        match(small_task(result, arguments, inputs), RECIPES)


def test_the_first_starts_have_vectors() -> None:
    space = Expert().space(small_task("torch.relu(x)", "x", MATRIX))
    assert all("vector-load" in start.cards for start in space.starts("dram")[:2])


def test_a_table_in_constant_memory_is_not_passed() -> None:
    task = small_task("x * w", "x, w", f"{MATRIX}, torch.rand(A, 1)")
    kernel = Expert().translate(Brief(task, SPEC), parse("constant-memory", load_deck()))
    assert isinstance(kernel, Kernel)
    assert "table_w[i / d1]" in kernel.source
    assert "const float* __restrict__ w" not in kernel.source


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "arguments", "inputs", "seed"),
    [
        ("torch.tanh(x) * s", "x, s", "torch.randn(A, B), 2.5", 1),
        ("torch.relu(x * w + b)", "x, w, b", "torch.randn(A, B, C), torch.randn(B, 1), torch.randn(C)", 2),
        ("torch.diag(d) @ m", "d, m", "torch.randn(A), torch.randn(A, B)", 3),
        ("p.unsqueeze(1) - q", "p, q", "torch.randn(A), torch.randn(B)", 4),
    ],
)
def test_drawn_kernels_are_right(device: Device, result: str, arguments: str, inputs: str, seed: int) -> None:
    drawn_kernels_are_right(small_task(result, arguments, inputs), device, 3, seed)
