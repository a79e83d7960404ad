"""A strategy is read out of a kernel by what its code shows."""

from __future__ import annotations

from dataclasses import replace

from cupilot.contracts import Brief
from cupilot.expert import Expert
from cupilot.expert.render import render
from cupilot.gpu import load_spec
from cupilot.records import Kernel, Launch, Profile, Resources
from cupilot.strategies import load_deck, same
from cupilot.strategies.reading import read_strategy
from cupilot.testing.samples import EVALUATION, TASK

DECK = load_deck()
CARDS = tuple(DECK.values())
SPEC = load_spec("a100-80gb")


def profile(threads: int) -> Profile:
    return Profile("sample", (Launch("k", (8, 1, 1), (threads, 1, 1), 0, Resources(32), 8, ()),))


def test_parameters_are_read_where_the_code_shows_them() -> None:
    kernel = Kernel("__global__ void k(float2* x) { float2 v = x[threadIdx.x]; }  k<<<1, 512>>>(x);")
    cards = [DECK["vector-load"], DECK["block-size"]]
    found = read_strategy(kernel, profile(512), cards)
    assert {(move.card, move.parameters) for move in found.moves} == {
        ("vector-load", (("bytes", 8),)),
        ("block-size", (("threads", 512),)),
    }
    assert all("not seen" not in move.reason for move in found.moves)
    blind = read_strategy(kernel, None, cards)
    assert "threads not seen" in blind.move("block-size").reason  # type: ignore[union-attr]


def test_a_pattern_that_several_cards_share_says_nothing() -> None:
    kernel = Kernel("__global__ void k() { __shared__ float t[32]; }")
    shared = [card for card in CARDS if card.evidence is not None and "__shared__" in card.evidence.source]
    assert len(shared) > 1
    assert read_strategy(kernel, None, shared).moves == ()


def test_comments_are_not_code() -> None:
    kernel = Kernel("__global__ void k() { /* __shfl_down_sync */ }  // #pragma unroll\n")
    assert not read_strategy(kernel, None, CARDS).cards & {"warp-shuffle", "unroll"}


def test_the_expert_reads_its_own_kernels_back() -> None:
    """Every start of a pointwise operator, up to what its recipe calls idle."""
    expert = Expert()
    space = expert.space(TASK, SPEC)
    brief = Brief(TASK, SPEC)
    right = 0
    for start in space.starts(""):
        threads = start.move("block-size").get("threads") if start.move("block-size") else 256  # type: ignore[union-attr]
        assert isinstance(threads, int)
        read = expert.read(brief, render(space, start), replace(EVALUATION, profile=profile(threads)))
        assert not space.faults(read), "whatever is read is legal"
        right += read.cards >= start.cards or same(read, start)
    assert right >= len(space.starts("")) / 2
