"""The agent role that a request is made for: its system message begins with ``# role: NAME``."""

from __future__ import annotations

import re

from cupilot.contracts import Request

_LINE = re.compile(r"#\s*role:\s*(\S+)\s*$", re.MULTILINE)


def role_of(request: Request) -> str:
    """The role, or an empty string if the request names none."""
    first = request.messages[0] if request.messages else None
    match = _LINE.match(first.text) if first is not None and first.role == "system" else None
    return match[1] if match else ""
