"""Modules beside a task file become part of its text."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cupilot.errors import TaskError
from cupilot.records import TaskSource
from cupilot.tasks import load_source, load_task
from cupilot.tasks.embed import embed_imports

TASK = '''"""A task in several files."""
from __future__ import annotations

import torch
from layers.gates import Gate

ROWS = 64


class Model(Gate):
    pass


def get_inputs():
    return [torch.rand(ROWS, 32)]


def get_init_inputs():
    return [3.0]
'''
FILES = {
    "task.py": TASK,
    "layers/__init__.py": "from . import numbers\n",
    "layers/numbers.py": "HALF = 0.5\n",
    "layers/gates.py": "import torch\nfrom .numbers import HALF\nimport plain\n\n\nclass Gate(torch.nn.Module):\n"
    "    def __init__(self, scale):\n        super().__init__()\n        self.scale = scale\n\n"
    "    def forward(self, x):\n        return plain.twice(torch.relu(x)) * HALF * self.scale\n",
    "plain.py": "def twice(x):\n    return x + x\n",
    "unused.py": "raise RuntimeError('nobody imports this')\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


def test_a_task_in_several_files_needs_none_of_them_later(folder: Path) -> None:
    task = load_task(folder / "task.py")
    shutil.rmtree(folder)
    again = load_source(TaskSource.of(task))
    assert again == task
    assert [op.target.split(".")[1] for op in again.graph] == ["relu", "add", "mul", "mul"]


def test_lines_stay_where_they_are(folder: Path) -> None:
    text = embed_imports(TASK, folder)
    assert len(text.splitlines()) == len(TASK.splitlines())
    assert "nobody imports this" not in text


def test_the_newest_text_of_a_module_counts(folder: Path) -> None:
    before = load_task(folder / "task.py")
    (folder / "plain.py").write_text("def twice(x):\n    return x\n")
    after = load_task(folder / "task.py")
    assert len(after.graph) == len(before.graph) - 1
    assert load_source(TaskSource.of(before)) == before, "each text brings its own modules"


def test_an_import_inside_a_function_may_come_first(folder: Path) -> None:
    late = "def get_scale():\n    from plain import twice\n    return twice(1.5)\n\n\nROWS = 64\n"
    (folder / "task.py").write_text(TASK.replace("ROWS = 64\n", late).replace("[3.0]", "[get_scale()]"))
    task = load_task(folder / "task.py")
    (folder / "plain.py").unlink()
    assert load_source(TaskSource.of(task)) == task
    text = embed_imports("import torch\ndef f():\n    import layers.numbers\n", folder)
    assert text.endswith("; import torch\ndef f():\n    import layers.numbers\n")


def test_a_task_without_such_imports_stays_as_it_is(folder: Path) -> None:
    text = "import torch\nimport numpy as np\n"
    assert embed_imports(text, folder) == text


def test_a_module_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "plain.py").write_text("def twice(x:\n")
    with pytest.raises(TaskError, match=r"plain\.py: the module that the task imports cannot be read"):
        load_task(folder / "task.py")
