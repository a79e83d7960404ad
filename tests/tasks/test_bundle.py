"""Task files with several shapes: which texts they are, and that each loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cupilot.errors import TaskError
from cupilot.tasks import load_task, scaled_tasks, task_texts
from cupilot.tasks.bundle import bundled
from cupilot.tasks.process import load_source

MODEL = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, *x):\n        return x[0] * 2\n"


def shapes_of(text: str) -> list[tuple[int, ...]]:
    """The shapes of the first inputs, by running the texts."""
    found = []
    for each in bundled(text, "task"):
        namespace: dict[str, object] = {}
        exec(each.source, namespace)
        found.append(tuple(namespace["get_inputs"]()[0].shape))  # type: ignore[operator]
    return found


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (
            "SHAPES = [(4, 8), (3, 5)]\ndef get_inputs(rows, cols):\n    return [torch.rand(rows, cols)]\n",
            [(4, 8), (3, 5)],
        ),
        ("SHAPES = [(4, 8), (3,)]\ndef get_inputs(shape):\n    return [torch.rand(*shape)]\n", [(4, 8), (3,)]),
        ("SHAPES = [(4,), (3,)]\ndef get_inputs(n):\n    return [torch.rand(n)]\n", [(4,), (3,)]),
        ("INPUT_SHAPES = (4, 3)\ndef get_inputs(n):\n    return [torch.rand(n)]\n", [(4,), (3,)]),
        ("SHAPES = [[[4, 8], [8, 2]]]\ndef get_inputs(a, b):\n    return [torch.rand(*a), torch.rand(*b)]\n", [(4, 8)]),
        ("SHAPES = [{'n': 4}, {'n': 3}]\nm = 5\ndef get_inputs(n):\n    return [torch.rand(n, m)]\n", [(4, 5), (3, 5)]),
        (
            "m, n = 1, 2\nk = m * n\nSHAPES = [{'m': 4, 'n': 3}]\ndef get_inputs():\n    return [torch.rand(k)]\n",
            [(12,)],
        ),
    ],
    ids=["parameters", "one tuple", "one number", "numbers", "nested", "by name", "constants"],
)
def test_each_shape_is_a_task(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert shapes_of(MODEL + text) == shapes


@pytest.mark.parametrize(
    "text",
    [
        "SHAPES = [(4, 8)]\ndef get_inputs():\n    return [torch.rand(*SHAPES[0])]\n",
        "SHAPES = [(4, 8)]\ndef get_inputs(a, b, c):\n    return []\n",
        "SHAPES = [(n, 8) for n in (1, 2)]\ndef get_inputs(a, b):\n    return []\n",
        "SHAPES = [('rows', 8)]\ndef get_inputs(a, b):\n    return []\n",
        "SHAPES = [{'nobody': 3}]\ndef get_inputs():\n    return []\n",
        "SHAPES = []\ndef get_inputs(a):\n    return []\n",
        "not Python (",
    ],
)
def test_other_lists_are_left_alone(text: str) -> None:
    assert [each.source for each in bundled(text, "task")] == [text]


def test_a_text_that_was_made_is_not_made_again() -> None:
    text = bundled("SHAPES = [(4, 8)]\ndef get_inputs(a, b):\n    return []\n", "task")[0].source
    assert bundled(text, "task")[0].source == text


def test_too_many_are_a_sentence() -> None:
    with pytest.raises(TaskError, match="65 shapes are too many"):
        bundled(f"SHAPES = {[(n + 1,) for n in range(65)]}\ndef get_inputs(n):\n    return []\n", "task")


def test_the_file_s_task_is_the_first_and_versions_are_made_of_any(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(MODEL + "SHAPES = [(4096, 512), (64, 300)]\ndef get_inputs(m, n):\n    return [torch.rand(m, n)]\n")
    assert (load_task(path).name, load_task(path).outputs[0].shape) == ("twice", (4096, 512))
    texts = task_texts(path)
    assert [text.name for text in texts] == ["twice 4096x512", "twice 64x300"]
    task = load_source(texts[0])
    versions = scaled_tasks(task)
    assert len(versions) == 2
    assert all(version.outputs[0].elements < task.outputs[0].elements for version in versions)


@pytest.mark.slow
def test_a_kernel_is_judged_at_every_shape(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(
        MODEL + "SHAPES = [(64, 128), (100, 30)]\ndef get_inputs(m, n):\n    return [torch.rand(m, n)]\n"
    )
    launch = "twice<<<n / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"  # 100 x 30 is no multiple of 64
    (tmp_path / "twice.cu").write_text(
        "#include <torch/extension.h>\n__global__ void twice(const float* x, float* y, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = 2 * x[i];\n}\n"
        "torch::Tensor forward(torch::Tensor x) {\n    auto y = torch::empty_like(x);\n    int n = x.numel();\n"
        f"    {launch}\n    return y;\n}}\n"
    )
    words = [sys.executable, "-m", "cupilot", "evaluate", "twice.cu", "--task", "twice.py"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "twice: rejected for 1 of 2 shapes, first twice 100x30" in ran.stdout
