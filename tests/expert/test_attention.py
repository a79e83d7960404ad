"""Attention: what is read off graphs, what is legal, and kernels that are right for odd and even shapes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from expert_tasks import brief

from cupilot.contracts import Brief, Device
from cupilot.errors import UnmatchedTask
from cupilot.expert import Expert
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms import attention
from cupilot.expert.render import render
from cupilot.records import Argument, Kernel, Op, Task, TensorSpec
from cupilot.strategies import load_deck, parse
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

EXPERT = Expert()
DECK = load_deck()
USUAL = "float(1.0 / std::sqrt(double(dim)))"
Attributes = tuple[tuple[str, object], ...]
NOTHING: Attributes = (
    ("attn_mask", None),
    ("dropout_p", 0.0),
    ("is_causal", False),
    ("scale", None),
    ("enable_gqa", False),
)


def given(attributes: Attributes, **changed: object) -> Attributes:
    return tuple({**dict(attributes), **changed}.items())


def operator(
    queries: tuple[int, ...] = (2, 3, 40, 64),
    keys: int = 50,
    values: int = 64,
    dtype: str = "float16",
    **changed: object,
) -> Task:
    lead, dim = queries[:-2], queries[-1]
    q, k, v = (TensorSpec(shape, dtype) for shape in (queries, (*lead, keys, dim), (*lead, keys, values)))
    out = TensorSpec((*queries[:-1], values), dtype)
    op = Op("a", f"aten.{attention.OPERATOR}.default", ("q", "k", "v"), given(NOTHING, **changed), out)  # type: ignore[arg-type]
    arguments = tuple(Argument(name, "input", spec) for name, spec in (("q", q), ("k", k), ("v", v)))
    return Task("attention", "", arguments, (out,), (op,))


def written_out(scale: tuple[str, float] | None = ("mul", 0.125), turn: str = "transpose", dim: int = 64) -> Task:
    x, scores = TensorSpec((2, 40, dim)), TensorSpec((2, 40, 40))
    how: Attributes = {"transpose": (("dim0", -2), ("dim1", -1)), "permute": (("dims", (0, 2, 1)),), "mT": ()}[turn]
    graph = [
        Op("t", f"aten.{turn}.int", ("k",), how, TensorSpec((2, dim, 40))),  # type: ignore[arg-type]
        Op("s", "aten.matmul.default", ("q", "t"), (), scores),
    ]
    if scale is not None:
        graph.append(Op("m", f"aten.{scale[0]}.Tensor", ("s",), (("other", scale[1]),), scores))
    graph.append(Op("p", "aten.softmax.int", (graph[-1].name,), (("dim", -1), ("dtype", None)), scores))
    graph.append(Op("o", "aten.matmul.default", ("p", "v"), (), x))
    return Task("written-out", "", tuple(Argument(name, "input", x) for name in "qkv"), (x,), tuple(graph))


def read(task: Task) -> Form:
    form = attention.read(Graph(task))
    assert isinstance(form, Form), form
    return form


def test_the_operator_is_read() -> None:
    form = read(operator(keys=50, values=72))
    assert form.facts == {
        "dtype": "float16", "heads": 6, "queries": 40, "keys": 50, "dim": 64, "value_dim": 72, "rank": 4,
        "rounded_weights": False, "causal": False,
    }  # fmt: skip
    assert form.code["scale"] == USUAL
    assert form.code["zero_rows"] is True
    causal = read(operator(is_causal=True, scale=0.5))
    assert causal.facts["causal"] is True
    assert causal.code["scale"] == "0.5f"
    assert causal.facts["rounded_weights"] is True
    assert read(operator((6, 40, 64))).facts["rounded_weights"] is False


@pytest.mark.parametrize(
    ("scale", "dim", "says"),
    [
        (None, 64, "1.0f"),
        (("mul", 0.125), 64, USUAL),
        (("div", 8.0), 64, USUAL),
        (("div", 8.0), 32, "0.125f"),
        (None, 1, USUAL),
    ],
)
@pytest.mark.parametrize("turn", ["transpose", "permute", "mT"])
def test_attention_written_out_is_read(scale: tuple[str, float] | None, dim: int, says: str, turn: str) -> None:
    form = read(written_out(scale, turn, dim))
    assert form.code["scale"] == says
    assert form.code["zero_rows"] is False
    assert form.names == {"q": "q", "k": "k", "v": "v"}
    assert EXPERT.space(written_out(scale, turn, dim)).problem.recipe.name == "attention"


def test_pointwise_operators_are_fused() -> None:
    task = operator()
    relu = Op("r", "aten.relu.default", ("a",), (), task.graph[0].output)
    fused = replace(task, graph=(*task.graph, relu))
    assert read(fused).code["pointwise"].formula == "relu"
    assert "apply(" in EXPERT.generate(brief(fused)).source


def swapped(task: Task) -> Task:
    """The second product with the values on the left."""
    *rest, last = task.graph
    return replace(task, graph=(*rest, replace(last, operands=("v", "p"))))


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (operator(dropout_p=0.1), "dropout"),
        (operator(enable_gqa=True), "share keys"),
        (operator(attn_mask=True), "mask"),
        (operator(dtype="float64"), "float32, float16 and bfloat16"),
        (operator(queries=(2, 3, 0, 64)), "with elements only"),
    ],
)
def test_what_is_not_covered_is_told(task: Task, says: str) -> None:
    with pytest.raises(UnmatchedTask, match=says):
        EXPERT.space(task)


def test_other_graphs_are_not_taken_for_attention() -> None:
    assert attention.read(Graph(swapped(written_out()))) == ""
    untransposed = written_out(dim=40)
    graph = tuple(replace(op, operands=("q", "k")) if op.name == "s" else op for op in untransposed.graph[1:])
    assert "transposed" in str(attention.read(Graph(replace(untransposed, graph=graph))))


def starts(task: Task) -> list[frozenset[str]]:
    return [frozenset(strategy.cards) for strategy in EXPERT.space(task).starts("")]


def test_a_long_head_over_a_short_sequence_starts_with_all_scores() -> None:
    first = starts(operator((32, 32, 512, 1024), 512, 1024))[0]
    assert {"score-tile", "tensor-cores", "xor-swizzle", "ldmatrix", "async-copy-pipeline"} <= first


def test_usual_heads_start_with_flash_attention() -> None:
    for dim in (64, 128):
        assert all("flash-attention" in cards for cards in starts(operator((4, 16, 4096, dim), 4096, dim))[:2])


def test_numbers_of_32_bits_are_split_unless_tf32_is_allowed() -> None:
    task = operator((4, 16, 4096, 64), 4096, 64, dtype="float32")
    assert all("split-tf32" in cards for cards in starts(task))
    assert starts(task)
    coarse = starts(replace(task, precision="tf32"))
    assert coarse
    assert not any("split-tf32" in cards for cards in coarse)
    assert not any("split-tf32" in cards for cards in starts(operator()))


def test_weights_that_pytorch_does_not_round_come_in_two_parts() -> None:
    for values, parts in ((64, 1), (72, 2)):
        task = operator((4, 16, 256, 64), 256, values)
        space = EXPERT.space(task)
        assert ("rest_of(" in render(space, space.starts("")[0]).source) == (parts == 2)
        assert any("score-tile" in cards for cards in starts(task)) == (parts == 1)


@pytest.mark.parametrize("dtype", attention.TYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_every_kernel_is_well_formed(dtype: str, causal: bool) -> None:
    space = EXPERT.space(operator((2, 3, 100, 72), 300, 136, dtype=dtype, is_causal=causal))
    rng = Random(5)
    for strategy in [*space.starts(""), *(space.draw(rng, lambda card: 0.5) for _ in range(20))]:
        assert space.faults(strategy) == ()
        source = render(space, strategy).source
        assert source.count("{") == source.count("}")
        assert max(map(len, source.splitlines())) <= 140
        assert not [line for line in source.splitlines() if line != line.rstrip()]
        assert "\n\n\n" not in source


SOURCE = """
import torch

HEADS = 3
QUERIES = {queries}
KEYS = {keys}
DIMENSION = {dim}
VALUES = {values}


class Model(torch.nn.Module):
    def forward(self, queries, keys, values):
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal={causal})


def get_inputs():
    shapes = ((QUERIES, DIMENSION), (KEYS, DIMENSION), (KEYS, VALUES))
    return [torch.randn(2, HEADS, *shape, dtype=torch.{dtype}) for shape in shapes]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "keys", "dim", "values", "dtype", "causal", "count"),
    [
        (80, 96, 64, 64, "float16", False, 5),
        (65, 333, 40, 72, "bfloat16", False, 4),
        (130, 130, 64, 64, "float16", True, 4),
        (67, 45, 33, 71, "float16", False, 4),
        (64, 64, 288, 288, "float16", False, 3),
        (33, 70, 36, 44, "float32", False, 3),
        (65, 31, 45, 19, "float32", True, 3),
    ],
)
def test_random_strategies_are_right(
    device: Device, queries: int, keys: int, dim: int, values: int, dtype: str, causal: bool, count: int
) -> None:
    sizes = {"queries": queries, "keys": keys, "dim": dim, "values": values}
    task = task_from_source(
        SOURCE.format(**sizes, dtype=dtype, causal=causal), f"attention-{dtype}", "fp32", where="test"
    )
    space = EXPERT.space(task)
    evaluator = evaluator_on(device, seed=7, timeout_s=300.0)
    rng = Random(queries)
    for _ in range(count):
        strategy = space.draw(rng, lambda card: 0.7)
        kernel = EXPERT.translate(Brief(task, device.spec), strategy)
        assert isinstance(kernel, Kernel), kernel
        evaluation = evaluator(task, kernel)
        assert evaluation.failure is None, f"{strategy.moves}: {evaluation.failure}"


@pytest.mark.slow
def test_scores_that_do_not_fit_are_left_to_the_plain_kernel(device: Device) -> None:
    short, long = (
        task_from_source(
            SOURCE.format(queries=40, keys=keys, dim=64, values=64, dtype="float16", causal=False),
            "a",
            "fp32",
            where="test",
        )
        for keys in (48, 600)
    )
    moves = (
        "query-tile(queries=64)\ntensor-cores\nscore-tile\nhead-chunks(inner=32, columns=128)\nldmatrix\nxor-swizzle"
    )
    kernel = EXPERT.translate(Brief(short, device.spec), parse(moves, DECK))
    assert isinstance(kernel, Kernel)
    evaluation = evaluator_on(device, seed=7, timeout_s=300.0)(long, kernel)
    assert evaluation.failure is None
    assert evaluation.profile is not None
    assert "plain" in evaluation.profile.launches[0].kernel
