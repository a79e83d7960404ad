"""Operators of a graph as normalised tags, and how alike two sets of tags are.

Tags, families and weights come from the operator catalogue; an operator that is not listed there is
a tag by its own name, without a family.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from cupilot.records import Task
from cupilot.tasks.operators import load_catalogue, operator

FAMILY = "family:"
_NOT_IN_TAGS = re.compile(r"[^A-Za-z0-9_]+")


def operator_tag(target: str) -> str | None:
    """The tag of one ATen target, such as ``softmax`` for ``aten._softmax.default``; None where it has none."""
    name = _NOT_IN_TAGS.sub("_", operator(target).tag).strip("_").lower()
    return name if name[:1].isalpha() else None


def family(tag: str) -> str:
    """How kernels for this operator are built, such as ``row`` for ``softmax``; empty when not known."""
    return operator(tag).family


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
    return load_catalogue().families.get(group, 1.0)
