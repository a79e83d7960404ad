"""What is to be computed: a PyTorch module, its arguments and its graph of operators."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
"""What a kernel may compute in."""
Scalar = bool | int | float | str

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """Shape and element type of a tensor; always dense and row-major here."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) + ":" + self.dtype


@dataclass(frozen=True)
class Argument:
    """One argument of the kernel's host function: a tensor, or a scalar with its value.

    ``origin`` says where the value comes from: ``input`` (``get_inputs``), ``parameter`` or
    ``buffer`` (of the module), ``constant`` (a number in the graph, such as a slope).
    """

    name: str
    origin: str
    tensor: TensorSpec | None = None
    value: Scalar | None = None


@dataclass(frozen=True)
class Op:
    """One operator of the exported ATen graph.

    ``operands`` are names of earlier ops or of arguments; ``attributes`` are the remaining
    (constant) arguments by the name ATen gives them.
    """

    name: str
    target: str
    operands: tuple[str, ...]
    attributes: tuple[tuple[str, Scalar | tuple[int, ...] | None], ...]
    output: TensorSpec

    def attribute(self, name: str, default: Scalar | None = None) -> Scalar | tuple[int, ...] | None:
        return dict(self.attributes).get(name, default)


@dataclass(frozen=True)
class Task:
    """A PyTorch module to be replaced by a kernel, at its true shapes.

    The record holds facts only; running the module (for the reference) is `cupilot.tasks`' work.
    """

    name: str
    source: str
    arguments: tuple[Argument, ...]
    outputs: tuple[TensorSpec, ...]
    graph: tuple[Op, ...]
    precision: str = "fp32"

    @property
    def operators(self) -> tuple[str, ...]:
        """Operator targets in order, e.g. ``("aten.mm", "aten.relu")``; tags for retrieval."""
        return tuple(op.target for op in self.graph)

    @property
    def input_bytes(self) -> int:
        return sum(a.tensor.bytes for a in self.arguments if a.tensor is not None)

    @property
    def output_bytes(self) -> int:
        return sum(o.bytes for o in self.outputs)

    @property
    def minimal_bytes(self) -> int:
        """Bytes that must cross DRAM however clever the kernel: arguments once, outputs once."""
        return self.input_bytes + self.output_bytes
