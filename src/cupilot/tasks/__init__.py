"""Task files in KernelBench form: loading, smaller versions, and inputs with their references."""

from cupilot.records import PRECISIONS
from cupilot.tasks.case import Case, draw_case, learn_structures, make_case
from cupilot.tasks.draw import KINDS
from cupilot.tasks.expectation import Expectation
from cupilot.tasks.process import begin_task, load_source, load_task, shaped_tasks, task_texts
from cupilot.tasks.scale import Probe, long_tasks, probe_tasks, scaled_tasks
from cupilot.tasks.slices import SlicedCase
from cupilot.tasks.slicing import Slicing, find_slicing

__all__ = [
    "KINDS",
    "PRECISIONS",
    "Case",
    "Expectation",
    "Probe",
    "SlicedCase",
    "Slicing",
    "begin_task",
    "draw_case",
    "find_slicing",
    "learn_structures",
    "load_source",
    "load_task",
    "long_tasks",
    "make_case",
    "probe_tasks",
    "scaled_tasks",
    "shaped_tasks",
    "task_texts",
]  # fmt: skip
