"""Smaller versions of tasks: sizes, relations between them, and versions that must not appear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cupilot.records import Task
from cupilot.tasks import load_task, scaled_tasks

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT = 1 << 18


def _elements(task: Task) -> int:
    tensors = [argument.tensor for argument in task.arguments if argument.tensor is not None]
    return sum(tensor.elements for tensor in (*tensors, *task.outputs))


def _input_shapes(task: Task) -> list[tuple[int, ...]]:
    return [argument.tensor.shape for argument in task.arguments if argument.tensor and argument.origin == "input"]


@pytest.mark.parametrize("name", ["relu", "gelu", "softmax", "matmul"])
def test_examples_have_a_round_and_an_odd_version(name: str) -> None:
    task = load_task(EXAMPLES / f"{name}.py", precision="tf32")
    versions = scaled_tasks(task)
    assert len(versions) == 2
    assert [version.operators for version in versions] == [task.operators] * 2
    assert [version.precision for version in versions] == ["tf32"] * 2
    assert all(_elements(version) <= LIMIT for version in versions)
    assert all(version.name.startswith(f"{name}@") for version in versions)
    assert all(size % 32 == 0 for shape in _input_shapes(versions[0]) for size in shape)
    odd = [size for shape in _input_shapes(versions[1]) for size in shape]
    assert all(size % 2 for size in odd)
    assert versions[1].outputs[0].shape[0] != versions[1].outputs[0].shape[1]
    assert scaled_tasks(task) == versions


def test_matmul_versions_differ_in_every_constant() -> None:
    round_version, odd_version = scaled_tasks(load_task(EXAMPLES / "matmul.py"))
    assert round_version.name == "matmul@256x256x256"
    (rows, inner), (inner_again, columns) = _input_shapes(odd_version)
    assert inner == inner_again
    assert len({rows, inner, columns}) == 3


def test_a_smaller_limit_gives_smaller_versions() -> None:
    versions = scaled_tasks(load_task(EXAMPLES / "matmul.py"), limit_elements=1 << 14)
    assert len(versions) == 2
    assert all(_elements(version) <= 1 << 14 for version in versions)


def test_constants_are_found_in_every_form(task_file) -> None:
    top = """
    A: int = 2048 * 2
    B, C = 2 ** 12, 1 << 12  # trailing text
    D = B // 2
    """
    body = "def forward(self, x, y):\n    return x @ y"
    task = load_task(task_file(body, "torch.rand(A, B), torch.rand(C, D)", top=top))
    round_version, odd_version = scaled_tasks(task)
    assert _input_shapes(round_version) == [(256, 256), (256, 128)]
    (_, inner), (_, columns) = _input_shapes(odd_version)
    assert columns == inner // 2  # derived sizes follow; B and C must agree, so equal constants stay equal


def test_sizes_that_are_equal_by_need_stay_equal(task_file) -> None:
    top = "N = 4096\nFEATURES = 4096\nROWS = 1024\n"
    body = "def forward(self, x, y):\n    return x + y"
    task = load_task(task_file(body, "torch.rand(ROWS, N), torch.rand(ROWS, FEATURES)", top=top))
    _, odd_version = scaled_tasks(task)
    first, second = _input_shapes(odd_version)
    assert first == second
    assert first[0] != first[1]


def test_versions_that_do_not_run_are_dropped(task_file) -> None:
    top = "N = 4096\nassert N % 64 == 0\n"
    body = "def forward(self, x):\n    return x * 2"
    versions = scaled_tasks(load_task(task_file(body, "torch.rand(N, N)", top=top)))
    assert [version.name for version in versions] == ["sample@256"]


def test_versions_with_other_operators_are_dropped(task_file) -> None:
    body = "def forward(self, x):\n    return x * 2 if N > 1000 else x + 2"
    assert scaled_tasks(load_task(task_file(body, "torch.rand(N, N)", top="N = 4096\n"))) == ()


def test_large_tasks_without_constants_have_no_versions(task_file) -> None:
    body = "def forward(self, x):\n    return x * 2"
    assert scaled_tasks(load_task(task_file(body, "torch.rand(4096, 4096)", top="MODE = 3\n"))) == ()


def test_small_tasks_stand_for_themselves(task_file) -> None:
    body = "def forward(self, x):\n    return x * 2"
    task = load_task(task_file(body, "torch.rand(N, M)", top="N = 64\nM = 64\n"))
    itself, odd_version = scaled_tasks(task)
    assert itself == task
    assert all(size % 2 for size in _input_shapes(odd_version)[0])
    fixed = replace(task, source=task.source.replace("N = 64\nM = 64", "N = M = 8"))
    assert scaled_tasks(fixed) == (fixed,)


@pytest.mark.parametrize(
    ("top", "init", "body", "shape", "divides"),
    [
        (
            "batch, channels, filters, side, groups = 32, 96, 192, 64, 4\n",
            "self.conv = torch.nn.Conv2d(channels, filters, 3, groups=groups)",
            "self.conv(x)",
            "batch, channels, side, side",
            4,
        ),
        (
            "batch, length, width, heads = 64, 128, 768, 12\n",
            "self.attention = torch.nn.MultiheadAttention(width, heads, bias=False, batch_first=True)",
            "self.attention(x, x, x, need_weights=False)[0]",
            "batch, length, width",
            12,
        ),
        (
            "batch, channels, side, groups = 64, 256, 64, 32\n",
            "self.norm = torch.nn.GroupNorm(groups, channels)",
            "self.norm(x)",
            "batch, channels, side, side",
            1,
        ),
    ],
    ids=["grouped convolution", "heads", "many groups"],
)
def test_versions_keep_what_has_to_divide(
    tmp_path: Path, top: str, init: str, body: str, shape: str, divides: int
) -> None:
    text = (
        f"import torch\n{top}class Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        {init}\n    def forward(self, x):\n        return {body}\n"
        f"def get_inputs():\n    return [torch.rand({shape})]\n"
    )
    path = tmp_path / "sample.py"
    path.write_text(text)
    versions = scaled_tasks(load_task(path))
    assert len(versions) == 2
    odd = _input_shapes(versions[1])[0]
    widths = [size for size in odd if size % 2 == 0]
    assert all(size % divides == 0 for size in widths)
    assert any(size % 2 for size in odd)
