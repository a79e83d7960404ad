"""How long a prompt may be: sections have a size of their own and share one for the whole prompt.

A section over its own size is cut to it.  When the whole is still too long, the largest section is cut
first, down to its least, then the next.  What was left out is said where it was.  Sizes are `budget.toml`;
a section without an entry there is never cut.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cupilot.errors import DataError
from cupilot.records import from_plain

LINE_CHARACTERS = 400
"""No line of a prompt is longer: a section is cut by lines, and one line must not fill it."""
MARK_TOKENS = 14
"""What the sentence about the cut may take."""


@dataclass(frozen=True)
class Size:
    """Tokens a section may have, and those it keeps when others need room."""

    most: int
    least: int

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most:
            raise DataError(f"a section's least size {self.least} must be between 1 and its most, {self.most}")


@dataclass(frozen=True)
class Part:
    """One section: ``items`` are what may be left out, in order of importance or of place.

    ``noun`` says what they are.  Where both ``ends`` matter (source, logs) the middle is left out, else
    the last items.  ``values`` are for the section's template.
    """

    name: str
    items: tuple[str, ...] = ()
    noun: str = "lines"
    ends: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> str:
        return "\n".join(self.items)

    @property
    def tokens(self) -> int:
        return sum(tokens_in(item + "\n") for item in self.items)


@cache
def sizes() -> Mapping[str, Size]:
    """The table of `budget.toml`."""
    data = tomllib.loads(Path(__file__).with_name("budget.toml").read_text(encoding="utf-8"))
    return {name: from_plain(Size, entry, f"budget.toml, {name}") for name, entry in data.items()}


def fit(parts: Sequence[Part], tokens: int, table: Mapping[str, Size]) -> tuple[Part, ...]:
    """The parts; the items of those in the table have at most ``tokens`` together.

    Where even the least sizes are too much, no part is left larger than a common size.
    """
    wanted = {part.name: min(part.tokens, table[part.name].most) for part in parts if part.name in table}
    for name in sorted(wanted, key=lambda name: (-wanted[name], name)):
        excess = sum(wanted.values()) - tokens
        if excess > 0:
            wanted[name] = max(min(wanted[name], table[name].least), wanted[name] - excess)
    level = _level(wanted.values(), tokens)
    return tuple(cut(part, min(level, wanted[part.name])) if part.name in wanted else part for part in parts)


def _level(sizes: Iterable[int], tokens: int) -> int:
    """The size that all larger ones have to be cut to so that the sum fits."""
    ascending = sorted(sizes)
    for number, size in enumerate(ascending):
        left = len(ascending) - number
        if size * left > tokens:
            return max(0, tokens // left)
        tokens -= size
    return ascending[-1] if ascending else 0


def cut(part: Part, tokens: int) -> Part:
    """The part with as many items as fit, and a line that says how many are missing."""
    if part.tokens <= tokens:
        return part
    room = tokens - MARK_TOKENS
    costs = [tokens_in(item + "\n") for item in part.items]
    first, last = 0, len(part.items)
    from_front = True
    while first < last:
        cost = costs[first] if from_front or not part.ends else costs[last - 1]
        if cost > room:
            break
        room -= cost
        if from_front or not part.ends:
            first += 1
        else:
            last -= 1
        from_front = not from_front
    if not part.ends:
        last = len(part.items)
    mark = f"[{last - first} of {len(part.items)} {part.noun} left out here for length]"
    return Part(part.name, (*part.items[:first], mark, *part.items[last:]), part.noun, part.ends, part.values)


def tokens_in(text: str) -> int:
    """An estimate that is rather too large: four characters to a token, rounded up."""
    return -(-len(text) // 4)


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a text, none of them overlong."""
    return tuple(shortened(line.rstrip(), LINE_CHARACTERS) for line in text.split("\n"))


def shortened(text: str, characters: int) -> str:
    """The text, or its beginning and how much of it is missing."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]} [{len(text) - characters} characters left out]"
