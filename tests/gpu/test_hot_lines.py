"""Source lines by their share of time, instructions and sectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.gpu.hot_lines import HotLine, hot_lines
from cupilot.gpu.timing import launch_parts
from cupilot.records import LineCost
from cupilot.testing.samples import LAUNCH, SPEC

LOAD, SUM = LineCost(3, 100.0, global_sectors=400.0), LineCost(5, 300.0)
FIRST = replace(LAUNCH, lines=(LOAD, SUM, LineCost(9, 0.0)))
SECOND = replace(LAUNCH, lines=(SUM, LineCost(6, 100.0, global_sectors=400.0)))


def test_without_a_gpu_lines_go_by_instructions_over_all_launches() -> None:
    assert hot_lines((FIRST, SECOND), None) == (
        HotLine(5, 0.75, 0.75, 0.0),
        HotLine(3, 0.125, 0.125, 0.5),
        HotLine(6, 0.125, 0.125, 0.5),
    )


def test_with_a_gpu_lines_go_by_modelled_time() -> None:
    found = hot_lines((FIRST,), SPEC)
    parts = launch_parts(FIRST, SPEC)
    assert {hot.line for hot in found} == {3, 5}
    assert sum(hot.cost for hot in found) == pytest.approx(1.0 - parts.get("launch", 0.0) / sum(parts.values()))
    assert [hot.cost for hot in found] == sorted((hot.cost for hot in found), reverse=True)
    assert {hot.line: (hot.instructions, hot.sectors) for hot in found} == {3: (0.25, 1.0), 5: (0.75, 0.0)}


def test_launches_without_lines_have_no_hot_ones() -> None:
    assert hot_lines((replace(LAUNCH, lines=()),), SPEC) == ()
    assert hot_lines((), None) == ()
