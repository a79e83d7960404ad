"""Replies to records: strategies come out legal, kernels look like kernels, nothing else comes through."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupilot.agents.reply_parsing import (
    KERNEL_CHARACTERS,
    MAX_MOVES,
    TEXT_CHARACTERS,
    distinct,
    make_legal,
    parse_kernel,
    parse_strategy,
)
from cupilot.records import Failure, Kernel, Move, Strategy
from cupilot.strategies import canonical, compatible, load_deck, parse, same
from cupilot.testing.samples import SPEC

DECK = load_deck()
GOOD = "__global__ void k() {}\ntorch::Tensor forward(torch::Tensor x) { k<<<1, 1>>>(); return x; }\n"


def read(*moves: str, text: str = "", precision: str = "fp32") -> Strategy:
    return parse_strategy(moves, text, DECK, SPEC, precision).strategy


def problems(*moves: str, precision: str = "fp32") -> tuple[str, ...]:
    return parse_strategy(moves, "", DECK, SPEC, precision).problems


# --- strategies --------------------------------------------------------------------------------


def test_moves_come_with_parameters_and_reasons() -> None:
    strategy = read("vector-load(bytes=8)  # half as many", "coalesce", text="an idea")
    assert strategy.move("vector-load") == Move.of("vector-load", "half as many", bytes=8)
    assert strategy.cards == {"vector-load", "coalesce"}
    assert strategy.text == "an idea"


@pytest.mark.parametrize(
    "line", ["Vector Load(bytes=16)", "vector_load(bytes=16)", "- vector-load(bytes=16)", "`vector-load(bytes=16)`"]
)
def test_names_are_normalised(line: str) -> None:
    assert read(line).move("vector-load") == Move.of("vector-load", bytes=16)


def test_an_invention_is_kept_and_named() -> None:
    strategy = read('zigzag-walk(rows=2, mode="fast")  # rows back and forth')
    assert strategy.moves == (Move.of("zigzag-walk", "rows back and forth", rows=2, mode="fast"),)


def test_unusable_values_are_asked_about_and_left_out() -> None:
    strategy = read("block-size(threads=96, colour=3)", "unroll", 'shared-tile(block_m="big", block_n=64, block_k=16)')
    assert strategy.move("block-size") == Move.of("block-size", threads=96)  # between the choices: a plan, not an error
    assert strategy.move("unroll") == Move.of("unroll")
    assert strategy.move("shared-tile") == Move.of("shared-tile", block_n=64, block_k=16)
    assert "block-size has no parameter colour" in strategy.text
    asked = problems("block-size(threads=96, colour=3)", "unroll", 'shared-tile(block_m="big", block_n=64, block_k=16)')
    assert "unroll needs a value for factor, such as 4, 2, 8" in asked
    assert any(problem.startswith("shared-tile: block_m=big is none of 32, 64") for problem in asked)
    assert len(asked) == 3


def test_no_parameter_is_made_up_for_what_a_move_needs() -> None:
    strategy = read("register-block(thread_m=4, thread_n=4)  # the tile is in registers alone")
    assert strategy.cards == {"register-block"}
    assert strategy.text == "[register-block without shared-tile]"
    (problem,) = problems("register-block(thread_m=4, thread_n=4)")
    assert problem.startswith("register-block needs shared-tile: name it with its parameters")
    assert problems("register-block(thread_m=4, thread_n=4)", "shared-tile(block_m=64, block_n=64, block_k=8)") == ()


def test_a_need_without_parameters_is_pulled_in() -> None:
    assert read("warp-per-row").cards == {"warp-per-row", "warp-shuffle"}
    assert problems("warp-per-row") == ()


def test_reasons_are_kept_and_cuts_are_marked() -> None:
    reason = "x" * 1000
    assert read(f"zigzag-walk  # {reason}").moves[0].reason == reason
    assert read(f"zigzag-walk  # {reason}yz").moves[0].reason == f"{reason} [2 characters left out]"


def test_of_two_that_exclude_each_other_the_first_stays() -> None:
    strategy = read("warp-per-row", "block-per-row  # both")
    assert "block-per-row" not in strategy.cards
    assert "block-per-row excludes warp-per-row" in strategy.text


def test_what_the_precision_forbids_is_dropped_with_the_reason() -> None:
    strategy = read("fast-math-exp", "coalesce")
    assert strategy.cards == {"coalesce"}
    assert "fast-math-exp is for tf32, fp16, bf16, not for fp32" in strategy.text
    assert read("fast-math-exp", precision="fp16").cards == {"fast-math-exp"}


def test_lines_that_are_no_moves_are_remarked_upon() -> None:
    strategy = read("rm -rf / && echo done; $(reboot)", "coalesce")
    assert strategy.cards == {"coalesce"}
    assert "not a move: rm -rf" in strategy.text


def test_a_flood_of_moves_and_text_is_bounded() -> None:
    strategy = read(*(f"move-{n}  # {'why ' * 500}" for n in range(5000)), text="so " * 10**5)
    assert len(strategy.moves) == MAX_MOVES
    assert len(canonical(strategy)) < MAX_MOVES * 1200 + 1500
    assert len(strategy.text) <= 2 * TEXT_CHARACTERS


@given(st.lists(st.one_of(st.text(max_size=80), st.sampled_from(sorted(DECK)), st.sampled_from(["unroll(factor=3)"]))))
def test_whatever_is_read_can_be_written_and_read_again_and_breaks_no_ban(lines: list[str]) -> None:
    strategy = read(*lines, text="\n# ".join(lines))
    faults = compatible(strategy, DECK, capability=SPEC.capability, precision="fp32")
    assert all(" needs " in fault or " is none of " in fault for fault in faults)
    assert not any("compute capability" in fault for fault in faults)
    assert same(parse(canonical(strategy), DECK, invent=True), strategy)


def test_legal_strategies_stay_as_they_are() -> None:
    strategy = read(
        "coalesce", "shared-tile(block_m=64, block_n=64, block_k=16)", "register-block(thread_m=4, thread_n=4)"
    )
    assert make_legal(strategy, DECK, SPEC, "fp32") == (strategy, [])


def test_strategies_that_nobody_planned_are_completed_or_left_as_they_are() -> None:
    strategy = Strategy((Move.of("register-block", thread_m=4, thread_n=4), Move.of("fast-math-exp")))
    assert make_legal(strategy, DECK, SPEC, "fp32")[0].cards == {"register-block", "shared-tile"}
    assert make_legal(strategy, DECK, SPEC, "fp32", complete=False)[0].cards == {"register-block"}


def test_alike_strategies_are_one() -> None:
    one, two = read("coalesce  # a"), read("unroll(factor=4)")
    assert distinct([one, read("coalesce  # b"), two], [Strategy()]) == [one, two]
    assert distinct([one], [one]) == []


# --- kernels -----------------------------------------------------------------------------------


def test_a_kernel_is_text_with_an_entry_and_a_device_function() -> None:
    assert parse_kernel(GOOD.replace("\n", "\r\n"), "translate") == Kernel(GOOD)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("", "no-kernel"),
        ("rm -rf /", "no-kernel"),
        ("// __global__ forward(\nint x;", "no-kernel"),
        ("__global__ void k() {}", "no-such-entry"),
        ("__global__ void k() {}\n/* forward(x) */", "no-such-entry"),
        (GOOD + "x" * KERNEL_CHARACTERS, "too-large"),
        (GOOD + "\x00", "not-text"),
        (GOOD + "\ud800", "not-text"),
        ('#include "/etc/passwd"\n' + GOOD, "forbidden-include"),
        ("#  include <../../secret.h>\n" + GOOD, "forbidden-include"),
        ('#include "~/.netrc"\n' + GOOD, "forbidden-include"),
        (GOOD + "/* never closed", "open-comment"),
    ],
)
def test_what_is_no_kernel_is_a_failure(source: str, kind: str) -> None:
    failure = parse_kernel(source, "translate")
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("translate", kind)
    assert failure.message


@pytest.mark.parametrize("filler", ["/*\n", "//", '"', "{", "`", "#include \n"])
def test_reading_takes_no_longer_than_the_text(filler: str) -> None:
    began_s = time.process_time()
    parse_kernel(GOOD + filler * (90_000 // len(filler)), "translate")
    assert time.process_time() - began_s < 2.0
