"""Between PyTorch's tensors and NumPy's arrays, bfloat16 included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cupilot.arrays import Array, dtype_of
from cupilot.records.task import span_of

if TYPE_CHECKING:
    import torch


def to_array(tensor: torch.Tensor) -> Array:
    """Dense and row-major; shares the tensor's memory where it can."""
    import torch

    dense = tensor.detach().contiguous()
    if dense.dtype is torch.bfloat16:
        return dense.view(torch.int16).numpy().view(dtype_of("bfloat16"))
    array: Array = dense.numpy()
    return array


def to_strided_array(tensor: torch.Tensor) -> Array:
    """With the tensor's strides; shares its memory."""
    import torch

    if tensor.is_contiguous() or not tensor.numel():
        return to_array(tensor)
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(dtype_of("bfloat16"))
    array: Array = tensor.detach().numpy()
    return array


def restrided(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The values of a dense tensor in memory with these strides; dense if there are none.

    What lies between the elements is not a number, so that who takes it for one is found out.  Where elements share
    memory, the first ones are what all see.
    """
    import torch

    if not strides:
        return tensor
    shape, span = tuple(tensor.shape), span_of(tensor.shape, strides)
    shown = tensor
    for axis, stride in enumerate(strides):
        if not stride:
            shown = shown.narrow(axis, 0, 1)
    if span < shown.numel():  # windows that overlap
        return tensor.reshape(-1)[:span].clone().as_strided(shape, strides)
    kind = tensor.dtype
    floating = kind.is_floating_point
    between: float | int = float("nan") if floating else 1 if kind is torch.bool else torch.iinfo(kind).max
    memory = torch.full((span,), between, dtype=kind)
    memory.as_strided(shown.shape, strides).copy_(shown)
    return memory.as_strided(shape, strides)


def to_tensor(array: Array) -> torch.Tensor:
    """Shares the array's memory."""
    import torch

    dense = np.ascontiguousarray(array).reshape(array.shape)
    if dense.dtype == dtype_of("bfloat16"):
        return torch.from_numpy(dense.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(dense.view(np.ndarray))


def round_to(tensor: torch.Tensor, precision: str) -> torch.Tensor:
    """The nearest numbers of a precision (``tf32``, ``fp16`` or ``bf16``), in the tensor's own type."""
    import torch

    if precision == "tf32":
        # ten bits after the point: what float32 has beyond is rounded away
        bits = tensor.detach().float().contiguous().view(torch.int32)
        return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32).to(tensor.dtype)
    narrow = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    return tensor.detach().to(narrow).to(tensor.dtype)
