"""What is said to the person: lines and tables, on a terminal with colour and a live status."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status
from rich.table import Table

from cupilot.cli.json_output import STDOUT, JsonOutput
from cupilot.contracts import DONE, REFERENCE, Step, Watch
from cupilot.text import harmless, one_line

PLAIN_WIDTH = 120
NARROWEST_NAME = 16
"""To how many characters a table's first column may be cut."""
Tell = Callable[[int, int, str], None]


class Terminal:
    """Results go to stdout, or to stderr when stdout carries JSON; ``quiet`` leaves only warnings and JSON."""

    def __init__(
        self, *, output: JsonOutput | None = None, quiet: bool = False, console: Console | None = None
    ) -> None:
        self._output = output or JsonOutput()
        self._quiet = quiet
        self._console = console or Console(stderr=self._output.target == STDOUT, highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        for each in (self._console, self._errors):
            if not each.is_terminal:
                each.width = PLAIN_WIDTH

    @staticmethod
    def of(options: Namespace, output: JsonOutput) -> Terminal:
        """The terminal that the options of a command ask for."""
        return Terminal(output=output, quiet=getattr(options, "quiet", False))

    @property
    def is_live(self) -> bool:
        """Whether lines can be rewritten, and may be."""
        return not self._quiet and self._console.is_terminal and not self._console.is_dumb_terminal

    def line(self, text: str = "") -> None:
        if not self._quiet:
            self._console.print(harmless(text), markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """One sentence on stderr, whatever else is said."""
        self._errors.print(sentence(text), markup=False, soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], emphasis: int | None = None) -> None:
        """Columns but the first are numbers or short words and never wrap.

        In a narrow terminal the first column is cut, then the lines between columns go; where that is not enough, each
        row becomes a few lines.
        """
        if self._quiet:
            return
        console = self._console
        if not console.is_terminal:
            table = _table(columns, rows, emphasis, boxed=False)
            before, console.width = console.width, max(PLAIN_WIDTH, self._needed(table))
            console.print(table)
            console.width = before
        elif self.fits(columns, rows):
            boxed = self._room(columns, rows, boxed=True) >= 0
            excess = self._needed(_table(columns, rows, emphasis, boxed=boxed)) - console.width
            console.print(_table(columns, rows, emphasis, boxed=boxed, cut=max(excess, 0)))
        else:
            for row in rows:
                self.line(row[0])
                for column, cell in zip(columns[1:], row[1:], strict=True):
                    if cell:
                        self.line(f"  {column}: {cell}")

    def fits(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
        """Whether a table can be shown with all its columns, the first one cut at most."""
        return not self._console.is_terminal or self._room(columns, rows, boxed=False) >= 0

    def _room(self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, boxed: bool) -> int:
        """What is left of the width, with the first column as short as it may be."""
        first = max(len(each[0]) for each in (columns, *rows))
        needed = self._needed(_table(columns, rows, None, boxed=boxed)) - max(first - NARROWEST_NAME, 0)
        return self._console.width - needed

    def _needed(self, table: Table) -> int:
        return self._console.measure(table, options=self._console.options.update(width=10_000)).maximum

    def status(self, text: str) -> AbstractContextManager[Status | None]:
        """A live line while something runs; nothing where lines cannot be rewritten."""
        return self._console.status(text) if self.is_live else nullcontext()

    @contextmanager
    def steps(self, text: str) -> Iterator[Watch]:
        """A live line that says at which stage the work is; gives who is to be told of steps."""
        with self.status(text) as status:
            yield lambda step: _follow(status, text, step)

    def live(self, view: RenderableType) -> AbstractContextManager[object]:
        """Keep a view below the lines until the end, when it goes; nothing where lines cannot be rewritten."""
        if not self.is_live:
            return nullcontext()
        return Live(view, console=self._console, transient=True, refresh_per_second=4)

    @contextmanager
    def bar(self, text: str = "") -> Iterator[Tell]:
        """A bar that goes in the end; gives who is to be told how many are done, of how many, and what is next."""
        if not self.is_live:
            yield lambda done, of, text: None
            return
        columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(text, total=None)
            yield lambda done, of, text: progress.update(task, completed=done, total=of, description=text)

    def report(self, data: dict[str, Any]) -> None:
        """The JSON object that ``--json`` asked for, if it did."""
        self._output.write(data)


def _follow(status: Status | None, text: str, step: Step) -> None:
    if status is not None and step.stage != DONE and not (step.stage == REFERENCE and not step.what):
        status.update(f"{text}: {step.stage} {step.what}".rstrip())


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], emphasis: int | None, *, boxed: bool, cut: int = 0
) -> Table:
    """``cut`` characters less for the first column, which gives way when there is too little room."""
    table = Table(box=box.ROUNDED if boxed else None, pad_edge=False)
    for index, column in enumerate(columns):
        room = max(len(each[0]) for each in (columns, *rows)) - cut if index == 0 and cut else None
        table.add_column(column, no_wrap=True, justify="left" if index == 0 else "right", width=room)
    for index, row in enumerate(rows):
        table.add_row(*row, style="bold green" if index == emphasis else None)
    return table


def sentence(text: str) -> str:
    """One line on stderr, whatever line breaks the text had."""
    return f"cupilot: {one_line(text)}"
