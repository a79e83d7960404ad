from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import write_run


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "relu-1")
