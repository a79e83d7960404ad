"""float64 in place of the types that a module names itself.

``x.float()``, ``x.to(torch.bfloat16)`` and ``dtype=torch.float16`` say in what type PyTorch is to compute or to store
something.  The reference is the formula without any rounding, so these become float64 as well; what the rounding that
is asked for costs is in PyTorch's own error, with which kernels are compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

NARROWER = frozenset({torch.float32, torch.float16, torch.bfloat16})


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this mode is active, operators that are told a floating type compute and make float64."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled in here, and importing the compiler would take seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROWER else value
