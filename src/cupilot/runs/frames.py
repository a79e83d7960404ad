"""The part of a task's strategies that the ablation's table holds: some moves with some values, all combinations.

A frame narrows a recipe, so that the expert draws, crosses and repairs inside of it and never leaves the table.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import product
from pathlib import Path

from cupilot.errors import DataError
from cupilot.evolution.result import moves_text
from cupilot.expert import Expert
from cupilot.expert.matching import Problem
from cupilot.expert.recipe import Recipe, Start
from cupilot.expert.space import Space
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Move, Strategy, Task, Value
from cupilot.strategies import load_deck, parse

FOLDER = Path(str(files("cupilot.tasks") / "suites" / "ablation"))
FRAMES = FOLDER / "frames.toml"


@dataclass(frozen=True)
class Frame:
    """Cards by name, each with the values that its parameters may have."""

    task: str
    cards: Mapping[str, Mapping[str, tuple[Value, ...]]]

    def narrowed(self, recipe: Recipe) -> Recipe:
        """The recipe with this frame's values only, and the starting points that need no other cards."""
        if missing := self.cards.keys() - {move.card for move in recipe.moves}:
            raise DataError(f"{FRAMES.name}: the recipe {recipe.name} has no {sorted(missing)[0]}")
        moves = tuple(
            replace(move, values=tuple(self.cards[move.card].items())) if move.card in self.cards else move
            for move in recipe.moves
        )
        return replace(recipe, moves=moves, starts=tuple(start for start in recipe.starts if self._holds(start)))

    def _holds(self, start: Start) -> bool:
        return parse("\n".join(start.moves), load_deck()).cards <= self.cards.keys()

    def space(self, task: Task, spec: GpuSpec, *, starts: bool = True) -> Space:
        """The strategies of this frame; without ``starts`` no starting points are known."""
        whole = Expert().space(task, spec)
        recipe = self.narrowed(whole.problem.recipe)
        problem = Problem(task, whole.problem.form, recipe if starts else replace(recipe, starts=()))
        return replace(whole, problem=problem, only=frozenset(self.cards))


def load_frames(path: Path = FRAMES) -> tuple[Frame, ...]:
    """All frames, in the order of the file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Frame(task, {card: {name: tuple(values) for name, values in given.items()} for card, given in cards.items()})
        for task, cards in data.items()
    )


def all_strategies(space: Space) -> tuple[Strategy, ...]:
    """Every legal strategy of a space once, without moves that change nothing; the plain one is the first."""
    found: dict[str, Strategy] = {}
    for moves in product(*(tuple(_ways(space, card)) for card in space.cards)):
        strategy = Strategy(tuple(move for move in moves if move is not None))
        if not space.faults(strategy):
            strategy = space.effective(strategy)
            found.setdefault(moves_text(strategy), strategy)
    return tuple(found[text] for text in sorted(found, key=lambda text: (text != "", text)))


def _ways(space: Space, card: str) -> Iterator[Move | None]:
    """A card left out, and with each combination of its values."""
    names = [parameter.name for parameter in space.deck.card(card).parameters]
    yield None
    for values in product(*(space.choices(card, name) for name in names)):
        yield Move.of(card, "", **dict(zip(names, values, strict=True)))
