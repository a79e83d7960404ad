"""Matrix products: what is recognised, what is written for it, and that drawn strategies compute the right thing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cupilot.contracts import Brief, Device
from cupilot.expert import Expert
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms.product import read
from cupilot.expert.render import render
from cupilot.records import Kernel, Move, Strategy, Task
from cupilot.strategies import load_deck, move_text, parse
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

EXPERT = Expert()
SOURCE = """
import torch

M = {m}
K = {k}
N = {n}


class Model(torch.nn.Module):
{setup}
    def forward(self, a{second}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
LAYER = """
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(K, N)
"""


def product_task(
    result: str, inputs: str, size: tuple[int, int, int] = (48, 40, 56), precision: str = "fp32", setup: str = ""
) -> Task:
    m, k, n = size
    second = ", b" if "b" in result.replace("bmm", "").replace("einsum", "").split("->")[-1] else ""
    text = SOURCE.format(m=m, k=k, n=n, setup=setup, second=second, result=result, inputs=inputs)
    return task_from_source(text, "product", precision, where="test")


PLAIN = ("a @ b", "torch.rand(M, K), torch.rand(K, N)")
TRANSPOSED_A = ("a.T @ b", "torch.rand(K, M), torch.rand(K, N)")
TRANSPOSED_B = ("a @ b.T", "torch.rand(M, K), torch.rand(N, K)")
TRANSPOSED = ("torch.matmul(a.T, b.T)", "torch.rand(K, M), torch.rand(N, K)")
BATCHED = ("torch.bmm(a, b)", "torch.rand(3, M, K), torch.rand(3, K, N)")
UPPER = ("torch.triu(a @ b)", "torch.rand(M, M).triu(), torch.rand(M, M).triu()")
LOWER = ("torch.tril(torch.relu(a @ b) + 1, -1)", "torch.rand(M, K), torch.rand(K, N)")


def form_of(task: Task) -> Form:
    form = read(Graph(task))
    assert isinstance(form, Form), form
    return form


@pytest.mark.parametrize(
    ("result", "inputs", "facts"),
    [
        (*PLAIN, {"batch": 1, "m": 48, "k": 40, "n": 56, "batched": False, "trans_a": False, "trans_b": False}),
        (*TRANSPOSED_A, {"m": 48, "k": 40, "n": 56, "trans_a": True, "trans_b": False}),
        (*TRANSPOSED_B, {"m": 48, "k": 40, "n": 56, "trans_a": False, "trans_b": True}),
        (*TRANSPOSED, {"m": 48, "k": 40, "n": 56, "trans_a": True, "trans_b": True}),
        (*BATCHED, {"batch": 3, "m": 48, "batched": True, "shared_a": False, "shared_b": False}),
        ("a @ b", "torch.rand(2, 3, M, K), torch.rand(K, N)", {"batch": 1, "m": 288, "n": 56, "batched": False}),
        ("a @ b", "torch.rand(M, K), torch.rand(5, K, N)", {"batch": 5, "m": 48, "shared_a": True, "shared_b": False}),
        (
            "a.transpose(1, 2) @ b", "torch.rand(5, K, M), torch.rand(K, N)",
            {"batch": 5, "m": 48, "trans_a": True, "shared_b": True},
        ),
        (
            "a @ b.transpose(-1, -2)", "torch.rand(2, 3, M, K), torch.rand(2, 3, N, K)",
            {"batch": 6, "m": 48, "n": 56, "trans_b": True},
        ),
        (
            'torch.einsum("bijl,lk->bijk", a, b)', "torch.rand(2, 3, M, K), torch.rand(K, N)",
            {"batch": 1, "m": 288, "k": 40, "n": 56, "trans_b": False},
        ),
        (
            'torch.einsum("bij,bkj->bik", a, b)', "torch.rand(4, M, K), torch.rand(4, N, K)",
            {"batch": 4, "m": 48, "k": 40, "n": 56, "trans_b": True},
        ),
        (*UPPER, {"triangle": "upper", "triangular": True}),
        (*LOWER, {"triangle": "lower", "triangular": False}),
        ("a @ a.T", "torch.rand(M, K)", {"m": 48, "n": 48, "trans_b": True}),
    ],
)  # fmt: skip
def test_products_are_recognised(result: str, inputs: str, facts: dict[str, Any]) -> None:
    found = form_of(product_task(result, inputs)).facts
    assert {name: found[name] for name in facts} == facts


def test_a_layer_is_a_product_with_a_bias() -> None:
    form = form_of(product_task("torch.relu(self.layer(a))", "torch.rand(7, M, K)", setup=LAYER))
    assert (form.facts["m"], form.facts["bias"], form.facts["trans_b"]) == (336, True, True)
    assert sorted(form.names.values()) == ["a", "b", "bias"]
    assert form.code["pointwise"].formula == "relu"


@pytest.mark.parametrize(
    ("result", "inputs"),
    [
        ("a @ b", "torch.rand(M, K), torch.rand(K, 1)"),
        ("a @ b", "torch.rand(1, K), torch.rand(K, N)"),
        ("a @ b", "torch.rand(M, K), torch.rand(K)"),
        ("torch.relu(a) @ b", "torch.rand(M, K), torch.rand(K, N)"),
        ("torch.softmax(a @ b, 1)", "torch.rand(M, K), torch.rand(K, N)"),
        ("(a @ b).T", "torch.rand(M, K), torch.rand(K, N)"),
        ("(a @ b) @ b", "torch.rand(M, K), torch.rand(K, K)"),
        ("a @ b + a", "torch.rand(M, K), torch.rand(K, K)"),
        ('torch.einsum("ijk,kjn->in", a, b)', "torch.rand(M, 3, K), torch.rand(K, 3, N)"),
    ],
)
def test_what_is_not_a_product_of_two_matrices_is_left_alone(result: str, inputs: str) -> None:
    assert isinstance(read(Graph(product_task(result, inputs))), str)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("case", [PLAIN, TRANSPOSED_A, TRANSPOSED_B, TRANSPOSED, BATCHED, UPPER, LOWER])
def test_what_is_written_is_well_formed(case: tuple[str, str], precision: str) -> None:
    task = product_task(*case, (512, 512, 512), precision)
    space = EXPERT.space(task)
    rng = Random(5)
    drawn = [space.draw(rng, lambda card: 0.6) for _ in range(12)]
    for strategy in (Strategy(), *space.starts(""), *drawn):
        assert space.faults(strategy) == ()
        source = render(space, strategy).source
        lines = source.splitlines()
        assert max(map(len, lines)) <= 140, max(lines, key=len)
        assert all(line == line.rstrip() for line in lines)
        assert "{{" not in source
        assert source.count("{") == source.count("}")


@pytest.mark.parametrize(
    ("precision", "instruction"), [("fp32", "tf32"), ("tf32", "tf32"), ("fp16", "m16n8k16"), ("bf16", "bf16.bf16")]
)
def test_the_first_start_uses_tensor_cores_in_the_precision_asked_for(precision: str, instruction: str) -> None:
    task = product_task(*PLAIN, (4096, 4096, 4096), precision)
    space = EXPERT.space(task)
    start = space.starts("")[0]
    assert "tensor-cores" in start.cards
    assert ("split-tf32" in start.cards) == (precision == "fp32")
    assert instruction in render(space, start).source


def test_long_sums_are_split_among_blocks_and_many_tiles_are_not() -> None:
    long, large = product_task(*PLAIN, (256, 524288, 256)), product_task(*PLAIN, (4096, 4096, 4096))
    assert any("split-k" in start.cards for start in EXPERT.space(long).starts("")[:4])
    assert not any("split-k" in start.cards for start in EXPERT.space(large).starts(""))


def test_triangles_are_skipped_where_there_are_some() -> None:
    assert "triangular-skip" in EXPERT.space(product_task(*UPPER, (512, 512, 512))).starts("")[0].cards
    assert "triangular-skip" not in EXPERT.space(product_task(*PLAIN, (512, 512, 512))).starts("")[0].cards


@pytest.mark.parametrize(
    ("moves", "reason"),
    [
        ({"tensor-cores": {}}, "tensor-cores needs split-tf32"),
        ({"tensor-cores": {}, "split-tf32": {}, "register-block": {}}, "fragments are what a thread has"),
        ({"triangular-skip": {}, "split-k": {}}, "not both"),
        ({"split-k": {"splits": 108}}, "enough tiles"),
        ({"tensor-cores": {}, "split-tf32": {}, "xor-swizzle": {}, "shared-padding": {}}, "xor-swizzle"),
        ({"tensor-cores": {}, "split-tf32": {}, "warp-tile": {"warp_m": 128}}, "whole warp tiles"),
        ({"warp-tile": {"warp_m": 128}}, "warp-tile needs register-block|tensor-cores"),
        ({"persistent-blocks": {}, "stream-k": {}, "triangular-skip": {}}, "not both"),
        ({"persistent-blocks": {}, "split-k": {"splits": 2}}, "with stream-k, not with split-k"),
        ({"stream-k": {}}, "stream-k needs persistent-blocks"),
        ({"register-block": {}, "double-buffer": {"buffers": 1}, "warp-specialisation": {}}, "two buffers"),
    ],
)
def test_what_is_illegal_is_said_in_words(moves: dict[str, dict[str, int]], reason: str) -> None:
    space = EXPERT.space(product_task(*PLAIN, (2048, 2048, 2048)))
    tile = {"coalesce": {}, "shared-tile": {"block_m": 64, "block_n": 64, "block_k": 16}}
    chosen = [(space.default(card), parameters) for card, parameters in {**tile, **moves}.items()]
    faults = space.faults(
        Strategy(tuple(Move.of(move.card, "", **{**dict(move.parameters), **given}) for move, given in chosen))
    )
    assert any(reason in fault for fault in faults), faults


# --- compiled and run ------------------------------------------------------------------------

CASES = {
    "odd": (*PLAIN, (77, 69, 131), "fp32"),
    "even": (*PLAIN, (128, 96, 64), "fp32"),
    "transposed left": (*TRANSPOSED_A, (77, 69, 131), "fp32"),
    "transposed right": (*TRANSPOSED_B, (68, 72, 132), "fp32"),
    "transposed": (*TRANSPOSED, (77, 69, 131), "fp32"),
    "batches": (*BATCHED, (70, 36, 44), "fp32"),
    "upper": (*UPPER, (150, 0, 0), "fp32"),
    "lower": (*LOWER, (90, 64, 100), "fp32"),
    "tf32": (*PLAIN, (77, 69, 131), "tf32"),
    "fp16": (*TRANSPOSED_B, (64, 80, 96), "fp16"),
    "bf16": (*TRANSPOSED_A, (77, 69, 131), "bf16"),
}
RESOURCES = {"resources", "launch", "too-much-shared", "shared-memory"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_drawn_strategies_compute_the_right_thing(device: Device, name: str) -> None:
    result, inputs, size, precision = CASES[name]
    task = product_task(result, inputs, size, precision)
    space = EXPERT.space(task)
    rng = Random(name)
    tensor = frozenset({"tensor-cores", "split-tf32", "async-copy-pipeline"})
    drawn = [space.draw(rng, lambda card: 0.9 if card in tensor else 0.5) for _ in range(3)]
    drawn += [space.draw(rng, lambda card: 0.0 if card in tensor else 0.6) for _ in range(2)]
    evaluator = evaluator_on(device, seed=1, timeout_s=300.0)
    for strategy in (Strategy(), space.starts("")[0], *drawn):
        kernel = EXPERT.translate(Brief(task, device.spec), strategy)
        assert isinstance(kernel, Kernel), kernel
        evaluation = evaluator(task, kernel)
        moves = " ".join(map(move_text, strategy.moves))
        assert evaluation.failure is None or evaluation.failure.kind in RESOURCES, f"{moves}: {evaluation.failure}"


@pytest.mark.slow
def test_a_layer_with_its_bias_computes_the_right_thing(device: Device) -> None:
    task = product_task("torch.relu(self.layer(a))", "torch.rand(3, M, K)", (35, 66, 131), setup=LAYER)
    evaluator = evaluator_on(device, seed=1, timeout_s=300.0)
    space = EXPERT.space(task)
    for strategy in (Strategy(), *space.starts("")[:2]):
        kernel = EXPERT.translate(Brief(task, device.spec), strategy)
        assert isinstance(kernel, Kernel), kernel
        assert evaluator(task, kernel).failure is None


# --- blocks that stay, warps that load ---------------------------------------------------------

TENSOR = "coalesce; shared-tile(block_m=64, block_n=64, block_k=32); tensor-cores; split-tf32; persistent-blocks"
LANES = "coalesce; shared-tile(block_m=64, block_n=64, block_k=8); register-block(thread_m=4, thread_n=4)"
PIPES = f"{TENSOR}; async-copy-pipeline(stages=4)"
TEAMS = f"{LANES}; double-buffer(buffers=2); warp-specialisation(warps=4)"
STAYING = {
    # a block has less than a tile, about one and a half, several
    "parts": (*PLAIN, (200, 1000, 200), f"{LANES}; persistent-blocks; stream-k"),
    "parts and wholes": (*PLAIN, (1000, 20, 1000), f"{LANES}; persistent-blocks; stream-k"),
    "wholes": (*PLAIN, (1500, 5, 1500), f"{LANES}; persistent-blocks"),
    "matrices": (*PLAIN, (77, 69, 131), f"{TENSOR}; async-copy-pipeline(stages=3); stream-k"),
    "batches": (*BATCHED, (70, 136, 44), f"{TENSOR}; async-copy-pipeline(stages=2); stream-k"),
    "swizzled": (*PLAIN, (300, 200, 300), f"{LANES}; persistent-blocks; stream-k; block-swizzle(rows=2)"),
    "lower": (*LOWER, (90, 64, 100), f"{TENSOR}; stream-k"),
    "skipped": (*UPPER, (1500, 0, 0), f"{TENSOR}; triangular-skip"),
    "transposed": (*TRANSPOSED, (77, 69, 131), f"{TEAMS}; persistent-blocks; stream-k"),
    "teams with copies": (*TRANSPOSED_A, (77, 200, 131), f"{PIPES}; warp-specialisation(warps=2)"),
    "teams with fewer copies than stages": (*PLAIN, (77, 60, 131), f"{PIPES}; warp-specialisation(warps=4); stream-k"),
    "teams": (*PLAIN, (77, 69, 131), TEAMS),
    "teams that stay": (*PLAIN, (1500, 17, 1500), f"{TEAMS}; persistent-blocks"),
    "teams with nothing to wait for": (*PLAIN, (64, 8, 64), TEAMS),
}
QUICK = ("parts and wholes", "batches", "teams that stay")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in STAYING]
)
def test_blocks_that_stay_and_warps_that_load_compute_the_right_thing(device: Device, name: str) -> None:
    result, inputs, size, moves = STAYING[name]
    task = product_task(result, inputs, size)
    kernel = EXPERT.translate(Brief(task, device.spec), parse(moves.replace("; ", "\n"), load_deck()))
    assert isinstance(kernel, Kernel), kernel
    assert all(move.split("(")[0] in kernel.source for move in moves.split("; "))
    assert evaluator_on(device, seed=1, timeout_s=300.0)(task, kernel).failure is None


@pytest.mark.slow
def test_shares_of_a_layer_get_its_bias(device: Device) -> None:
    task = product_task("torch.relu(self.layer(a))", "torch.rand(3, M, K)", (35, 166, 131), setup=LAYER)
    kernel = EXPERT.translate(Brief(task, device.spec), parse(f"{TENSOR}; stream-k".replace("; ", "\n"), load_deck()))
    assert isinstance(kernel, Kernel), kernel
    assert evaluator_on(device, seed=1, timeout_s=300.0)(task, kernel).failure is None


# --- tiles in half precision -------------------------------------------------------------------

HALVES = "coalesce; shared-tile(block_m=64, block_n=64, block_k=32); tensor-cores; half-tiles"
HALF = {
    "plain": (*PLAIN, (77, 69, 131), "fp16", HALVES),
    "packs": (*PLAIN, (128, 96, 64), "bf16", HALVES),
    "transposed left": (*TRANSPOSED_A, (77, 69, 131), "bf16", HALVES),
    "transposed right": (*TRANSPOSED_B, (68, 72, 132), "fp16", HALVES),
    "transposed": (*TRANSPOSED, (200, 100, 136), "fp16", HALVES.replace("block_k=32", "block_k=16")),
    "shares": (*BATCHED, (70, 136, 44), "fp16", f"{HALVES}; persistent-blocks; stream-k"),
    "large warps": (
        *PLAIN, (300, 200, 300), "fp16",
        "coalesce; shared-tile(block_m=128, block_n=128, block_k=32); tensor-cores; half-tiles; "
        "warp-tile(warp_m=64, warp_n=64)",
    ),
    "skipped": (*UPPER, (300, 0, 0), "fp16", f"{HALVES}; triangular-skip"),
}  # fmt: skip
QUICK_HALF = ("transposed left", "transposed right")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK_HALF else pytest.mark.slow) for name in HALF]
)
def test_tiles_in_half_precision_compute_the_right_thing(device: Device, name: str) -> None:
    result, inputs, size, precision, moves = HALF[name]
    task = product_task(result, inputs, size, precision)
    kernel = EXPERT.translate(Brief(task, device.spec), parse(moves.replace("; ", "\n"), load_deck()))
    assert isinstance(kernel, Kernel), kernel
    assert "half-tiles" in kernel.source
    assert evaluator_on(device, seed=1, timeout_s=300.0)(task, kernel).failure is None
