"""A search as it is shown while it goes on: a pure function of what is known of it.

Colours and backgrounds are decoration: every word is there without them.  Lines that do not fit are folded between
words, so that 60 columns are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cupilot.contracts import REFERENCE, STAGES
from cupilot.evolution.run_state import RunState, Work
from cupilot.numbers import duration, ratio
from cupilot.records import Budget, Individual, Strategy, Timing
from cupilot.strategies.algebra import order

BLOCKS, PLAIN_BLOCKS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
BAR, PLAIN_BAR = "█░", "#."
CHIPS = 6
LABEL_WIDTH = 11
NARROWEST_BAR, WIDEST_BAR = 10, 40
HINT = "Ctrl-C: stop and keep the best"
STOPPING = "stopping: waits for what is under way; Ctrl-C: give it up"
LONG_S = 2.0
"""Work that takes longer than this says for how long it has."""


def search_view(state: RunState, now_s: float, width: int, ascii_only: bool = False) -> RenderableType:
    """All of it, from the title to the budget."""
    inner = max(width - LABEL_WIDTH - 1, 20)
    rows = [
        ("progress", _progress(state, inner, ascii_only)),
        ("best", _best(state)),
        ("so far", _convergence(state, inner, ascii_only)),
        ("population", _population(state, inner)),
        ("now", _stages(state, now_s)),
        ("failures", _failures(state)),
        ("budget", _budget(state, now_s)),
    ]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH, no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for label, content in rows:
        grid.add_row(label, content)
    # the last line is short: the ^C that terminals put behind it must not begin another
    hint = Text(STOPPING if state.stopping else HINT, style="dim")
    return Group(_title(state, now_s, width, ascii_only), grid, hint)


def _title(state: RunState, now_s: float, width: int, ascii_only: bool) -> Text:
    info = state.info
    text = f"{info.task} on {info.device}, agents {info.agents}, seed {info.seed} "
    clock = f" {clock_time(now_s - state.began_s)}"
    text = text if len(text) + len(clock) <= width else f"{info.task} "
    rule = ("-" if ascii_only else "─") * max(width - len(text) - len(clock), 0)
    return Text.assemble((text, "bold"), (rule, "dim"), clock, no_wrap=True, overflow="ellipsis")


def _progress(state: RunState, width: int, ascii_only: bool) -> Text:
    if state.result is None:
        return Text("evaluating the plain kernel")
    info = state.info
    epoch = f"epoch {state.epoch} of {info.epochs}, " if info.epochs > 1 else ""
    text = f"{epoch}generation {state.generation} of {state.last_generation} "
    counts = f" {state.taken} of {state.planned} candidates at most"
    full, empty = tuple(PLAIN_BAR if ascii_only else BAR)
    room = min(max(width - len(text) - len(counts), NARROWEST_BAR), WIDEST_BAR)
    done = min(room, round(room * state.taken / state.planned))
    return Text.assemble(text, (full * done, "green"), (empty * (room - done), "dim"), counts)


def _best(state: RunState) -> Text:
    if state.result is None:
        return Text("not known yet", style="dim")
    best, first = state.result.best, state.result.first
    timing = best.evaluation.timing
    assert timing is not None
    parts: list[str | tuple[str, str]] = [(duration(timing.time_s), "bold green"), f" {source_of(timing)}"]
    speedup, baseline = best.evaluation.speedup, best.evaluation.baseline
    if speedup is not None and baseline is not None:
        parts += [", ", (ratio(speedup), "bold"), f" PyTorch eager ({baseline.source})"]
    if first.time_s is not None and best is not first:
        parts.append(f", {ratio(first.time_s / timing.time_s)} the plain kernel")
    if state.limit_s is not None:
        parts.append(f", {state.limit_s / timing.time_s:.0%} of the attainable speed")
    return Text.assemble(*parts)


def source_of(timing: Timing) -> str:
    """Where a time is from, such as ``modelled, A100-80GB``."""
    return f"{timing.source}, {timing.device.removeprefix('virtual:').upper()}"


def _convergence(state: RunState, width: int, ascii_only: bool) -> Text:
    if not state.history:
        return Text("")
    ends = f" {duration(state.history[0])} to {duration(state.history[-1])}"
    line = sparkline(state.history, max(width - len(ends), 8), PLAIN_BLOCKS if ascii_only else BLOCKS)
    return Text.assemble((line, "cyan"), ends)


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """One character per value, evenly picked when there are too many; heights are logarithmic, as speed-ups are."""
    if len(values) > width:
        values = [values[round(place * (len(values) - 1) / (width - 1))] for place in range(width)]
    low, high = math.log(min(values)), math.log(max(values))
    if high - low < 1e-9:
        return blocks[0] * len(values)
    return "".join(blocks[round((math.log(value) - low) / (high - low) * (len(blocks) - 1))] for value in values)


def _population(state: RunState, width: int) -> RenderableType:
    """A line for each of the fastest: id, time, and its moves as chips."""
    if not state.population:
        return Text("none yet", style="dim")
    best = state.result.best.id if state.result is not None else -1
    shown = state.population[:CHIPS]
    lines: list[RenderableType] = []
    for one in shown:
        head = f"{'*' if one.id == best else ' '}{one.id:<3} {duration(one.time_s or 0.0):>8}  "
        line = Text.assemble((head, "bold" if one.id == best else ""), *chips(one))
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
        lines.append(line)
    if len(state.population) > len(shown):
        lines.append(Text(f" and {len(state.population) - len(shown)} more", style="dim"))
    return Group(*lines)


def chips(individual: Individual) -> list[tuple[str, str] | str]:
    """The moves, each as short as it can be told."""
    if not individual.strategy.moves:
        return ["plain" if individual.origin == "plain" else "no move"]
    found: list[tuple[str, str] | str] = []
    for name in chip_texts(individual.strategy):
        found += [(f" {name} ", "white on grey30"), " "]
    return found


def chip_texts(strategy: Strategy) -> list[str]:
    """``block-size 256``: a card, and the values of its parameters without their names."""
    return [
        " ".join((move.card, *(_short(value) for _, value in move.parameters))).replace("_", "-")
        for move in order(strategy).moves
    ]


def _short(value: bool | int | float | str) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else f"{value}"


def _stages(state: RunState, now_s: float) -> Text:
    parts: list[tuple[str, str] | str] = []
    for stage in STAGES:
        work = state.at(stage)
        if stage == "waiting" and not work:
            continue
        text = f"{stage} {len(work)}" + (_since(work[0], now_s) if work else "")
        parts += [(text, "" if work else "dim"), "  "]
    for one in state.at(REFERENCE):
        parts += [f"reference {one.what}{_since(one, now_s)}"]
    return Text.assemble(*parts)


def _since(work: Work, now_s: float) -> str:
    return f" ({now_s - work.since_s:.0f} s)" if now_s - work.since_s >= LONG_S else ""


def _failures(state: RunState) -> Text:
    if state.result is None or not state.failures:
        return Text("none", style="dim")
    kinds = ", ".join(f"{kind} {count}" for kind, count in state.failures)
    return Text(f"{state.result.failures}: {kinds}", style="red")


def _budget(state: RunState, now_s: float) -> Text:
    """What is used, and of capped things what is left."""
    spent = dict(state.spent) | {"wall_s": now_s - state.began_s}
    spent["evaluations"] = state.result.evaluations if state.result is not None else 0
    caps = state.info.budget
    parts = []
    for name, words, digits, cap in (
        ("evaluations", "evaluations", 0, caps.evaluations),
        ("wall_s", "s", 0, caps.wall_s),
        ("device_s", "s evaluating", 0, caps.device_s),
        ("tokens", "tokens", 0, caps.tokens),
        ("usd", "USD", 2, caps.usd),
    ):
        used = spent.get(name, 0.0)
        if cap is not None:
            parts.append(f"{used:.{digits}f} of {cap:.{digits}f} {words} ({max(cap - used, 0):.{digits}f} left)")
        elif used or name in ("evaluations", "wall_s"):
            parts.append(f"{used:.{digits}f} {words}")
    return Text(", ".join(parts) + ("; no cap" if caps == Budget() else ""))


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
