"""From a strategy to what the code really does: the moves that its writer reported, checked by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cupilot.agents.evidence import check
from cupilot.agents.replies import ObservedMove
from cupilot.agents.reply_parsing import parse_move, reported_moves, with_remarks
from cupilot.contracts import Brief
from cupilot.records import Kernel, Move, Profile, Strategy
from cupilot.strategies import Deck, move_text, order, same

REALISED = " Realised: "
"""Between the idea of a strategy and what its writer says was done."""


@dataclass(frozen=True)
class Report:
    """What the writer of a kernel says of it: the moves, each with a quoted line, and what was done."""

    moves: tuple[ObservedMove, ...]
    notes: str = ""


class Reports:
    """The reports of one run, by candidate and kernel; for several threads, as candidates share no entry."""

    def __init__(self) -> None:
        self._reports: dict[tuple[int, str], Report] = {}

    def keep(self, brief: Brief, kernel: Kernel, report: Report) -> None:
        self._reports[brief.sample, kernel.digest] = report

    def find(self, brief: Brief, kernel: Kernel) -> Report | None:
        return self._reports.get((brief.sample, kernel.digest))


def aligned(strategy: Strategy, report: Report | None, deck: Deck, kernel: Kernel, profile: Profile | None) -> Strategy:
    """The strategy as the report words it, without the moves that are not visible in the kernel or its counters.

    Without a report the planned moves are checked by evidence alone.  The text says what became of the plan.
    """
    if report is None:
        checked = check(strategy, deck, kernel, profile, None)
        return Strategy(checked.moves, with_remarks(strategy.text, _struck(checked.struck)))
    claimed = order(Strategy(tuple(_with_reason(move, strategy) for move in _moves(report, deck))))
    checked = check(claimed, deck, kernel, profile, _quotes(report, deck))
    left_out = [f"left out {move_text(move)}" for move in strategy.moves if move.card not in claimed.cards]
    added = [f"added {move_text(move)}" for move in checked.moves if move.card not in strategy.cards]
    if REALISED in strategy.text and same(Strategy(checked.moves), strategy):
        return strategy  # it was aligned before
    text = f"{strategy.text}{REALISED}{report.notes.strip() or 'as planned'}"
    return Strategy(checked.moves, with_remarks(text, [*left_out, *added, *_struck(checked.struck)]))


def _moves(report: Report, deck: Deck) -> tuple[Move, ...]:
    return reported_moves([seen.move for seen in report.moves], deck)


def _quotes(report: Report, deck: Deck) -> Mapping[str, str]:
    read = [(parse_move(seen.move, deck), seen.quote) for seen in report.moves]
    return {move.card: quote for move, quote in read if move is not None}


def _struck(reasons: Sequence[str]) -> list[str]:
    return [f"struck {reason}" for reason in reasons]


def _with_reason(move: Move, strategy: Strategy) -> Move:
    """The move as it was re-worded; one without a reason has that which it was chosen for."""
    planned = strategy.move(move.card)
    return move if move.reason or planned is None else replace(move, reason=planned.reason)
