"""The program ``cupilot`` on the search path, as somebody would have installed it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; the server's processes have it in their command lines."""
    program = tmp_path / "bin" / "cupilot"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexport TMPDIR={tmp_path} PYTHONPATH={SOURCE}\nexec {sys.executable} -m cupilot "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path
