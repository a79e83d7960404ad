"""What is to be computed: a PyTorch module, its arguments and its graph of operators."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Shape and element type of a tensor; ``strides`` in elements, none for a dense and row-major one."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def span(self) -> int:
        """Elements of memory from the first to the last; an expanded tensor has fewer than elements."""
        return span_of(self.shape, self.strides) if self.strides else self.elements

    @property
    def bytes(self) -> int:
        """What has to be moved to see all of it once."""
        return min(self.elements, self.span) * ITEM_BYTES[self.dtype]

    @property
    def memory_bytes(self) -> int:
        """From the first element to the last."""
        return self.span * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        strided = f" (strides {', '.join(map(str, self.strides))})" if self.strides else ""
        return "x".join(map(str, self.shape)) + ":" + self.dtype + strided


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def span_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last of a tensor."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if prod(shape) else 0


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
