"""Drops the thinking that reasoning models put into their text.

Covered: ``<think>`` and ``<thinking>`` blocks at the start of a reply, closed or cut off, and a closing
tag whose opening one was part of the prompt.  Tags further down may belong to the reply and stay.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"\s*<(think|thinking)>(?:.*?</\1>|.*\Z)", re.DOTALL | re.IGNORECASE)
_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """The reply without its thinking."""
    start = 0
    while block := _BLOCK.match(text, start):
        start = block.end()
    text = text[start:]
    # a reply that starts with its JSON or its code has no thinking before it
    if not text.lstrip().startswith(("{", "```")) and (end := _END.search(text)):
        text = text[end.end() :]
    return text.strip()
