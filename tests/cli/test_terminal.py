"""Tables that fit, and bars and states that go again."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.contracts import DONE, REFERENCE, Preparing, Step
from cupilot.runs.session import prepare

COLUMNS = ("problem", "time", "PyTorch", "speed-up")
ROWS = [
    ("75_conv_transposed_2D_asymmetric_input_asymmetric_kernel_strided", "0.311 ms", "0.62 ms", "1.99x"),
    ("1_relu", "1 ms", "", "1.00x"),
]


def terminal(width: int, *, live: bool = True) -> tuple[Terminal, io.StringIO]:
    text = io.StringIO()
    console = Console(file=text, force_terminal=live, width=width, color_system=None)
    return Terminal(console=console), text


def test_a_wide_terminal_shows_everything() -> None:
    shown, text = terminal(120)
    shown.table(COLUMNS, ROWS)
    assert all(cell in text.getvalue() for row in (COLUMNS, *ROWS) for cell in row)


def test_a_narrower_one_cuts_the_name_and_no_number() -> None:
    shown, text = terminal(60)
    shown.table(COLUMNS, ROWS)
    assert all(cell in text.getvalue() for row in (COLUMNS, *ROWS) for cell in row[1:])
    assert ROWS[0][0] not in text.getvalue()
    assert "75_conv_transp" in text.getvalue()
    assert max(map(len, text.getvalue().splitlines())) <= 60


def test_lines_between_columns_go_before_columns_do() -> None:
    shown, text = terminal(47)
    shown.table(COLUMNS, ROWS)
    assert "│" not in text.getvalue()
    assert all(cell in text.getvalue() for row in (COLUMNS, *ROWS) for cell in row[1:])
    assert max(map(len, text.getvalue().splitlines())) <= 47


def test_where_the_numbers_do_not_fit_each_row_is_a_few_lines() -> None:
    shown, text = terminal(40)
    shown.table(COLUMNS, ROWS)
    assert text.getvalue().splitlines() == [
        ROWS[0][0], "  time: 0.311 ms", "  PyTorch: 0.62 ms", "  speed-up: 1.99x",
        "1_relu", "  time: 1 ms", "  speed-up: 1.00x",
    ]  # fmt: skip


def test_a_pipe_gets_all_of_a_wide_table() -> None:
    shown, text = terminal(80, live=False)
    rows = [("n" * 100, *("x" * 20 for _ in range(8)))]
    shown.table(("problem", *("c" * 20 for _ in range(8))), rows)
    assert all(cell in text.getvalue() for cell in rows[0])
    assert "…" not in text.getvalue()


def test_a_bar_says_what_is_done_and_goes() -> None:
    shown, text = terminal(80)
    with shown.bar("files") as tell:
        tell(2, 5, "2_softmax")
    assert "2/5" in text.getvalue()
    assert "2_softmax" in text.getvalue()
    plain, nothing = terminal(80, live=False)
    with plain.bar("files") as tell:
        tell(2, 5, "2_softmax")
    assert nothing.getvalue() == ""


def test_a_status_follows_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, _ = terminal(80)
    said: list[str] = []
    monkeypatch.setattr("rich.status.Status.update", lambda self, text: said.append(text))
    with shown.steps("evaluating") as watch:
        for step in (
            Step("building", "a"),
            Step(REFERENCE, "", "relu, normal inputs"),
            Step(REFERENCE, ""),
            Step(DONE, "a"),
        ):
            watch(step)
    assert said == ["evaluating: building", "evaluating: reference relu, normal inputs"]


class Slow:
    """A device with three files to compile."""

    def __init__(self, what: str) -> None:
        self.what, self.made = what, 0

    def unprepared(self) -> str:
        return self.what

    def prepare(self, tell: object) -> None:
        assert callable(tell)
        for done in range(1, 4):
            tell(done, 3)
        self.made += 1


def test_what_takes_long_once_is_said_and_shown() -> None:
    shown, text = terminal(80)
    device = Slow("compiling the runtime, once")
    assert isinstance(device, Preparing)
    prepare(device, TerminalObserver(shown))  # type: ignore[arg-type]
    assert device.made == 1
    assert "compiling the runtime, once" in text.getvalue()
    assert "3/3" in text.getvalue()


def test_nothing_is_said_where_nothing_is_to_be_made() -> None:
    shown, text = terminal(80)
    ready = Slow("")
    prepare(ready, TerminalObserver(shown))  # type: ignore[arg-type]
    prepare(SimpleNamespace(name="other"), TerminalObserver(shown))  # type: ignore[arg-type]
    assert (ready.made, text.getvalue()) == (0, "")
