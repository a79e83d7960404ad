"""The fenced blocks of README.md and docs/*.md, and what is to be done with each.

A comment on the line before a fence says what is special about the block:

    <!-- run: slow -->                 runs in the slow group only
    <!-- run: estimate -->             searches get --estimate, so that no language model is asked
    <!-- run: without installing -->   environments are not made and packages only looked up
    <!-- status: not 0 -->             the last command has to fail
    <!-- part of: PATH -->             TOML that a file of the project holds
    <!-- not run: REASON -->           the test lists it

Several words of `run` are separated by commas.  A block with a title, ```python title="task.py"```, is a file.  Every
other `sh` and `python` block runs, in order, in one copy of the project per page; Python blocks of a page share their
names.  Blocks without a language are text: trees, outputs, strategies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LANGUAGES = ("sh", "python", "toml", "json", "cuda", "jinja", "")
RUN_WORDS = {"slow", "estimate", "without installing"}
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?$')
COMMENT = re.compile(r"^<!-- (run|not run|part of|status): (.+) -->$")


@dataclass(frozen=True)
class Block:
    """One fence; ``line`` is where its text begins, ``marks`` are the comments before it by their first word."""

    page: str
    line: int
    language: str
    title: str
    text: str
    marks: tuple[tuple[str, str], ...] = ()

    def mark(self, name: str) -> str:
        return dict(self.marks).get(name, "")

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word.strip() for word in self.mark("run").split(",") if word.strip())

    @property
    def is_slow(self) -> bool:
        return "slow" in self.words

    @property
    def runs(self) -> bool:
        return self.language in ("sh", "python") and not self.title and not self.mark("not run")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    return ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def blocks(page: str) -> list[Block]:
    """All of them, in order."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    opened: tuple[int, str, str] | None = None
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if opened is not None:
            if line == "```":
                start, language, title = opened
                text = "\n".join(lines[start : number - 1]) + "\n"
                found.append(Block(page, start + 1, language, title, text, tuple(marks.items())))
                opened, marks = None, {}
        elif line.lstrip().startswith("```"):
            fence = FENCE.match(line)
            assert fence is not None, f"{page}:{number}: a fence that is not understood: {line}"
            opened = (number, fence[1], fence[2] or "")
        elif comment := COMMENT.match(line):
            marks[comment[1]] = comment[2]
        elif line.strip() and not line.startswith("<!--"):
            assert not marks, f"{page}:{number}: a mark that no fence follows"
    assert opened is None, f"{page}: a fence that is not closed"
    return found


def prose(page: str) -> str:
    """A page without its blocks."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
