"""The page about the command line is what the parsers say."""

from __future__ import annotations

from pathlib import Path

from cupilot.cli.program import make_parser
from cupilot.cli.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run docs/make_cli.py"


def test_every_command_and_option_is_on_it() -> None:
    text = page()
    for line in make_parser().format_help().splitlines():
        if line.startswith("    ") and line.strip() and not line.startswith("     "):
            assert f"\n## {line.split()[0]}\n" in text
    for known in ("`cupilot evaluate --task TASK.py KERNEL [options]`", "| `--max-usd X` |", "### bench level1"):
        assert known in text
