"""Findings as the runtime hands them over, read into records.

The runtime gives each as JSON with the fields of `Finding`; its ``text`` is what the other fields do not say, and its
``kernel`` is the symbol.  Texts are the candidate's: they may hold anything.
"""

from __future__ import annotations

import json
from dataclasses import replace

from cupilot.errors import DataError
from cupilot.records import Finding, access_text, from_plain
from cupilot.toolchain.names import short_name


def read_finding(data: bytes) -> Finding:
    """Raises a `DataError` for anything else than what the runtime writes."""
    try:
        found = from_plain(Finding, json.loads(data.decode(errors="replace")))
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a finding: {error}") from error
    text = found.text if found.access is None else access_text(found.kind, found.access, found.other, found.text)
    return replace(found, text=text, kernel=short_name(found.kernel))
