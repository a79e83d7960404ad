"""Prompts: golden files for every role and purpose, and what must hold of any prompt."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prompt_samples import BRIEF, DECK, GOLDEN, GUIDED, KERNEL, SAMPLES, SOURCE, UNGUIDED, Sample, guided

from cupilot.agents.prompt_sections import SECTIONS
from cupilot.agents.prompting import build_request, prompt_settings
from cupilot.agents.templates import FOLDER, fenced, one_line
from cupilot.contracts import ROLES, Brief
from cupilot.gpu.catalogue import load_spec
from cupilot.llm import estimate_tokens, role_of
from cupilot.records import Argument, Failure, Kernel, Resources, Task, TensorSpec
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
    assert "Counters" not in shown
    assert "Hot lines" not in shown
    for word in (*ZONES, "elieves", "held back", "roofline", "Prophet"):
        # the zone "between" has no word of its own
        assert word == "between" or word not in shown, word


def test_limits_of_the_pool_and_of_timings_are_guidance_too() -> None:
    assert "limited by dram" in GUIDED["manager_cross"].text()
    for name in UNGUIDED:
        assert not re.search(rf"limited by ({'|'.join(LIMITS)})", UNGUIDED[name].text())


def test_guidance_shows_only_the_counters_of_the_limit() -> None:
    text = GUIDED["translator_write"].text()
    assert "DRAM reads: 524 GB/s of at most 1.8 TB/s" in text
    assert "shared-memory" not in section(text, "Counters that matter here")
    latency = replace(BRIEF, guidance=replace(BRIEF.guidance, limit="latency", zone="latency-bound"))
    sample = GUIDED["translator_write"]
    other = replace(sample, context=replace(sample.context, brief=latency)).text()
    assert "warps resident on a multiprocessor: 64 of at most 64" in section(other, "Counters that matter here")
    assert "DRAM reads" not in other


def test_cards_that_relieve_the_limit_come_first_and_others_are_absent() -> None:
    cards = section(GUIDED["manager_cross"].text(), "Moves that are known")
    names = re.findall(r"^- ([a-z-]+)", cards, re.MULTILINE)
    assert names == ["coalesce", "vector-load", "unroll"]  # fast-exp is for fp16, wide-tile for another zone


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


def test_what_spilled_is_told_to_those_who_come_after() -> None:
    slow = BRIEF.tried[0]
    profile = slow.evaluation.profile
    assert profile is not None
    launch = replace(profile.launches[0], resources=Resources(255, spill_bytes=96))
    spilled = replace(slow, evaluation=replace(slow.evaluation, profile=replace(profile, launches=(launch,))))
    sample = GUIDED["translator_write"]
    context = replace(sample.context, brief=replace(sample.context.brief, tried=(spilled,)))
    shown = replace(sample, context=context).text()
    assert "RIGHT BUT NOT FASTER: 0.009 ms, modelled; registers spilled, 96 bytes per thread" in shown
    assert "spilled" not in sample.text()


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
    assert request.messages[1].text.rstrip().splitlines()[-1].startswith(("Answer with", "which kind of change"))


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
