"""Sizes of prompts: what is cut, in which order, and that it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupilot.agents.prompting import prompt_settings
from cupilot.agents.token_budget import (
    MARK_TOKENS,
    Section,
    SectionSize,
    cut_section,
    fit_sections,
    lines_of,
    section_sizes,
    shortened,
)
from cupilot.errors import DataError
from cupilot.llm import estimate_tokens

TABLE = {"small": SectionSize(100, 20), "large": SectionSize(1000, 100), "huge": SectionSize(5000, 200)}


def section(name: str, count: int, *, keep_ends: bool = False) -> Section:
    return Section(name, tuple(f"{name} item {n:04}" for n in range(count)), "items", keep_ends)


def names(sections: tuple[Section, ...]) -> list[str]:
    return [p.name for p in sections if any("left out here" in item for item in p.items)]


def test_a_section_that_fits_is_left_alone() -> None:
    whole = section("large", 10)
    assert cut_section(whole, whole.tokens) is whole


def test_the_last_items_go_and_it_is_said() -> None:
    shorter = cut_section(section("large", 50), 60)
    assert shorter.items[0] == "large item 0000"
    assert shorter.items[-1] == f"[{51 - len(shorter.items)} of 50 items left out here for length]"


def test_source_keeps_both_ends() -> None:
    shorter = cut_section(section("large", 50, keep_ends=True), 60)
    assert shorter.items[0] == "large item 0000"
    assert shorter.items[-1] == "large item 0049"
    assert sum("left out" in item for item in shorter.items) == 1


def test_the_largest_is_cut_first() -> None:
    sections = (section("small", 10), section("large", 100), section("huge", 400))
    whole = sum(p.tokens for p in sections)
    assert names(fit_sections(sections, whole, TABLE)) == []
    assert names(fit_sections(sections, whole - 50, TABLE)) == ["huge"]
    # its least reached, the next one follows
    assert names(fit_sections(sections, sections[0].tokens + sections[1].tokens + 100, TABLE)) == ["large", "huge"]


def test_a_section_over_its_own_size_is_cut_though_there_is_room() -> None:
    assert names(fit_sections((section("small", 100),), 10**6, TABLE)) == ["small"]


def test_sections_without_a_size_are_never_cut() -> None:
    fixed = section("contract", 1000)
    assert fit_sections((fixed, section("huge", 100)), 10, TABLE)[0] is fixed


@given(st.lists(st.sampled_from(sorted(TABLE)), unique=True), st.data(), st.integers(0, 3000))
def test_the_sum_keeps_to_what_is_allowed(chosen: list[str], data: st.DataObject, tokens: int) -> None:
    sections = tuple(
        section(name, data.draw(st.integers(0, 600)), keep_ends=data.draw(st.booleans())) for name in chosen
    )
    fitted = fit_sections(sections, tokens, TABLE)
    assert [p.name for p in fitted] == chosen
    assert sum(p.tokens for p in fitted) <= tokens + MARK_TOKENS * len(sections)
    for before, after in zip(sections, fitted, strict=True):
        assert set(after.items) - set(before.items) <= {i for i in after.items if "left out here" in i}
        assert (after.items == before.items) == (after is before)


def test_one_line_cannot_fill_a_section() -> None:
    lines = lines_of("short\n" + "x" * 100_000)
    assert lines[0] == "short"
    assert len(lines[1]) < 500
    assert "99600 characters left out" in lines[1]
    assert shortened("abc", 3) == "abc"


def test_the_mark_is_within_its_estimate() -> None:
    assert estimate_tokens("[99999 of 99999 attempts left out here for length]\n") <= MARK_TOKENS


def test_sizes_make_sense_for_every_prompt() -> None:
    for name, ask in prompt_settings().items():
        least = sum(section_sizes()[part].least for part in ask.sections if part in section_sizes())
        assert least < ask.prompt_tokens / 2, name
    with pytest.raises(DataError, match="least size"):
        SectionSize(10, 11)
