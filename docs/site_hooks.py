"""For mkdocs: links into the source tree are words on the site, and pages yet to come are left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# [text](../src/...): on GitHub a link, on the site there is nothing to link to
OUTSIDE = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]*)\)")


def on_config(config: Any) -> Any:
    config["nav"] = present(config["nav"], Path(config["docs_dir"]))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"\1", markdown)


def present(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation without pages that are not written."""
    kept: list[Any] = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            inner = present(target, docs)
            kept += [{title: inner}] if inner else []
        elif (docs / target).is_file():
            kept.append(entry)
    return kept
