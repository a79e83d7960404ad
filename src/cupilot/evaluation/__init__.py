"""One evaluate(): guard, build, verify, measure, profile."""

from cupilot.evaluation.evaluator import Evaluator

__all__ = ["Evaluator"]
