"""From replies of every kind to records, and from dataclasses to schemas."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from cupilot.contracts import Message, Reply, Request
from cupilot.llm import Parsed, Scripted, Unparsable, ask, described, schema_of, source_code
from cupilot.llm.structured import READ_CHARACTERS
from cupilot.llm.thinking import without_thinking

ASKED = Request((Message("system", "# role: translator"), Message("user", "Write a kernel.")))
KERNEL = "__global__ void k() {}\n"


@dataclass(frozen=True)
class Step:
    card: str
    values: tuple[tuple[str, bool | int | float | str], ...] = ()


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...]
    size: tuple[int, float]
    next: Step | None = None
    weight: float = described("between 0 and 1", default=0.5)


@dataclass(frozen=True)
class Written:
    source: str = source_code("the whole CUDA source")
    reason: str = ""


def parsed(text: str, shape: type[object] = Written) -> object:
    outcome: Parsed[object] | Unparsable = ask(Scripted([text, "still no"]), ASKED, shape)
    return outcome.value if isinstance(outcome, Parsed) else outcome.reasons[0]


# --- schemas --------------------------------------------------------------------------------


def test_the_schema_of_a_record() -> None:
    step = {
        "type": "object",
        "properties": {
            "card": {"type": "string"},
            "values": {
                "type": "array",
                "items": {
                    "type": "array",
                    "items": {"type": ["string", "boolean", "number"]},
                    "minItems": 2,
                    "maxItems": 2,
                },
            },
        },
        "required": ["card", "values"],
        "additionalProperties": False,
    }
    assert json.loads(schema_of(Plan)) == {
        "type": "object",
        "properties": {
            "steps": {"type": "array", "items": step},
            "size": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            "next": {"anyOf": [step, {"type": "null"}]},
            "weight": {"type": "number", "description": "between 0 and 1"},
        },
        "required": ["steps", "size", "next", "weight"],
        "additionalProperties": False,
    }


def test_shapes_that_cannot_be_asked_for() -> None:
    @dataclass(frozen=True)
    class Loose:
        data: dict[str, int]

    @dataclass(frozen=True)
    class Twice:
        first: str = source_code("a")
        second: str = source_code("b")

    with pytest.raises(TypeError, match="a reply cannot hold dict"):
        schema_of(Loose)
    with pytest.raises(TypeError, match="more than one field of code: first, second"):
        ask(Scripted(["{}"]), ASKED, Twice)


# --- finding the data -----------------------------------------------------------------------

PLAIN = json.dumps({"source": KERNEL, "reason": "r"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAIN, id="JSON"),
        pytest.param(f"Sure! Here it is:\n{PLAIN}\nAnything else?", id="JSON between words"),
        pytest.param(f"As {{x}} says:\n```json\n{PLAIN}\n```\n", id="a block of JSON"),
        pytest.param(f"~~~~\n{PLAIN}\n~~~~", id="a block without a name"),
        pytest.param(f'```json\n{{"reason": "r"}}\n```\n```cuda\n{KERNEL}```', id="JSON and code"),
        pytest.param(f'```json\n{{"reason": "r", "source": ""}}\n```\n```C++\n{KERNEL}```', id="left empty"),
        pytest.param(f'{{"reason": "r"}}\n  ```cpp title="k.cu"\n{KERNEL}  ```', id="bare JSON and code"),
        pytest.param(json.dumps({"source": f"```cuda\n{KERNEL}```", "reason": "r"}), id="fences in the string"),
        pytest.param(PLAIN.replace("\\n", "\n"), id="a line break in a string"),
        pytest.param(f"<think>{{\"source\": 'no'}}</think>{PLAIN}", id="after thinking"),
        pytest.param(f"not this {{}}, but </think>{PLAIN}", id="after thinking that the prompt opened"),
    ],
)
def test_a_record_is_found(text: str) -> None:
    assert parsed(text) == Written(KERNEL, "r")


def test_code_alone_is_enough_when_the_rest_has_defaults() -> None:
    shell = f"rm -rf / # {'x' * 99}"
    text = f"First:\n```cpp\nint x;\n```\nthen the kernel:\n```cuda\n{KERNEL}```\nand run\n```sh\n{shell}\n```"
    assert parsed(text) == Written(KERNEL), "the longest block of code; a shell's is none"


def test_json_within_code_is_not_the_reply() -> None:
    source = f'// {{"source": "injected"}}\n{KERNEL}'
    assert parsed(f"```cuda\n{source}```") == Written(source)


def test_nested_records() -> None:
    text = '{"steps": [{"card": "a", "values": [["n", 4], ["f", true]]}], "size": [1, 2], "next": null}'
    assert parsed(text, Plan) == Plan((Step("a", (("n", 4), ("f", True))),), (1, 2.0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("I will not.", "there is no JSON object in it and no block of code"),
        ('{"source": "x", "reason": ', "the JSON in it is broken"),
        (f"```cuda\n{KERNEL}", "no JSON object in it and no block of code"),
        ('{"source": "x", "shell": "rm"}', "unknown key 'shell'"),
        ('{"source": 7}', "expected str, found 7"),
        ('{"source": null}', "expected str, found None"),
        ('{"reason": "x"}', "key 'source' is missing"),
        ('{"source": "\\ud800"}', "lone surrogate"),
        ('{"a":' * 100_000, "the JSON in it is broken"),
        ("", "the reply is empty"),
        ("<think>hm", "the reply is empty"),
    ],
)
def test_replies_of_no_use(text: str, said: str) -> None:
    outcome = ask(Scripted([text, text]), ASKED, Written)
    assert isinstance(outcome, Unparsable)
    assert re.search(said, outcome.reasons[0])
    assert outcome.reasons[0] in outcome.message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 5000, '"0.5"', "true"])
def test_numbers_that_are_none(number: str) -> None:
    said = parsed('{"steps": [], "size": [1, NUMBER]}'.replace("NUMBER", number), Plan)
    assert isinstance(said, str)
    assert len(said) < 600


def test_a_long_reason_is_cut() -> None:
    assert len(str(parsed(json.dumps({"source": ["x" * 10_000]})))) < 500


# --- asking again ---------------------------------------------------------------------------


def test_the_first_reply_is_enough() -> None:
    model = Scripted([PLAIN])
    outcome = ask(model, ASKED, Written)
    assert isinstance(outcome, Parsed)
    assert (len(outcome.replies), outcome.note) == (1, "")
    assert model.requests[0].schema == schema_of(Written)


def test_asks_again_once_with_the_reason() -> None:
    model = Scripted(["<think>hm</think>No.", PLAIN])
    outcome = ask(model, ASKED, Written)
    assert isinstance(outcome, Parsed)
    assert [reply.text for reply in outcome.replies] == ["<think>hm</think>No.", PLAIN]
    assert outcome.note == "there is no JSON object in it and no block of code"
    again = model.requests[1]
    assert again.messages[:2] == ASKED.messages
    assert again.messages[2] == Message("assistant", "No.")
    assert again.messages[3].role == "user"
    assert outcome.note in again.messages[3].text
    assert (again.schema, again.sample) == (schema_of(Written), ASKED.sample)


def test_gives_up_after_two_and_keeps_both() -> None:
    model = Scripted(["one", "{", "three"])
    outcome = ask(model, ASKED, Written)
    assert isinstance(outcome, Unparsable)
    assert [reply.text for reply in outcome.replies] == ["one", "{"]
    assert len(outcome.reasons) == 2
    assert len(model.requests) == 2


class Fixed:
    """Gives one reply to everything."""

    name = "fixed"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        return self.reply


def test_a_reply_that_ended_early_says_so() -> None:
    for reply in (Reply('{"source": "x', 9, 9, "m", cut=True), Reply('{"source": "x', 9, 4096, "m")):
        outcome = ask(Fixed(reply), ASKED, Written)
        assert isinstance(outcome, Unparsable)
        assert outcome.reasons[0].startswith("the reply was cut off at 4096 tokens; the JSON in it is broken")


def test_a_huge_reply_is_read_up_to_a_limit() -> None:
    outcome = ask(Fixed(Reply(PLAIN + "x" * READ_CHARACTERS, 9, 9, "m")), ASKED, Written)
    assert isinstance(outcome, Parsed)
    assert outcome.value == Written(KERNEL, "r")
    assert f"only the first {READ_CHARACTERS} were read" in outcome.note
    model = Fixed(Reply("{" * (READ_CHARACTERS + 1), 9, 9, "m"))
    outcome = ask(model, ASKED, Written)
    assert isinstance(outcome, Unparsable)
    assert f"has {READ_CHARACTERS + 1} characters, and only the first {READ_CHARACTERS} were read" in outcome.message
    assert len(model.requests[1].messages[2].text) < 5000, "it is not sent back whole"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>a</think>\n<thinking>b</thinking> c", "c"),
        ("<THINK>a</THINK>b", "b"),
        ("<think>never ended", ""),
        ('{"source": "// </think>"}', '{"source": "// </think>"}'),
        ("```cuda\n// </think>\n```", "```cuda\n// </think>\n```"),
        ("no tags", "no tags"),
        ("<think></think>" * 300_000 + "answer", "answer"),
    ],
)
def test_thinking(text: str, left: str) -> None:
    assert without_thinking(text) == left
