"""A package that brings a language of its own, as if it were installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cupilot.languages import Language, find_language, language_names

TOY = Path(__file__).parent / "toy"


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Language]:
    monkeypatch.syspath_prepend(TOY)
    monkeypatch.setenv("PYTHONPATH", str(TOY))  # for worker processes
    forget = (language_names.cache_clear, find_language.cache_clear)
    for each in forget:
        each()
    yield find_language("toy")
    monkeypatch.undo()
    for each in forget:
        each()
