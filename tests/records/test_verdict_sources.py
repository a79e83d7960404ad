"""Speed-ups say where both times are from."""

from __future__ import annotations

from dataclasses import replace

from cupilot.records import Timing
from cupilot.records.verdict import speed_sentence, speedup_text
from cupilot.testing.samples import EVALUATION

KERNEL = Timing(1e-3, "modelled", "d")
BETTER = replace(
    EVALUATION, failure=None, timing=KERNEL, baseline=Timing(4e-3, "modelled", "d"), compiled=None, measurement=None
)


def test_one_source_is_said_once():
    assert speedup_text(BETTER) == "4.00x, modelled"


def test_two_sources_are_both_named():
    recorded = replace(BETTER, baseline=Timing(4e-3, "recorded", "d"))
    assert speedup_text(recorded) == "4.00x, modelled against recorded"


def test_a_kernel_that_only_eager_mode_loses_to_says_so():
    compiled = replace(BETTER, compiled=Timing(0.5e-3, "modelled", "d"))
    assert compiled.speedup_over_compiled == 0.5
    assert compiled.compiled_over_eager == 8.0
    assert "but slower than torch.compile (0.50x)" in speed_sentence(compiled)
    assert "torch.compile" not in speed_sentence(replace(BETTER, compiled=Timing(2e-3, "modelled", "d")))


def test_measured_and_modelled_times_are_not_divided():
    mixed = replace(BETTER, timing=Timing(1e-3, "measured", "d"), compiled=Timing(2e-3, "modelled", "d"))
    assert mixed.speedup_over_compiled is None
