"""What a writer reports of its kernel with `submit`: it is the strategy that is kept, and nobody else is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prompt_samples import ALONE, FAILED, KERNEL, STRATEGY, TIMED

from cupilot.agents import LlmAgents
from cupilot.contracts import Brief, Device, Reply, Request, Revision, ToolCall
from cupilot.records import Evaluation, Kernel, Move, Strategy, ToolBudget
from cupilot.runs.kernel_tools import KernelTools
from cupilot.runs.tool_texts import ToolTexts
from cupilot.strategies import load_deck
from cupilot.testing.samples import TASK

SOURCE = """\
__global__ void relu(const float4* x, float4* y) { y[threadIdx.x] = x[threadIdx.x]; }
torch::Tensor forward(torch::Tensor x) { relu<<<1, 256>>>(nullptr, nullptr); return x; }
"""
SEEN = [
    {"move": "vector-load(bytes=16)  # one float4 per thread", "quote": "const float4* x"},
    {"move": "warp-shuffle", "quote": "relu<<<1, 256>>>"},
    {"move": "made-up-move", "quote": "this line is not there"},
    {"move": "straight-copy  # no arithmetic", "quote": "y[threadIdx.x] = x[threadIdx.x];"},
]
FOUND = [{"move": "straight-copy", "quote": "y[threadIdx.x] = x[threadIdx.x];"}]
NOT_PROFILED = replace(TIMED, profile=None)


class Writer:
    """Replies of a dialogue in order; a question without tools is answered with what `FOUND` says."""

    name = "writer"

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.asked: list[Request] = []
        self.told: list[str] = []

    def complete(self, request: Request) -> Reply:
        self.told.append(request.messages[-1].text)
        if request.tools:
            return self.replies.pop(0)
        self.asked.append(request)
        return Reply(json.dumps({"moves": FOUND, "text": "what it does"}), 1, 1, self.name)


def submits(**arguments: Any) -> Reply:
    return Reply("", 1, 1, "writer", calls=(ToolCall("submit", json.dumps(arguments), "a"),))


def says(text: str) -> Reply:
    return Reply(text, 1, 1, "writer")


@pytest.fixture
def brief(device: Device) -> Callable[..., Brief]:
    def made(turns: int = 5) -> Brief:
        def never(kernel: Kernel, *, only_build: bool = False, wait_s: float | None = None) -> Evaluation:
            raise AssertionError("submitting evaluates nothing")

        tools = KernelTools(never, ToolTexts(TASK, device, load_deck()), ToolBudget(turns))
        return replace(ALONE, tools=tools)

    return made


def stored(model: Writer, brief: Brief) -> Strategy:
    """The strategy of the candidate, as the evolution has it translated, evaluated and aligned."""
    agents = LlmAgents(model)
    kernel = agents.translate(brief, STRATEGY)
    assert kernel == Kernel(SOURCE)
    return agents.align(brief, kernel, STRATEGY, NOT_PROFILED)


@pytest.mark.parametrize(
    "reply",
    [
        submits(code=SOURCE, moves=SEEN, notes="wide loads"),
        submits(code=SOURCE, moves=json.dumps(SEEN), notes="wide loads"),
        says(json.dumps({"tool": "submit", "arguments": {"code": SOURCE, "moves": SEEN, "notes": "wide loads"}})),
        says(json.dumps({"tool": "submit", "moves": SEEN, "notes": "wide loads"}) + f"\n```cuda\n{SOURCE}```\n"),
        says(json.dumps({"moves": SEEN, "notes": "wide loads"}) + f"\n```cuda\n{SOURCE}```\n"),
    ],
    ids=["call", "array as text", "action", "action and block", "reply without tools"],
)
def test_a_submission_with_moves_is_the_report_and_nobody_else_is_asked(
    brief: Callable[..., Brief], reply: Reply
) -> None:
    model = Writer(reply)
    found = stored(model, brief())
    assert model.asked == []
    assert found.cards == {"vector-load", "straight-copy"}
    assert found.move("vector-load") == Move.of("vector-load", "one float4 per thread", bytes=16)
    assert found.text.startswith("wide and in order Realised: wide loads [")
    for remark in (
        "left out coalesce", "added straight-copy", "struck warp-shuffle: it is not visible in the source",
        "struck made-up-move: no line of the source was quoted",
    ):  # fmt: skip
        assert remark in found.text


@pytest.mark.parametrize("more", [{}, {"moves": None}, {"moves": []}, {"notes": "wide loads"}])
def test_without_moves_the_code_is_asked_about(brief: Callable[..., Brief], more: dict[str, Any]) -> None:
    model = Writer(submits(code=SOURCE, **more))
    found = stored(model, brief())
    assert len(model.asked) == 1
    assert set(json.loads(model.asked[0].schema)["properties"]) == {"moves", "text"}
    assert found.cards == {"straight-copy"}


def test_the_report_of_a_repair_counts(brief: Callable[..., Brief]) -> None:
    model, given = Writer(submits(code=SOURCE, moves=SEEN[:1], notes="a bound")), brief()
    agents = LlmAgents(model)
    revision = agents.revise(given, KERNEL, STRATEGY, FAILED)
    assert isinstance(revision, Revision)
    found = agents.align(given, revision.kernel, STRATEGY, NOT_PROFILED)
    assert model.asked == []
    assert found.cards == {"vector-load"}
    assert "Realised: a bound" in found.text


WRONG: tuple[tuple[Any, str], ...] = (
    ("vector-load", "`moves` has to be an array of objects, and is a text that is no JSON."),
    ("[" * 100_000, "`moves` has to be an array of objects, and is a text that is no JSON."),
    ({"move": "unroll"}, "`moves` has to be an array of objects, each with `move` and `quote`."),
    (7, "`moves` has to be an array of objects, each with `move` and `quote`."),
    (["unroll"], "Entry 1 of `moves` has to be an object with `move` and `quote`."),
    ([SEEN[0], {"quote": "x"}], "Entry 2 of `moves` needs `move`, a string."),
    ([{"move": "unroll", "quote": 3}], "Entry 1 of `moves` needs `quote`, a string."),
)


@pytest.mark.parametrize(("moves", "says"), WRONG, ids=lambda value: None)
def test_moves_that_cannot_be_read_are_answered_with_a_sentence(
    brief: Callable[..., Brief], moves: Any, says: str
) -> None:
    """The kernel is not lost: it need not be sent again, and is handed in when that was the last reply."""
    model = Writer(submits(code=SOURCE, moves=moves), submits(moves=SEEN))
    assert stored(model, brief()).cards == {"vector-load", "straight-copy"}
    assert model.told[1].startswith(f"{says} The kernel was received: call `submit` again without `code`.")
    assert model.asked == []

    model = Writer(submits(code=SOURCE, moves=moves))
    assert stored(model, brief(turns=1)).cards == {"straight-copy"}
    assert len(model.asked) == 1


def test_a_quote_may_be_missing(brief: Callable[..., Brief]) -> None:
    model = Writer(submits(code=SOURCE, moves=[{"move": "vector-load(bytes=16)"}, {"move": "x-y", "quote": None}]))
    assert stored(model, brief()).cards == {"vector-load"}, "the card says what to look for"


def test_the_prompt_asks_for_moves_with_quotes(brief: Callable[..., Brief]) -> None:
    model = Writer(submits(code=SOURCE, moves=SEEN))
    stored(model, brief())
    assert "`submit` takes `moves`" in model.told[0]
