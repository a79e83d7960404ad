"""The verdict on a kernel in one sentence, for terminals, pages, reports and exports."""

from __future__ import annotations

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


def speed_sentence(evaluation: Evaluation) -> str:
    """Faster than PyTorch, a tie or a loss, with the uncertainty of both times."""
    if evaluation.timing is None:
        return "not timed"
    if evaluation.baseline is None or evaluation.speedup is None:
        return "PyTorch's time is unknown"
    return f"{ADVICE.get(evaluation.standing, 'faster than PyTorch eager')} ({speedup_text(evaluation)})"


def speedup_text(evaluation: Evaluation) -> str:
    """Such as ``2.21x, 1.80x to 2.70x, modelled``."""
    interval, timing = evaluation.speedup_interval, evaluation.timing
    if interval is None or timing is None:
        return ""
    around = f", {ratio(interval.low)} to {ratio(interval.high)}" if interval.low < interval.high else ""
    return f"{ratio(evaluation.speedup)}{around}, {timing.source}"
