"""Evaluate kernels of loaded tasks on an open device, as tests like to write it."""

from __future__ import annotations

from collections.abc import Callable

from cupilot.contracts import Device, Watch
from cupilot.evaluation import Evaluator
from cupilot.records import Evaluation, EvaluationRequest, Kernel, Task, TaskSource
from cupilot.records.scope import TASK

Evaluate = Callable[[Task, Kernel], Evaluation]


def evaluator_on(
    device: Device, seed: int = 0, timeout_s: float = 120.0, watch: Watch = lambda step: None,
    require: tuple[str, ...] = (TASK,),
) -> Evaluate:  # fmt: skip
    """A function of a task and a kernel; the references of the last task are kept."""
    evaluators: dict[TaskSource, Evaluator] = {}

    def evaluate_kernel(task: Task, kernel: Kernel) -> Evaluation:
        source = TaskSource.of(task)
        if source not in evaluators:
            evaluators.clear()
            evaluators[source] = Evaluator(lambda name: device, slots=1, watch=watch, tasks=(task,))
        return evaluators[source](
            EvaluationRequest(
                task=TaskSource.of(task),
                kernel=kernel,
                device=device.name,
                seed=seed,
                timeout_s=timeout_s,
                require=require,
            )
        )

    return evaluate_kernel
