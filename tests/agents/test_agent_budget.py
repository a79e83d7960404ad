"""Sizes of prompts: what is cut, in which order, and that it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupilot.agents.asking import asks
from cupilot.agents.budget import MARK_TOKENS, Part, Size, cut, fit, lines_of, shortened, sizes, tokens_in
from cupilot.errors import DataError

TABLE = {"small": Size(100, 20), "large": Size(1000, 100), "huge": Size(5000, 200)}


def part(name: str, count: int, *, ends: bool = False) -> Part:
    return Part(name, tuple(f"{name} item {n:04}" for n in range(count)), "items", ends)


def names(parts: tuple[Part, ...]) -> list[str]:
    return [p.name for p in parts if any("left out here" in item for item in p.items)]


def test_a_part_that_fits_is_left_alone() -> None:
    whole = part("large", 10)
    assert cut(whole, whole.tokens) is whole


def test_the_last_items_go_and_it_is_said() -> None:
    shorter = cut(part("large", 50), 60)
    assert shorter.items[0] == "large item 0000"
    assert shorter.items[-1] == f"[{51 - len(shorter.items)} of 50 items left out here for length]"


def test_source_keeps_both_ends() -> None:
    shorter = cut(part("large", 50, ends=True), 60)
    assert shorter.items[0] == "large item 0000"
    assert shorter.items[-1] == "large item 0049"
    assert sum("left out" in item for item in shorter.items) == 1


def test_the_largest_is_cut_first() -> None:
    parts = (part("small", 10), part("large", 100), part("huge", 400))
    whole = sum(p.tokens for p in parts)
    assert names(fit(parts, whole, TABLE)) == []
    assert names(fit(parts, whole - 50, TABLE)) == ["huge"]
    # its least reached, the next one follows
    assert names(fit(parts, parts[0].tokens + parts[1].tokens + 100, TABLE)) == ["large", "huge"]


def test_a_part_over_its_own_size_is_cut_though_there_is_room() -> None:
    assert names(fit((part("small", 100),), 10**6, TABLE)) == ["small"]


def test_parts_without_a_size_are_never_cut() -> None:
    fixed = part("contract", 1000)
    assert fit((fixed, part("huge", 100)), 10, TABLE)[0] is fixed


@given(st.lists(st.sampled_from(sorted(TABLE)), unique=True), st.data(), st.integers(0, 3000))
def test_the_sum_keeps_to_what_is_allowed(chosen: list[str], data: st.DataObject, tokens: int) -> None:
    parts = tuple(part(name, data.draw(st.integers(0, 600)), ends=data.draw(st.booleans())) for name in chosen)
    fitted = fit(parts, tokens, TABLE)
    assert [p.name for p in fitted] == chosen
    assert sum(p.tokens for p in fitted) <= tokens + MARK_TOKENS * len(parts)
    for before, after in zip(parts, fitted, strict=True):
        assert set(after.items) - set(before.items) <= {i for i in after.items if "left out here" in i}
        assert (after.items == before.items) == (after is before)


def test_one_line_cannot_fill_a_section() -> None:
    lines = lines_of("short\n" + "x" * 100_000)
    assert lines[0] == "short"
    assert len(lines[1]) < 500
    assert "99600 characters left out" in lines[1]
    assert shortened("abc", 3) == "abc"


def test_the_mark_is_within_its_estimate() -> None:
    assert tokens_in("[99999 of 99999 attempts left out here for length]\n") <= MARK_TOKENS


def test_sizes_make_sense_for_every_prompt() -> None:
    for name, ask in asks().items():
        least = sum(sizes()[part].least for part in ask.parts if part in sizes())
        assert least < ask.prompt_tokens / 2, name
    with pytest.raises(DataError, match="least size"):
        Size(10, 11)
