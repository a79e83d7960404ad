"""What tests of searches share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cupilot.evolution.store import SqliteStore, create_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = create_store(tmp_path / "run")
    yield made
    made.close()
