"""Whether a move can be seen in a kernel: in its source without comments, its counters and its launches.

What to look for is the `Evidence` of the move's card.  The check finds claims that are plainly false; it does not
prove true ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cupilot.records import Kernel, Move, Profile, Strategy
from cupilot.strategies import Deck
from cupilot.strategies.deck import PLACEHOLDER
from cupilot.toolchain.source import without_comments

LEAST_QUOTE_CHARACTERS = 6
"""A shorter quote could stand anywhere."""


@dataclass(frozen=True)
class Checked:
    """The moves that are visible, and why each of the others is not."""

    moves: tuple[Move, ...]
    struck: tuple[str, ...]


def check(
    strategy: Strategy, deck: Deck, kernel: Kernel, profile: Profile | None, quotes: Mapping[str, str] | None
) -> Checked:
    """The moves of a strategy that are visible in a kernel.

    ``quotes`` are source lines by move; a move without evidence needs one.  With None, because no model was asked,
    such moves stay.
    """
    code = without_comments(kernel.source + "*/")
    kept: list[Move] = []
    struck: list[str] = []
    for move in strategy.moves:
        why = _missing(move, deck, code, profile, quotes)
        if why:
            struck.append(f"{move.card}: {why}")
        else:
            kept.append(move)
    return Checked(tuple(kept), tuple(struck))


def _missing(move: Move, deck: Deck, code: str, profile: Profile | None, quotes: Mapping[str, str] | None) -> str:
    """Why a move is not visible; empty when it is."""
    card = deck.get(move.card)
    evidence = card.evidence if card is not None else None
    if evidence is None:
        return "" if quotes is None or _quoted(quotes.get(move.card, ""), code) else "no line of the source was quoted"
    counted = profile is not None and any(profile.total(name) > 0 for name in evidence.counters)
    patterns = [*evidence.source, *(text for choice, text in evidence.by_choice if _chosen(choice, move))]
    if not counted and not any(re.search(_pattern(text, move), code) for text in patterns):
        return "it is not visible in the source"
    if profile is None or not profile.launches:
        return ""
    wanted = move.get(evidence.block_size) if evidence.block_size else None
    if wanted is not None and all(launch.threads != wanted for launch in profile.launches):
        blocks = ", ".join(dict.fromkeys(str(launch.threads) for launch in profile.launches))
        return f"blocks have {blocks} threads"
    if (ratio := evidence.ratio) is not None and (whole := profile.total(ratio.per)) > 0:
        found = profile.total(ratio.counter) / whole
        if found > ratio.at_most:
            return f"{found:.3g} {ratio.counter} to one of {ratio.per}"
    return ""


def _chosen(choice: str, move: Move) -> bool:
    """Whether a pattern for one value of a parameter is for this move; one that lacks the parameter may be any."""
    name, _, value = choice.partition("=")
    return str(move.get(name, value)) == value


def _pattern(text: str, move: Move) -> str:
    """The pattern with the move's parameters filled in; a parameter that the move lacks matches any number."""
    return PLACEHOLDER.sub(lambda found: re.escape(str(move.get(found[1], ""))) or r"\d+", text)


def _quoted(quote: str, code: str) -> bool:
    lines = {" ".join(line.split()) for line in code.split("\n")}
    wanted = " ".join(without_comments(quote + "*/").removesuffix("*/").split())
    return len(wanted) >= LEAST_QUOTE_CHARACTERS and any(wanted in line for line in lines)
