"""The fenced blocks of a documentation page, so that tests can run what the page shows.

A block with a title is a file (```python title="my_model.py"```), any other is to be run as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """All of them, in order; a fence that is not understood would be a block that nobody runs."""
    text = (DOCS / page).read_text()
    found = [Block(*match.groups(default="")) for match in FENCE.finditer(text)]
    assert 2 * len(found) == len(re.findall(r"^```", text, re.MULTILINE)), f"{page}: a fence is not understood"
    return found


def write_files(page: str, folder: Path) -> None:
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text)
