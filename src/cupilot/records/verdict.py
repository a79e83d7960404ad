"""The verdict on a kernel in one sentence, for terminals, pages, reports and exports."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from cupilot.numbers import ratio
from cupilot.records.evaluation import Evaluation
from cupilot.text import one_line

ADVICE = {"tie": "a tie with PyTorch eager: keep PyTorch", "slower": "slower than PyTorch eager: keep PyTorch"}


def verdict_sentence(evaluation: Evaluation) -> str:
    """Right or not, for what, and how fast beside PyTorch."""
    failure = evaluation.failure
    if failure is not None:
        return f"rejected ({failure.stage}, {failure.kind}): {one_line(failure.message)}"
    scope = f" for the task; {evaluation.scope}" if evaluation.scope is not None else ""
    return f"correct{scope}; {speed_sentence(evaluation)}"


def bundle_sentence(evaluations: Sequence[Evaluation]) -> str:
    """One kernel at several shapes: right only if it is right at all of them, with the geometric mean of its times."""
    wrong = [evaluation for evaluation in evaluations if not evaluation.correct]
    if wrong:
        many = f"{len(wrong)} of {len(evaluations)} shapes"
        return f"rejected for {many}, first {wrong[0].task}: {verdict_sentence(wrong[0])}"
    speedup = mean_speedup(evaluations)
    mean = "PyTorch's time is unknown" if speedup is None else f"geometric mean {ratio(speedup)} vs PyTorch eager"
    return f"correct for all {len(evaluations)} shapes; {mean}"


def mean_speedup(evaluations: Sequence[Evaluation]) -> float | None:
    """Geometric mean over the shapes; None unless all of them have one."""
    found = [evaluation.speedup for evaluation in evaluations if evaluation.correct]
    known = [speedup for speedup in found if speedup]
    return geometric_mean(known) if known and len(known) == len(evaluations) else None


def speed_sentence(evaluation: Evaluation) -> str:
    """Faster than PyTorch, a tie or a loss, with the uncertainty of both times."""
    if evaluation.timing is None:
        return "not timed"
    if evaluation.baseline is None or evaluation.speedup is None:
        return "PyTorch's time is unknown"
    over = evaluation.speedup_over_compiled
    compiled = f", but slower than torch.compile ({ratio(over)})" if over is not None and over < 1.0 else ""
    compiled = compiled if evaluation.standing == "faster" else ""
    return f"{ADVICE.get(evaluation.standing, 'faster than PyTorch eager')} ({speedup_text(evaluation)}){compiled}"


def speedup_text(evaluation: Evaluation) -> str:
    """Such as ``2.21x, 1.80x to 2.70x, modelled``; another source of PyTorch's time is named beside it."""
    interval, timing = evaluation.speedup_interval, evaluation.timing
    if interval is None or timing is None:
        return ""
    around = f", {ratio(interval.low)} to {ratio(interval.high)}" if interval.low < interval.high else ""
    mixed = evaluation.baseline is not None and evaluation.baseline.source != timing.source
    against = f" against {evaluation.baseline.source}" if mixed and evaluation.baseline is not None else ""
    return f"{ratio(evaluation.speedup)}{around}, {timing.source}{against}"
