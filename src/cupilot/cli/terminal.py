"""What is said to the person: lines and tables, on a terminal with colour and a live status."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table

from cupilot.errors import UserError
from cupilot.evolution.result import replace_file, to_json

PLAIN_WIDTH = 120


class Terminal:
    """Results go to stdout, or to stderr when stdout carries JSON; ``quiet`` leaves only warnings and JSON."""

    def __init__(self, *, json: str | None = None, quiet: bool = False) -> None:
        self._json = json
        self._quiet = quiet
        self._console = Console(stderr=json == "-", highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        for console in (self._console, self._errors):
            if not console.is_terminal:
                console.width = PLAIN_WIDTH

    @staticmethod
    def of(options: Namespace) -> Terminal:
        """The terminal that the options of a command ask for."""
        json: str | None = getattr(options, "json", None)
        if json not in (None, "-") and not Path(json).absolute().parent.is_dir():
            raise UserError(f"--json {json}: there is no folder {Path(json).absolute().parent}")
        return Terminal(json=json, quiet=getattr(options, "quiet", False))

    def line(self, text: str = "") -> None:
        if not self._quiet:
            self._console.print(text, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """One sentence on stderr, whatever else is said."""
        self._errors.print(sentence(text), markup=False, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], emphasis: int | None = None) -> None:
        """Columns but the first are numbers or short words and never wrap."""
        if self._quiet:
            return
        table = Table(box=box.ROUNDED if self._console.is_terminal else None, pad_edge=False)
        for index, column in enumerate(columns):
            table.add_column(column, no_wrap=True, justify="left" if index == 0 else "right")
        for index, row in enumerate(rows):
            table.add_row(*row, style="bold green" if index == emphasis else None)
        self._console.print(table)

    def status(self, text: str) -> AbstractContextManager[Status | None]:
        """A live line while something runs; nothing where lines cannot be rewritten."""
        if self._quiet or not self._console.is_terminal:
            return nullcontext()
        return self._console.status(text)

    def report(self, data: dict[str, Any]) -> None:
        """The JSON object that ``--json`` asked for, if it did."""
        if self._json == "-":
            sys.stdout.write(to_json(data))
            sys.stdout.flush()
        elif self._json is not None:
            replace_file(Path(self._json), to_json(data))


def sentence(text: str) -> str:
    """One line on stderr, whatever line breaks the text had."""
    return f"cupilot: {' '.join(text.split())}"


def duration(time_s: float) -> str:
    """Three digits in the unit that suits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if time_s >= scale:
            return f"{time_s / scale:.3g} {unit}"
    return f"{time_s * 1e9:.3g} ns"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
