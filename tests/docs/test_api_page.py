"""The page about the Python API is what the docstrings say; tests/api runs their examples."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from doc_blocks import ROOT


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "docs" / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(maker: ModuleType) -> None:
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == maker.page(), "run docs/make_api.py"


def test_everything_that_can_be_reached_is_on_it(maker: ModuleType) -> None:
    text = maker.page()
    for name in ("cupilot.optimize", "cupilot.evaluate", "cupilot.profile"):
        assert f"\n## {name}\n" in text
    for name in ("Optimized", "Evaluation", "Profiled", "Failure", "Timing", "Launch", "RooflinePosition"):
        assert f"\n### {name}\n" in text
    assert "| `timing` | [`Timing`](#timing)` \\| None` |" in text
    assert "| `counter(name)` | `float` |" in text
