from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cupilot.records import Argument, Guidance, Op, Task, TensorSpec
from cupilot.records.pool import Sizes
from cupilot.strategies.pool import features, pool_record
from cupilot.strategies.pool_features import sizes
from cupilot.strategies.pool_lines import check
from cupilot.strategies.pool_tags import likeness, operator_tag, operator_tags, with_families
from cupilot.tasks.operators import load_catalogue
from cupilot.testing.samples import EVALUATION, FAILED, INDIVIDUAL, STRATEGY, TASK

TAGS = sorted({each.tag for each in load_catalogue().operators.values() if each.tag})
GUIDANCE = Guidance("memory-bound", "dram", 2.0, "A sentence.")


def task(*ops: Op, **tensors: tuple[int, ...]) -> Task:
    arguments = tuple(Argument(name, "input", TensorSpec(shape)) for name, shape in tensors.items())
    return Task("some", "", arguments, (ops[-1].output,), ops)


@pytest.mark.parametrize(
    ("target", "tag"),
    [
        ("aten.softmax.int", "softmax"),
        ("aten._softmax.default", "softmax"),
        ("aten._log_softmax.default", "log_softmax"),
        ("aten.mm.default", "matmul"),
        ("aten.bmm", "matmul"),
        ("aten.linear.default", "matmul"),
        ("aten.addmm.default", "matmul"),
        ("aten.relu_.default", "relu"),
        ("aten.native_layer_norm.default", "layer_norm"),
        ("mylib.Fancy-Op.default", "fancy_op"),
        ("aten.view.default", None),
        ("aten._unsafe_view.default", None),
        ("getitem", None),
        ("<lambda>", "lambda"),
        ("", None),
        ("aten.2.default", None),
    ],
)
def test_targets_become_tags(target: str, tag: str | None) -> None:
    assert operator_tag(target) == tag


def test_tags_are_in_order_and_not_repeated() -> None:
    spec = TensorSpec((4, 4))
    targets = ("aten.mm.default", "aten.relu.default", "aten.view.default", "aten.matmul.default")
    ops = tuple(Op(f"op{i}", target, ("a",), (), spec) for i, target in enumerate(targets))
    assert operator_tags(task(*ops, a=(4, 4))) == ("matmul", "relu")


some_operators = some.lists(some.sampled_from([*TAGS, "unheard_of"]), min_size=1, max_size=4)


@given(some_operators, some_operators)
def test_likeness_is_symmetric_and_one_only_for_equal_operators(a: list[str], b: list[str]) -> None:
    assert likeness(a, b) == likeness(b, a)
    assert 0.0 <= likeness(a, b) <= 1.0
    assert (likeness(a, b) == 1.0) == (set(a) == set(b))
    assert (likeness(a, b) == 0.0) == (not set(with_families(a)) & set(with_families(b)))


def test_what_a_kernel_is_built_around_counts_more_than_what_is_fused() -> None:
    assert likeness(["matmul", "relu"], ["matmul"]) > likeness(["matmul", "relu"], ["relu"])
    assert likeness(["gelu"], ["relu"]) > likeness(["gelu"], ["matmul", "relu"])


def test_nothing_is_like_nothing() -> None:
    assert likeness([], []) == 0.0


# --- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "attributes", "row"),
    [
        ("aten.softmax.int", (("dim", -1),), 300),
        ("aten.softmax.int", (("dim", 0),), 200),
        ("aten.sum.dim_IntList", (("dim", (0, 1)),), 60000),
        ("aten.mean.default", (), 60000),
        ("aten.layer_norm.default", (("normalized_shape", (300,)),), 300),
        ("aten.softmax.int", (("dim", 9),), 1),
        ("aten.relu.default", (("dim", 1),), None),
    ],
)
def test_the_length_that_is_reduced_over(target: str, attributes: tuple[tuple[str, object], ...], row: int) -> None:
    op = Op("op", target, ("x",), attributes, TensorSpec((200, 300)))  # type: ignore[arg-type]
    assert sizes(task(op, x=(200, 300))) == Sizes(60000, row=row)


@pytest.mark.parametrize(
    ("target", "shapes", "product"),
    [
        ("aten.mm.default", {"a": (8, 32), "b": (32, 16)}, (8, 16, 32)),
        ("aten.bmm.default", {"a": (5, 8, 32), "b": (5, 32, 16)}, (8, 16, 32)),
        ("aten.mv.default", {"a": (8, 32), "b": (32,)}, (8, 1, 32)),
        ("aten.linear.default", {"a": (4, 2, 32), "b": (16, 32), "c": (16,)}, (8, 16, 32)),
        ("aten.addmm.default", {"c": (16,), "a": (8, 32), "b": (32, 16)}, (8, 16, 32)),
        ("aten.relu.default", {"a": (8, 32)}, None),
        ("aten.mm.default", {"a": (0, 32), "b": (32, 16)}, None),
    ],
)
def test_the_sizes_of_a_product(
    target: str, shapes: dict[str, tuple[int, ...]], product: tuple[int, int, int] | None
) -> None:
    assert sizes(task(Op("op", target, tuple(shapes), (), TensorSpec((8, 16))), **shapes)).product == product


# --- from a run ------------------------------------------------------------------------------


def test_the_query_for_a_task() -> None:
    query = features(TASK, EVALUATION, GUIDANCE)
    assert (query.operators, query.dtype, query.precision) == (("relu",), "float32", "fp32")
    assert (query.zone, query.limit, query.device) == ("memory-bound", "dram", "sample")
    assert query.sizes == Sizes(1 << 20)
    bare = features(TASK)
    assert (bare.zone, bare.limit, bare.device) == ("", "", "")


def test_a_limit_that_no_card_knows_gives_way_to_the_guidance() -> None:
    assert EVALUATION.timing is not None
    odd = replace(EVALUATION, timing=replace(EVALUATION.timing, limit="moon phase"))
    assert features(TASK, odd, GUIDANCE).limit == "dram"
    assert features(TASK, odd).limit == ""


def kept(**changes: object) -> object:
    assert EVALUATION.timing is not None
    faster = replace(EVALUATION, timing=replace(EVALUATION.timing, time_s=EVALUATION.timing.time_s / 2))
    individual = replace(INDIVIDUAL, id=1, strategy=STRATEGY, evaluation=faster)
    individual = replace(individual, **changes)  # type: ignore[arg-type]
    return pool_record(TASK, INDIVIDUAL, individual, GUIDANCE, version="0.1.0")


def test_a_record_of_an_individual() -> None:
    record = kept()
    assert record is not None
    check(record)  # type: ignore[arg-type]
    assert (record.gain, record.speedup, record.zone) == (2.0, 4.0, "memory-bound")  # type: ignore[attr-defined]
    assert record.proof is EVALUATION.proof  # type: ignore[attr-defined]


def test_what_is_not_worth_keeping() -> None:
    assert EVALUATION.timing is not None
    measured = replace(EVALUATION.timing, source="measured", time_s=1e-9)
    assert kept(evaluation=EVALUATION) is None, "no faster"
    assert kept(evaluation=FAILED) is None, "wrong"
    assert kept(strategy=INDIVIDUAL.strategy) is None, "no moves"
    assert kept(evaluation=replace(EVALUATION, timing=measured)) is None, "another kind of time"
    assert kept(evaluation=replace(EVALUATION, timing=replace(measured, source="modelled"), proof=None)) is None, (
        "no proof"
    )
