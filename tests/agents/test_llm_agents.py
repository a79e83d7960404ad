"""The five roles on scripted models: the contract, what is made of replies, and what happens without any."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from prompt_samples import ALONE, BRIEF, FAILED, KERNEL, SLOWER, STRATEGY, TIMED

from cupilot.agents import LlmAgents
from cupilot.agents.call_estimate import plan_calls
from cupilot.contracts import ROLES, Agents, Brief, Reply, Request, Revision
from cupilot.errors import DataError, ModelError
from cupilot.llm import Scripted, role_of
from cupilot.records import Failure, Guidance, Kernel, Move, Strategy
from cupilot.strategies import compatible, load_deck, same
from cupilot.testing import AgentsContract
from cupilot.testing.samples import EVALUATION, INFO, SPEC, TASK

DECK = load_deck()
SOURCE = """\
__global__ void relu(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
torch::Tensor forward(torch::Tensor x) { relu<<<1, 256>>>(nullptr, nullptr); return x; }
"""


class ByPurpose:
    """Answers from a table by the fields that the schema asks for; None or a missing entry is an error."""

    name = "by-purpose"

    def __init__(self, answers: dict[str, str | Callable[[Request], str] | None]) -> None:
        self._answers = answers
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        fields = json.loads(request.schema)["properties"]
        purpose = next(name for name in ("aim", "strategies", "verdict", "code", "moves") if name in fields)
        if purpose == "moves" and "reason" not in fields:
            purpose = "align"
        answer = self._answers.get(purpose)
        if answer is None:
            raise ModelError(f"no answer to {purpose}")
        text = answer if isinstance(answer, str) else answer(request)
        return Reply(text, 1, 1, self.name)


def strategy_reply(*moves: str, text: str = "an idea") -> str:
    return json.dumps({"moves": list(moves), "text": text, "reason": "it pays"})


def code_reply(source: str = SOURCE) -> str:
    return f'```json\n{{"notes": "done"}}\n```\n\n```cuda\n{source}```\n'


def align_reply(*moves: tuple[str, str], text: str = "what it does") -> str:
    return json.dumps({"moves": [{"move": move, "quote": quote} for move, quote in moves], "text": text})


MOVES = ["vector-load(bytes=16)", "unroll(factor=4)", "unroll(factor=8)", "streaming-store", "block-size(threads=512)",
         "coalesce", "grid-stride(blocks_per_sm=4)", "zigzag-walk(rows=2)"]  # fmt: skip
ANSWERS: dict[str, str | Callable[[Request], str] | None] = {
    "aim": '{"aim": "Widen the accesses."}',
    "strategies": json.dumps({"strategies": [{"moves": [move], "text": "", "reason": "x"} for move in MOVES]}),
    "moves": lambda request: strategy_reply(MOVES[request.sample % len(MOVES)], "coalesce  # lanes"),
    "code": code_reply(),
    "align": align_reply(("vector-load(bytes=16)", "y[threadIdx.x]"), ("coalesce", "")),
    "verdict": json.dumps({"verdict": "repaired", "reason": "a typo", "code": SOURCE}),
}


def agents_with(**changed: str | Callable[[Request], str] | None) -> tuple[LlmAgents, ByPurpose]:
    model = ByPurpose(ANSWERS | changed)
    return LlmAgents(model), model


class TestOnAScript(AgentsContract):
    @pytest.fixture
    def agents(self) -> Agents:
        return agents_with()[0]


class TestWithoutAnyUsefulReply(AgentsContract):
    """Everything but code is nonsense, so that the roles have to help themselves."""

    @pytest.fixture
    def agents(self) -> Agents:
        return agents_with(aim="no", strategies="{}", moves="[1, 2", align="?", verdict="!")[0]


# --- Generator and Prophet -----------------------------------------------------------------------


def test_generate_asks_again_with_what_was_wrong() -> None:
    replies = iter([code_reply("int forward() {}\n"), code_reply()])
    agents, model = agents_with(code=lambda request: next(replies))
    assert agents.generate(Brief(TASK, SPEC)) == Kernel(SOURCE)
    assert "the source has no __global__ function" in model.requests[1].messages[1].text


@pytest.mark.parametrize("answer", [None, "Sorry, I cannot.", code_reply("// nothing\n")])
def test_generate_raises_after_its_tries(answer: str | None) -> None:
    agents, model = agents_with(code=answer)
    with pytest.raises(ModelError, match="no plain kernel for relu after 3 tries"):
        agents.generate(Brief(TASK, SPEC))
    assert len(model.requests) == (6 if answer and answer.startswith("Sorry") else 3)


def test_the_prophets_numbers_are_computed() -> None:
    agents, _ = agents_with(aim='{"aim": "Aim\\nhigh. You are compute-bound."}')
    told = agents.foresee(TASK, EVALUATION, SPEC)
    silent = agents_with(aim=None)[0].foresee(TASK, EVALUATION, SPEC)
    assert (told.zone, told.limit, told.headroom) == (silent.zone, silent.limit, silent.headroom)
    assert (told.zone, told.limit) == ("memory-bound", "dram")
    assert told.sentence.endswith("times that. Aim high. You are compute-bound.")
    assert silent.sentence.endswith("Aim at moves that relieve dram.")


def test_the_prophet_sees_the_kernel_and_its_profile() -> None:
    agents, model = agents_with()
    agents.foresee(TASK, TIMED, SPEC, KERNEL)
    shown = model.requests[0].messages[1].text
    assert "y[i] = x[i] < 0.0f ? 0.0f : x[i];" in shown
    assert "## Profile of the current kernel" in shown
    agents.foresee(TASK, TIMED, SPEC)
    assert "## Current kernel" not in model.requests[1].messages[1].text


# --- Manager -------------------------------------------------------------------------------------


def test_initialize_takes_the_reply_and_draws_and_leaves_the_pool_to_the_manager() -> None:
    agents, model = agents_with(strategies=json.dumps({"strategies": [{"moves": ["unroll(factor=2)"]}] * 5}))
    strategies = agents.initialize(BRIEF, 5, Random(0))
    assert len(strategies) == 5
    assert strategies[0].move("unroll") == Move.of("unroll", factor=2)
    assert not any("PyTorch" in move.reason for strategy in strategies for move in strategy.moves)
    asked = model.requests[0].messages[1].text
    assert "Propose 5 first strategies" in asked
    assert "leaky-relu" in asked
    assert "adapted to its operators, shapes and types" in asked
    for strategy in strategies:
        assert compatible(strategy, DECK, capability=SPEC.capability, precision="fp32") == ()


def test_without_a_reply_the_pool_is_taken_and_says_what_it_gained_over_pytorch() -> None:
    strategies = agents_with(strategies=None)[0].initialize(BRIEF, 5, Random(0))
    assert strategies[0].cards == {"vector-load", "coalesce"}
    assert strategies[0].moves[0].reason == "gained 1.10x over PyTorch on leaky-relu"
    assert len(strategies) == 5


def test_a_strategy_that_contradicts_its_cards_is_asked_about_once() -> None:
    replies = iter([
        strategy_reply("register-block(thread_m=4, thread_n=4)"),
        strategy_reply("register-block(thread_m=4, thread_n=4)", "shared-tile(block_m=64, block_n=64, block_k=16)"),
    ])  # fmt: skip
    agents, model = agents_with(moves=lambda request: next(replies))
    child = agents.cross(ALONE, Random(1))
    assert child.move("shared-tile") == Move.of("shared-tile", block_m=64, block_n=64, block_k=16)
    assert len(model.requests) == 2
    assert "register-block needs shared-tile" in model.requests[1].messages[-1].text


def test_a_model_that_insists_is_taken_at_its_word() -> None:
    agents, model = agents_with(moves=strategy_reply("register-block(thread_m=4, thread_n=4)  # sums of one pixel"))
    child = agents.cross(ALONE, Random(1))
    assert child.cards == {"register-block"}
    assert "register-block without shared-tile" in child.text
    assert len(model.requests) == 2


def test_a_first_reply_is_better_than_none() -> None:
    replies = iter([strategy_reply("unroll"), "Sorry."])
    agents, _ = agents_with(moves=lambda request: next(replies))
    assert agents.cross(ALONE, Random(1)).moves == (Move.of("unroll"),)


def test_a_child_that_is_a_parent_again_is_replaced() -> None:
    agents, _ = agents_with(moves=strategy_reply("coalesce"))
    for seed in range(5):
        assert not same(agents.cross(ALONE, Random(seed)), ALONE.parents[0].strategy)


def test_without_a_reply_parents_are_merged() -> None:
    agents, _ = agents_with(moves=None)
    child = agents.cross(BRIEF, Random(1))
    assert child.cards == {"coalesce", "unroll"}


def test_a_mutation_names_its_step_and_a_crossing_does_not() -> None:
    agents, model = agents_with()
    agents.cross(ALONE, Random(1))
    agents.cross(BRIEF, Random(1))
    mutate, cross = (request.messages[1].text for request in model.requests)
    assert "Change the parent's strategy by one step: " in mutate
    assert "Combine the parents' strategies" in cross


def test_a_step_is_one_that_the_parent_allows() -> None:
    agents, model = agents_with()
    plain = replace(ALONE, parents=(replace(ALONE.parents[0], strategy=Strategy()),))
    for seed in range(20):
        agents.cross(plain, Random(seed))
    asked = [request.messages[1].text for request in model.requests]
    assert all("by one step: add a move." in text for text in asked)


def test_no_move_of_other_operators_or_of_a_parent_is_suggested() -> None:
    agents, model = agents_with()
    for seed in range(20):
        agents.cross(BRIEF, Random(seed))
    asked = "\n".join(request.messages[1].text for request in model.requests)
    suggested = set(re.findall(r"One idea to consider is `([a-z0-9-]+)`", asked))
    families = {"pointwise"}
    assert len(suggested) > 3
    assert all(not DECK[name].families or families & set(DECK[name].families) for name in suggested)
    assert not suggested & {card for one in BRIEF.parents for card in one.strategy.cards}


def test_crossing_twice_asks_for_something_else() -> None:
    agents, model = agents_with()
    rng = Random(3)
    for _ in range(6):
        agents.cross(BRIEF, rng)
    assert len({request.messages[1].text for request in model.requests}) > 1


# --- Translator ----------------------------------------------------------------------------------


def test_translate_takes_the_code() -> None:
    agents, model = agents_with()
    assert agents.translate(replace(ALONE, sample=4), STRATEGY) == Kernel(SOURCE)
    assert model.requests[0].sample == 4
    assert role_of(model.requests[0]) == "translator"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(None, "no-reply"), ("I would rather not.", "unparsable"), (code_reply("int x;\n"), "no-kernel")],
)
def test_a_translation_that_fails_is_a_failure(answer: str | None, kind: str) -> None:
    failure = agents_with(code=answer)[0].translate(ALONE, STRATEGY)
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("translate", kind)


def code_with_report(*moves: tuple[str, str], notes: str = "wide loads") -> str:
    report = [{"move": move, "quote": quote} for move, quote in moves]
    return f"```json\n{json.dumps({'notes': notes, 'moves': report})}\n```\n\n```cuda\n{SOURCE}```\n"


def test_the_writer_reports_the_moves_and_nobody_else_is_asked() -> None:
    report = code_with_report(
        ("vector-load(bytes=16)  # one float4 per thread", "const float4* x"),
        ("warp-shuffle", "relu<<<1, 256>>>"),
        ("made-up-move", "this line is not there"),
        ("straight-copy  # no arithmetic", "y[threadIdx.x] = x[threadIdx.x];"),
    )
    agents, model = agents_with(code=report)
    kernel = agents.translate(ALONE, STRATEGY)
    assert isinstance(kernel, Kernel)
    aligned = agents.align(ALONE, kernel, STRATEGY, replace(TIMED, profile=None))
    assert len(model.requests) == 1
    assert aligned.cards == {"vector-load", "straight-copy"}
    assert aligned.move("vector-load") == Move.of("vector-load", "one float4 per thread", bytes=16)  # re-worded
    assert aligned.text.startswith("wide and in order Realised: wide loads [")
    for remark in (
        "left out coalesce", "left out zigzag-walk(rows=2)", "added straight-copy",
        "struck warp-shuffle: it is not visible in the source", "struck made-up-move: no line of the source was quoted",
    ):  # fmt: skip
        assert remark in aligned.text


def test_the_report_of_a_repair_counts() -> None:
    repair = {"verdict": "repaired", "reason": "a bound", "code": SOURCE, "moves": [{"move": "vector-load(bytes=16)"}]}
    agents, model = agents_with(verdict=json.dumps(repair))
    revision = agents.revise(ALONE, KERNEL, STRATEGY, FAILED)
    assert isinstance(revision, Revision)
    aligned = agents.align(ALONE, revision.kernel, STRATEGY, replace(TIMED, profile=None))
    assert aligned.move("vector-load") == Move.of("vector-load", "fewer requests", bytes=16)  # the plan's reason
    assert len(model.requests) == 1


def test_a_report_is_of_one_candidate_only() -> None:
    agents, model = agents_with(code=code_with_report(("vector-load(bytes=16)", "float4")))
    kernel = agents.translate(ALONE, STRATEGY)
    agents.align(replace(ALONE, sample=99), kernel, STRATEGY, replace(TIMED, profile=None))
    assert len(model.requests) == 2


def test_without_a_report_the_code_is_asked_about() -> None:
    claims = align_reply(
        ("vector-load(bytes=16)  # new reason", "const float4* x"),
        ("warp-shuffle", "relu<<<1, 256>>>"),
        ("zigzag-walk(rows=2)", "y[threadIdx.x] = x[threadIdx.x];"),
    )
    agents, model = agents_with(align=claims)
    kernel = agents.translate(ALONE, STRATEGY)
    aligned = agents.align(ALONE, kernel, STRATEGY, replace(TIMED, profile=None))
    assert aligned.cards == {"vector-load", "zigzag-walk"}
    assert aligned.move("vector-load") == Move.of("vector-load", "new reason", bytes=16)
    assert "Realised: what it does [" in aligned.text
    assert len(model.requests) == 2


def test_without_a_reply_align_checks_alone() -> None:
    agents, _ = agents_with(align=None)
    strategy = Strategy(
        (Move.of("vector-load", "w", bytes=16), Move.of("warp-shuffle"), Move.of("zigzag-walk")), "idea"
    )
    aligned = agents.align(ALONE, Kernel(SOURCE), strategy, replace(TIMED, profile=None))
    assert aligned.cards == {"vector-load", "zigzag-walk"}
    assert aligned.text == "idea [struck warp-shuffle: it is not visible in the source]"


def test_a_plain_kernel_stays_plain_and_costs_nothing() -> None:
    agents, model = agents_with()
    assert agents.align(ALONE, KERNEL, Strategy(), TIMED) == Strategy()
    assert model.requests == []


# --- Revisor -------------------------------------------------------------------------------------


def test_revise_repairs() -> None:
    agents, model = agents_with()
    assert agents.revise(ALONE, KERNEL, STRATEGY, FAILED) == Revision(Kernel(SOURCE), STRATEGY)
    assert "out-of-bounds write of 4 bytes" in model.requests[0].messages[1].text


def test_code_alone_is_a_repair() -> None:
    agents, _ = agents_with(verdict=f"```cuda\n{SOURCE}```")
    assert agents.revise(ALONE, KERNEL, STRATEGY, FAILED) == Revision(Kernel(SOURCE), STRATEGY)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ('{"verdict": "give-up", "reason": "the tile does not fit"}', "given-up", "the tile does not fit"),
        ('{"verdict": "Give up", "reason": "no\\nway", "code": ""}', "given-up", "no way"),
        ('{"verdict": "repaired", "reason": "", "code": ""}', "given-up", "the model gave no reason"),
        (None, "no-reply", "no answer to verdict"),
        ("hm", "unparsable", "cannot be used"),
        (json.dumps({"verdict": "repaired", "reason": "", "code": "rm -rf /"}), "no-kernel", "__global__"),
    ],
)
def test_revise_gives_up_with_a_reason(answer: str | None, kind: str, message: str) -> None:
    failure = agents_with(verdict=answer)[0].revise(ALONE, KERNEL, STRATEGY, FAILED)
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.kind) == ("revise", kind)
    assert message in failure.message


def test_a_regression_is_told_as_such() -> None:
    agents, model = agents_with()
    agents.revise(ALONE, KERNEL, STRATEGY, SLOWER.evaluation)
    assert "slower than the one it was made from: 9.00 µs" in model.requests[0].messages[1].text


# --- models and calls ----------------------------------------------------------------------------


def test_each_role_may_have_its_model_and_every_call_is_told() -> None:
    own = {role: ByPurpose(ANSWERS) for role in ROLES if role != "prophet"}
    default, told = ByPurpose(ANSWERS), []
    agents = LlmAgents(default, models=own, on_call=lambda role, request, reply: told.append((role, reply.model)))
    guidance = agents.foresee(TASK, EVALUATION, SPEC)
    assert isinstance(guidance, Guidance)
    agents.generate(Brief(TASK, SPEC))
    agents.initialize(ALONE, 2, Random(0))
    agents.cross(ALONE, Random(0))
    agents.translate(ALONE, STRATEGY)
    agents.align(ALONE, KERNEL, STRATEGY, TIMED)
    agents.revise(ALONE, KERNEL, STRATEGY, FAILED)
    assert [role for role, _ in told] == [
        "prophet", "generator", "manager", "manager", "translator", "translator", "revisor",
    ]  # fmt: skip
    assert len(default.requests) == 1
    assert {role: len(model.requests) for role, model in own.items()} == {
        "generator": 1, "manager": 2, "translator": 2, "revisor": 1,
    }  # fmt: skip


def test_a_repeated_question_is_told_too() -> None:
    told: list[str] = []
    agents = LlmAgents(Scripted(["?", code_reply()]), on_call=lambda role, request, reply: told.append(reply.text))
    assert isinstance(agents.translate(ALONE, STRATEGY), Kernel)
    assert told == ["?", code_reply()]


def test_an_unknown_role_is_an_error() -> None:
    with pytest.raises(DataError, match="there is no role 'tester'"):
        LlmAgents(Scripted([]), models={"tester": Scripted([])})


def test_replies_can_be_kept_short() -> None:
    model = ByPurpose(ANSWERS)
    agents = LlmAgents(model, reply_tokens=100)
    agents.translate(ALONE, STRATEGY)
    agents.cross(BRIEF, Random(0))
    assert [request.max_tokens for request in model.requests] == [100, 100]
    few = {
        planned.prompt: planned
        for planned in plan_calls(INFO, elite=2, revisions=1, prompt_tokens=900, reply_tokens=100)
    }
    assert {(planned.prompt_tokens, planned.reply_tokens) for planned in few.values()} == {(900, 100)}
    usual = plan_calls(INFO, elite=2, revisions=1)
    assert max(planned.reply_tokens for planned in usual) > 100


def test_prompts_can_be_kept_short() -> None:
    model = ByPurpose(ANSWERS)
    agents = LlmAgents(model, prompt_tokens=4000)
    long = replace(ALONE.parents[0], kernel=Kernel(SOURCE * 400))
    agents.translate(replace(ALONE, parents=(long,)), STRATEGY)
    assert sum(len(message.text) for message in model.requests[0].messages) / 4 <= 4020
