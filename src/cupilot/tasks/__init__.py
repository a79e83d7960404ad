"""Task files in KernelBench form: loading, smaller versions, and inputs with their references."""

from cupilot.tasks.case import KINDS, Case, make_case
from cupilot.tasks.load import PRECISIONS, load_task
from cupilot.tasks.scale import scaled_tasks

__all__ = ["KINDS", "PRECISIONS", "Case", "load_task", "make_case", "scaled_tasks"]
