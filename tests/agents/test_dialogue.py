"""Dialogues with tools on scripted models: how they go, how they end, and that nothing is lost on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prompt_samples import BRIEF, FAILED, KERNEL, STRATEGY

from cupilot.agents import LlmAgents
from cupilot.agents.dialogue import LEFT_OUT
from cupilot.contracts import Reply, Request, Revision, ToolCall, ToolSpec
from cupilot.errors import ModelError
from cupilot.llm import LabelledReplay, OverBudget
from cupilot.records import Failure, Kernel, ToolBudget, ToolTotals
from toy_tools import ToyTools

SOURCE = "__global__ void relu(float* x) {}\ntorch::Tensor forward(torch::Tensor x) { return x; }\n// version "
SCHEMA = json.dumps({"type": "object", "properties": {"code": {"type": "string", "description": "the file"}}})
SPECS = tuple(ToolSpec(name, f"to {name}", SCHEMA) for name in ("compile", "check", "submit", "give_up"))


def toy_tools(**options: Any) -> ToyTools:
    return ToyTools(SPECS, KERNEL, **options)


def calls(*named: tuple[str, dict[str, Any]], text: str = "", tokens: int = 10) -> Reply:
    made = tuple(ToolCall(name, json.dumps(arguments), f"id{n}") for n, (name, arguments) in enumerate(named))
    return Reply(text, tokens, 1, "m", calls=made)


def says(text: str, **more: Any) -> Reply:
    return Reply(text, 10, 1, "m", **more)


class Script:
    """Replies in order, each a `Reply` or an error; the requests are kept."""

    name = "script"

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def translate(*replies: Reply | Exception, **budget: Any) -> tuple[Kernel | Failure, ToyTools, Script]:
    tools, model = toy_tools(budget=ToolBudget(**budget)), Script(*replies)
    return LlmAgents(model).translate(replace(BRIEF, tools=tools), STRATEGY), tools, model


def version(number: int) -> dict[str, Any]:
    return {"code": f"{SOURCE}{number}\n"}


def test_a_model_tries_looks_improves_and_submits() -> None:
    kernel, tools, model = translate(
        calls(("compile", version(1))), calls(("check", {}), ("compile", version(2))), calls(("submit", {})),
    )  # fmt: skip
    assert kernel == Kernel(f"{SOURCE}2\n")
    assert [[use.tool for use in turn.uses] for turn in tools.turns] == [["compile"], ["check", "compile"], ["submit"]]
    assert ToolTotals().plus(tools.turns) == ToolTotals(
        1, 3, (("check", 1), ("compile", 2), ("submit", 1)), 33, 22, 8.0
    )
    first, second, third = model.requests
    assert [tool.name for tool in first.tools] == ["compile", "check", "submit", "give_up"]
    assert first.schema == ""
    assert second.messages[: len(first.messages)] == first.messages
    said, answer = second.messages[-2:]
    assert (said.role, said.calls[0].name, answer.role, answer.call_id) == ("assistant", "compile", "tool", "id0")
    assert "compile says fine" in answer.text
    assert "4 replies left" in answer.text
    assert [message.call_id for message in third.messages[-2:]] == ["id0", "id1"]


def test_the_first_prompt_says_how_many_replies_there_are_and_that_only_a_submission_counts() -> None:
    _, _, model = translate(calls(("submit", version(1))), turns=7)
    asked = model.requests[0].messages[-1].text
    assert "at most 7 replies" in asked
    assert "Only what you `submit` counts" in asked


@pytest.mark.parametrize(
    "reply",
    [
        f'```json\n{{"tool": "submit", "arguments": {{}}}}\n```\n```cuda\n{SOURCE}1\n```',
        json.dumps({"tool": "submit", "arguments": version(1)}),
        json.dumps({"action": "submit", **version(1)}),
        json.dumps({"notes": "as without tools", **version(1)}),
        f"Here it is:\n```cuda\n{SOURCE}1\n```",
    ],
    ids=["action and block", "action", "flat", "reply without tools", "only a block"],
)
def test_a_model_without_tool_calling_submits_in_text(reply: str) -> None:
    kernel, tools, _ = translate(says(reply))
    assert kernel == Kernel(f"{SOURCE}1\n")
    assert [use.tool for use in tools.turns[0].uses] == ["submit"]


def test_answers_to_actions_in_text_are_messages_of_the_user() -> None:
    action = f'```json\n{{"tool": "compile"}}\n```\n```cuda\n{SOURCE}1\n```'
    kernel, _, model = translate(says(action), says('{"tool": "submit"}'))
    assert kernel == Kernel(f"{SOURCE}1\n")
    said, answer = model.requests[1].messages[-2:]
    assert (said.role, said.text, said.calls) == ("assistant", action, ())
    assert answer.role == "user"
    assert "Answer of `compile`:\ncompile says fine" in answer.text


def test_a_broken_action_beside_code_is_not_a_submission() -> None:
    broken = f'```json\n{{"tool": "compile", "arguments": {{\n```\n```cuda\n{SOURCE}1\n```'
    _, tools, model = translate(says(broken), calls(("submit", version(2))))
    assert tools.called == ["submit"]
    assert "There is no action in your reply" in model.requests[1].messages[-1].text


def test_arguments_that_are_no_json_are_answered_with_the_reason() -> None:
    cut = Reply("", 10, 1, "m", cut=True, calls=(ToolCall("submit", '{"code": "__glob', "a"),))
    kernel, tools, model = translate(cut, calls(("submit", version(1))))
    assert isinstance(kernel, Kernel)
    assert tools.called == ["submit"]
    assert "the reply was cut off at" in model.requests[1].messages[-1].text


# --- ends without a submission ---------------------------------------------------------------


def why(tools: ToyTools) -> str:
    return tools.turns[-1].note


def test_when_the_turns_are_spent_the_best_kernel_is_handed_in() -> None:
    kernel, tools, model = translate(calls(("check", version(1))), calls(("compile", version(2))), turns=2)
    assert kernel == Kernel(f"{SOURCE}1\n"), "the one that was checked"
    assert why(tools) == "the turns are spent; its best kernel is handed in"
    assert "this one has to submit" in model.requests[1].messages[-1].text


def test_when_the_tokens_are_spent_there_is_one_more_reply() -> None:
    kernel, _, model = translate(
        calls(("check", version(1)), tokens=500), calls(("submit", {})), tokens=400, turns=9,
    )  # fmt: skip
    assert kernel == Kernel(f"{SOURCE}1\n")
    assert "1 replies left: this one has to submit" in model.requests[1].messages[-1].text
    kernel, tools, model = translate(
        calls(("check", version(1)), tokens=500), calls(("check", version(2))), tokens=400, turns=9,
    )  # fmt: skip
    assert len(model.requests) == 2
    assert why(tools).startswith("the turns are spent")


def test_a_model_that_repeats_one_call_is_stopped_with_a_reason() -> None:
    again = [calls(("check", {}))] * 8
    kernel, tools, model = translate(calls(("check", version(1))), *again, turns=20)
    assert kernel == Kernel(f"{SOURCE}1\n")
    assert len(model.requests) == 3
    assert "the very call before" not in model.requests[1].messages[-1].text
    assert "this very call before" in model.requests[2].messages[-1].text
    assert why(tools) == "it made the same call of check 3 times; its best kernel is handed in"


def test_a_refusal_is_asked_back_once_and_then_a_failure() -> None:
    found, tools, model = translate(says("I cannot help with that."), says("No."))
    assert isinstance(found, Failure)
    assert (found.stage, found.kind, found.message) == ("translate", "no-submission", "2 replies without an action")
    assert len(model.requests) == 2
    assert [turn.note for turn in tools.turns] == ["no action in the reply"] * 2 + ["2 replies without an action"]


def test_a_server_that_goes_away_loses_nothing() -> None:
    kernel, tools, _ = translate(calls(("check", version(1))), ModelError("m: cannot be reached"))
    assert kernel == Kernel(f"{SOURCE}1\n")
    assert "m: cannot be reached; its best kernel is handed in" in why(tools)
    found, tools, _ = translate(ModelError("m: cannot be reached"))
    assert isinstance(found, Failure)
    assert found.kind == "no-reply"
    assert len(tools.turns) == 1


def test_a_spent_budget_ends_the_run_only_when_there_is_nothing_to_hand_in() -> None:
    kernel, _, _ = translate(calls(("check", version(1))), OverBudget("5 tokens are spent"))
    assert kernel == Kernel(f"{SOURCE}1\n")
    with pytest.raises(OverBudget):
        translate(OverBudget("5 tokens are spent"))


def test_a_huge_reply_is_read_in_part_and_not_sent_again() -> None:
    huge = "word " * 50_000
    kernel, _, model = translate(says(huge), calls(("submit", version(1))))
    assert isinstance(kernel, Kernel)
    assert len(model.requests[1].messages[-2].text) < 41_000
    code = {"code": SOURCE + "x" * 250_000}
    kernel, tools, model = translate(calls(("compile", code)), calls(("submit", version(1))))
    assert kernel == Kernel(f"{SOURCE}1\n")
    assert LEFT_OUT in model.requests[1].messages[-2].calls[0].arguments
    assert tools.called == ["compile", "submit"]


def test_too_many_calls_in_one_reply_are_answered_all_the_same() -> None:
    kernel, tools, model = translate(
        calls(*[("compile", version(n)) for n in range(9)]), calls(("submit", {})), turns=3,
    )  # fmt: skip
    assert isinstance(kernel, Kernel)
    assert tools.called.count("compile") == 6
    answers = [message for message in model.requests[1].messages if message.role == "tool"]
    assert len(answers) == 9, "servers want an answer to each call"


def test_a_long_conversation_is_shortened_from_its_beginning() -> None:
    long = [calls(("check", {"code": SOURCE + f"{n}" + "x" * 30_000})) for n in range(8)]
    _, _, model = translate(*long, calls(("submit", {})), turns=12, tokens=10**9)
    last = model.requests[-1]
    arguments = [call.arguments for message in last.messages for call in message.calls]
    assert LEFT_OUT in arguments[0]
    assert LEFT_OUT not in arguments[-1]
    sent = sum(len(m.text) + sum(len(c.arguments) for c in m.calls) for m in last.messages)
    assert sent <= 4 * 60_000 + 100
    assert [m.call_id for m in last.messages if m.role == "tool"] == ["id0"] * 8, "no answer is missing"


# --- the Revisor -----------------------------------------------------------------------------


def revise(*replies: Reply) -> Revision | Failure:
    return LlmAgents(Script(*replies)).revise(replace(BRIEF, tools=toy_tools()), KERNEL, STRATEGY, FAILED)


def test_the_revisor_submits_or_gives_up_with_a_reason() -> None:
    assert revise(calls(("submit", version(1)))) == Revision(Kernel(f"{SOURCE}1\n"), STRATEGY)
    found = revise(calls(("give_up", {"reason": "it cannot work"})))
    assert isinstance(found, Failure)
    assert (found.stage, found.kind, found.message) == ("revise", "given-up", "it cannot work")
    found = revise(says(json.dumps({"verdict": "give-up", "reason": "it cannot work", "code": ""})))
    assert isinstance(found, Failure)
    assert (found.kind, found.message) == ("given-up", "it cannot work")


def test_transcripts_without_tools_are_submissions(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps({"role": "translator", "text": f"```cuda\n{SOURCE}1\n```"}) + "\n")
    kernel = LlmAgents(LabelledReplay(path)).translate(replace(BRIEF, tools=toy_tools()), STRATEGY)
    assert kernel == Kernel(f"{SOURCE}1\n")


def test_a_small_window_has_no_room_for_tools() -> None:
    tools, model = toy_tools(), Script(says(json.dumps(version(1))))
    agents = LlmAgents(model, prompt_tokens=2_000)
    assert isinstance(agents.translate(replace(BRIEF, tools=tools), STRATEGY), Kernel)
    assert model.requests[0].schema
    assert tools.turns == ()
