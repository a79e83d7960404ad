"""The order in which blocks and warps run: by number, or another that depends on a seed only."""

from __future__ import annotations

import numpy as np
from ptxkit import INDEX, Bench

# one thread of each warp draws a number and puts its own there: block * warps + warp
TICKETS = (
    INDEX
    + """
 mov.u32 %r3, %laneid; setp.ne.u32 %p0, %r3, 0; @%p0 bra end;
 ld.param.u64 %rd0, [p0]; atom.global.add.u32 %r5, [%rd0], 1; shr.u32 %r6, %r0, 5;
 ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd1, %r5, 4, %rd1; st.global.u32 [%rd1], %r6;
end: ret;
"""
)
# each block waits for the one before it
CHAIN = (
    INDEX
    + """
 ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd0; setp.eq.u32 %p0, %r1, 0; @%p0 bra go;
wait: ld.volatile.global.u32 %r4, [%rd1+-4]; setp.eq.u32 %p1, %r4, 0; @%p1 bra wait;
go: membar.gl; st.volatile.global.u32 [%rd1], 1; ret;
"""
)
# all blocks write the same place: whoever comes last wins
LAST = INDEX + " ld.param.u64 %rd0, [p0]; st.volatile.global.u32 [%rd0], %r1; ret;\n"


def order(bench: Bench, seed: int, body: str, *arguments: object, **options: object) -> list[np.ndarray]:
    """`Bench.clean` in another order."""
    begin = bench.machine.begin
    bench.machine.begin = lambda *given: begin(*given, order=seed)  # type: ignore[method-assign]
    try:
        return bench.clean(body, *arguments, **options)  # type: ignore[arg-type]
    finally:
        del bench.machine.begin  # type: ignore[method-assign]


def tickets(bench: Bench, seed: int, grid: int, threads: int = 32, **options: object) -> list[int]:
    count = grid * threads // 32
    drawn, by = np.zeros(1, np.uint32), np.full(count, 2**32 - 1, np.uint32)
    taken, order_of = order(bench, seed, TICKETS, drawn, by, grid=grid, threads=threads, **options)
    return order_of[: taken[0]].tolist()


def test_blocks_run_by_number_unless_another_order_is_asked_for(bench: Bench) -> None:
    assert tickets(bench, 0, 100) == list(range(100))
    one, again, other = tickets(bench, 1, 100), tickets(bench, 1, 100), tickets(bench, 2, 100)
    assert sorted(one) == sorted(other) == list(range(100))
    assert one == again != other
    # about half of the neighbours have changed places
    assert 20 < sum(one.index(i) > one.index(i + 1) for i in range(99)) < 80


def test_warps_of_a_block_run_in_another_order_too(bench: Bench) -> None:
    assert tickets(bench, 0, 1, 256) == list(range(8))
    assert tickets(bench, 5, 1, 256) != list(range(8))
    assert sorted(tickets(bench, 5, 1, 256)) == list(range(8))


def test_a_sample_has_the_same_blocks_in_another_order(bench: Bench) -> None:
    plain = tickets(bench, 0, 5000, sample_budget=4000)
    other = tickets(bench, 3, 5000, sample_budget=4000)
    assert 3 < len(plain) <= len(other) < 1.5 * len(plain) + 3
    assert set(plain) <= set(other)
    assert plain != other[: len(plain)]
    assert other == tickets(bench, 3, 5000, sample_budget=4000) != tickets(bench, 4, 5000, sample_budget=4000)


def test_blocks_that_wait_for_the_one_before_get_on_in_any_order(bench: Bench) -> None:
    for seed in (0, 1):
        (flags,) = order(bench, seed, CHAIN, np.zeros(6000, np.uint32), grid=6000)
        assert flags.all()


def test_a_race_that_usually_wins_shows_in_another_order(bench: Bench) -> None:
    (usual,) = order(bench, 0, LAST, np.zeros(1, np.uint32), grid=64)
    assert usual[0] == 63
    assert any(order(bench, seed, LAST, np.zeros(1, np.uint32), grid=64)[0][0] != 63 for seed in (1, 2, 3))


def test_a_block_with_much_to_do_waits_for_nobody(bench: Bench) -> None:
    """A sample stays a sample however long its blocks take, as long as they look at nothing that others change."""
    body = (
        INDEX
        + """
 ld.param.u64 %rd0, [p0]; mad.wide.u32 %rd1, %r1, 4, %rd0; mov.u32 %r4, 0; mov.u32 %r5, 0;
more: ld.global.u32 %r6, [%rd1]; add.u32 %r5, %r5, %r6; add.u32 %r4, %r4, 1;
 setp.lt.u32 %p0, %r4, 100000; @%p0 bra more;
 st.global.u32 [%rd1], %r5; ret;
"""
    )
    ran = bench.run(body, np.ones(64, np.uint32), grid=64, threads=1, sample_budget=1, profile=True)
    assert ran.findings == ()
    assert ran.launch.blocks_run < 8


# blocks meet in teams of eight, by the order in which they start; p0 counts starts, p1 arrivals of each team
TEAMS = (
    INDEX
    + """
 ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; mov.u32 %r3, %laneid; setp.ne.u32 %p0, %r3, 0;
 @%p0 bra met; atom.global.add.u32 %r4, [%rd0], 1; shr.u32 %r5, %r4, 3; mad.wide.u32 %rd1, %r5, 4, %rd1;
 membar.gl; atom.global.add.u32 %r6, [%rd1], 1;
met: shfl.sync.idx.b32 %r5, %r5, 0, 31, -1; ld.param.u64 %rd1, [p1]; mad.wide.u32 %rd1, %r5, 4, %rd1;
wait: ld.volatile.global.u32 %r6, [%rd1]; setp.ge.u32 %p1, %r6, 8; @%p1 bra done;
 SLEEP bra wait;
done: membar.gl; ret;
"""
)
SLEEP = "nanosleep.u32 50;"


def teams(bench: Bench, body: str, blocks: int, **options: object) -> tuple[int, float, np.ndarray]:
    """Blocks that ran, load requests per block, arrivals."""
    counts = np.zeros(1, np.uint32), np.zeros(blocks // 8, np.uint32)
    ran = bench.run(body, *counts, grid=blocks, profile=True, **options)  # type: ignore[arg-type]
    assert ran.findings == ()
    counters = {counter.name: counter.value for counter in ran.launch.counters}
    return ran.launch.blocks_run, counters["global_load_requests"] / ran.launch.blocks, ran.buffers[1]


def test_blocks_that_sleep_until_others_come_stay_a_sample(bench: Bench) -> None:
    """A team at a time: nobody who waits is left alone, and who waits hardly looks."""
    ran, looks, arrived = teams(bench, TEAMS.replace("SLEEP", SLEEP), 4096, sample_budget=1)
    assert ran % 8 == 0
    assert 8 <= ran <= 64
    assert sorted(set(arrived.tolist())) == [0, 8]
    assert looks < 5


def test_blocks_that_wait_without_sleeping_run_whole(bench: Bench) -> None:
    ran, looks, arrived = teams(bench, TEAMS.replace("SLEEP", ""), 64, sample_budget=1)
    assert ran == 64
    assert (arrived == 8).all()
    assert looks > 100


def test_sleeping_teams_come_through_in_any_order(bench: Bench) -> None:
    for seed in (0, 1):
        counts = np.zeros(1, np.uint32), np.zeros(64, np.uint32)
        _, arrived = order(bench, seed, TEAMS.replace("SLEEP", SLEEP), *counts, grid=512)
        assert (arrived == 8).all()
