"""Every opcode form of the tables against a reference: lanes, scalars, and operands that hypothesis finds."""

from __future__ import annotations

import convert_forms
import float_forms
import integer_forms
import pytest
from forms import ENGINE, Form, check, drawn_operands, edge_operands, run_lanes, run_uniform, tables
from hypothesis import given
from hypothesis import strategies as st
from ptxkit import Bench

from cupilot.vgpu.lower.table import opcodes

ALL = tuple(tables(integer_forms.FORMS, float_forms.FORMS, convert_forms.FORMS))
ELSEWHERE = {
    "test_control_flow.py": ("bra", "ret", "exit", "bar", "barrier"),
    "test_checks.py": ("trap",),
    "test_memory_opcodes.py": ("ld", "ldu", "st", "membar", "fence", "prefetch", "prefetchu"),
    "test_atomic_opcodes.py": ("atom", "red"),
    "test_warp_opcodes.py": ("shfl", "vote", "match", "redux", "activemask", "elect"),
    "test_tensor_opcodes.py": ("mma",),
    "test_tensor_memory.py": ("wmma", "ldmatrix", "stmatrix", "movmatrix"),
}


@pytest.mark.parametrize("form", ALL, ids=str)
def test_a_value_per_lane(bench: Bench, form: Form) -> None:
    operands = edge_operands(form, {0: 1, 1: 192, 2: 544, 3: 384}[len(form.ins)])
    check(form, operands, run_lanes(bench, form, operands))


@pytest.mark.parametrize("form", ALL, ids=str)
def test_a_value_per_warp(bench: Bench, form: Form) -> None:
    operands = edge_operands(form, 12 if form.ins else 1)
    check(form, operands, run_uniform(bench, form, operands))


@pytest.mark.parametrize("forms", [ALL[i::24] for i in range(24)], ids=range(24))
@given(data=st.data())
@ENGINE
def test_drawn_operands(bench: Bench, forms: tuple[Form, ...], data: st.DataObject) -> None:
    form = data.draw(st.sampled_from([f for f in forms if f.ins and not f.edges]))
    operands = data.draw(drawn_operands(form, 64))
    check(form, operands, run_lanes(bench, form, operands))


def test_every_opcode_has_a_test() -> None:
    tested = {form.opcode for form in ALL} | {name for names in ELSEWHERE.values() for name in names}
    assert set(opcodes()) - tested == set(), "add a form to a table, or the opcode to its own test"
