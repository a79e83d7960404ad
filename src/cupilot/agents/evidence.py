"""Whether a move can be seen in a kernel: in its source without comments, its counters and its launches.

The table is `evidence.toml`.  It is a test for claims that are plainly false, not a proof of true ones.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cupilot.records import Kernel, Move, Profile, Strategy, from_plain
from cupilot.toolchain.source import without_comments

_PARAMETER = re.compile(r"\{([a-z]\w*)\}")
LEAST_QUOTE = 6
"""A shorter quote could stand anywhere."""


@dataclass(frozen=True)
class Evidence:
    """One entry of `evidence.toml`."""

    source: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    threads: str = ""
    ratio: tuple[str, str, float] | None = None


@cache
def evidence() -> Mapping[str, Evidence]:
    """The table, by card."""
    data = tomllib.loads(Path(__file__).with_name("evidence.toml").read_text(encoding="utf-8"))
    return {name: from_plain(Evidence, entry, f"evidence.toml, {name}") for name, entry in data.items()}


@dataclass(frozen=True)
class Checked:
    """The moves that can be seen, and why the others cannot."""

    moves: tuple[Move, ...]
    struck: tuple[str, ...]


def check(strategy: Strategy, kernel: Kernel, profile: Profile | None, quotes: Mapping[str, str] | None) -> Checked:
    """The moves of a strategy that a kernel makes.

    ``quotes`` are lines by move, for moves the table does not know; None when nobody was there to
    quote anything, and then those moves stay.
    """
    code = without_comments(kernel.source + "*/")
    kept: list[Move] = []
    struck: list[str] = []
    for move in strategy.moves:
        why = _missing(move, code, profile, quotes)
        if why:
            struck.append(f"{move.card}: {why}")
        else:
            kept.append(move)
    return Checked(tuple(kept), tuple(struck))


def _missing(move: Move, code: str, profile: Profile | None, quotes: Mapping[str, str] | None) -> str:
    """Why a move cannot be seen; empty when it can."""
    known = evidence().get(move.card)
    if known is None:
        return "" if quotes is None or _quoted(quotes.get(move.card, ""), code) else "no line of the source was quoted"
    counted = profile is not None and any(profile.total(name) > 0 for name in known.counters)
    if not counted and not any(re.search(_pattern(text, move), code) for text in known.source):
        return "it is not visible in the source"
    if profile is None or not profile.launches:
        return ""
    wanted = move.get(known.threads) if known.threads else None
    if wanted is not None and all(launch.threads != wanted for launch in profile.launches):
        blocks = ", ".join(dict.fromkeys(str(launch.threads) for launch in profile.launches))
        return f"blocks have {blocks} threads"
    if known.ratio is not None:
        above, below, most = known.ratio
        requests = profile.total(below)
        if requests > 0 and profile.total(above) / requests > most:
            return f"{profile.total(above) / requests:.3g} {above} to one of {below}"
    return ""


def _pattern(text: str, move: Move) -> str:
    """The pattern with the move's parameters; one that the move lacks matches any number."""
    return _PARAMETER.sub(lambda found: re.escape(str(move.get(found[1], ""))) or r"\d+", text)


def _quoted(quote: str, code: str) -> bool:
    lines = {" ".join(line.split()) for line in code.split("\n")}
    wanted = " ".join(without_comments(quote + "*/").removesuffix("*/").split())
    return len(wanted) >= LEAST_QUOTE and any(wanted in line for line in lines)
