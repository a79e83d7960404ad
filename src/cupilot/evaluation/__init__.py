"""One evaluate(): guard, build, verify, measure, profile."""

from cupilot.evaluation.evaluator import Evaluator
from cupilot.evaluation.temporary_adapter import open_evaluator

__all__ = ["Evaluator", "open_evaluator"]
