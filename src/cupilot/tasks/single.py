"""Scans with float32 sums.

PyTorch's cumulative sums and products on the CPU add up in double precision, those on a GPU do not.  Where its float32
result is the yardstick for kernels, a scan must therefore be computed as float32 would, one element after another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SCANS = {torch.ops.aten.cumsum.default: np.add, torch.ops.aten.cumprod.default: np.multiply}


class SingleScans(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, scans of float32 tensors have float32 sums."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        single = func in SCANS and args[0].dtype == torch.float32 and kwargs.get("dtype") in (None, torch.float32)
        if not single or not args[0].dim():
            return func(*args, **kwargs)
        with np.errstate(over="ignore", invalid="ignore"):
            return torch.from_numpy(SCANS[func].accumulate(args[0].numpy(), axis=args[1], dtype=np.float32))
