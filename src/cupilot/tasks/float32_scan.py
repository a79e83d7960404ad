"""Scans with float32 sums.

PyTorch accumulates cumulative sums and products in double precision on the CPU, but not on a GPU.  Where its float32
result sets the tolerance for kernels, a scan is therefore computed sequentially in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SCANS = {torch.ops.aten.cumsum.default: np.add, torch.ops.aten.cumprod.default: np.multiply}


class Float32Scans(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this mode is active, scans of float32 tensors accumulate in float32."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and importing the compiler would take seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        single = func in SCANS and args[0].dtype == torch.float32 and kwargs.get("dtype") in (None, torch.float32)
        if not single or not args[0].dim():
            return func(*args, **kwargs)
        with np.errstate(over="ignore", invalid="ignore"):
            return torch.from_numpy(SCANS[func].accumulate(args[0].numpy(), axis=args[1], dtype=np.float32))
