"""Findings: the sentence that their fields make, and the failure that they are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cupilot.records import Access, Failure, Finding, OtherAccess, access_text, from_plain, to_plain

WRITE = Access("write", "global", 4, 0x1100, buffer_bytes=256, offset=256)
AT = Finding("trap", "the kernel executed trap", "relu", "kernel.cu", 6, (3, 0, 0), (1, 2, 0), 32)


@pytest.mark.parametrize(
    ("access", "text"),
    [
        (WRITE, "write of 4 bytes at 0x1100, 0 bytes after the end of a 256-byte buffer"),
        (replace(WRITE, offset=250), "write of 4 bytes at 0x1100, 250 bytes into a 256-byte buffer"),
        (replace(WRITE, offset=-8), "write of 4 bytes at 0x1100, 8 bytes before a 256-byte buffer"),
        (
            replace(WRITE, kind="atomic", offset=0, freed=True),
            "atomic update of 4 bytes at 0x1100, 0 bytes into a freed 256-byte buffer",
        ),
        (Access("read", "global", 8, 0), "read of 8 bytes at 0x0"),
        (Access("read", "shared", 4, 96, 96, 96), "read of 4 bytes at 0x60 of shared memory; the block has 96 bytes"),
        (Access("read", "shared", 4, 92, 96, 92), "read of 4 bytes at 0x5c of shared memory"),
        (Access("write", "local", 8, 12, 16, 12), "write of 8 bytes at 0xc of local memory; a thread has 16 bytes"),
    ],
)
def test_an_access_says_where_it_went(access: Access, text: str) -> None:
    assert str(access) == text


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (OtherAccess("write", "barrier", warp=3), "warp 3 wrote it since the last barrier"),
        (OtherAccess("read", "barrier", line=7), "another warp read it at line 7 since the last barrier"),
        (
            OtherAccess("write", "fence", block=(2, 0, 0), line=7),
            "block (2, 0, 0) wrote it at line 7 in this launch, with no fence in between",
        ),
        (OtherAccess("read", "fence"), "another block read it in this launch, with no fence in between"),
        (
            OtherAccess("copy", "wait", thread=(5, 0, 0), warp=0, line=9),
            "an asynchronous copy to it by thread (5, 0, 0) at line 9 was not waited for",
        ),
        (OtherAccess("copy", "wait"), "an asynchronous copy to it was not waited for"),
    ],
)
def test_the_other_access_says_only_what_is_known(other: OtherAccess, text: str) -> None:
    assert str(other) == text
    assert access_text("shared-race", WRITE, other) == f"{WRITE}; {text}"


def test_the_reason_of_an_access() -> None:
    assert access_text("uninitialized", WRITE, None) == f"{WRITE}; nothing was written there"
    assert access_text("left-over", WRITE, None) == f"{WRITE}; an earlier call wrote it, this one did not"
    assert access_text("misaligned", WRITE, None, "sizes are multiples of 16") == f"{WRITE}; sizes are multiples of 16"
    assert access_text("out-of-bounds", WRITE, None) == str(WRITE)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (
            AT,
            "the kernel executed trap, kernel relu, line 6 of kernel.cu, block (3, 0, 0), thread (1, 2, 0) "
            "and 31 more threads",
        ),
        (
            replace(AT, threads=1, file="", block=None),
            "the kernel executed trap, kernel relu, line 6, thread (1, 2, 0)",
        ),
        (replace(AT, threads=2, line=0, block=None),
         "the kernel executed trap, kernel relu, thread (1, 2, 0) and 1 more thread"),
        (replace(AT, kind="out-of-bounds", text=str(WRITE), access=WRITE, threads=1, block=None, thread=None, line=0),
         f"out-of-bounds {WRITE}, kernel relu"),
        (Finding("compile-error", "no such type", file="kernel.cu", line=4), "kernel.cu:4: no such type"),
        (Finding("unordered", "work that nothing waits for"), "work that nothing waits for"),
    ],
)  # fmt: skip
def test_a_finding_as_a_sentence(finding: Finding, text: str) -> None:
    assert str(finding) == text


def test_findings_survive_the_codec() -> None:
    other = OtherAccess("write", "barrier", (0, 1, 2), (3, 4, 5), 6, 7)
    race = replace(AT, text='quotes ", back\\slashes, \n lines and \x00', access=WRITE, other=other)
    failure = Failure.of("run", (AT, race, Finding("unsupported", "")))
    assert from_plain(Failure, json.loads(json.dumps(to_plain(failure)))) == failure
    assert to_plain(race)["other"] == {
        "kind": "write", "missing": "barrier", "block": [0, 1, 2], "thread": [3, 4, 5], "warp": 6, "line": 7,
    }  # fmt: skip


def test_the_first_finding_is_the_message_of_a_failure() -> None:
    alone = Failure.of("run", (AT,), before="before any call: ")
    assert (alone.kind, alone.message, alone.details) == ("trap", f"before any call: {AT}", "")
    several = Failure.of("run", (AT, replace(AT, line=7), replace(AT, line=8)))
    assert several.message == f"{AT}; 2 more findings"
    assert several.details.split("\n") == [str(finding) for finding in several.findings]
    broken = Failure.of("build", (AT, AT), "what the compiler said")
    assert broken.message == f"{AT}; 1 more error"
    assert broken.details == "what the compiler said"
