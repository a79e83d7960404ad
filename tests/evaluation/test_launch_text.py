"""Profiles as text: numbers that can be true of a GPU, for any launch."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cupilot.evaluation.launch_text import DETAILED, profile_lines, summary_lines
from cupilot.evaluation.launch_view import ProfileView, modelled_view, occupancy_text, plural, residence, time_parts
from cupilot.gpu import load_spec
from cupilot.records import Counter, Kernel, Launch, LineCost, MemoryOperation, Profile, Resources
from cupilot.testing.samples import TASK

SPECS = {name: load_spec(name) for name in ("a100-80gb", "h100-sxm", "t4", "v100")}
A100 = SPECS["a100-80gb"]
KERNEL = Kernel("\n".join(f"line_{n}();" for n in range(1, 6)))
SECTOR = 32
ROUNDING = 1.02
"""Times are found to a part in millions, percentages are rounded."""


@st.composite
def launches(draw: st.DrawFn) -> Launch:
    """A launch whose counters agree with each other: what lanes do, and what of it passes each level."""
    grid = draw(st.sampled_from([1, 2, 64, 107, 108, 109, 1000, 65_536, 5 * 10**5]))
    threads = draw(st.sampled_from([1, 32, 48, 64, 128, 256, 512, 1024]))
    warps = grid * -(-threads // 32)
    lanes = min(threads, draw(st.integers(1, 32)))

    def each(most: int) -> float:
        return float(warps * draw(st.integers(0, most)))

    fp32, integer, loads, stores, shared = each(2000), each(500), each(200), each(50), each(300)
    load_bytes = draw(st.sampled_from([2, 4, 8, 16]))
    load_sectors = loads * draw(st.sampled_from([1, 2, 4, 16, 32]))
    hits = load_sectors * draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]))
    l2_read = load_sectors - hits
    l2_hits = l2_read * draw(st.sampled_from([0.0, 0.9]))
    everything = fp32 + integer + loads + stores + shared
    trips = draw(st.integers(1, 8))
    values = {
        "warp_instructions": everything, "lane_instructions": everything * lanes, "instructions_fp32": fp32,
        "instructions_int": integer, "flop_fp32": fp32 * lanes * draw(st.sampled_from([1, 2])),
        "global_load_requests": loads, "global_load_sectors": load_sectors,
        "global_load_bytes": loads * lanes * load_bytes, "global_load_wavefronts": max(loads, load_sectors / 4),
        "l1_hit_sectors": hits, "l2_read_sectors": l2_read, "l2_hit_sectors": l2_hits,
        "dram_read_bytes": (l2_read - l2_hits) * SECTOR, "global_store_requests": stores,
        "global_store_sectors": 4 * stores, "global_store_bytes": stores * lanes * 4,
        "global_store_wavefronts": stores, "l2_write_sectors": 4 * stores, "dram_write_bytes": 4 * stores * SECTOR,
        "shared_load_requests": shared, "shared_load_wavefronts": 2 * shared, "shared_load_conflicts": shared,
        "barriers": float(warps * draw(st.integers(0, 20))),
        "independent_loads": float(trips) if loads else 0.0, "critical_loads": loads / warps / trips,
    }  # fmt: skip
    if draw(st.booleans()):
        values |= {"sass_instructions": everything, "sass_fp32": fp32, "sass_int": integer, "sass_lsu": loads + shared}
    counters = tuple(Counter(name, value, "PTX") for name, value in values.items() if value)
    lines = tuple(LineCost(n, everything / 5, load_sectors / 5) for n in range(1, 6)) if everything else ()
    resources = Resources(
        draw(st.integers(16, 64)), draw(st.sampled_from([0, 1024, 40_000])), draw(st.sampled_from([0, 96]))
    )
    return Launch("k", (grid, 1, 1), (threads, 1, 1), 0, resources, min(grid, 8), counters, lines)


profiles = st.builds(
    lambda found, operations: Profile("virtual:x", tuple(found), tuple(operations)),
    st.lists(launches(), min_size=1, max_size=6),
    st.lists(st.builds(MemoryOperation, st.sampled_from(["fill", "copy"]), st.integers(1, 10**9)), max_size=2),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles, st.sampled_from(sorted(SPECS)))
def test_numbers_are_plausible_for_any_profile(profile: Profile, name: str) -> None:
    spec = SPECS[name]
    view = modelled_view(profile, spec, KERNEL)
    shares = [step.share for step in (*view.launches, *view.operations)]
    assert sum(shares) <= ROUNDING
    for launch in view.launches:
        at = launch.residence
        assert at.most_warps <= at.occupancy.warps_per_sm <= spec.warps_per_sm
        assert at.most_warps * at.busy_sms >= min(
            launch.launch.blocks * -(-launch.launch.threads // 32), at.most_warps * spec.sms
        )
        assert at.busy_sms <= min(spec.sms, launch.launch.blocks)
        assert sum(share for _, share in time_parts(launch.timing)) == pytest.approx(1.0, abs=0.01)
        assert all(0 <= unit.share <= ROUNDING for unit in launch.units), launch.units
        assert all(row.hit_rate is None or 0 <= row.hit_rate <= 1 for row in launch.memory)
    text = "\n".join((*profile_lines(view, TASK), *summary_lines(view)))
    assert all(float(number) <= 102 for number in re.findall(r"([\d.]+) %", text)), text
    assert not re.search(r"\bnan\b|\binf\b|e\+\d|-\d", text), text


@pytest.mark.parametrize(("blocks", "warps", "idle"), [(64, 2, 44), (108, 2, 0), (109, 4, 0), (216, 4, 0)])
def test_a_small_grid_says_what_it_leaves_idle(blocks: int, warps: int, idle: int) -> None:
    launch = Launch("k", (blocks, 1, 1), (64, 1, 1), 0, Resources(32), 8, (Counter("warp_instructions", 1e6, "PTX"),))
    text = occupancy_text(view_of(launch).launches[0])
    assert text.startswith("occupancy 100 %: 64 of 64 warps per SM in 32 blocks")
    assert f"{blocks} blocks for 108 SMs: at most {warps} warps on an SM" in text
    assert (f"{idle} SMs idle" in text) == bool(idle)


def test_a_full_grid_says_nothing_of_it() -> None:
    launch = Launch("k", (508_000, 1, 1), (64, 1, 1), 0, Resources(32), 8, (Counter("warp_instructions", 1e6, "PTX"),))
    assert occupancy_text(view_of(launch).launches[0]).endswith("limited by warps; 147 waves")
    assert not residence(launch, A100).is_small


def test_launches_are_told_apart_and_the_longest_shown_in_full() -> None:
    slow, quick = (
        Launch("k", (n, 1, 1), (64, 1, 1), 0, Resources(32), 8, (Counter("warp_instructions", n * 1e4, "PTX"),))
        for n in (10**5, 10**4)
    )
    lines = profile_lines(view_of(*[slow] * 4, *[quick] * 12), TASK)
    text = "\n".join(lines)
    assert lines[0].startswith("16 launches; ")
    assert sum(line.startswith("  grid") for line in lines) == DETAILED
    assert "k #4: " in text
    assert lines[-1] == "and 5 more launches"


def test_one_launch_has_its_traffic_in_one_line() -> None:
    launch = Launch("k", (8, 1, 1), (64, 1, 1), 0, Resources(32), 8, (Counter("dram_read_bytes", 1e6, "model"),))
    lines = profile_lines(view_of(launch), TASK)
    assert sum("1 MB" in line for line in lines) == 1
    assert sum("1 MB" in line for line in profile_lines(view_of(launch, launch), TASK)) == 2


def test_launches_that_were_seen_are_only_named() -> None:
    launch = Launch("k", (8, 1, 1), (64, 1, 1), 0, Resources(32), 8, (Counter("warp_instructions", 1e6, "PTX"),))
    new = replace(launch, kernel="faster", grid=(108, 1, 1))
    lines = profile_lines(view_of(launch, new), TASK, beside=view_of(launch, replace(launch, kernel="slower")))
    assert sum(line.startswith("  grid") for line in lines) == 1
    assert lines[-1].startswith("the same as in the profile above: k (")


def test_spills_and_plurals() -> None:
    launch = Launch("k", (8, 1, 1), (64, 1, 1), 0, Resources(255, spill_bytes=96), 8, ())
    (line,) = summary_lines(view_of(launch))
    assert "255 registers, 96 bytes spilled" in line
    assert (plural(1, "launch", "launches"), plural(2, "block")) == ("1 launch", "2 blocks")
    assert "spilled" not in summary_lines(view_of(replace(launch, resources=Resources(255))))[0]


def view_of(*found: Launch) -> ProfileView:
    return modelled_view(Profile("virtual:a100-80gb", found), A100, KERNEL)
