"""The coverage page is current, and what it says is so."""

from __future__ import annotations

import re
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from cupilot.vgpu.emit import Emitter
from cupilot.vgpu.lower.coverage import instructions, page, spelled_out, unsupported
from cupilot.vgpu.lower.table import Opcode, opcodes
from cupilot.vgpu.ptx.flow import TERMINATORS
from cupilot.vgpu.ptx.parse import PtxError, parse_module

PAGE = Path(__file__).parents[2] / "docs" / "ptx-coverage.md"
MODULE = """.version 8.6
.target sm_90
.address_size 64
.global .align 16 .b8 variable[64];
.func device(.param .b32 device0) {{ ret; }}
.visible .entry k(.param .u64 p0, .param .u32 p1)
{{
 .reg .pred %p<8>; .reg .b16 %rs<10>; .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .f32 %f<10>; .reg .f64 %fd<10>;
 .reg .b128 %q<4>;
 .shared .align 16 .b8 tile[64];
 .param .b32 p2;
 {}
$END:
 ret;
}}
"""


# every register differs between lanes
LANES = " mov.u32 %r0, %laneid; cvt.u64.u32 %rd0, %r0; setp.lt.u32 %p0, %r0, 7;" + "".join(
    f" mov.pred %p{n}, %p0; mov.b32 %r{n}, %r0; mov.b64 %rd{n}, %rd0; cvt.u16.u32 %rs{n}, %r0; mov.b32 %f{n}, %r0;"
    for n in range(1, 8)
)


def translate(code: str) -> str:
    module = parse_module(MODULE.format(code))
    return Emitter(module, module.functions["k"]).kernel().ir


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run docs/make_ptx_coverage.py"


@pytest.mark.parametrize("start", ["", LANES], ids=["uniform", "lanes"])
@pytest.mark.parametrize(("name", "entry"), opcodes().items(), ids=opcodes())
def test_covered_forms_are_translated(name: str, entry: Opcode, start: str) -> None:
    texts = list(instructions(entry.forms, entry.operands))
    assert texts
    assert all(re.match(rf"{re.escape(name)}(?![\w:])", text) for text in texts)
    for first in range(0, len(texts), 100):
        code = [start, entry.before, *(f"{text};" for text in texts[first : first + 100])]
        if name in TERMINATORS:  # nothing is translated behind them
            code = [start, *(f"@%p1 {text};" for text in texts)]
        llvm.parse_assembly(translate("\n".join(code))).verify()


@pytest.mark.parametrize(
    "text",
    [text for entry in opcodes().values() for text in instructions(entry.missing, entry.operands)],
    ids=lambda text: text[:40],
)
def test_missing_forms_are_refused(text: str) -> None:
    with pytest.raises(PtxError):
        translate(f"{text};")


@pytest.mark.parametrize("opcode", [name for names in unsupported().values() for name in names])
def test_opcodes_without_support_are_refused(opcode: str) -> None:
    with pytest.raises(PtxError, match="unsupported on the virtual GPU"):
        translate(f"{opcode} %rd1, %rd2;")


def test_choices() -> None:
    assert list(spelled_out("a{,.b}.{c,d} {%r1, %r2}, [%r3]")) == [
        "a.c {%r1, %r2}, [%r3]", "a.d {%r1, %r2}, [%r3]", "a.b.c {%r1, %r2}, [%r3]", "a.b.d {%r1, %r2}, [%r3]",
    ]  # fmt: skip
