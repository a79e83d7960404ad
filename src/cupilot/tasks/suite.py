"""Suites: folders of task files in KernelBench form, ``<number>_<name>.py``.

Suites that come with the program have ``suite.csv`` beside their tasks: category, the inputs' shapes, and times that
others recorded on an A100-80GB (in milliseconds).  The records also serve another folder's tasks of the same name and
shapes, such as a checkout of KernelBench itself.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from cupilot.errors import UserError
from cupilot.records import Task

LEVEL1 = "kernelbench_level1"
RECORDED_ON = "a100-80gb"
SYSTEMS = ("pytorch", "ai_cuda_engineer", "cupilot")
"""Whose times are recorded: PyTorch in eager mode, and the kernels of two published searches."""
TITLES = {"pytorch": "PyTorch eager", "ai_cuda_engineer": "AI CUDA Engineer", "cupilot": "cuPilot"}
TENSOR_TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""What tensors of a suite's tasks may be made of."""
_RETYPED = """


# --- the same with tensors of {type} ---

import torch as _torch

_Model, _get_inputs = Model, get_inputs


class Model(_Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.to(_torch.{type})


def get_inputs():
    before = _torch.get_default_dtype()
    _torch.set_default_dtype(_torch.{type})  # large tensors are not made twice
    try:
        values = _get_inputs()
    finally:
        _torch.set_default_dtype(before)
    return [v.to(_torch.{type}) if _torch.is_tensor(v) and v.is_floating_point() else v for v in values]
"""
_NUMBERED = re.compile(r"(\d{1,12})_.+")
MOST_PROBLEMS = 100_000


@dataclass(frozen=True)
class Recorded:
    """What is known of a problem: its category, shapes, and recorded times by system; ``broken`` systems' kernels
    do not compute the operator, so their times mean nothing."""

    name: str
    category: str
    inputs: str
    times_s: Mapping[str, float] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    def fits(self, task: Task) -> bool:
        """Whether the times are of this task's shapes."""
        given = (str(a.tensor or a.value) for a in task.arguments if a.origin == "input")
        return " ".join(given) == self.inputs


@dataclass(frozen=True)
class SuiteTask:
    """One problem of a suite; ``recorded`` is what was recorded of a problem of this name."""

    number: int
    name: str
    path: Path
    recorded: Recorded | None = None

    @property
    def category(self) -> str:
        return self.recorded.category if self.recorded is not None else "other"


def in_type(source: str, dtype: str) -> str:
    """The task of a text with floating inputs, parameters and buffers in one of `TENSOR_TYPES`; its sizes stay."""
    return source if dtype == "fp32" else source.rstrip() + _RETYPED.format(type=TENSOR_TYPES[dtype])


def open_suite(name: str) -> tuple[SuiteTask, ...]:
    """The problems of a suite that comes with the program, or of any folder, by number."""
    shipped = Path(str(files("cupilot.tasks") / "suites"))
    folder = shipped / name if (shipped / name).is_dir() and re.fullmatch(r"\w+", name) else Path(name)
    if not folder.is_dir():
        known = ", ".join(sorted(each.name for each in shipped.iterdir() if each.is_dir()))
        raise UserError(f"there is no suite and no folder {name}; suites are {known}")
    found = []
    for path in sorted(folder.glob("*.py")):
        numbered = _NUMBERED.fullmatch(path.stem)
        if numbered is not None:
            found.append(SuiteTask(int(numbered[1]), path.stem, path, recorded().get(path.stem)))
    if not found:
        raise UserError(f"{folder} holds no tasks: their files are named <number>_<name>.py")
    numbers = [task.number for task in found]
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise UserError(f"{folder} holds two tasks of number {twice}")
    return tuple(sorted(found, key=lambda task: task.number))


def _span(first: int, last: int) -> range:
    if last - first >= MOST_PROBLEMS:
        raise UserError(f"{first}-{last} are more problems than a suite has")
    return range(first, last + 1)


def chosen(tasks: Sequence[SuiteTask], only: str | None) -> tuple[SuiteTask, ...]:
    """The problems that a list such as ``1,23,40-46`` names; all of them without one."""
    if only is None:
        return tuple(tasks)
    wanted: set[int] = set()
    for part in only.replace(" ", "").split(","):
        span = re.fullmatch(r"(\d{1,12})(?:-(\d{1,12}))?", part)
        if span is None:
            raise UserError(f"{part!r} is no problem: write numbers and ranges, such as 1,23,40-46")
        wanted.update(_span(int(span[1]), int(span[2] or span[1])))
    missing = sorted(wanted - {task.number for task in tasks})
    if missing:
        raise UserError(f"the suite has no problem {missing[0]}")
    return tuple(task for task in tasks if task.number in wanted)


@cache
def recorded() -> Mapping[str, Recorded]:
    """What was recorded of the problems of KernelBench's level 1, by their names."""
    text = (files("cupilot.tasks") / "suites" / LEVEL1 / "suite.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines()):
        times = {system: float(row[f"{system}_ms"]) / 1e3 for system in SYSTEMS if row[f"{system}_ms"]}
        found[row["name"]] = Recorded(row["name"], row["category"], row["inputs"], times, tuple(row["broken"].split()))
    return found
