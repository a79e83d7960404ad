"""The length of a prompt: every section has a token limit of its own, and all share one for the whole prompt.

A section over its limit is cut to it.  If the prompt is still too long, the largest section is cut first, down to its
minimum, then the next.  A line says what was left out.  Limits are in `token_budget.toml`; a section without an entry
there is never cut.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from cupilot.errors import DataError
from cupilot.llm import estimate_tokens
from cupilot.records import from_plain

LINE_CHARACTERS = 400
"""The longest line of a prompt: sections are cut by lines, and one line must not fill a section."""
MARK_TOKENS = 14
"""Tokens of the line that says what was left out."""


@dataclass(frozen=True)
class SectionSize:
    """The most tokens a section may have, and the least it keeps when other sections need room."""

    most: int
    least: int

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most:
            raise DataError(f"a section's least size {self.least} must be between 1 and its most, {self.most}")


@dataclass(frozen=True)
class Section:
    """One section of a prompt.

    ``items`` may be left out: the last ones, or the middle ones with ``keep_ends`` (for source and logs).  ``noun``
    names them.  ``values`` are for the section's template.
    """

    name: str
    items: tuple[str, ...] = ()
    noun: str = "lines"
    keep_ends: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def body(self) -> str:
        return "\n".join(self.items)

    @property
    def tokens(self) -> int:
        return sum(estimate_tokens(item + "\n") for item in self.items)


@cache
def section_sizes() -> Mapping[str, SectionSize]:
    """The tables of `token_budget.toml`, by section."""
    data = tomllib.loads(Path(__file__).with_name("token_budget.toml").read_text(encoding="utf-8"))
    return {name: from_plain(SectionSize, entry, f"token_budget.toml, {name}") for name, entry in data.items()}


def fit_sections(sections: Sequence[Section], tokens: int, sizes: Mapping[str, SectionSize]) -> tuple[Section, ...]:
    """The sections, with the items of those in ``sizes`` cut to at most ``tokens`` together.

    If even the least sizes are too large, all sections are cut to a common size.
    """
    wanted = {s.name: min(s.tokens, sizes[s.name].most) for s in sections if s.name in sizes}
    for name in sorted(wanted, key=lambda name: (-wanted[name], name)):
        excess = sum(wanted.values()) - tokens
        if excess > 0:
            wanted[name] = max(min(wanted[name], sizes[name].least), wanted[name] - excess)
    common = _common_size(wanted.values(), tokens)
    return tuple(cut_section(s, min(common, wanted[s.name])) if s.name in wanted else s for s in sections)


def _common_size(sizes: Iterable[int], tokens: int) -> int:
    """The size to which all larger ones must be cut so that the sum fits."""
    ascending = sorted(sizes)
    for number, size in enumerate(ascending):
        left = len(ascending) - number
        if size * left > tokens:
            return max(0, tokens // left)
        tokens -= size
    return ascending[-1] if ascending else 0


def cut_section(section: Section, tokens: int) -> Section:
    """The section with as many items as fit, and a line that says how many are missing."""
    if section.tokens <= tokens:
        return section
    items = section.items
    room = tokens - MARK_TOKENS
    costs = [estimate_tokens(item + "\n") for item in items]
    first, last = 0, len(items)
    from_front = True
    while first < last:
        cost = costs[first] if from_front or not section.keep_ends else costs[last - 1]
        if cost > room:
            break
        room -= cost
        if from_front or not section.keep_ends:
            first += 1
        else:
            last -= 1
        from_front = not from_front
    if not section.keep_ends:
        last = len(items)
    mark = f"[{last - first} of {len(items)} {section.noun} left out here for length]"
    return replace(section, items=(*items[:first], mark, *items[last:]))


def lines_of(text: str, characters: int = LINE_CHARACTERS) -> tuple[str, ...]:
    """The lines of a text, long ones shortened."""
    return tuple(shortened(line.rstrip(), characters) for line in text.split("\n"))


def shortened(text: str, characters: int) -> str:
    """The text, or its beginning and how much of it is missing."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]} [{len(text) - characters} characters left out]"
