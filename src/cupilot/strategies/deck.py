"""The deck: all cards, read from data files and checked when loaded."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from pathlib import Path

from cupilot.errors import DataError
from cupilot.records import PRECISIONS, Card, from_plain
from cupilot.tasks.operators import load_catalogue

ZONES = ("memory-bound", "between", "compute-bound", "latency-bound")
LIMITS = ("dram", "l2", "l1", "shared", "fp32", "tensor", "int", "sfu", "issue", "latency", "launch")

PLACEHOLDER = re.compile(r"\{([a-z]\w*)\}")
"""A parameter of the card in a pattern of its evidence."""
CARD_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]*")

SHIPPED = Path(__file__).parent / "cards"


class Deck(Mapping[str, Card]):
    """Cards by name, in alphabetical order; never changes after construction."""

    def __init__(self, cards: Iterable[Card]) -> None:
        listed = sorted(cards, key=lambda card: card.name)
        self._cards = {card.name: card for card in listed}
        if len(self._cards) != len(listed):
            twice = next(a.name for a, b in pairwise(listed) if a.name == b.name)
            raise DataError(f"card {twice}: there are two cards of this name")
        for card in listed:
            _check_values(card)
            _check_evidence(card)
            _check_links(card, self._cards)

    def __getitem__(self, name: str) -> Card:
        return self._cards[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)

    def card(self, name: str) -> Card:
        """The card of that name; a `DataError` that names near matches if there is none."""
        if name in self._cards:
            return self._cards[name]
        near = get_close_matches(name, self._cards, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known cards are {', '.join(self._cards)}"
        raise DataError(f"there is no card {name!r}; {hint}")

    def usable(self, *, capability: float, precision: str) -> tuple[Card, ...]:
        """The cards that a device of this compute capability and a task of this precision allow."""
        return tuple(card for card in self.values() if card.runs_on(capability) and card.allows(precision))

    def excluded(self, first: str, second: str) -> bool:
        """Whether two cards exclude each other; one of them naming the other is enough.

        Names without a card exclude nothing.
        """
        a, b = self.get(first), self.get(second)
        return (a is not None and second in a.excludes) or (b is not None and first in b.excludes)


def load_deck(folder: Path | None = None) -> Deck:
    """Read every ``*.toml`` of a folder, by default the built-in cards."""
    return _read(SHIPPED) if folder is None else _read.__wrapped__(folder)


@cache
def _read(folder: Path) -> Deck:
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise DataError(f"{folder}: no cards (*.toml) here")
    return Deck(_read_card(file) for file in files)


def _read_card(file: Path) -> Card:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{file.name}: {error}") from error
    card = from_plain(Card, data, where=file.name)
    if card.name != file.stem:
        raise DataError(f"{file.name}: the card is named {card.name!r}; file and card must have the same name")
    return card


def _check_values(card: Card) -> None:
    where = f"card {card.name}"
    if not CARD_NAME.fullmatch(card.name):
        raise DataError(f"{where}: a name is lower-case words joined by hyphens")
    if not card.zones or not card.relieves:
        raise DataError(f"{where}: at least one zone and one limit must be named")
    for field, values, known in (
        ("zones", card.zones, ZONES),
        ("relieves", card.relieves, LIMITS),
        ("precisions", card.precisions, PRECISIONS),
        ("families", card.families, tuple(load_catalogue().families)),
    ):
        unknown = [value for value in values if value not in known]
        if unknown:
            raise DataError(f"{where}.{field}: {unknown[0]!r} is none of {', '.join(known)}")
    names = [parameter.name for parameter in card.parameters]
    if len(set(names)) != len(names):
        raise DataError(f"{where}: a parameter is named twice")
    for parameter in card.parameters:
        if not PARAMETER_NAME.fullmatch(parameter.name):
            raise DataError(f"{where}.{parameter.name}: a parameter is lower-case words joined by underscores")
        if not parameter.choices or len({type(choice) for choice in parameter.choices}) != 1:
            raise DataError(f"{where}.{parameter.name}: choices must be one or more values of one type")


def _check_evidence(card: Card) -> None:
    evidence = card.evidence
    if evidence is None:
        return
    where = f"card {card.name}.evidence"
    if not evidence.source and not evidence.by_choice and not evidence.counters:
        raise DataError(f"{where}: at least one source pattern or counter must be named")
    for pattern in (*evidence.source, *(pattern for _, pattern in evidence.by_choice)):
        try:
            re.compile(PLACEHOLDER.sub("0", pattern))
        except re.error as error:
            raise DataError(f"{where}.source: {pattern!r} is not a regular expression: {error}") from error
    named = [name for pattern in evidence.source for name in PLACEHOLDER.findall(pattern)]
    named += [evidence.block_size] if evidence.block_size else []
    named += [choice.partition("=")[0] for choice, _ in evidence.by_choice]
    known = {parameter.name for parameter in card.parameters}
    unknown = [name for name in named if name not in known]
    if unknown:
        raise DataError(f"{where}: the card has no parameter {unknown[0]!r}")


def _check_links(card: Card, cards: Mapping[str, Card]) -> None:
    for field, names in (("needs", card.needs), ("excludes", card.excludes)):
        for name in names:
            if name == card.name or name not in cards:
                raise DataError(f"card {card.name}.{field}: there is no other card {name!r}")
    both = set(card.needs) & set(card.excludes)
    if both:
        raise DataError(f"card {card.name}: {min(both)} is both needed and excluded")
