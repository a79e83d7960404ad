"""Every opcode form of the tables against a reference: lanes, scalars, and operands that hypothesis finds."""

from __future__ import annotations

import convert_forms
import float_forms
import half_forms
import integer_forms
import numpy as np
import pytest
from forms import ENGINE, Form, bundles, check, drawn_operands, edge_operands, run_lanes, run_uniform, tables
from hypothesis import given
from hypothesis import strategies as st
from ptxkit import INDEX, Bench, module, pointer

from cupilot.vgpu.emit import Emitter
from cupilot.vgpu.lower.table import opcodes
from cupilot.vgpu.ptx.parse import PtxError, parse_module

ALL = tuple(tables(integer_forms.FORMS, float_forms.FORMS, half_forms.FORMS, convert_forms.FORMS))
ELSEWHERE = {
    "test_calls.py": ("call",),
    "test_control_flow.py": ("bra", "ret", "exit", "bar", "barrier"),
    "test_checks.py": ("trap",),
    "test_memory_opcodes.py": ("ld", "ldu", "st", "membar", "fence", "prefetch", "prefetchu"),
    "test_atomic_opcodes.py": ("atom", "red"),
    "test_warp_opcodes.py": ("shfl", "vote", "match", "redux", "activemask", "elect"),
    "test_async_opcodes.py": ("cp",),
    "test_mbarrier_opcodes.py": ("mbarrier",),
    "test_tensor_opcodes.py": ("mma",),
    "test_tensor_memory.py": ("wmma", "ldmatrix", "stmatrix", "movmatrix"),
}


BUNDLES = tuple(bundles(ALL))


@pytest.mark.parametrize("forms", BUNDLES, ids=lambda forms: forms[0].text)
def test_a_value_per_lane(bench: Bench, forms: tuple[Form, ...]) -> None:
    count = {0: 1, 1: 192, 2: 544, 3: 384, 4: 384}[len(forms[0].ins)]
    operands = [edge_operands(form, count) for form in forms]
    for form, tried, got in zip(forms, operands, run_lanes(bench, forms, operands), strict=True):
        check(form, tried, got)


@pytest.mark.parametrize("forms", BUNDLES, ids=lambda forms: forms[0].text)
def test_a_value_per_warp(bench: Bench, forms: tuple[Form, ...]) -> None:
    operands = [edge_operands(form, 12 if form.ins else 1) for form in forms]
    for form, tried, got in zip(forms, operands, run_uniform(bench, forms, operands), strict=True):
        check(form, tried, got)


@pytest.mark.parametrize("forms", [ALL[i::24] for i in range(24)], ids=range(24))
@given(data=st.data())
@ENGINE
def test_drawn_operands(bench: Bench, forms: tuple[Form, ...], data: st.DataObject) -> None:
    form = data.draw(st.sampled_from([f for f in forms if f.ins and not f.edges]))
    operands = data.draw(drawn_operands(form, 64))
    (got,) = run_lanes(bench, [form], [operands])
    check(form, operands, got)


def test_all_tables_of_lop3(bench: Bench) -> None:
    """Operands 0xF0, 0xCC and 0xAA give the table itself; once as one value per warp, once per lane."""
    body = " ld.param.u64 %rd1, [p0]; mov.u32 %r0, %tid.x; mul.lo.u32 %r1, %r0, 0; mad.wide.u32 %rd2, %r0, 4, %rd1;\n"
    for lanes, first in ((False, 10), (True, 20)):
        for number, value in enumerate((0xF0, 0xCC, 0xAA)):
            body += f" add.u32 %r{first + number}, {'%r1' if lanes else 0}, {value};"
        a, b, c = (f"%r{first + n}" for n in range(3))
        for table in range(256):
            place = 4 * 32 * (table + 256 * lanes)
            body += f" lop3.b32 %r3, {a}, {b}, {c}, {table}; st.global.b32 [%rd2+{place}], %r3;\n"
    (got,) = bench.clean(body + " ret;", np.zeros((2, 256, 32), np.uint32))
    assert (got & 0xFF == np.arange(256, dtype=np.uint32)[None, :, None]).all()


HINTS = ("brkpt", "nanosleep.u32 40", "pmevent 7", "griddepcontrol.wait", "setmaxnreg.inc.sync.aligned.u32 64")


def test_hints_change_nothing(bench: Bench) -> None:
    body = INDEX + pointer(0) + "".join(f" {hint};" for hint in HINTS) + " st.global.u32 [%rd0], %r0; ret;"
    (got,) = bench.clean(body, np.zeros(64, np.uint32), threads=64)
    assert got.tolist() == list(range(64))


def test_a_carry_does_not_cross_blocks() -> None:
    body = """ add.cc.u32 %r1, 1, 2; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; @%p1 bra $L; mov.u32 %r1, 0;
    $L: addc.u32 %r3, 0, 0; ret;"""
    known = parse_module(module(body, "k", []))
    with pytest.raises(PtxError, match=r"carry from another basic block, opcode addc\.u32"):
        Emitter(known, known.functions["k"]).kernel()


def test_every_opcode_has_a_test() -> None:
    tested = {name for form in ALL for name in form.opcodes} | {hint.split()[0].split(".")[0] for hint in HINTS}
    tested |= {name for names in ELSEWHERE.values() for name in names}
    assert set(opcodes()) - tested == set(), "add a form to a table, or the opcode to its own test"
