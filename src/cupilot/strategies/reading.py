"""Reads a strategy out of a kernel whose origin is unknown, by the evidence of cards.

Evidence is made to refute claims, so what is found is a guess: a pattern that several cards share, such as
``__shared__``, says nothing, and a parameter that the code does not show has the card's default.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from cupilot.records import Card, Kernel, Move, Parameter, Profile, Strategy, Value
from cupilot.strategies.deck import PLACEHOLDER
from cupilot.toolchain.source import without_comments


def read_strategy(kernel: Kernel, profile: Profile | None, cards: Iterable[Card]) -> Strategy:
    """The moves of these cards that a kernel shows."""
    code = without_comments(kernel.source + "*/")
    candidates = [card for card in cards if card.evidence is not None]
    shared = Counter(text for card in candidates if card.evidence is not None for text in card.evidence.source)
    moves = (_seen(card, code, profile, shared) for card in candidates)
    return Strategy(tuple(move for move in moves if move is not None))


def _seen(card: Card, code: str, profile: Profile | None, shared: Counter[str]) -> Move | None:
    evidence = card.evidence
    assert evidence is not None
    own = [text for text in evidence.source if shared[text] == 1]
    matches = [found for text in own if (found := re.search(_capturing(text), code)) is not None]
    choices = [choice for choice, text in evidence.by_choice if re.search(text, code) is not None]
    counted = profile is not None and any(profile.total(name) > 0 for name in evidence.counters)
    if not matches and not choices and not counted:
        return None
    ratio, whole = evidence.ratio, profile.total(evidence.ratio.per) if profile is not None and evidence.ratio else 0.0
    if ratio is not None and profile is not None and whole > 0 and profile.total(ratio.counter) / whole > ratio.at_most:
        return None
    read = dict(choice.split("=", 1) for choice in reversed(choices))  # the first that is seen
    for found in matches:
        read |= {name: text for name, text in found.groupdict().items() if text is not None}
    if evidence.block_size and profile is not None and profile.launches:
        read[evidence.block_size] = str(max(profile.launches, key=lambda launch: launch.threads).threads)
    values = {parameter.name: _value(parameter, read.get(parameter.name)) for parameter in card.parameters}
    guessed = [parameter.name for parameter in card.parameters if parameter.name not in read]
    reason = "read out of the code" + (f"; {', '.join(guessed)} not seen" if guessed else "")
    return Move.of(card.name, reason, **values)


def _capturing(pattern: str) -> str:
    """The pattern with a group for each parameter."""
    names: list[str] = []

    def group(found: re.Match[str]) -> str:
        names.append(found[1])
        return rf"(?P<{found[1]}>\d+)" if names.count(found[1]) == 1 else rf"(?P={found[1]})"

    return PLACEHOLDER.sub(group, pattern)


def _value(parameter: Parameter, text: str | None) -> Value:
    return next((choice for choice in parameter.choices if str(choice) == text), parameter.default)
