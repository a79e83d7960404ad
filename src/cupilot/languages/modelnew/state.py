"""Matches the task's parameters and buffers with those of a ``ModelNew`` module.

They are matched by name, and where the names differ, by order among those of the same shape.  Tensors that only the
task has are left out; buffers that only ``ModelNew`` has stay as its constructor made them.  A tensor that the
constructor derived from parameters (a transposed copy, say) keeps the values of that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cupilot.toolchain.abi import TensorValue


@dataclass(frozen=True)
class Place:
    """A parameter or buffer of a ``ModelNew`` module."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    is_parameter: bool


class StateError(Exception):
    """The parameters of ``ModelNew`` are not those of the task."""


def matched(places: Sequence[Place], state: Mapping[str, TensorValue]) -> dict[str, str]:
    """For each place the name of the task's tensor, or a `StateError`."""
    chosen = {place.name: place.name for place in places if place.name in state}
    for place in places:
        if place.name in chosen and place.shape != tuple(state[place.name].shape):
            shapes = _shape(state[place.name].shape), _shape(place.shape)
            raise StateError(f"{place.name} is {shapes[0]} in the task and {shapes[1]} in ModelNew")
    left = [name for name in state if name not in chosen]
    for place in (place for place in places if place.name not in chosen):
        fitting = [name for name in left if tuple(state[name].shape) == place.shape]
        if fitting:
            chosen[place.name] = fitting[0]
            left.remove(fitting[0])
        elif place.is_parameter:
            rest = ", ".join(f"{name} {_shape(state[name].shape)}" for name in left) or "none"
            what = f"{place.name} ({_shape(place.shape)}) of ModelNew"
            raise StateError(f"the task has no parameter for {what}; not used so far: {rest}")
    return chosen


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
