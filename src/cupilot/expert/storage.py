"""Element types of tensors, as kernels have them: what lies in memory is converted to float where it is read.

Kernels compute in float32 whatever tensors they read and write.  In templates a tensor's elements have a C type of
``parts/storage.cu.j2``, from which floats are made by reading and which floats are rounded to by writing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cupilot.records import Task

C_TYPES = {"float32": "float", "float16": "half_t", "bfloat16": "bfloat16_t", "bool": "bool", "int64": "int64_t"}
FLOATING = ("float32", "float16", "bfloat16")
PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}
"""What tensor cores take 16-bit numbers for as they are."""
_TORCH = {"float32": "kFloat32", "float16": "kFloat16", "bfloat16": "kBFloat16", "bool": "kBool", "int64": "kInt64"}


def narrow(dtypes: Iterable[str]) -> tuple[str, ...]:
    """The 16-bit types among some."""
    return tuple(sorted(set(dtypes) & PRECISIONS.keys()))


def tensor_types(task: Task) -> tuple[str, ...]:
    """Of all arguments and results."""
    given = (argument.tensor.dtype for argument in task.arguments if argument.tensor is not None)
    return (*given, *(output.dtype for output in task.outputs))


def values_for_templates(task: Task, names: Mapping[str, str]) -> dict[str, Any]:
    """What templates know of types: C's and PyTorch's by the kernel's names, and those of the result."""
    given = {
        names[argument.name]: argument.tensor.dtype
        for argument in task.arguments
        if argument.tensor is not None and argument.name in names
    }
    result = task.outputs[0].dtype
    return {
        "types": {name: C_TYPES.get(dtype, dtype) for name, dtype in given.items()},
        "dtypes": given,
        "out_type": C_TYPES.get(result, result),
        "out_dtype": result,
        "narrow": narrow((*given.values(), result)),
        "all_float": not {*given.values(), result} - {"float32", "int64"},
        "torch_types": _TORCH,
    }
