"""Wrappers as people write them for PyTorch, on the virtual GPU; PyTorch itself is the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from cupilot.contracts import Built, Call, Device, Outcome
from cupilot.records import Failure, Kernel, TensorSpec

DATA = Path(__file__).parent / "data"


def run(device: Device, source: str, calls: Sequence[Sequence[object]], outputs: Sequence[TensorSpec] = ()) -> list:
    built = device.build(Kernel(source))
    assert isinstance(built, Built), built
    arguments = [tuple(a.contiguous().numpy() if isinstance(a, torch.Tensor) else a for a in call) for call in calls]
    return list(device.run(built, [Call("call", a, tuple(outputs)) for a in arguments], 60.0))  # type: ignore[arg-type]


def same(result: Outcome | Failure, expected: Sequence[torch.Tensor], tolerance: float = 0.0) -> None:
    assert isinstance(result, Outcome), result
    assert len(result.outputs) == len(expected)
    for output, wanted in zip(result.outputs, expected, strict=True):
        values, written = output.array, output.written
        assert (values.shape, str(values.dtype)) == (tuple(wanted.shape), str(wanted.dtype).removeprefix("torch."))
        assert written.all() or output.alias
        np.testing.assert_allclose(values, wanted.numpy(), rtol=tolerance, atol=tolerance)


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)) * 3
POSITIVE = X.abs()
SPECIAL = torch.tensor([[65504, 65520, 1e-8, 6e-8, float("inf"), float("nan"), -0.0, 1.00048828125, 1.001953125]])
INTEGERS = torch.tensor([[0, 1, -5, 2**31 - 1, 123456789]])
CUBE = torch.arange(24.0).reshape(2, 3, 4)
FIVE = torch.randn(2, 3, 2, 4, 3, generator=torch.Generator().manual_seed(1))
IMAGE = torch.arange(120.0).reshape(2, 3, 4, 5)
COUNTED = torch.arange(12.0).reshape(3, 4)


def weighted(x: torch.Tensor) -> torch.Tensor:
    axes = torch.meshgrid(*(torch.arange(n) for n in x.shape), indexing="ij")
    return (x * sum((i + 1) * axis for i, axis in enumerate(axes))).sum()


def in_place(x: torch.Tensor) -> list[torch.Tensor]:
    y = torch.full((3, 4), 2.0)
    y[1], y[:, :2], y[0, 0] = 0, 5.5, -1
    z = x.clone()
    z[:, :2], z[:, 3] = y[:, 2:4], x[:, 0]
    return [y, z, x.half(), x[0].expand(3, 4)]


def conversions(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.half(), x.bfloat16().float(), x.double(), x.long(), x.int(), x.bool(), x.byte()]


def views(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        x.unsqueeze(-1), x, x.view(-1), x.view(2, -1), x.view(-1), x.reshape(4, 3), x[:, 2], x[1], x[1:3], x[:, 2:4],
        x[:2], x[:, 0], x, x, x.t(), x.unflatten(1, (2, -1)), x.as_strided((2, 2), (1, 4)), x.t(), x.t(), x.flatten(),
        x.t(), x.view(torch.int32), x, x,
    ]  # fmt: skip


def factories(_: torch.Tensor) -> list[torch.Tensor]:
    return [
        torch.zeros(2, 3), torch.ones(4), torch.full((2, 2), 1.5), torch.full((2,), -3), torch.ones(3, 4),
        torch.full((3, 4), 7.25), torch.zeros(3, 4, dtype=torch.int32), torch.ones(3, dtype=torch.bool),
        torch.tensor(2.5), torch.arange(5), torch.arange(1, 2, 0.25), torch.tensor([1.5, 2.5]), torch.tensor([1, 2, 3]),
        torch.tensor(3.0), torch.zeros(2), torch.full((2,), 3.0), torch.empty(0), torch.empty(0, 3),
        torch.tensor([4, 5], dtype=torch.int32), torch.zeros(4), torch.ones(2, 2), torch.ones(2, dtype=torch.half),
        torch.full((2,), 0.1).bfloat16().float(),
    ]  # fmt: skip


TENSOR_CALLS = {
    "t_contig": (X, lambda x: [x.t()]),
    "permute_contig": (CUBE, lambda x: [x.permute(2, 0, 1)]),
    "step": (X, lambda x: [x[:, ::2]]),
    "expand": (X, lambda x: [x.unsqueeze(0).expand(3, -1, -1)]),
    "reshape_copy": (X, lambda x: [x.t().reshape(-1)]),
    "flatten": (X, lambda x: [x.t().flatten()]),
    "view_t": (X, lambda x: [x.t()]),
    "to_half": (
        POSITIVE,
        lambda x: [x.half(), x.bfloat16().float(), x.double(), x.long(), x.int(), x.bool(), x.byte()],
    ),
    "to_half_t": (SPECIAL, lambda x: [x.t().half(), x.t().half()]),
    "to_bfloat16": (SPECIAL, lambda x: [x.bfloat16().float()]),
    "to_opts": (X, lambda x: [x.int(), x.double(), x, x.half(), x]),
    "factories": (X, factories),
    "inplace": (X, in_place),
    "views": (X, views),
    "channels_last": (IMAGE, lambda x: [x, x, x]),
    "queries": (COUNTED, lambda x: [x, x, x.t(), x.half()]),
    "gather": (X, lambda x: [x.flip(0)]),
    "bool": (X, lambda x: [x > 0.5]),
}


@pytest.fixture(scope="module")
def tensor_calls(device: Device) -> dict[str, Outcome | Failure]:
    integers = [("int_to", INTEGERS.to(dtype)) for dtype in INTEGER_TYPES]
    calls = [*((op, x) for op, (x, _) in TENSOR_CALLS.items()), *integers, ("acc5", FIVE)]
    results = run(device, (DATA / "tensor_calls.cu").read_text(), calls)
    names = [*TENSOR_CALLS, *map(str, INTEGER_TYPES), "acc5"]
    return dict(zip(names, results, strict=True))


INTEGER_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


@pytest.mark.parametrize("op", TENSOR_CALLS)
def test_tensor_calls_do_what_those_of_pytorch_do(tensor_calls: dict[str, Outcome | Failure], op: str) -> None:
    x, reference = TENSOR_CALLS[op]
    same(tensor_calls[op], reference(x))


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_integers_become_other_types(tensor_calls: dict[str, Outcome | Failure], dtype: torch.dtype) -> None:
    x = INTEGERS.to(dtype)
    same(tensor_calls[str(dtype)], [x.float(), x.half(), x.short(), x.bool(), x.double()])


def test_accessors_of_five_dimensions(tensor_calls: dict[str, Outcome | Failure]) -> None:
    same(tensor_calls["acc5"], [weighted(FIVE)], 1e-4)


def test_copies_to_another_layout_are_launches_that_count(tensor_calls: dict[str, Outcome | Failure]) -> None:
    outcome = tensor_calls["t_contig"]
    assert isinstance(outcome, Outcome)
    (launch,) = outcome.profile.launches
    assert "copy_elements" in launch.kernel


ROWS = torch.randn(8, 100, generator=torch.Generator().manual_seed(2))
A, B = (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)) for seed in (3, 4))
LONG = torch.arange(20000.0)  # 80 kB of shared memory


def half_math(x: torch.Tensor) -> torch.Tensor:
    """The kernel's operations, each rounded to the element type."""
    s = (x * 2 + x / 4 - 0.5 + x) * 2
    s = torch.where(x > 0, -s, s)
    return torch.where(x < 0, s - 1, s)


def native_half(x: torch.Tensor) -> list[torch.Tensor]:
    half = (x.half().float() * 2 + torch.tensor([1.0, -1.0]).repeat(32)).half()
    wide = x.bfloat16()
    return [half, torch.where(torch.arange(64) % 2 == 0, (wide.float() + 1).bfloat16(), wide + wide).float()]


def half_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.half().float() @ b.half().float()


EXTENSION_KERNELS = [
    (("softplus", ROWS), [torch.nn.functional.softplus(ROWS)], 1e-5),
    (("softplus", ROWS.double()), [torch.nn.functional.softplus(ROWS.double())], 1e-12),
    (("softplus", ROWS.half()), [torch.nn.functional.softplus(ROWS.half().float()).half()], 2e-3),
    (("half_math", ROWS), [half_math(ROWS)], 1e-5),
    (("half_math", ROWS.half()), [half_math(ROWS.half())], 2e-3),
    (("native_half", ROWS.flatten()[:64]), native_half(ROWS.flatten()[:64]), 1e-3),
    (("row_sum", ROWS), [3 * ROWS.sum(1)], 1e-4),
    (("row_max", ROWS), [ROWS.amax(1)], 0.0),
    (("gemm", A, B), [half_product(A, B)], 1e-4),
    (("shared", LONG), [LONG.flip(0) + torch.tensor([1.0, 2, 3, 4]).repeat(5000)], 0.0),
    (("counter", ROWS), [((ROWS > 0).sum() + 3).reshape(1).float()], 0.0),
]


@pytest.fixture(scope="module")
def extension_kernels(device: Device) -> list[Outcome | Failure]:
    calls: list[Sequence[object]] = [call for call, _, _ in EXTENSION_KERNELS]
    calls += [("softplus", INTEGERS), ("shared", torch.zeros(100_000))]
    return run(device, (DATA / "extension_kernels.cu").read_text(), calls)


@pytest.mark.parametrize("number", range(len(EXTENSION_KERNELS)))
def test_extensions_run(extension_kernels: list[Outcome | Failure], number: int) -> None:
    _, expected, tolerance = EXTENSION_KERNELS[number]
    same(extension_kernels[number], expected, tolerance)


def test_checks_in_wrappers_are_told(extension_kernels: list[Outcome | Failure]) -> None:
    wrong_type, too_large = extension_kernels[-2:]
    assert isinstance(wrong_type, Failure)
    assert isinstance(too_large, Failure)
    assert (wrong_type.kind, wrong_type.message) == ("wrapper-error", "\"softplus\" not implemented for 'Long'")
    assert too_large.message.startswith("needs 400000 of ")


def test_functions_of_pytorch_inside_kernels(device: Device) -> None:
    calls = [
        (torch.arange(200).remainder(7).sub(3).to(t),) for t in (torch.float32, torch.float64, torch.half, torch.long)
    ]
    for (x,), result in zip(calls, run(device, (DATA / "device_functions.cu").read_text(), calls), strict=True):
        same(result, [x.sum().reshape(1), torch.tensor([3.0]).exp()], 1e-6)


TWICE = """
#include <torch/extension.h>
__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
static void launch(torch::Tensor x, torch::Tensor y, int blocks) {
    if (x.numel()) twice<<<blocks, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}
"""
INTO = TWICE + "void fill(torch::Tensor x, int blocks, torch::Tensor y) { launch(x, y, blocks); }"
VIEW = """torch::Tensor forward(torch::Tensor x, int blocks, bool transposed) {
    auto y = torch::empty_like(x);
    launch(x, y, blocks);
    return transposed ? y.t() : y.slice(1, 1, -1, 3);
}
"""


def test_outputs_may_be_arguments(device: Device) -> None:
    whole, part = run(device, INTO, [(ROWS[0], 4), (ROWS[0], 2)], [TensorSpec((100,))])
    same(whole, [2 * ROWS[0]])
    assert isinstance(part, Outcome)
    assert part.outputs[0].written.nonzero()[0].tolist() == list(range(64))
    (nothing,) = run(device, INTO, [(ROWS[:0], 1)], [TensorSpec((0, 100))])
    same(nothing, [ROWS[:0]])


def test_outputs_may_be_views(device: Device) -> None:
    results = run(device, TWICE + VIEW, [(ROWS, 25, True), (ROWS, 25, False), (ROWS, 12, True), (ROWS, 12, False)])
    written = torch.arange(800).reshape(8, 100) < 12 * 32
    for whole, part, view in ((results[0], results[2], torch.t), (results[1], results[3], lambda x: x[:, 1:-1:3])):
        same(whole, [view(2 * ROWS)])
        assert isinstance(part, Outcome)
        np.testing.assert_array_equal(part.outputs[0].written, view(written).numpy())
        np.testing.assert_array_equal(part.outputs[0].array, view(torch.where(written, 2 * ROWS, 0.0)).numpy())
