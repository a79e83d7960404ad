"""Recipes: the kernels that the expert can write, as data.

A recipe is a folder with ``recipe.toml`` (what it matches, which cards it realises, what is legal) and ``kernel.cu.j2``
(the kernel).  Recipes are found by scanning the folder: adding one edits no other file.  Expressions in the file see
the names defined before them: the facts of the form (see `cupilot.expert.forms`), the recipe's own ``facts``, every
card of the recipe by its name with underscores (false when absent, else with its parameters as attributes), and
``derived`` values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cupilot.errors import DataError
from cupilot.expert.expressions import check_names, value_of
from cupilot.expert.forms import COMMON, forms
from cupilot.records import Value, from_plain
from cupilot.strategies import LIMITS, Deck, load_deck, parse

FOLDER = Path(__file__).with_name("recipes")
Named = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Rule:
    """A condition, and the message when it does not hold."""

    rule: str
    text: str


@dataclass(frozen=True)
class Matching:
    """The form, and conditions on its facts; of several matching recipes the one with the highest rank is used."""

    form: str
    rules: tuple[Rule, ...] = ()
    rank: int = 0


@dataclass(frozen=True)
class Realised:
    """A card that this recipe realises.

    ``values`` narrows the card's choices, the first being the default; ``needs`` are further cards that *this kernel*
    needs, where ``a|b`` means either.
    """

    card: str
    needs: tuple[str, ...] = ()
    values: tuple[tuple[str, tuple[Value, ...]], ...] = ()


@dataclass(frozen=True)
class Idle:
    """A condition under which a move changes nothing in the kernel."""

    card: str
    when: str
    text: str


@dataclass(frozen=True)
class Smaller:
    """What to reduce when resources run out: a move is dropped, or a parameter takes its next smaller value."""

    card: str
    parameter: str = ""


@dataclass(frozen=True)
class Start:
    """A strategy to try early: for these ``limits``, and for tasks whose facts fulfil ``when``."""

    moves: tuple[str, ...]
    limits: tuple[str, ...] = ()
    when: str = "True"


@dataclass(frozen=True)
class Recipe:
    """See the module's docstring; ``name`` is the recipe's folder, ``root`` the folder that contains it."""

    name: str
    root: str
    match: Matching
    moves: tuple[Realised, ...]
    facts: Named = ()
    derived: Named = ()
    rules: tuple[Rule, ...] = ()
    idle: tuple[Idle, ...] = ()
    smaller: tuple[Smaller, ...] = ()
    starts: tuple[Start, ...] = ()

    def known(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The form's facts and the recipe's own."""
        names = dict(facts)
        for name, expression in self.facts:
            names[name] = value_of(expression, names)
        return names

    def realised(self, card: str) -> Realised | None:
        for move in self.moves:
            if move.card == card:
                return move
        return None

    def choices(self, card: str, parameter: str, deck: Deck) -> tuple[Value, ...]:
        """The values this recipe allows, the default first."""
        realised = self.realised(card)
        narrowed = dict(realised.values) if realised is not None else {}
        return narrowed.get(parameter) or deck.card(card).parameter(parameter).choices


def identifier(card: str) -> str:
    """A card's name in expressions and templates."""
    return card.replace("-", "_")


def load_recipes(folder: Path | None = None) -> tuple[Recipe, ...]:
    """All recipes of a folder, by rank, then by name; by default the built-in ones."""
    return _load(FOLDER if folder is None else folder)


@cache
def _load(folder: Path) -> tuple[Recipe, ...]:
    recipes = (read_recipe(file) for file in sorted(folder.glob("*/recipe.toml")))
    return tuple(sorted(recipes, key=lambda recipe: -recipe.match.rank))


def read_recipe(file: Path) -> Recipe:
    """One ``recipe.toml``, checked against the deck; a mistake is a `DataError`."""
    where = f"{file.parent.name}/{file.name}"
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where}: {error}") from error
    for table in ("facts", "derived"):
        if isinstance(data.get(table), dict):
            data[table] = list(map(list, data[table].items()))
    for move in data.get("moves", ()):
        if isinstance(move.get("values"), dict):
            move["values"] = list(map(list, move["values"].items()))
    if "name" in data or "root" in data:
        raise DataError(f"{where}: a recipe's name is that of its folder, not a key")
    place = {"name": file.parent.name, "root": str(file.parent.parent)}
    recipe = from_plain(Recipe, {**place, **data}, where=where)
    _check_cards(recipe, load_deck(), where)
    _check_expressions(recipe, where)
    return recipe


def _check_cards(recipe: Recipe, deck: Deck, where: str) -> None:
    cards = [move.card for move in recipe.moves]
    for move in recipe.moves:
        known = {parameter.name: parameter.choices for parameter in deck.card(move.card).parameters}
        for name, values in move.values:
            if name not in known or not values or any(value not in known[name] for value in values):
                raise DataError(f"{where}: the values of {move.card}.{name} are not among the card's choices")
        named = (*deck[move.card].needs, *(name for need in move.needs for name in need.split("|")))
        missing = [name for name in named if name not in cards]
        if missing:
            raise DataError(f"{where}: {move.card} needs {missing[0]}, which the recipe does not realise")
    for card in (*(idle.card for idle in recipe.idle), *(smaller.card for smaller in recipe.smaller)):
        if card not in cards:
            raise DataError(f"{where}: the recipe does not realise {card}")
    for start in recipe.starts:
        unknown = [card for card in parse("\n".join(start.moves), deck).cards if card not in cards]
        unknown += [limit for limit in start.limits if limit not in LIMITS]
        if unknown:
            raise DataError(f"{where}: a start names {unknown[0]!r}")


def _check_expressions(recipe: Recipe, where: str) -> None:
    form = forms().get(recipe.match.form)
    if form is None:
        raise DataError(f"{where}: there is no form {recipe.match.form!r}; there are {', '.join(forms())}")
    known = [*COMMON, *form.FACTS]
    for rule in recipe.match.rules:
        check_names(rule.rule, known, where)
    for name, expression in recipe.facts:
        check_names(expression, known, where)
        known.append(name)
    for start in recipe.starts:
        check_names(start.when, known, where)
    known += [identifier(move.card) for move in recipe.moves]
    for name, expression in recipe.derived:
        check_names(expression, known, where)
        known.append(name)
    for condition in (*(rule.rule for rule in recipe.rules), *(idle.when for idle in recipe.idle)):
        check_names(condition, known, where)
