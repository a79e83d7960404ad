"""A task file from a few lines of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

Write = Callable[..., Path]


@pytest.fixture
def task_file(tmp_path: Path) -> Write:
    """Write a task: statements before, the body of Model, the inputs, the constructor's arguments."""

    def write(body: str, inputs: str, top: str = "", init: str = "", name: str = "sample") -> Path:
        text = "import torch\nfrom torch import nn\n" + dedent(top) + "\nclass Model(nn.Module):\n"
        text += "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
        text += f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return [{init}]\n"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    return write
