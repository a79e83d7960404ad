"""Notes what operators that return indices choose from, while a module runs (see `indices`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cupilot.arrays import Array
from cupilot.tasks.indices import Choice
from cupilot.tasks.operators import base_name
from cupilot.tasks.tensors import to_array

FIRST = ("argmax", "argmin", "max", "min")
ANY = ("topk", "sort", "kthvalue", "median", "mode")
DISTINCT = ("topk", "sort")
SLACK = 16.0
"""How many root mean square errors of PyTorch's float32 two computed numbers may be apart that change places."""


@dataclass(frozen=True, eq=False)
class _Made:
    """One call of an operator that returns indices."""

    name: str
    values: torch.Tensor
    dim: int | None
    keepdim: bool
    is_open: bool
    indices: torch.Tensor

    def choice(self, slack: float) -> Choice:
        values, shape = to_array(self.values.double()), tuple(self.indices.shape)
        if self.dim is None or not values.ndim:
            rows, slots, per_row = values.reshape(1, -1), np.zeros(shape, np.int64), 1
        else:
            moved = np.moveaxis(values, self.dim, -1)
            rows = moved.reshape(-1, values.shape[self.dim])
            per_row = shape[self.dim] if self.keepdim else 1
            numbers = np.arange(rows.shape[0] * per_row).reshape(*moved.shape[:-1], per_row)
            slots = np.moveaxis(numbers, -1, self.dim) if self.keepdim else numbers
        return Choice(rows, slots.reshape(-1), per_row, self.is_open, self.name in DISTINCT, slack)


class Choices(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what operators that return indices choose from."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: list[_Made] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and importing the compiler would take seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result, name = func(*args, **kwargs), base_name(str(func))
        if name in FIRST or name in ANY:
            given = {argument.name: argument.default_value for argument in func._schema.arguments}
            given |= dict(zip(given, args, strict=False)) | kwargs
            indices = result if isinstance(result, torch.Tensor) else result[-1]
            if indices.dtype == torch.int64 and given["self"].is_floating_point():
                kept = bool(given.get("keepdim", name in DISTINCT))
                is_open = name in ANY and not given.get("stable")
                self._made.append(_Made(name, given["self"], given.get("dim"), kept, is_open, indices))
        return result

    def found(self, outputs: Sequence[Array], single: Choices | None = None) -> tuple[Choice | None, ...]:
        """For each output (in the memory of the tensor) what it chooses from; ``single`` saw the module in float32."""
        return tuple(self._found(output, single) for output in outputs)

    def _found(self, output: Array, single: Choices | None) -> Choice | None:
        for number, made in enumerate(self._made):
            if made.indices.data_ptr() == output.ctypes.data and tuple(made.indices.shape) == output.shape:
                return made.choice(self._slack(made, single, number))
        return None

    def _slack(self, made: _Made, single: Choices | None, number: int) -> float:
        other = single._made[number].values if single is not None and number < len(single._made) else None
        if other is None or other.shape != made.values.shape:
            return 0.0
        apart = (other.double() - made.values.double()).square()
        apart = apart[torch.isfinite(apart)]
        return SLACK * float(apart.mean().sqrt()) if apart.numel() else 0.0
