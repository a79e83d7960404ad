"""Between PyTorch's tensors and NumPy's arrays, bfloat16 included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cupilot.arrays import Array, dtype_of

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
