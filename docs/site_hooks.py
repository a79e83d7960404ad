"""For mkdocs: links into the source tree are words on the site."""

from __future__ import annotations

import re
from typing import Any

# [text](../src/...): on GitHub a link, on the site there is nothing to link to
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]*)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"\1", markdown)
