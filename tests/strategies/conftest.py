"""A pool of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cupilot.strategies.pool import Pool, open_pool


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.sqlite"


@pytest.fixture
def pool(path: Path) -> Iterator[Pool]:
    with open_pool(path, seed=False) as opened:
        yield opened
