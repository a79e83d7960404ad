"""Which moves can be seen in a kernel."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest

from cupilot.agents.evidence import check
from cupilot.contracts import Brief
from cupilot.expert import Expert
from cupilot.records import Counter, Kernel, Move, Op, Strategy, Task, TensorSpec
from cupilot.strategies import default_move, load_deck
from cupilot.testing.samples import EVALUATION, LAUNCH, PROFILE, SPEC, TASK

DECK = load_deck()
PLAIN = Kernel("__global__ void k(const float* x, float* y) { y[0] = x[0]; }\n")


def kept(kernel: Kernel, *moves: Move, **more: object) -> set[str]:
    found = check(Strategy(moves), DECK, kernel, more.get("profile"), more.get("quotes"))  # type: ignore[arg-type]
    assert len(found.moves) + len(found.struck) == len(moves)
    return {move.card for move in found.moves}


def tasks() -> list[Task]:
    matrix = TensorSpec((1024, 4096))
    square = TensorSpec((512, 512))
    x, a, b = (
        replace(TASK.arguments[0], name=name, tensor=t) for name, t in (("x", matrix), ("a", square), ("b", square))
    )
    return [
        TASK,
        Task("softmax", "", (x,), (matrix,), (Op("s", "aten.softmax.int", ("x",), (("dim", 1),), matrix),)),
        Task("mm", "", (a, b), (square,), (Op("p", "aten.mm.default", ("a", "b"), (), square),)),
    ]


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_the_experts_kernels_show_their_moves(task: Task) -> None:
    expert, rng, seen = Expert(), Random(5), set()
    brief = Brief(task, SPEC)
    for strategy in expert.initialize(brief, 40, rng):
        kernel = expert.translate(brief, strategy)
        assert isinstance(kernel, Kernel)
        aligned = expert.align(brief, kernel, strategy, EVALUATION)
        assert check(aligned, DECK, kernel, None, None).struck == ()
        seen |= aligned.cards
    assert len(seen) >= 5


@pytest.mark.parametrize("card", [card.name for card in DECK.values() if card.evidence is not None])
def test_a_plain_kernel_shows_no_move(card: str) -> None:
    assert kept(PLAIN, default_move(card, DECK)) == set()


def test_comments_prove_nothing() -> None:
    kernel = Kernel(PLAIN.source + "// float4 __shfl_xor_sync\n/* __shared__ */\n")
    assert kept(kernel, Move.of("vector-load", bytes=16), Move.of("warp-shuffle"), Move.of("shared-cache")) == set()


def test_parameters_count() -> None:
    kernel = Kernel("const float2 v = x[i];")
    assert kept(kernel, Move.of("vector-load", bytes=8)) == {"vector-load"}
    assert kept(kernel, Move.of("vector-load", bytes=16)) == set()


def test_a_block_size_is_that_of_a_launch() -> None:
    kernel = Kernel("k<<<n, 512>>>(); // blockDim")
    assert kept(kernel, Move.of("block-size", threads=512)) == {"block-size"}
    assert kept(kernel, Move.of("block-size", threads=512), profile=PROFILE) == set()  # its launch has 256


def test_counters_speak_against_a_claim() -> None:
    counters = (Counter("global_load_sectors", 3200.0, "PTX"), Counter("global_load_requests", 100.0, "PTX"))
    scattered = replace(LAUNCH, counters=counters)
    kernel = Kernel("int i = threadIdx.x;")
    assert kept(kernel, Move.of("coalesce")) == {"coalesce"}
    assert kept(kernel, Move.of("coalesce"), profile=replace(PROFILE, launches=(scattered,))) == set()


def test_barriers_speak_for_one() -> None:
    waiting = replace(LAUNCH, counters=(Counter("barriers", 8.0, "PTX"),))
    profile = replace(PROFILE, launches=(waiting,))
    assert kept(PLAIN, Move.of("block-per-row"), profile=profile) == {"block-per-row"}


@pytest.mark.parametrize(
    ("quotes", "stays"),
    [
        ({"zigzag-walk": "y[0]   =  x[0];"}, True),
        ({"zigzag-walk": "y[0] = x[0];  // as asked"}, True),
        ({"zigzag-walk": "y[0] = x[1];"}, False),
        ({"zigzag-walk": ";"}, False),
        ({}, False),
        (None, True),  # nobody was asked
    ],
)
def test_an_invention_needs_a_quote(quotes: dict[str, str] | None, stays: bool) -> None:
    assert kept(PLAIN, Move.of("zigzag-walk"), quotes=quotes) == ({"zigzag-walk"} if stays else set())


@pytest.mark.parametrize(
    "filler", ["float x[", "blockIdx.x ", "__shared__ ", "exp(", "Vec<", "/*\n", "__launch_bounds__("]
)
def test_looking_takes_no_longer_than_the_text(filler: str) -> None:
    strategy = Strategy(tuple(default_move(card, DECK) for card in DECK))
    began_s = time.process_time()
    check(strategy, DECK, Kernel(filler * (90_000 // len(filler))), None, None)
    assert time.process_time() - began_s < 3.0
