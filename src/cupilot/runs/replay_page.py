"""docs/ablation.md, from the results of a replay study; every sentence about a result follows from its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cupilot.runs.frames import load_frames
from cupilot.runs.replay import Table
from cupilot.runs.replay_study import CANDIDATES, HORIZONS, LOSSES, RESAMPLES, Estimate, Result

SHOWN = 1
"""The place among the horizons whose ratios decide."""
WORTH = 0.005
"""A relative difference below which nobody would notice, whatever its interval."""

HEAD = """\
# What the parts of the method are worth

<!-- written by benchmarks/ablation_replay.py: change that, not this -->

Searches are replayed on tables: every strategy of a part of the space (a *frame*) of {count} tasks ({frames}
have a frame) was evaluated once, and the real loop with the expert's real choices looks times up. Every legal
child is in the table, so nothing is interpolated. {searches} searches: {seeds} seeds for each task and variant,
{candidates} candidates after the plain kernel each.

| task | strategies | without a time | plain over best | median over best | within 5 % of the best |
|---|---|---|---|---|---|
{tables}

- Times are **modelled** for an A100-80GB at the tasks' own shapes. Entries were checked less than candidates of
  a search are: one smaller version on normal inputs, and the findings of the blocks that ran at the true shape.
- A frame is smaller than the expert's space: some values of parameters are left out, and for products and
  convolutions some moves. A search has seen up to a third of a frame in the end; after {late} candidates most
  searches are near the best, whatever the variant. The first two columns of ratios say more.
- There are no agents here that misunderstand, except below, where moves are lost on purpose, and no repairs.
  What language models gain from profiles and tools is not in these numbers.

`cupilot bench table` makes the tables, `python benchmarks/ablation_replay.py` this page.

A candidate counts whatever came of it. Ratios are times against the variant it is compared with after
{horizons} candidates, geometric means over seeds and tasks, with 95 % intervals (bootstrap over seeds,
{resamples} resamples): above 1 the change made it worse.
"""

TABLE_HEAD = (
    "| variant | over the table's best after {horizons} | ratio after {first} | after {second} | after {third} |"
    " candidates to 5 % | reached |\n|---|---|---|---|---|---|---|\n"
)


def page(tables: Sequence[Table], results: Sequence[Result], seeds: int) -> str:
    """The whole page."""
    by_name = {result.variant: result for result in results}
    variants = len(results) - 1  # the pool against nothing is a comparison of two that are there
    text = HEAD.format(
        count=len(tables), frames=len(load_frames()), searches=variants * seeds * len(tables), seeds=seeds,
        candidates=CANDIDATES,
        tables="\n".join(map(_of_table, tables)), late=HORIZONS[-1], horizons=_and(map(str, HORIZONS)),
        resamples=RESAMPLES,
    )  # fmt: skip
    parts = [text]
    for setting, title, told in SETTINGS:
        listed = [result for result in results if result.against == setting and ", " in result.variant]
        parts.append(f"## {title}\n\n{told}\n\n{_rows([by_name[setting], *listed])}\n{_told(listed)}\n")
    known = [by_name[name] for name in ("the pool", "starting points", "starting points and pool")]
    parts.append(f"## What is known beforehand\n\n{KNOWN}\n\n{_rows(known)}\n{_told(known)}\n")
    parts.append(f"## Moves that are lost when code is written\n\n{LOSING}\n\n{_losses(by_name)}\n")
    return "\n".join(parts)


SETTINGS = (
    ("from nothing", "From nothing", "Neither starting points nor the pool: the first strategies are drawn."),
    ("from the pool", "From the pool", "The shipped pool's strategies of similar tasks, and drawn ones beside them."),
)
KNOWN = "What strategies of earlier runs and the starting points that recipes know are worth."
LOSING = """\
A language model that is to write *n* moves does not always write all of them. Here each move of a child is lost
with the given
probability. Whoever crosses code has to find the moves in two kernels before they can be written, so a move can
be lost twice, and
does not know which moves need or exclude each other: such a child is a failure. `strategies` cross strategies
and align them with the
code afterwards. The published observation that about 1 % of children crossed in code kept all strategies of the
most complex kernels
corresponds to a loss of about 20 to 40 % here, by the number of moves."""


def _of_table(table: Table) -> str:
    times = sorted(entry.time_s for entry in table.entries.values() if entry.time_s is not None)
    plain, best = table.entries[""].time_s, times[0]
    near = sum(time_s <= 1.05 * best for time_s in times)
    return (
        f"| {table.task.name} | {len(table.entries)} | {len(table.entries) - len(times)} | {(plain or 0.0) / best:.2f}x"
        f" | {times[len(times) // 2] / best:.2f}x | {near} |"
    )


def _rows(results: Iterable[Result]) -> str:
    first, second, third = HORIZONS
    head = TABLE_HEAD.format(horizons=_and(map(str, HORIZONS)), first=first, second=second, third=third)
    return head + "".join(map(_row, results))


def _row(result: Result) -> str:
    over = ", ".join(f"{value:.3f}" for value in result.over_best)
    is_base = result.variant == result.against
    ratios = " | ".join("" if is_base else _interval(ratio) for ratio in result.ratios)
    needed = f"{result.needed.mean:.1f} ({result.needed.low:.1f} to {result.needed.high:.1f})"
    name = result.variant.removeprefix(f"{result.against}, ")
    return f"| {name} | {over} | {ratios} | {needed} | {result.reached:.0%} |\n"


def _interval(estimate: Estimate) -> str:
    text = f"{estimate.mean:.3f} ({estimate.low:.3f} to {estimate.high:.3f})"
    return f"**{text}**" if _decides(estimate) else text


def _decides(estimate: Estimate) -> bool:
    return (estimate.is_above_one or estimate.is_below_one) and abs(estimate.mean - 1.0) >= WORTH


def _told(results: Iterable[Result]) -> str:
    return "".join(f"- **{result.variant}**: {_verdict(result)}\n" for result in results)


def _verdict(result: Result) -> str:
    ratio = result.ratios[SHOWN]
    against = f"than {result.against}"
    after = f"after {HORIZONS[SHOWN]} candidates"
    if not _decides(ratio):
        return f"no difference shown {after} ({_percent(ratio.low)} to {_percent(ratio.high)}).{_where(result)}"
    worse = "slower" if ratio.is_above_one else "faster"
    return f"{abs(ratio.mean - 1.0):.1%} {worse} {against} {after}.{_where(result)}"


def _where(result: Result) -> str:
    """The tasks at the ends, where they differ by more than nobody would notice."""
    ordered = sorted(result.tasks, key=lambda pair: pair[1])
    (least, low), (most, high) = ordered[0], ordered[-1]
    named = [f"{name} {_percent(ratio)}" for name, ratio in ((least, low), (most, high)) if abs(ratio - 1.0) >= WORTH]
    return f" By task: {', '.join(dict.fromkeys(named))} at the ends." if named else ""


def _percent(ratio: float) -> str:
    return f"{ratio - 1.0:+.1%}"


def _losses(by_name: dict[str, Result]) -> str:
    first, second, third = HORIZONS
    lines = [
        f"| loss per move | crossed children that kept all: strategies | code | code over strategies after {first} |"
        f" after {second} | after {third} | candidates to 5 %: strategies | code |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for loss in LOSSES:
        strategies, code = by_name[f"strategies, loss {loss:.0%}"], by_name[f"code, loss {loss:.0%}"]
        kept = " | ".join("all" if each.kept is None else f"{each.kept:.0%}" for each in (strategies, code))
        ratios = " | ".join(map(_interval, code.ratios))
        lines.append(f"| {loss:.0%} | {kept} | {ratios} | {strategies.needed.mean:.1f} | {code.needed.mean:.1f} |")
    told = [_verdict_of_loss(loss, by_name[f"code, loss {loss:.0%}"]) for loss in LOSSES]
    return "\n".join([*lines, "", *told])


def _verdict_of_loss(loss: float, code: Result) -> str:
    return f"- With a loss of {loss:.0%} per move, crossing code is {_verdict(code)}"


def _and(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}"
