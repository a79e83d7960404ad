"""Writes cli.md from the argument parsers: ``python docs/make_cli.py``."""

from __future__ import annotations

from pathlib import Path

from cupilot.cli.reference import page

if __name__ == "__main__":
    Path(__file__).with_name("cli.md").write_text(page())
