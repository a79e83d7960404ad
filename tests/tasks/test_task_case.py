"""Cases: what is drawn, how it repeats, and what the references are."""

from __future__ import annotations

import random
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from cupilot.errors import TaskError
from cupilot.records import Task
from cupilot.tasks import KINDS, Case, load_task, make_case, scaled_tasks
from cupilot.tasks.load import task_from_source

EXAMPLES = Path(__file__).parents[2] / "examples"
LINEAR = """
def __init__(self):
    super().__init__()
    self.norm = nn.LayerNorm(64)
    self.inner = nn.Linear(64, 32)

def forward(self, x, slope):
    return self.inner(self.norm(x)) * slope
"""


@cache
def _matmul() -> Task:
    return scaled_tasks(load_task(EXAMPLES / "matmul.py"))[1]


def _matmul_case(kind: str, seed: int) -> Case:
    return make_case(_matmul(), kind, seed)


def _arrays(case: Case) -> list[np.ndarray]:
    return [array for array in (*case.arguments, *case.expected, *case.native) if isinstance(array, np.ndarray)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides(kind: str) -> None:
    first, again, other = _matmul_case(kind, 5), _matmul_case(kind, 5), _matmul_case(kind, 6)
    same = [np.array_equal(a, b, equal_nan=True) for a, b in zip(_arrays(first), _arrays(again), strict=True)]
    assert all(same)
    assert not all(map(np.array_equal, _arrays(first), _arrays(other)))


@pytest.mark.parametrize("kind", ["own", "normal", "wide", "planted", "permuted", "denormal"])
def test_references_belong_to_the_arguments(kind: str) -> None:
    case = _matmul_case(kind, 1)
    a, b = case.arguments
    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    assert a.dtype == b.dtype == case.native[0].dtype == np.float32
    assert case.expected[0].dtype == np.float64
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(case.expected[0], exact, rtol=1e-12, atol=1e-12 * np.abs(exact).max())
    error = np.abs(case.native[0] - exact).max() / np.abs(exact).max()
    assert 1e-9 < error < 1e-5


def test_kinds_cover_what_they_name() -> None:
    own, normal, wide = (_matmul_case(kind, 3).arguments[0] for kind in ("own", "normal", "wide"))
    assert own.min() >= 0  # the file's own torch.rand
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    assert 0.45 < (wide < 0).mean() < 0.55
    assert np.abs(wide).max() > 1000
    assert np.abs(wide).min() < 0.001
    assert np.isfinite(wide).all()


def test_parameters_are_redrawn_but_in_own(task_file) -> None:
    task = load_task(task_file(LINEAR, "torch.rand(8, 64), 0.25"))
    own, normal = make_case(task, "own", 1), make_case(task, "normal", 1)
    names = [argument.name for argument in task.arguments]
    gain, bias = names.index("norm_weight"), names.index("norm_bias")
    assert own.arguments[1] == normal.arguments[1] == 0.25
    assert (own.arguments[gain] == 1).all()
    assert (own.arguments[bias] == 0).all()
    assert (normal.arguments[gain] < 0).any()
    assert (normal.arguments[bias] != 0).all()
    assert normal.shapes == "8x64, 64, 64, 32x64, 32"
    _assert_linear(own)
    _assert_linear(normal)


def _assert_linear(case: Case) -> None:
    x, slope, gain, bias, weight, offset = case.arguments
    rows = torch.nn.functional.layer_norm(*(torch.from_numpy(v).double() for v in (x,)), (64,), eps=1e-5).numpy()
    expected = ((rows * gain + bias) @ weight.T.astype(np.float64) + offset) * slope
    np.testing.assert_allclose(case.expected[0], expected, rtol=1e-10, atol=1e-12)


def test_modules_that_write_to_inputs_and_buffers(task_file) -> None:
    body = """
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return x.mul_(2) + self.count
    """
    case = make_case(load_task(task_file(body, "torch.rand(16)")), "normal", 2)
    x, count = case.arguments
    assert (count == 0).all()
    np.testing.assert_array_equal(case.expected[0], x.astype(np.float64) * 2 + 1)
    np.testing.assert_allclose(case.native[0], x * 2 + 1, rtol=1e-6)


def test_integers_stay_and_tensors_made_inside_are_wide(task_file) -> None:
    body = """
    def forward(self, index, x):
        return x[index] / torch.full((1,), 3.0), x.argmax(1)
    """
    task = load_task(task_file(body, "torch.randint(0, 8, (5,)), torch.rand(8, 4)"))
    case = make_case(task, "normal", 2)
    index, x = case.arguments
    assert index.dtype == np.int64
    assert (x < 0).any()
    assert case.expected[0].dtype == np.float64
    np.testing.assert_array_equal(case.expected[0], x[index].astype(np.float64) / 3.0)
    assert case.expected[1].dtype == case.native[1].dtype == np.int64


def test_making_cases_leaves_no_trace() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    _matmul_case("own", 1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]
    assert torch.get_default_dtype() is torch.float32
    assert torch.is_grad_enabled()


def test_what_fails_on_real_data_is_one_sentence(task_file) -> None:
    body = """
    def forward(self, index):
        return torch.rand(4)[index]
    """
    task = load_task(task_file(body, "torch.tensor([9]).expand(3)"))
    with pytest.raises(TaskError, match=r"^sample: .*index 9"):
        make_case(task, "own", 1)


def test_bfloat16_is_drawn_and_referred_to(task_file) -> None:
    body = "def forward(self, x):\n    return x * 2"
    case = make_case(load_task(task_file(body, "torch.rand(4, dtype=torch.bfloat16)")), "normal", 1)
    (x,) = case.arguments
    assert str(x.dtype) == str(case.native[0].dtype) == "bfloat16"
    np.testing.assert_array_equal(case.expected[0], 2 * x.astype(np.float64))


def test_errors_depend_on_magnitude() -> None:
    levels = make_case(scaled_tasks(load_task(EXAMPLES / "gelu.py"))[1], "wide", 4).expectation(0, None).errors
    assert levels[levels > 0].max() > 1e3 * levels[levels > 0].min()


@pytest.mark.parametrize("kind", ["planted", "nan", "infinity"])
def test_every_quarter_of_every_axis_has_something_planted(kind: str) -> None:
    values = make_case(scaled_tasks(load_task(EXAMPLES / "gelu.py"))[1], kind, 4).arguments[0]
    planted = ~(np.abs(values) < 30)
    for axis in range(values.ndim):
        lines = np.flatnonzero(planted.any(axis=1 - axis)) * 4 // values.shape[axis]
        assert set(lines.tolist()) == {0, 1, 2, 3}
    assert planted.mean() < 0.05


def test_one_hot_constant_denormal_and_permuted() -> None:
    def first(kind: str) -> np.ndarray:
        return _matmul_case(kind, 3).arguments[0]

    assert (np.count_nonzero(first("one-hot"), axis=1) == 1).all()
    assert np.unique(first("constant")).size == 1
    assert ((np.abs(first("denormal")) < np.finfo(np.float32).tiny) & (first("denormal") != 0)).mean() > 0.4
    own, permuted = first("own"), first("permuted")
    assert np.array_equal(np.sort(own, axis=None), np.sort(permuted, axis=None))
    assert not np.array_equal(own, permuted)


@pytest.mark.parametrize(
    ("inputs", "holds"),
    [
        ("torch.triu(torch.rand(40, 40))", lambda x: np.array_equal(x, np.triu(x)) and (x < 0).any()),
        ("torch.tril(torch.rand(40, 40))", lambda x: np.array_equal(x, np.tril(x)) and (x < 0).any()),
        ("(lambda a: a + a.T)(torch.rand(40, 40))", lambda x: np.array_equal(x, x.T) and (x < 0).any()),
        ("torch.rand(64, 40).softmax(1)", lambda x: np.allclose(x.sum(1), 1, atol=1e-5) and (x >= 0).all()),
        ("torch.randint(0, 2, (40, 40)).float() * 2 - 1", lambda x: set(np.unique(x)) == {-1, 1}),
        ("torch.randint(3, 9, (40, 40))", lambda x: set(np.unique(x)) == set(range(3, 9))),
        ("torch.rand(64, 64) < 0.1", lambda x: 0.03 < x.mean() < 0.2),
    ],
)  # fmt: skip
def test_fresh_values_keep_what_a_kernel_may_rely_on(task_file, inputs: str, holds) -> None:
    task = load_task(task_file("def forward(self, x):\n    return x * 2", inputs))
    own, fresh = (make_case(task, kind, 5).arguments[0] for kind in ("own", "normal"))
    assert holds(fresh)
    assert not np.array_equal(own, fresh)


def test_an_operator_for_positive_numbers_gets_positive_numbers(task_file) -> None:
    task = load_task(task_file("def forward(self, x):\n    return torch.log(x)", "torch.rand(64, 40)"))
    case = make_case(task, "normal", 5)
    assert (case.arguments[0] > 0).all()
    assert np.isfinite(case.expected[0]).all()


def test_threads_do_not_disturb_each_other() -> None:
    from concurrent.futures import ThreadPoolExecutor

    printed = sys.stdout
    with ThreadPoolExecutor(8) as pool:
        cases = list(pool.map(lambda seed: _matmul_case("own", seed % 2), range(16)))
    assert sys.stdout is printed
    for number, case in enumerate(cases):
        assert np.array_equal(case.arguments[0], cases[number % 2].arguments[0])
        assert case.expected[0].dtype == np.float64
        assert case.native[0].dtype == np.float32


def test_parameters_are_rounded_to_the_precision_too(task_file) -> None:
    """A layer's weights are factors like its inputs; a coarse precision's own error is larger than float32's."""
    path = task_file(LINEAR, "torch.rand(8, 64), 0.25")
    fine, coarse = (make_case(load_task(path, precision), "normal", 0) for precision in ("fp32", "tf32"))
    errors = [float(case.expectation(0, None).errors.max()) for case in (fine, coarse)]
    assert errors[1] > 100 * errors[0]


DROPOUT = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        {mode}
    def forward(self, x):
        return self.drop(x) + {more}
def get_inputs():
    return [torch.randn(16, 64)]
"""


@pytest.mark.parametrize(("mode", "more"), [("pass", "x"), ("self.eval()", "torch.rand_like(x)")])
def test_a_module_that_draws_random_numbers_is_the_tasks_fault(mode: str, more: str) -> None:
    task = task_from_source(DROPOUT.format(mode=mode, more=more), "dropout", "fp32", where="dropout")
    with pytest.raises(TaskError, match="dropout: the module draws random numbers"):
        make_case(task, "normal", 1)


def test_dropout_that_is_switched_off_is_fine() -> None:
    task = task_from_source(DROPOUT.format(mode="self.eval()", more="x"), "dropout", "fp32", where="dropout")
    case = make_case(task, "normal", 1)
    assert np.array_equal(case.expected[0], 2 * case.arguments[0].astype(np.float64))


def test_inputs_leave_the_range_of_fp16_unless_it_is_asked_for() -> None:
    source = DROPOUT.format(mode="self.eval()", more="x")
    for precision, beyond in (("fp32", True), ("tf32", True), ("bf16", True), ("fp16", False)):
        task = task_from_source(source, "range", precision, where="range")
        large, single = (np.abs(make_case(task, kind, 3).arguments[0]) for kind in ("large", "one-hot"))
        assert (large.max() > 70000) == beyond
        smallest = single[single > 0].min()
        assert (smallest < 2.0**-24) == beyond
        assert single.max() == 1


def test_types_that_a_module_names_do_not_round_the_reference(task_file) -> None:
    path = task_file(
        "def forward(self, x):\n    wide = x.float()\n"
        "    return (torch.softmax(wide, -1, dtype=torch.float32) * wide.half()).to(torch.bfloat16)",
        "torch.randn(8, 64, dtype=torch.bfloat16)",
    )
    case = make_case(load_task(path), "normal", seed=3)
    exact = torch.from_numpy(np.asarray(case.arguments[0], np.float64))
    expected = (torch.softmax(exact, -1) * exact).numpy()
    np.testing.assert_allclose(case.expected[0], expected, rtol=1e-13)
    assert str(case.native[0].dtype) == "bfloat16"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_pytorch_lacks_in_16_bits_on_a_cpu_is_done_in_float32(task_file, dtype: str) -> None:
    path = task_file(
        "def forward(self, x):\n    return torch.nn.functional.avg_pool3d(x, 2)",
        f"torch.randn(2, 3, 8, 8, 8).to(torch.{dtype})",
    )
    case = make_case(load_task(path), "normal", seed=4)
    assert str(case.native[0].dtype) == dtype
    np.testing.assert_allclose(case.native[0].astype(np.float64), case.expected[0], rtol=2.0**-8, atol=1e-3)
