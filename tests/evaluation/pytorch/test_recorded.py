"""Recorded times are used for the problems that they are of, and for no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cupilot.evaluation.baseline import baseline, compiled_baseline
from cupilot.evaluation.pytorch.recorded import find_recorded, graph_digest
from cupilot.gpu import load_spec
from cupilot.records import Argument, Op, Task, TensorSpec

A6000, H100, A100 = load_spec("a6000"), load_spec("h100-sxm"), load_spec("a100-80gb")


def relu(rows: int, columns: int, name: str = "anything") -> Task:
    tensor = TensorSpec((rows, columns))
    op = Op("result", "aten.relu.default", ("data",), (), tensor)
    return Task(name, "", (Argument("data", "input", tensor),), (tensor,), (op,))


KNOWN = relu(4096, 393216)


@pytest.mark.parametrize(("spec", "ms"), [(A6000, 18.9), (H100, 4.28), (A100, 7.3246)])
def test_a_known_problem_takes_the_recorded_time_and_names_it(spec, ms):
    found = baseline(KNOWN, spec, "d")
    assert found is not None
    assert (found.source, found.time_s) == ("recorded", pytest.approx(ms / 1e3))
    assert found.note == "PyTorch eager, recorded: KernelBench level 1, 19_ReLU"


def test_the_compiled_time_is_recorded_where_there_is_one():
    assert compiled_baseline(KNOWN, H100, "d").source == "recorded"  # type: ignore[union-attr]
    assert compiled_baseline(KNOWN, A6000, "d").source == "modelled"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "task",
    [
        relu(4096, 393217),
        replace(KNOWN, graph=(replace(KNOWN.graph[0], target="aten.tanhshrink.default"),)),
        replace(KNOWN, precision="tf32"),
        replace(KNOWN, graph=()),
    ],
    ids=["other size", "other operator", "other precision", "no graph"],
)
def test_other_tasks_have_no_recorded_time(task):
    assert find_recorded(task, A6000) is None


def test_another_gpu_is_modelled():
    assert baseline(KNOWN, load_spec("rtx-4090"), "d").source == "modelled"  # type: ignore[union-attr]


def test_short_calls_are_modelled_because_recorded_times_are_mostly_the_hosts():
    short = relu(16, 16384)
    assert find_recorded(short, A6000) is not None
    assert baseline(short, A6000, "d").source == "modelled"  # type: ignore[union-attr]


def test_names_do_not_matter_and_attributes_do():
    renamed = replace(KNOWN, name="other", arguments=(replace(KNOWN.arguments[0], name="x"),))
    renamed = replace(renamed, graph=(replace(KNOWN.graph[0], name="y", operands=("x",)),))
    assert graph_digest(renamed) == graph_digest(KNOWN)
    sloped = replace(KNOWN, graph=(replace(KNOWN.graph[0], attributes=(("slope", 0.1),)),))
    assert graph_digest(sloped) != graph_digest(KNOWN)
