"""Which cards to consider for a task: by operators, limit, zone, device, precision, and what paid on similar tasks.

Prompts, MCP tools and the expert choose by the same weights.  Every function is pure, and the order is total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from cupilot.gpu.roofline import place
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Card, Guidance, PoolRecord, Task, Timing
from cupilot.strategies.deck import Deck
from cupilot.strategies.pool_tags import family, operator_tags
from cupilot.tasks.flop import task_flop
from cupilot.tasks.lower_bound import task_limit
from cupilot.tasks.operators import load_catalogue

RELIEVES, FOR_THE_ZONE = 1.0, 0.5
"""Weights of a card that relieves the limit, and of one that is for the zone."""
FOR_THE_OPERATORS = 0.75
"""The weight of a card that names a family of the task's operators, in proportion to what the family says about a
kernel; a card that names only others is left to the end."""
FOR_THE_AIM, MOST_FOR_THE_AIM = 0.3, 1.2
"""The weight of a card that relieves what binds the task itself, for each factor of two that the kernel is above its
limit: what a kernel far from it waits for says little about what it should become."""
ANY_OPERATORS = 0.5
"""The weight of a card that names no family: it is of use everywhere, but made for nothing in particular."""
OTHER_OPERATORS = -3.0
LATER_LIMIT, EACH_LIMIT = 0.04, 0.02
"""Cards name the limits that they relieve most first, and one that names many relieves each of them less."""
PAID = 1.0
"""The most that a gain on a similar task weighs: for the most similar record, and a factor of two or more."""
NEXT_RECORD = 0.3
"""How much less each further record says."""
EVERYWHERE = "pointwise"
"""Nearly every task has operators of this family, so that it tells little."""


@dataclass(frozen=True)
class CardQuery:
    """What cards are chosen by; whatever is empty does not matter.

    ``task_zone`` and ``aim`` are the task's: where it lies, and what binds it in the end; ``headroom`` is the kernel's
    time over that limit.  ``parts`` are the parts of the kernel's time with their shares, ``similar`` records of the
    pool, the most similar first.
    """

    capability: float
    precision: str
    families: frozenset[str] = frozenset()
    limit: str = ""
    zone: str = ""
    task_zone: str = ""
    aim: str = ""
    headroom: float = 1.0
    parts: tuple[tuple[str, float], ...] = ()
    similar: tuple[PoolRecord, ...] = ()


def card_query(
    task: Task,
    spec: GpuSpec,
    guidance: Guidance | None = None,
    timing: Timing | None = None,
    similar: Sequence[PoolRecord] = (),
) -> CardQuery:
    """The query for a task; without guidance, limits and zones do not count."""
    families = task_families(task)
    if guidance is None:
        return CardQuery(spec.capability, task.precision, families, similar=tuple(similar))
    parts = tuple((name, time_s / timing.time_s) for name, time_s in timing.breakdown) if timing is not None else ()
    least = task_limit(spec, task).attainable
    return CardQuery(
        spec.capability, task.precision, families, guidance.limit, guidance.zone,
        place(spec, task_flop(task), task.minimal_bytes, task.precision).zone,
        "fp32" if least.flop_s > least.bytes_s else "dram", guidance.headroom, parts, tuple(similar),
    )  # fmt: skip


def task_families(task: Task) -> frozenset[str]:
    """The families of a task's operators."""
    return frozenset(found for tag in operator_tags(task) if (found := family(tag)))


def suits(card: Card, families: frozenset[str]) -> bool:
    """Whether a card is for operators of these families, or for any."""
    return not card.families or not families or bool(families & frozenset(card.families))


def rank_cards(deck: Deck, query: CardQuery) -> tuple[Card, ...]:
    """All cards that the device and the precision allow, the most promising first."""
    usable = deck.usable(capability=query.capability, precision=query.precision)
    return tuple(sorted(usable, key=lambda card: (-round(promise(card, query), 6), card.name)))


def promise(card: Card, query: CardQuery) -> float:
    """How much a card promises; larger is better."""
    relieved = sum(share for name, share in query.parts if name in card.relieves)
    vague = EACH_LIMIT * len(card.relieves)
    if query.limit in card.relieves:
        vague += LATER_LIMIT * card.relieves.index(query.limit)
    fit = _fit(card, query.families) + _paid(card, query.similar) + _aim(card, query)
    return relevance(card, query.limit, query.zone) + relieved + fit - vague


def _aim(card: Card, query: CardQuery) -> float:
    zone = FOR_THE_ZONE * (query.task_zone in card.zones and query.zone not in card.zones)
    if query.aim not in card.relieves:
        return zone
    return zone + min(MOST_FOR_THE_AIM, FOR_THE_AIM * log2(max(1.0, query.headroom)))


def relevance(card: Card, limit: str, zone: str) -> float:
    """One if it relieves the limit, plus a half if it is for the zone."""
    return RELIEVES * (limit in card.relieves) + FOR_THE_ZONE * (zone in card.zones)


def _fit(card: Card, families: frozenset[str]) -> float:
    if not families:
        return 0.0
    if not suits(card, families):
        return OTHER_OPERATORS
    if not card.families:
        return ANY_OPERATORS
    weights = load_catalogue().families
    named = frozenset(card.families) & (families - {EVERYWHERE})
    return max((FOR_THE_OPERATORS * weights[name] / max(weights.values()) for name in named), default=0.0)


def _paid(card: Card, similar: Sequence[PoolRecord]) -> float:
    weights = [
        PAID * min(1.0, max(0.0, log2(record.worth))) / (1.0 + NEXT_RECORD * place)
        for place, record in enumerate(similar)
        if card.name in record.strategy.cards
    ]
    return max(weights, default=0.0)
