"""The journal of a whole program's findings: written by a process that may crash, or that is not to be trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cupilot.devices.program import JOURNAL_BYTES, read_journal

LINE = json.dumps({"kind": "trap", "text": "the kernel executed trap", "kernel": "_Z4reluPfi"}).encode()


@pytest.mark.parametrize("bad", [b"", LINE[:-9], b"[" * 100_000, b"\xff\x00", b'{"kind": "trap"}'])
def test_lines_that_are_no_findings_are_left_out(tmp_path: Path, bad: bytes) -> None:
    journal = tmp_path / "findings"
    assert read_journal(journal) == ()
    journal.write_bytes(b"\n".join([bad, LINE, bad]))
    assert [(finding.kind, finding.kernel) for finding in read_journal(journal)] == [("trap", "relu")]


def test_a_long_journal_is_read_in_part(tmp_path: Path) -> None:
    journal = tmp_path / "findings"
    journal.write_bytes((LINE + b"\n") * (2 * JOURNAL_BYTES // len(LINE)))
    assert len(read_journal(journal)) == JOURNAL_BYTES // (len(LINE) + 1)
