"""Prompts: golden files for every role and purpose, and what must hold of any prompt."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prompt_samples import BRIEF, DECK, GOLDEN, GUIDED, KERNEL, SAMPLES, SOURCE, UNGUIDED, Sample, guided

from cupilot.agents.prompt_sections import SECTIONS, _limit_meanings
from cupilot.agents.prompting import build_request, prompt_settings
from cupilot.agents.prophet import compute_guidance
from cupilot.agents.templates import FOLDER, fenced, one_line
from cupilot.contracts import ROLES, Brief
from cupilot.gpu.catalogue import load_spec
from cupilot.llm import estimate_tokens, role_of
from cupilot.records import Argument, Failure, Kernel, Move, Profile, Resources, Strategy, Task, TensorSpec
from cupilot.strategies import LIMITS, ZONES, load_deck
from cupilot.testing.samples import SPEC, TASK


@pytest.mark.parametrize("name", SAMPLES)
def test_prompts_are_as_agreed(name: str) -> None:
    """After a change on purpose: ``python tests/agents/prompt_samples.py``, and look at the difference."""
    assert SAMPLES[name].text() == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_every_prompt_file_is_asked_for_and_golden() -> None:
    files = {path.stem for path in FOLDER.glob("*_*.j2") if path.stem.partition("_")[0] in ROLES}
    assert files == set(prompt_settings()) == set(GUIDED)
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_prompt_names_its_role_first(name: str) -> None:
    request = SAMPLES[name].request()
    assert request.messages[0].text.startswith(f"# role: {name.partition('_')[0]}\n")
    assert role_of(request) == name.partition("_")[0]
    assert request.sample == SAMPLES[name].context.brief.sample


# --- guidance --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNGUIDED)
def test_without_guidance_nothing_of_it_is_shown(name: str) -> None:
    shown = UNGUIDED[name].text()
    assert "Where the kernel stands" not in shown
    assert "rofile" not in shown.partition("## What to do")[0].partition("=== user")[2]
    assert not re.search(r"occupancy \d", shown)
    for word in (*ZONES, "elieves", "held back", "roofline", "Prophet"):
        # the zone "between" has no word of its own
        assert word == "between" or word not in shown, word


def test_limits_of_the_pool_and_of_timings_are_guidance_too() -> None:
    assert "limited by dram" in GUIDED["manager_cross"].text()
    for name in UNGUIDED:
        assert not re.search(rf"limited by ({'|'.join(LIMITS)})", UNGUIDED[name].text())


def test_the_kernel_is_shown_with_the_profile_of_each_launch() -> None:
    first = BRIEF.parents[0]
    launch = first.evaluation.profile.launches[0]
    small = replace(launch, kernel="finish", grid=(64, 1, 1), lines=())
    two = replace(first.evaluation, profile=replace(first.evaluation.profile, launches=(launch, small)))
    sample = GUIDED["manager_mutate"]
    shown = section(replace(sample, context=replace(sample.context, evaluation=two)).text(), "Profile of the current")
    assert re.search(r"^relu: [\d.]+ µs, [\d.]+ % of the call, limit dram$", shown, re.MULTILINE)
    assert re.search(r"^finish: [\d.]+ µs, [\d.]+ % of the call, limit \w+$", shown, re.MULTILINE)
    assert "64 blocks for 100 SMs: at most 8 warps on an SM, 36 SMs idle" in shown
    assert "with the gaps between them" in shown
    assert "- limit dram: Bytes to and from DRAM take the time." in shown


def test_a_crossing_shows_the_second_parents_code_and_profile() -> None:
    for name in ("manager_cross", "translator_write-cross"):
        shown = section(SAMPLES[name].text(), "Kernel of parent 2")
        assert SOURCE.strip() in shown
        assert "Its profile:" in shown
        assert "the same as in the profile above: relu" in shown
    launch = BRIEF.parents[1].evaluation.profile.launches[0]
    other = replace(BRIEF.parents[1].evaluation, profile=Profile("sample", (replace(launch, grid=(512, 1, 1)),)))
    brief = replace(BRIEF, parents=(BRIEF.parents[0], replace(BRIEF.parents[1], evaluation=other)))
    sample = GUIDED["manager_cross"]
    text = replace(sample, context=replace(sample.context, brief=brief)).text()
    assert "grid 512x1x1" in section(text, "Kernel of parent 2")
    assert "Kernel of parent 2" not in SAMPLES["translator_write"].text()


def test_the_numbers_of_a_kernel_are_its_own_and_not_those_of_the_fastest() -> None:
    sample = GUIDED["manager_mutate"]
    shown = section(sample.text(), "Where the kernel stands")
    assert "the kernel takes 8.00 µs, 1.62 times that" in shown
    assert "The Roofline Prophet said of the fastest kernel so far" in shown
    own = compute_guidance(TASK, BRIEF.parents[0].evaluation, SPEC)
    brief = replace(sample.context.brief, guidance=replace(own, sentence=f"{own.sentence} Widen."))
    alone = section(replace(sample, context=replace(sample.context, brief=brief)).text(), "Where the kernel stands")
    assert alone.count("1.62 times") == 1


def test_every_limit_of_a_time_has_a_meaning() -> None:
    assert set(_limit_meanings()) >= set(LIMITS) | {"dependency", "atomic", "chain"}


def test_cards_that_relieve_the_limit_come_first_and_unusable_ones_are_absent() -> None:
    cards = section(GUIDED["manager_cross"].text(), "Moves that are known")
    names = re.findall(r"^- ([a-z-]+)", cards, re.MULTILINE)
    assert names == ["coalesce", "unroll", "vector-load", "wide-tile"]  # the parents' first; fast-exp is for fp16


def test_all_cards_are_named_and_about_ten_explained() -> None:
    deck = load_deck()
    sample = GUIDED["manager_cross"]
    text = replace(sample, context=replace(sample.context, deck=deck)).text()
    cards = section(text, "Moves that are known")
    assert re.findall(r"^- ([a-z0-9-]+)", cards, re.MULTILINE).__len__() == len(
        deck.usable(capability=SPEC.capability, precision="fp32")
    )
    explained = re.findall(r"^- [^\n]{300,}", cards, re.MULTILINE)
    assert 8 <= len(explained) <= 10
    assert "- flash-attention: Scores that never leave the chip (for other operators)" in cards


def section(text: str, heading: str) -> str:
    return text.partition(f"## {heading}")[2].partition("\n## ")[0]


# --- data of others --------------------------------------------------------------------------


def test_a_comment_cannot_close_the_fence_around_it() -> None:
    text = GUIDED["translator_write"].text()
    block = re.search(r"^(`{4,})cuda\n(.*?)^\1$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert block[2].strip() == SOURCE.strip()


@pytest.mark.parametrize("text", ["plain", "a ``` b", "`````` c", "```\n```"])
def test_fences_are_longer_than_any_inside(text: str) -> None:
    first, *inside, last = fenced(text, "x").split("\n")
    assert first == last + "x"
    assert all(last not in line for line in inside)


def test_hidden_characters_become_visible() -> None:
    hidden = "a\u202eb\x00c\u200bd\ud800"
    assert one_line(hidden) == "a\N{REPLACEMENT CHARACTER}b" + "\N{REPLACEMENT CHARACTER}".join(["", "c", "d", ""])
    kernel = Kernel(SOURCE + "// \u202e\x1b[2J\n")
    request = build_request("translator_align", guided(BRIEF, kernel=kernel))
    assert not re.search("[\u202e\x1b]", request.messages[1].text)


def test_messages_do_not_depend_on_addresses() -> None:
    sample = GUIDED["revisor_repair"]
    failure = sample.context.evaluation.failure
    texts = [finding.text.replace("0x7f3a5c001000", "0x7e0000042000") for finding in failure.findings]
    assert texts[0] != failure.findings[0].text
    moved = Failure.of("run", [replace(f, text=text) for f, text in zip(failure.findings, texts, strict=True)])
    evaluation = replace(sample.context.evaluation, failure=moved)
    assert replace(sample, context=replace(sample.context, evaluation=evaluation)).text() == sample.text()


def test_a_failure_shows_its_line_with_context() -> None:
    shown = section(GUIDED["revisor_repair"].text(), "What is wrong")
    assert ">    6   if (i < count) y[i] = x[i] < 0.0f ? 0.0f : x[i];" in shown
    assert "out-of-bounds write of 4 bytes" in shown


def test_a_line_of_another_file_has_no_context() -> None:
    sample = GUIDED["revisor_repair"]
    (first, *_) = sample.context.evaluation.failure.findings
    failure = Failure.of("run", [replace(first, file="cuda_fp16.hpp")])
    evaluation = replace(sample.context.evaluation, failure=failure)
    shown = section(replace(sample, context=replace(sample.context, evaluation=evaluation)).text(), "What is wrong")
    assert "line 6 of cuda_fp16.hpp" in shown
    assert "The source there" not in shown


@pytest.mark.parametrize("name", ["translator_write", "translator_write-unguided"])
def test_what_spilled_is_told_to_those_who_come_after(name: str) -> None:
    slow = BRIEF.tried[0]
    profile = slow.evaluation.profile
    assert profile is not None
    launch = replace(profile.launches[0], resources=Resources(255, spill_bytes=96))
    spilled = replace(slow, evaluation=replace(slow.evaluation, profile=replace(profile, launches=(launch,))))
    sample = SAMPLES[name]
    context = replace(sample.context, brief=replace(sample.context.brief, tried=(spilled,)))
    shown = replace(sample, context=context).text()
    assert "RIGHT, BUT 1.12x THE TIME OF THE PARENT: 9.00 µs, modelled" in shown
    assert ("255 registers, 96 bytes spilled" if name in GUIDED else "registers spilled, 96 bytes") in shown
    assert "spilled" not in sample.text()


def test_equal_times_are_not_called_slower() -> None:
    slow = BRIEF.tried[0]
    tie = replace(slow, evaluation=replace(slow.evaluation, timing=BRIEF.parents[0].evaluation.timing))
    sample = GUIDED["manager_mutate"]
    context = replace(sample.context, brief=replace(sample.context.brief, tried=(tie,)))
    assert "RIGHT, BUT AS FAST AS ITS PARENT: 8.00 µs" in replace(sample, context=context).text()


def test_an_invented_move_keeps_its_specification() -> None:
    reason = "walk the rows in a zigzag, " * 35
    strategy = Strategy((Move.of("zigzag-walk", reason.strip()),))
    sample = GUIDED["translator_write"]
    text = replace(sample, context=replace(sample.context, strategy=strategy)).text()
    assert f"zigzag-walk  # {reason.strip()}" in section(text, "Strategy")


def test_the_pool_says_what_was_gained_over_pytorch() -> None:
    shown = section(GUIDED["manager_initialize"].text(), "What worked on similar kernels")
    assert "gained 1.10x over PyTorch there (modelled) with" in shown
    assert "2.5" not in shown


# --- length ----------------------------------------------------------------------------------

HUGE = Kernel("\n".join(f"float value_{n} = 0.0f;  // {'x' * 60}" for n in range(20_000)))


@pytest.mark.parametrize("window", [None, 8000, 4000])
@pytest.mark.parametrize("prompt", GUIDED)
def test_prompts_keep_to_their_tokens(prompt: str, window: int | None) -> None:
    sample = GUIDED[prompt]
    brief = replace(
        sample.context.brief,
        task=replace(TASK, source=TASK.source * 500),
        tried=BRIEF.tried * 100,
        similar=BRIEF.similar * 100,
        parents=BRIEF.parents * 50,
    )
    context = replace(sample.context, brief=brief, deck=load_deck(), kernel=HUGE, reply_problem="no\n" * 9000)
    request = replace(sample, context=context, tokens=window).request()
    asked = sum(estimate_tokens(message.text) for message in request.messages)
    assert asked <= (window or prompt_settings()[prompt].prompt_tokens) + 20
    assert "left out here for length]" in request.messages[1].text
    assert request.messages[1].text.rstrip().splitlines()[-1] == sample.text().rstrip().splitlines()[-1]


def test_nothing_is_cut_that_fits() -> None:
    for name in GUIDED:
        assert "for length]" not in GUIDED[name].text()


# --- what is shown of tasks -------------------------------------------------------------------


def test_the_signature_follows_the_arguments() -> None:
    task = Task(
        "t",
        "pass",
        (
            Argument("x", "input", TensorSpec((2, 3))),
            Argument("slope", "constant", value=0.1),
            Argument("n", "constant", value=3),
            Argument("flag", "constant", value=True),
        ),
        (TensorSpec((2,)), TensorSpec((3,))),
        (),
    )
    text = Sample("generator_write", guided(Brief(task, SPEC))).text()
    assert "std::vector<torch::Tensor> forward(torch::Tensor x, double slope, int64_t n, bool flag)" in text


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_every_precision_has_rules(precision: str) -> None:
    brief = Brief(replace(TASK, precision=precision), load_spec("a100-80gb"))
    assert f"## Precision: {precision}" in Sample("generator_write", guided(brief)).text()


def test_every_section_is_used_and_has_a_template() -> None:
    used = {name for settings in prompt_settings().values() for name in settings.sections}
    assert used == set(SECTIONS) == {path.stem for path in (FOLDER / "sections").glob("*.j2")}


def test_the_samples_use_their_own_deck() -> None:
    assert set(DECK) != set(load_deck())
    assert KERNEL.source == SOURCE
