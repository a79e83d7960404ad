"""The live view of a search: golden pictures of known states, and what must hold at any width."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cupilot.cli.search_view import clock_time, search_view, sparkline
from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver, progress_line
from cupilot.contracts import REFERENCE, Step
from cupilot.evolution.progress import Progress
from cupilot.evolution.run_state import RunState, Work
from cupilot.records import Budget, Individual, Move, RunInfo, Strategy, Timing
from cupilot.testing.samples import EVALUATION, INDIVIDUAL, RESULT

GOLDEN = Path(__file__).with_name("golden")
INFO = RunInfo(
    "softmax", "", "virtual:a100-80gb", "expert", 7, 8, 4, "0.0.0", epochs=2, budget=Budget(40, 300.0, usd=1.5)
)
NOW_S = 1000.0


def individual(number: int, time_s: float, *moves: Move) -> Individual:
    timing = Timing(time_s, "modelled", "virtual:a100-80gb", "dram")
    baseline = Timing(6e-4, "modelled", "virtual:a100-80gb", "dram")
    evaluation = replace(EVALUATION, timing=timing, baseline=baseline)
    origin = "initial" if moves else "plain"
    return replace(INDIVIDUAL, id=number, origin=origin, strategy=Strategy(moves), evaluation=evaluation)


PLAIN = individual(0, 1.85e-2)
BEST = individual(
    5, 3.12e-4, Move.of("block-per-row"), Move.of("block-size", threads=1024), Move.of("vector-load", bytes=16)
)
OTHER = individual(3, 5.5e-4, Move.of("warp-per-row"), Move.of("vector-load", bytes=8))
BUSY = RunState(
    info=INFO,
    began_s=NOW_S - 83,
    limit_s=2.9e-4,
    result=replace(RESULT, info=INFO, first=PLAIN, best=BEST, evaluations=14, failures=3),
    generation=6,
    begun=18,
    taken=14,
    history=(1.85e-2, 1.85e-2, 6e-4, 5.5e-4, 5.5e-4, 3.12e-4, 3.12e-4),
    population=(BEST, OTHER, *(individual(number, 1e-3, Move.of("unroll", factor=2)) for number in range(6, 12))),
    failures=(("wrong-result", 2), ("compile-error", 1)),
    spent=(("evaluations", 18.0), ("device_s", 61.4), ("tokens", 12345.0), ("usd", 0.42)),
    work=(
        Work("a", "building", "", NOW_S - 1),
        Work("b", "checking", "", NOW_S - 14),
        Work("c", "checking", "", NOW_S - 3),
        Work("translator 4", "writing", "translator", NOW_S - 31),
    ),
)
BEGINNING = RunState(
    info=replace(INFO, epochs=1, budget=Budget()),
    began_s=NOW_S - 4,
    limit_s=2.9e-4,
    work=(Work("", REFERENCE, "softmax, true shape, normal inputs", NOW_S - 3), Work("a", "waiting", "", NOW_S - 4)),
)
STATES = {"busy": BUSY, "beginning": BEGINNING, "stopping": replace(BUSY, stopping=True)}


def drawn(state: RunState, width: int, ascii_only: bool = False) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, color_system=None, legacy_windows=False)
    console.print(search_view(state, NOW_S, width, ascii_only))
    return "".join(f"{line.rstrip()}\n" for line in console.export_text().splitlines())


@pytest.mark.parametrize(
    ("name", "width", "ascii_only"),
    [("busy", 100, False), ("busy", 60, False), ("busy", 80, True), ("beginning", 80, False), ("stopping", 100, False)],
)
def test_as_it_was_when_somebody_last_looked(name: str, width: int, ascii_only: bool) -> None:
    found = drawn(STATES[name], width, ascii_only)
    path = GOLDEN / f"search_{name}_{width}{'_ascii' if ascii_only else ''}.txt"
    assert found == path.read_text(), f"look at it, and write it to {path.name} if it is right:\n{found}"


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize("width", [40, 60, 79, 100, 200])
def test_no_line_is_longer_than_the_terminal_is_wide(state: RunState, width: int) -> None:
    assert max(map(len, drawn(state, width).splitlines())) <= width


def test_nothing_is_said_by_colour_alone() -> None:
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True, color_system="truecolor")
    console.print(search_view(BUSY, NOW_S, 100))
    coloured = console.export_text(styles=True)
    assert "\x1b[" in coloured
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert words.split() == drawn(BUSY, 100).split()


def test_only_plain_characters_where_others_cannot_be_written() -> None:
    assert drawn(replace(BUSY, population=()), 80, ascii_only=True).replace("µ", "u").isascii()


def test_the_last_line_leaves_room_for_what_ctrl_c_is_shown_as() -> None:
    for state in STATES.values():
        assert len(drawn(state, 60).splitlines()[-1]) <= 58


def test_every_time_says_where_it_is_from() -> None:
    text = drawn(BUSY, 200)
    assert "312 µs modelled, A100-80GB" in text
    assert "1.92x PyTorch eager (modelled)" in text


def test_a_sparkline_falls_with_the_times() -> None:
    assert sparkline((8.0, 4.0, 2.0, 1.0), 10) == "█▆▃▁"
    assert sparkline((3.0, 3.0), 10) == "▁▁"
    many = sparkline([1000.0 / (place + 1) for place in range(500)], 40)
    assert len(many) == 40
    assert (many[0], many[-1]) == ("█", "▁")
    assert list(many) == sorted(many, reverse=True)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (83.9, "1:23"), (3723, "1:02:03"), (-1, "0:00")])
def test_a_clock(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


# --- on a terminal ---------------------------------------------------------------------------


def screen(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=40, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_events_change_what_is_drawn_and_the_view_goes_in_the_end() -> None:
    console = screen()
    observer = TerminalObserver(Terminal(console=console), lambda: NOW_S)
    with observer.searching(BEGINNING):
        observer(Step("timing", "b"))
        result = replace(RESULT, info=BEGINNING.info, first=PLAIN, best=PLAIN)
        observer(Progress("plain", 0, result, individual=PLAIN, population=(PLAIN,), begun=1, taken=1))
    text = written(console)
    assert "plain kernel: 18.5 ms modelled, 0.03x speed-up" in text
    assert "timing 1" in text
    assert text.rindex("\x1b[?25l") < text.rindex("\x1b[?25h"), "the cursor is shown again"


def test_the_cursor_comes_back_after_ctrl_c() -> None:
    console = screen()
    observer = TerminalObserver(Terminal(console=console), lambda: NOW_S)
    with pytest.raises(KeyboardInterrupt), observer.searching(BUSY):
        raise KeyboardInterrupt
    text = written(console)
    assert text.rindex("\x1b[?25l") < text.rindex("\x1b[?25h")


@pytest.mark.parametrize("quiet", [True, False])
def test_nothing_is_rewritten_where_that_cannot_be_done(quiet: bool) -> None:
    console = screen() if quiet else Console(file=io.StringIO(), force_terminal=False)
    observer = TerminalObserver(Terminal(console=console, quiet=quiet), lambda: NOW_S)
    with observer.searching(BUSY):
        observer(Progress("begun", 0, RESULT))
    assert written(console) == ""


def test_lines_are_kept_of_generations_only() -> None:
    line = progress_line(Progress("generation", 6, BUSY.result, left="26 evaluations"))  # type: ignore[arg-type]
    assert line == (
        "generation 6 of 9: best 312 µs modelled, 1.92x speed-up, 14 evaluated, 3 failed, left: 26 evaluations"
    )
    assert progress_line(Progress("individual", 6, RESULT)) == ""
