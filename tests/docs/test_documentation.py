"""Every command and snippet in README.md and docs/*.md is run; what is not is listed here."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import statistics
import tomllib
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import LANGUAGES, ROOT, RUN_WORDS, Block, blocks, pages, prose
from doc_session import Session

from cupilot.cli.program import make_parser
from cupilot.errors import UserError
from cupilot.tasks.suite import recorded

NOT_RUN = {
    "README.md": "this is the line that runs the tests",
    "docs/comparison.md": "100 searches, many hours",
    "docs/distributed.md": "it takes several machines; tests/executors starts a scheduler and workers on one",
    "docs/level1.md": "hours",
    "docs/live-page.md": "it serves until Ctrl-C; tests/ui starts it and drives it in a browser",
}


def run_elsewhere(page: str) -> bool:
    """Whether a test of its own runs the page's blocks (tests/snippets.py)."""
    calls = re.compile(rf"\b(?:blocks|write_files)\(\"{re.escape(Path(page).name)}\"")
    return any(calls.search(path.read_text()) for path in (ROOT / "tests").rglob("test_*.py"))


ALL = [block for page in pages() for block in blocks(page)]
OWN = [page for page in pages() if not run_elsewhere(page)]


def running(page: str, slow: bool) -> list[Block]:
    """What is to be done for a page: its files, and its blocks that run."""
    return [each for each in blocks(page) if each.title or (each.runs and (slow or not each.is_slow))]


@pytest.mark.parametrize("page", [page for page in OWN if any(each.runs for each in running(page, slow=False))])
def test_what_a_page_shows_works(page: str, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        for block in running(page, slow=False):
            session.take(block)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in OWN if any(each.is_slow for each in blocks(page))])
def test_what_a_page_shows_works_in_full(page: str, tmp_path: Path) -> None:
    with Session(tmp_path) as session:
        for block in running(page, slow=True):
            session.take(block)


# --- what can be said without running anything -----------------------------------------------


@pytest.mark.parametrize("page", pages())
def test_every_block_is_understood(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block}: what is to be done with {block.language}?"
        assert block.words <= RUN_WORDS, f"{block}: unknown words {block.words - RUN_WORDS}"
        if block.language in ("cuda", "jinja"):
            assert block.title, f"{block}: a block that nobody runs; give it a title and use it"
        if block.language == "python":
            compile(block.text, str(block), "exec")
        if block.language == "json":
            json.loads(block.text)
        if block.language == "toml":
            tomllib.loads(block.text)
            assert block.title or block.mark("part of"), f"{block}: which file is this?"


def test_what_is_not_run_is_listed() -> None:
    found = [(block.page, block.mark("not run")) for block in ALL if block.mark("not run")]
    assert sorted(found) == sorted(NOT_RUN.items())


@pytest.mark.parametrize("block", [each for each in ALL if each.mark("part of")], ids=str)
def test_a_part_of_a_file_is_in_it(block: Block) -> None:
    whole = tomllib.loads((ROOT / block.mark("part of")).read_text())
    assert within(tomllib.loads(block.text), whole), f"{block} is not in {block.mark('part of')}"


def within(part: Any, whole: Any) -> bool:
    """Whether all that ``part`` says is said by ``whole``."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and within(part[key], whole[key]) for key in part)
    if isinstance(part, list) and isinstance(whole, list) and all(isinstance(each, dict) for each in part):
        return all(any(within(each, other) for other in whole) for each in part)
    return bool(part == whole)


@pytest.mark.parametrize("page", pages())
def test_commands_are_in_fences(page: str) -> None:
    indented = re.findall(r"^(?: {4,}|\t)(?:\$ )?(?:cupilot|pip|python3?|pytest|export) .*$", prose(page), re.MULTILINE)
    assert indented == [], "a block that is indented is run by nobody"


def commands(text: str) -> list[list[str]]:
    """The words of every call of cupilot in a block of sh."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        for _, words in groupby(lexer, lambda word: set(word) <= set(";&|")):
            first, *rest = words
            if Path(first).name == "cupilot":
                found.append(rest)
    return found


@pytest.mark.parametrize("block", [each for each in ALL if each.language == "sh"], ids=str)
def test_commands_are_such_as_the_program_takes(block: Block) -> None:
    for words in commands(block.text):
        try:
            make_parser().parse_args(words)
        except UserError as error:
            pytest.fail(f"{block}: cupilot {' '.join(words)}: {error}")


@pytest.mark.parametrize("page", pages())
def test_commands_named_in_passing_exist(page: str) -> None:
    """`cupilot optimize TASK.py --seed N` in a sentence or a table: command and options are known."""
    for span in re.findall(r"`cupilot ([^`]+)`", prose(page)):
        words = span.replace("\\|", "|").replace("...", "").split()
        parser = make_parser()
        while inner := choices(parser):
            if not words:  # a command with commands of its own, by its name alone
                break
            name = words.pop(0)
            assert name in inner, f"{page}: cupilot {span}: no command {name!r}"
            parser = inner[name]
        for word in words:
            if word.startswith("--") and word != "--":
                assert word.partition("=")[0] in parser._option_string_actions, f"{page}: cupilot {span}: no {word}"


def choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


# --- facts on pages --------------------------------------------------------------------------


def test_recorded_speedups_are_those_of_the_file() -> None:
    text = (ROOT / "docs" / "comparison.md").read_text()
    rows = [each for each in recorded().values() if "pytorch" in each.times_s]
    for title, system, sound in (
        ("AI CUDA Engineer", "ai_cuda_engineer", False),
        ("cuPilot, as published", "cupilot", False),
        ("cuPilot, without kernels that do not compute their operator", "cupilot", True),
    ):
        found = [
            each.times_s["pytorch"] / each.times_s[system]
            for each in rows
            if system in each.times_s and not (sound and system in each.broken)
        ]
        means = (statistics.fmean(found), statistics.geometric_mean(found), statistics.median(found))
        cells = " | ".join(f"{value:.2f}x" for value in means)
        assert f"| {title} | {len(found)} | {cells} |" in text
    broken = [each.name.partition("_")[0] for each in rows if "cupilot" in each.broken]
    assert f"problems {', '.join(broken[:-1])} and {broken[-1]}" in text
