"""One evaluate(): guard, build, verify, measure, profile."""

from cupilot.evaluate.evaluator import Evaluator

__all__ = ["Evaluator"]
