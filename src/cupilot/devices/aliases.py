"""In whose memory a result lies, if not in its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from cupilot.records import ITEM_BYTES
from cupilot.toolchain.abi import TensorValue


def aliases_of(results: Sequence[TensorValue], inputs: Sequence[TensorValue]) -> tuple[str, ...]:
    """For each result the input, or the result before it, that it shares elements with; nothing for most."""
    return tuple(
        _alias(result, inputs) or _shared_with(result, results[:number]) for number, result in enumerate(results)
    )


def _alias(result: TensorValue, inputs: Sequence[TensorValue]) -> str:
    for number, value in enumerate(inputs):
        if prod(result.shape) and 0 <= result.pointer - value.pointer < value.bytes:
            return f"input {number}"
    return ""


def _shared_with(result: TensorValue, earlier: Sequence[TensorValue]) -> str:
    return next((f"output {number}" for number, other in enumerate(earlier) if overlap(result, other)), "")


def overlap(first: TensorValue, second: TensorValue) -> bool:
    """Whether an element of one has bytes of an element of the other; columns of one buffer, for example, have not."""
    low, high = sorted((first, second), key=lambda value: value.pointer)
    if not prod(first.shape) or not prod(second.shape) or high.pointer >= low.pointer + low.bytes:
        return False
    covered = np.zeros(max(low.pointer + low.bytes, high.pointer + high.bytes) - low.pointer, np.bool_)
    _elements(covered, low, 0)[...] = True
    return bool(_elements(covered, high, high.pointer - low.pointer).any())


def _elements(memory: np.ndarray[tuple[int], np.dtype[np.bool_]], value: TensorValue, start: int) -> np.ndarray:
    """The bytes of a tensor's elements, as a view of those of the memory from ``start`` on."""
    item = ITEM_BYTES[value.dtype]
    strides = (*(stride * item for stride in value.strides), 1)
    return np.lib.stride_tricks.as_strided(memory[start:], (*value.shape, item), strides)
