"""Comparing arrays with cases, as tests of the rule like to write it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupilot.contracts import Output
from cupilot.evaluation.verify import compare
from cupilot.records import Check, Failure
from cupilot.tasks import Case, load_task, make_case, scaled_tasks
from cupilot.tasks.load import task_from_source

EXAMPLES = Path(__file__).parents[2] / "examples"
Array = NDArray[Any]
f32 = np.float32


@cache
def example(name: str, kind: str) -> Case:
    return make_case(scaled_tasks(load_task(EXAMPLES / f"{name}.py"))[1], kind, seed=11)


@cache
def product(m: int, k: int, n: int, kind: str, precision: str = "fp32") -> Case:
    source = (EXAMPLES / "matmul.py").read_text()
    for constant, size in (("M", m), ("K", k), ("N", n)):
        source = source.replace(f"{constant} = 4096", f"{constant} = {size}")
    return make_case(task_from_source(source, "product", precision, where="product"), kind, seed=12)


def judge(case: Case, *outputs: Array, precision: str = "fp32", partial: bool = False) -> tuple[Check, Failure | None]:
    return compare(case, [Output(output.shape, output.reshape(-1)) for output in outputs], precision, partial=partial)


def in_part(values: Array, written: Array) -> Output:
    return Output(values.shape, values[written], np.flatnonzero(written))


def assert_passes(case: Case, *outputs: Array, precision: str = "fp32") -> None:
    check, failure = judge(case, *outputs, precision=precision)
    assert failure is None, failure
    assert check.error <= check.allowed


def assert_fails(
    case: Case, *outputs: Array, kind: str = "wrong-result", says: str = "", precision: str = "fp32"
) -> str:
    _, failure = judge(case, *outputs, precision=precision)
    assert failure is not None
    assert (failure.stage, failure.kind) == ("verify", kind)
    assert says in failure.message
    assert "\n" not in failure.message
    return failure.message


def to_fp16(values: Array) -> Array:
    return values.astype(np.float16).astype(f32)


def to_bf16(values: Array) -> Array:
    return ((values.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(f32)
