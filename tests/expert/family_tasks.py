"""Small task files for the tests of families."""

from __future__ import annotations

from random import Random

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.records import Kernel, Task
from cupilot.strategies import move_text
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

RESOURCES = ("resources", "out-of-resources")


def small_task(
    result: str, arguments: str, inputs: str, precision: str = "fp32", sizes: str = "A, B, C = 33, 64, 35"
) -> Task:
    """A module that returns one expression, of inputs whose sizes are A, B and C."""
    source = (
        f"import torch\nimport torch.nn.functional as F\n{sizes}\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {arguments}):\n        return {result}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )
    return task_from_source(source, "small", precision, where="small")


def drawn_kernels_are_right(task: Task, device: Device, count: int, seed: int) -> None:
    """The plain kernel and drawn ones are right, or need more than the device has."""
    expert = Expert()
    space, rng = expert.space(task), Random(seed)
    evaluator = evaluator_on(device, seed=1, timeout_s=300.0)
    kernels = {"plain": expert.generate(Brief(task, device.spec))}
    for _ in range(count):
        strategy = space.draw(rng, lambda card: 0.6)
        kernel = expert.translate(Brief(task, device.spec), strategy)
        assert isinstance(kernel, Kernel), kernel
        kernels[" ".join(map(move_text, strategy.moves))] = kernel
    for text, kernel in kernels.items():
        failure = evaluator(task, kernel).failure
        assert failure is None or failure.kind in RESOURCES, f"{text}: {failure}"
