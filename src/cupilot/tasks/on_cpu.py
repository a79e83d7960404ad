"""Task files that ask for a GPU run on the CPU: what they compute does not depend on it.

Covered: ``device="cuda"`` and its indices wherever PyTorch takes a device, ``.cuda()`` and ``.to("cuda")`` of tensors
and modules, and waiting for the GPU.  Not covered: ``torch.set_default_device("cuda")``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """While this mode is active, a CUDA device that is asked for is the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        given = {name: _on_cpu(value) for name, value in (kwargs or {}).items()}
        return func(*(_on_cpu(value) for value in args), **given)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    is_name = isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))
    return "cpu" if is_name else value
