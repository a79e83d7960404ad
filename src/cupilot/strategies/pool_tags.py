"""Operators of a graph as normalised tags, and how alike two sets of tags are.

The names, families and weights are data, see ``pool_tags.toml``; an operator that is not named there is
a tag by its own name, without a family.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cupilot.errors import DataError
from cupilot.gpu.work import base_name
from cupilot.records import Task, from_plain

DATA = Path(__file__).with_name("pool_tags.toml")
FAMILY = "family:"
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True)
class _Group:
    """One line of the data file: a name and what goes by it."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Tags:
    """The data file; made by `load_tags`."""

    silent: tuple[str, ...]
    alias: tuple[_Group, ...]
    family: tuple[_Group, ...]
    weight: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        for groups in (self.alias, self.family):
            members = [member for group in groups for member in group.members]
            twice = {member for member in members if members.count(member) > 1}
            if twice:
                raise DataError(f"{DATA.name}: {min(twice)} is in two groups")
        unknown = {name for name, _ in self.weight} - {group.name for group in self.family}
        if unknown:
            raise DataError(f"{DATA.name}: weight: there is no family {min(unknown)!r}")

    @cached_property
    def aliases(self) -> dict[str, str]:
        return {member: group.name for group in self.alias for member in group.members}

    @cached_property
    def families(self) -> dict[str, str]:
        return {member: group.name for group in self.family for member in group.members}


@cache
def load_tags() -> Tags:
    """The tags that come with the program."""
    data: dict[str, Any] = tomllib.loads(DATA.read_text(encoding="utf-8"))
    for key in ("alias", "family"):
        data[key] = [{"name": name, "members": members} for name, members in data.get(key, {}).items()]
    data["weight"] = [list(pair) for pair in data.get("weight", {}).items()]
    return from_plain(Tags, data, DATA.name)


def operator_tag(target: str) -> str | None:
    """The tag of one ATen target, such as ``softmax`` for ``aten._softmax.default``; None for silent ones."""
    tags = load_tags()
    name = _NOT_IN_TAGS.sub("_", base_name(target)).strip("_").lower()
    return None if name in tags.silent or not name[:1].isalpha() else tags.aliases.get(name, name)


def family(tag: str) -> str:
    """How kernels for this operator are built, such as ``row`` for ``softmax``; empty when not known."""
    return load_tags().families.get(tag, "")


def operator_tags(task: Task) -> tuple[str, ...]:
    """Tags of a task's graph in the order of first occurrence."""
    found = (operator_tag(target) for target in task.operators)
    return tuple(dict.fromkeys(tag for tag in found if tag is not None))


def with_families(operators: Iterable[str]) -> tuple[str, ...]:
    """The tags and, as tags of their own, the families they belong to."""
    listed = tuple(operators)
    return tuple(dict.fromkeys((*listed, *(FAMILY + family(tag) for tag in listed if family(tag)))))


def likeness(one: Iterable[str], other: Iterable[str]) -> float:
    """Between 0 (no operator and no family in common) and 1 (the same operators); symmetric.

    Weighted Jaccard over operators and families: half for what is done, half for how such kernels are built.
    """
    left, right = set(with_families(one)), set(with_families(other))
    # sorted: a sum of floats must not depend on the order of a set
    union = sum(_weight(tag) for tag in sorted(left | right))
    return sum(_weight(tag) for tag in sorted(left & right)) / union if union else 0.0


@cache
def _weight(tag: str) -> float:
    group = tag.removeprefix(FAMILY) if tag.startswith(FAMILY) else family(tag)
    return dict(load_tags().weight).get(group, 1.0)
