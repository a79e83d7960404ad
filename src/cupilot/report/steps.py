"""From parent to child: which moves changed, and what that did to the time and to each of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cupilot.records import Individual, Move, Strategy
from cupilot.strategies.algebra import move_text
from cupilot.strategies.deck import Deck

SMALL = 0.02
"""A part of the time that changes by less than this share of the shorter time is not worth a word."""


@dataclass(frozen=True)
class Change:
    """One move of a step: ``kind`` is ``added``, ``dropped`` or ``changed``; ``text`` has its parameters."""

    kind: str
    card: str
    text: str


@dataclass(frozen=True)
class PartChange:
    """A part of the time, as timing breakdowns name it, before and after."""

    limit: str
    before_s: float
    after_s: float

    @property
    def saved_s(self) -> float:
        return self.before_s - self.after_s


@dataclass(frozen=True)
class Step:
    """A child against ``base``, its fastest parent that has a time.

    ``gain`` is the parent's time over the child's, None where one of them has none; ``limit`` is the parent's, and
    ``parts`` are those that changed, the largest change first.
    """

    base: int
    changes: tuple[Change, ...]
    gain: float | None = None
    limit: str = ""
    parts: tuple[PartChange, ...] = ()


def changes(before: Strategy, after: Strategy) -> tuple[Change, ...]:
    found = []
    for move in after.moves:
        old = before.move(move.card)
        if old is None:
            found.append(Change("added", move.card, move_text(move)))
        elif not old.same(move):
            found.append(Change("changed", move.card, f"{move.card}({_parameters(old, move)})"))
    found += [Change("dropped", m.card, move_text(m)) for m in before.moves if after.move(m.card) is None]
    return tuple(found)


def _parameters(old: Move, new: Move) -> str:
    """The parameters that differ, such as ``width 2 → 4``."""
    given, was = dict(new.parameters), dict(old.parameters)
    names = [name for name in (was | given) if was.get(name) != given.get(name)]
    return ", ".join(f"{name} {was.get(name, 'none')} → {given.get(name, 'none')}" for name in names)


def parts(before: Individual, after: Individual) -> tuple[PartChange, ...]:
    """Every part of either's time, the largest change first; none where a breakdown is not known."""
    old, new = before.evaluation.timing, after.evaluation.timing
    if old is None or new is None or not old.breakdown or not new.breakdown:
        return ()
    was, now = dict(old.breakdown), dict(new.breakdown)
    found = [PartChange(name, was.get(name, 0.0), now.get(name, 0.0)) for name in was | now]
    return tuple(sorted(found, key=lambda part: (-abs(part.saved_s), part.limit)))


def step(child: Individual, known: Mapping[int, Individual]) -> Step | None:
    """What a child has of its parents; None for one without any."""
    parents = [known[id_] for id_ in child.parents if id_ in known]
    if not parents:
        return None
    base = min(parents, key=lambda one: (one.time_s is None, one.time_s or 0.0, one.id))
    timing = base.evaluation.timing
    changed = changes(base.strategy, child.strategy)
    if base.time_s is None or child.time_s is None or timing is None:
        return Step(base.id, changed)
    least_s = SMALL * min(base.time_s, child.time_s)
    worth = [part for part in parts(base, child) if abs(part.saved_s) >= least_s]
    return Step(base.id, changed, base.time_s / child.time_s, timing.limit, tuple(worth))


def steps(individuals: Sequence[Individual]) -> dict[int, Step]:
    """By child."""
    known = {one.id: one for one in individuals}
    return {one.id: found for one in individuals if (found := step(one, known)) is not None}


def path(individual: Individual, individuals: Sequence[Individual]) -> tuple[Individual, ...]:
    """How an individual came about: from the plain kernel along the fastest parents."""
    known, taken = {one.id: one for one in individuals}, steps(individuals)
    found = [individual]
    while (before := taken.get(found[-1].id)) is not None and before.base not in {one.id for one in found}:
        found.append(known[before.base])
    return tuple(reversed(found))


# --- moves ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MoveWorth:
    """What a card came to in a run.

    ``used`` individuals have it and ``failed`` of them failed.  ``alone`` are the gains of the steps that added or
    changed it and nothing else, which are its own; ``together`` those of steps that did more.  ``relieved`` is the
    limit on which those steps, taken together, saved most.
    """

    card: str
    title: str
    used: int
    failed: int
    alone: tuple[float, ...]
    together: tuple[float, ...]
    relieved: str
    in_best: bool

    @property
    def typical(self) -> float | None:
        """The median of its own gains, or of the shared ones where there is no other."""
        gains = self.alone or self.together
        return median(gains) if gains else None


def worths(individuals: Sequence[Individual], best: Individual | None, deck: Deck) -> tuple[MoveWorth, ...]:
    """One for each card that was used, the best first."""
    taken = steps(individuals)
    cards = dict.fromkeys(move.card for one in individuals for move in one.strategy.moves)
    found = [_worth(card, individuals, taken, best, deck) for card in cards]
    return tuple(sorted(found, key=lambda worth: (not worth.in_best, -(worth.typical or 0.0), worth.card)))


def _worth(
    card: str, individuals: Sequence[Individual], taken: Mapping[int, Step], best: Individual | None, deck: Deck
) -> MoveWorth:
    having = [one for one in individuals if card in one.strategy.cards]
    alone: list[float] = []
    together: list[float] = []
    saved_s: dict[str, float] = {}
    for one in having:
        at = taken.get(one.id)
        if at is None or at.gain is None:
            continue
        touched = [change for change in at.changes if change.card == card and change.kind != "dropped"]
        if not touched:
            continue
        (alone if len(at.changes) == 1 else together).append(at.gain)
        for part in at.parts:
            saved_s[part.limit] = saved_s.get(part.limit, 0.0) + part.saved_s
    relieved = max(saved_s, key=lambda limit: saved_s[limit], default="")
    known = deck.get(card)
    failed = sum(one.time_s is None and one.superseded_by is None for one in having)
    return MoveWorth(
        card, card if known is None else known.title, len(having), failed,
        tuple(alone), tuple(together), relieved if saved_s.get(relieved, 0.0) > 0 else "",
        best is not None and card in best.strategy.cards,
    )  # fmt: skip
