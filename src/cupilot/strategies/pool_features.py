"""From a task and what is known of its first kernel to what the pool is asked, and to what it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from cupilot.records import Evaluation, Guidance, Individual, Op, Task, TensorSpec
from cupilot.records.pool import PoolRecord, Sizes
from cupilot.strategies.deck import LIMITS, ZONES
from cupilot.strategies.pool_tags import operator_tags
from cupilot.tasks.flop import tensors
from cupilot.tasks.operators import operator

# the attributes that name what an operator reduces over: a dimension, or the sizes themselves
_DIMENSIONS, _LENGTHS = "dim", "normalized_shape"
_REDUCING = ("row", "reduction", "scan")


@dataclass(frozen=True)
class PoolQuery:
    """What similar records are looked for by; whatever is empty or None does not matter."""

    operators: tuple[str, ...] = ()
    dtype: str = ""
    precision: str = ""
    sizes: Sizes | None = None
    zone: str = ""
    limit: str = ""
    device: str = ""
    text: str = ""


def features(task: Task, evaluation: Evaluation | None = None, guidance: Guidance | None = None) -> PoolQuery:
    """The query for a task.

    ``evaluation`` is that of the plain kernel and gives device and limit; ``guidance`` gives the zone,
    and the limit where the timing names none that the cards know.
    """
    timing = evaluation.timing if evaluation is not None else None
    limit = timing.limit if timing is not None else ""
    if limit not in LIMITS:
        limit = guidance.limit if guidance is not None else ""
    return PoolQuery(
        operators=operator_tags(task),
        dtype=_dtype(task),
        precision=task.precision,
        sizes=sizes(task),
        zone=guidance.zone if guidance is not None and guidance.zone in ZONES else "",
        limit=limit if limit in LIMITS else "",
        device=evaluation.device if evaluation is not None else "",
    )


def pool_record(
    task: Task,
    first: Individual,
    individual: Individual,
    guidance: Guidance,
    *,
    version: str,
) -> PoolRecord | None:
    """What the pool keeps of an individual; None when there is nothing to keep.

    That is: no moves, not correct, without a proof, or no faster than ``first``, the plain
    kernel.  ``guidance`` is that for the plain kernel.
    """
    evaluation, timing, plain = individual.evaluation, individual.evaluation.timing, first.evaluation.timing
    proof = evaluation.proof
    if not evaluation.correct or timing is None or plain is None or proof is None or not individual.strategy.moves:
        return None
    if (timing.source, timing.device) != (plain.source, plain.device) or timing.time_s >= plain.time_s:
        return None
    query = features(task, first.evaluation, guidance)
    return PoolRecord(
        task=task.name,
        operators=query.operators,
        dtype=query.dtype,
        precision=task.precision,
        shapes=_shapes(task),
        sizes=sizes(task),
        zone=query.zone,
        limit=query.limit,
        device=timing.device,
        strategy=individual.strategy,
        time_s=timing.time_s,
        gain=plain.time_s / timing.time_s,
        speedup=evaluation.speedup,
        source=timing.source,
        kernel=individual.kernel.digest,
        proof=proof,
        version=version,
        text=individual.strategy.text,
    )


def _dtype(task: Task) -> str:
    return task.outputs[0].dtype if task.outputs else ""


def _shapes(task: Task) -> str:
    arguments = ", ".join(str(argument.tensor) for argument in task.arguments if argument.tensor is not None)
    return f"{arguments} -> {', '.join(map(str, task.outputs))}"


def sizes(task: Task) -> Sizes:
    """The sizes that matter, read off the graph; of several products or reductions the first counts."""
    known = tensors(task)
    everything = [*known.values(), *task.outputs]
    rows = (_row(op, known) for op in task.graph)
    products = (_product(op, known) for op in task.graph)
    return Sizes(
        elements=max((spec.elements for spec in everything if spec.elements > 0), default=1),
        row=next((row for row in rows if row), None),
        product=next((found for found in products if found is not None), None),
    )


def _row(op: Op, known: dict[str, TensorSpec]) -> int | None:
    """The length that an operator reduces over; without a dimension that is the whole tensor."""
    source = known.get(op.operands[0]) if op.operands else None
    if source is None or operator(op.target).family not in _REDUCING:
        return None
    lengths, dimensions = op.attribute(_LENGTHS), op.attribute(_DIMENSIONS)
    if isinstance(lengths, tuple):
        return prod(lengths)
    named = (dimensions,) if type(dimensions) is int else dimensions
    rank = len(source.shape)
    return prod(source.shape[d] for d in named if -rank <= d < rank) if isinstance(named, tuple) else source.elements


def _product(op: Op, known: dict[str, TensorSpec]) -> tuple[int, int, int] | None:
    """(M, N, K) of a matrix product; leading dimensions of a linear layer's input count as rows."""
    about = operator(op.target)
    operands = [known[operand] for operand in op.operands if operand in known]
    if about.bias_first:
        operands = operands[1:]
    if about.kind != "product" or len(operands) < 2 or not operands[0].shape:
        return None
    left, right = operands[:2]
    k = left.shape[-1]
    if about.name == "linear":
        n = right.shape[0]
        found = (left.elements // max(k, 1), n, k)
    else:
        m = left.shape[-2] if len(left.shape) > 1 else 1
        found = (m, right.shape[-1] if len(right.shape) > 1 else 1, k)
    return found if min(found) > 0 else None
