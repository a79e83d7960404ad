"""From inventions to cards: moves that no card describes, but that were part of strategies that paid off."""

from __future__ import annotations

from collections.abc import Sequence

from cupilot.records import Card, Parameter, Value
from cupilot.records.pool import PoolRecord
from cupilot.strategies.deck import LIMITS, ZONES, Deck
from cupilot.strategies.pool import Pool

LEAST_GAIN = 1.2
MOST_REASONS, MOST_TASKS, MOST_CARDS = 3, 8, 16


def proven_cards(pool: Pool, deck: Deck, least_gain: float = LEAST_GAIN, *, besides: str = "") -> tuple[Card, ...]:
    """A card for every move without one that occurs in a record of at least this gain, by name.

    Of more than 16 the ones with the largest gain.  ``besides`` is the digest of a task (as in `Proof`) whose own
    records are left out.

    Title and text come from the name and the reasons given, zones and limits from the records, parameters
    from the values that were used, the most successful first.  The gain is that of whole strategies: that
    the move earned it is not shown, which is why such a card names nothing it needs or excludes.
    A move whose records have no zone or no limit becomes no card.
    """
    proven = [record for record in pool.records() if record.gain >= least_gain and record.proof.task != besides]
    proven.sort(key=lambda record: (-record.gain, record.id))
    names = dict.fromkeys(move.card for record in proven for move in record.strategy.moves if move.card not in deck)
    cards = (_card(name, [record for record in proven if name in record.strategy.cards]) for name in names)
    found = [card for card in cards if card.zones and card.relieves][:MOST_CARDS]
    return tuple(sorted(found, key=lambda card: card.name))


def _card(name: str, records: Sequence[PoolRecord]) -> Card:
    moves = [move for record in records if (move := record.strategy.move(name)) is not None]
    reasons = list(dict.fromkeys(" ".join(move.reason.split()) for move in moves if move.reason.strip()))
    title = name.replace("-", " ").capitalize()
    tasks = ", ".join(sorted({record.task for record in records})[:MOST_TASKS])
    told = " ".join(reason if reason.endswith((".", "!", "?")) else f"{reason}." for reason in reasons[:MOST_REASONS])
    gain = f"{records[0].gain:.2f}x over plain kernels"
    return Card(
        name=name,
        title=title,
        text=f"{told or title + '.'} Part of strategies that gained up to {gain} on {tasks}.",
        zones=tuple(zone for zone in ZONES if any(record.zone == zone for record in records)),
        relieves=tuple(limit for limit in LIMITS if any(record.limit == limit for record in records)),
        parameters=_parameters([dict(move.parameters) for move in moves]),
    )


def _parameters(used: Sequence[dict[str, Value]]) -> tuple[Parameter, ...]:
    """Every parameter seen; values of another type than the most successful one's are left out."""
    found = []
    for name in sorted({name for values in used for name in values}):
        seen = [values[name] for values in used if name in values]
        found.append(Parameter(name, tuple(dict.fromkeys(value for value in seen if type(value) is type(seen[0])))))
    return tuple(found)
