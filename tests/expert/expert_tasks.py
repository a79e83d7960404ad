"""Tasks as the exporter writes them, for the three families."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cupilot.contracts import Brief
from cupilot.records import Argument, Guidance, Individual, Op, Task, TensorSpec
from cupilot.testing.samples import SPEC

Step = tuple[str, tuple[tuple[str, object], ...]]
RELU: Step = ("aten.relu.default", ())


def elementwise_task(*steps: Step, shape: tuple[int, ...] = (1024, 1000)) -> Task:
    spec = TensorSpec(shape)
    graph: list[Op] = []
    for number, (target, attributes) in enumerate(steps or (RELU,)):
        operand = graph[-1].name if graph else "x"
        graph.append(Op(f"step{number}", target, (operand,), attributes, spec))  # type: ignore[arg-type]
    return Task("pointwise", "", (Argument("x", "input", spec),), (spec,), tuple(graph))


def softmax_task(*shape: int, dim: int = -1, target: str = "aten.softmax.int") -> Task:
    spec = TensorSpec(shape or (512, 4096))
    op = Op("softmax", target, ("x",), (("dim", dim), ("dtype", None)), spec)
    return Task("softmax", "", (Argument("x", "input", spec),), (spec,), (op,))


def matmul_task(m: int = 512, k: int = 256, n: int = 384, *steps: Step) -> Task:
    out = TensorSpec((m, n))
    graph = [Op("product", "aten.matmul.default", ("A", "B"), (), out)]
    for number, (target, attributes) in enumerate(steps):
        graph.append(Op(f"step{number}", target, (graph[-1].name,), attributes, out))  # type: ignore[arg-type]
    arguments = (Argument("A", "input", TensorSpec((m, k))), Argument("B", "input", TensorSpec((k, n))))
    return Task("matmul", "", arguments, (out,), tuple(graph))


FAMILIES: dict[str, Callable[[], Task]] = {
    "elementwise": elementwise_task,
    "softmax": softmax_task,
    "matmul": matmul_task,
}


def brief(task: Task, guidance: Guidance | None = None, parents: Sequence[Individual] = ()) -> Brief:
    return Brief(task, SPEC, guidance, tuple(parents))
