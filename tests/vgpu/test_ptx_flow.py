"""Where lanes meet, which registers differ between lanes, and what must be written under the mask."""

from __future__ import annotations

import pytest
from ptxkit import module

from cupilot.vgpu.lower.table import access_of, varies
from cupilot.vgpu.ptx.flow import EXIT, Flow
from cupilot.vgpu.ptx.parse import PtxError, parse_module

START = (
    " mov.u32 %r0, %tid.x; ld.param.u32 %r1, [p0]; mov.u32 %r2, 0; setp.lt.u32 %p0, %r0, 7; setp.lt.u32 %p1, %r1, 7;\n"
)


def flow_of(body: str) -> Flow:
    text = module(START + body, "k", [".b32 {}"])
    return Flow(parse_module(text).functions["k"], access_of, varies)


def block_of(flow: Flow, opcode: str) -> int:
    """The block of the only instruction with this opcode."""
    (found,) = (b.index for b in flow.blocks for i in b.code if i.opcode == opcode)
    return found


def names(flow: Flow, bits: int) -> set[str]:
    return set(flow.members(bits))


def test_both_ways_of_a_branch_meet_behind_it() -> None:
    flow = flow_of(
        "@%p0 bra A; add.u32 %r3, %r0, 1; bra B;\nA: sub.u32 %r3, %r0, 1;\nB: xor.b32 %r4, %r3, 1; "
        "st.u32 [%rd0], %r4; ret;"
    )
    assert [flow.post_dominator[i] for i in (0, block_of(flow, "add"), block_of(flow, "sub"))] == [
        block_of(flow, "xor")
    ] * 3
    assert flow.post_dominator[block_of(flow, "xor")] == EXIT


def test_lanes_that_leave_a_loop_wait_behind_it() -> None:
    flow = flow_of(
        "A: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r0; @%p2 bra A; xor.b32 %r3, %r2, 1; st.u32 [%rd0], %r3; ret;"
    )
    assert flow.post_dominator[block_of(flow, "add")] == block_of(flow, "xor")


@pytest.mark.parametrize(
    "early", ["@%p2 ret;", "@%p2 exit;", "@%p2 bra END;", "@!%p2 bra X; st.u32 [%rd0], %r0; ret; X:"]
)
def test_an_early_end_does_not_move_the_meeting_point(early: str) -> None:
    body = (
        "@%p0 bra A; setp.eq.u32 %p2, %r0, 3; {} add.u32 %r2, %r2, 1;\nA: xor.b32 %r3, %r2, 1; "
        "st.u32 [%rd0], %r3; bra END;\nEND: ret;"
    )
    flow = flow_of(body.format(early))
    assert flow.post_dominator[0] == block_of(flow, "xor")


def test_a_loop_may_end_the_kernel() -> None:
    flow = flow_of("A: setp.ge.u32 %p2, %r2, %r0; @%p2 bra END; add.u32 %r2, %r2, 1; bra A;\nEND: ret;")
    assert flow.post_dominator[block_of(flow, "add")] == 1
    assert flow.post_dominator[1] == EXIT


def test_values_of_all_lanes_stay_scalar() -> None:
    flow = flow_of(
        "A: add.u32 %r2, %r2, 1; mul.lo.u32 %r3, %r2, %r1; setp.lt.u32 %p2, %r2, %r1; @%p2 bra A; "
        "st.u32 [%rd0], %r3; ret;"
    )
    assert [flow.uniform(r) for r in ("%r1", "%r2", "%r3", "%p2", "%r0", "%p0")] == [True] * 4 + [False] * 2
    assert flow.splitting == set()


def test_a_counter_of_a_divergent_loop_is_scalar_inside_and_not_behind() -> None:
    loop = "A: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r0; @%p2 bra A;"
    inside, behind = flow_of(f"{loop} ret;"), flow_of(f"{loop} st.u32 [%rd0], %r2; ret;")
    assert inside.uniform("%r2")
    assert not behind.uniform("%r2")
    # lanes that wait behind the loop must keep their count
    assert "%r2" in names(behind, behind.masked()[block_of(behind, "add")])
    assert "%r2" not in names(inside, inside.masked()[block_of(inside, "add")])


def test_a_value_set_on_one_way_only_differs() -> None:
    flow = flow_of("@%p0 bra A; mov.u32 %r2, 1; mov.u32 %r3, 2; st.u32 [%rd0], %r3;\nA: st.u32 [%rd0], %r2; ret;")
    assert not flow.uniform("%r2")
    assert flow.uniform("%r3"), "only lanes of that way use it"
    assert names(flow, flow.masked()[1]) == {"%r2"}
    uniform = flow_of("@%p1 bra A; mov.u32 %r2, 1;\nA: st.u32 [%rd0], %r2; ret;")
    assert uniform.uniform("%r2")


def test_a_guard_makes_its_result_differ() -> None:
    flow = flow_of("@%p0 mov.u32 %r2, 1; @%p1 mov.u32 %r1, 3; st.u32 [%rd0], %r2; st.u32 [%rd0], %r1; ret;")
    assert not flow.uniform("%r2")
    assert flow.uniform("%r1")


def test_an_early_return_leaves_the_rest_scalar() -> None:
    flow = flow_of("@%p0 bra END; add.u32 %r2, %r1, 1; mul.lo.u32 %r3, %r2, 5; st.u32 [%rd0], %r3;\nEND: ret;")
    assert flow.uniform("%r2")
    assert flow.uniform("%r3")
    assert flow.masked() == [0] * len(flow.blocks)


def test_registers_of_waiting_lanes_share_no_slot() -> None:
    # %r3 lives on the first way, %r4 on the second: they are never live together, yet lanes wait with %r4
    body = """ add.u32 %r4, %r0, 9; @%p0 bra A; sub.u32 %r5, %r4, 2; bra C;
    A: mul.lo.u32 %r3, %r0, 3; B: xor.b32 %r3, %r3, %r0; setp.lt.u32 %p2, %r3, 100; @%p2 bra B; mov.u32 %r5, %r3;
    C: st.u32 [%rd0], %r5; ret;"""
    conflicts = flow_of(body).conflicts()
    flow = flow_of(body)
    assert "%r4" in names(flow, conflicts["%r3"])
    assert "%r3" in names(flow, conflicts["%r4"])


def test_a_barrier_ends_a_block_and_a_guarded_trap_becomes_a_branch() -> None:
    flow = flow_of("bar.sync 0; @%p0 trap; st.u32 [%rd0], %r0; bar.warp.sync -1; ret;")
    barrier, trap = flow.blocks[1], flow.blocks[block_of(flow, "trap")]
    assert barrier.ends_in_barrier
    assert [i.opcode for i in barrier.code] == ["bar"]
    assert not trap.code[0].guard
    assert sum(b.ends_in_barrier for b in flow.blocks) == 1


def test_an_unknown_label_is_named() -> None:
    with pytest.raises(PtxError, match=r"\$nowhere in k"):
        flow_of("bra $nowhere; ret;")
