"""What is sent to an evaluator: a kernel, the task it replaces, and where and how to judge it.

A request is plain data.  It crosses processes and machines as JSON or pickle and holds everything that the other side
needs: sources, never paths or live objects.
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.records.kernel import Kernel
from cupilot.records.scope import TASK
from cupilot.records.task import Task

ONLY_BUILT = "only-built"


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """A task as its author wrote it; `cupilot.tasks.load.load_source` makes the `Task` of it."""

    name: str
    source: str
    precision: str = "fp32"

    @classmethod
    def of(cls, task: Task) -> TaskSource:
        return cls(name=task.name, source=task.source, precision=task.precision)


@dataclass(frozen=True, kw_only=True)
class EvaluationRequest:
    """One evaluation.

    ``device`` is a full device name.  ``gpu`` is the name of the `GpuSpec` that the device must have, because
    ``cuda:0`` is another GPU on another machine; empty accepts any.  ``seed`` chooses the verification inputs and
    ``timeout_s`` bounds each run of the candidate.  ``require`` names what it must hold for (`records.scope`).
    ``only_build`` stops after the build: the evaluation has the kernel's resources, and is a failure of the kind
    `ONLY_BUILT`, because nothing is known of its results.
    """

    task: TaskSource
    kernel: Kernel
    device: str
    gpu: str = ""
    seed: int = 0
    timeout_s: float = 60.0
    require: tuple[str, ...] = (TASK,)
    only_build: bool = False
