"""Coding agents as models, played by a stand-in that speaks MCP with our server, confined as a real one is."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stand_in_agent import KERNEL

from cupilot.agents.alignment import Report
from cupilot.agents.dialogue import Dialogue
from cupilot.agents.replies import ObservedMove
from cupilot.contracts import Device, Message, Reply, Request, works_alone
from cupilot.errors import ModelError, UserError
from cupilot.llm import CappedModel, Recorder, Replay, SqliteCallLog, Usage, coding_agents, open_agent
from cupilot.llm.tool_socket import ToolClient, ToolSocket
from cupilot.records import Evaluation, Failure, Kernel, ToolBudget
from cupilot.records.request import ONLY_BUILT
from cupilot.runs.kernel_tools import NAMES, SPECS, KernelTools
from cupilot.runs.tool_texts import ToolTexts
from cupilot.sandbox.confine import landlock_version
from cupilot.strategies import load_deck
from cupilot.testing.samples import TASK
from toy_tools import ToyTools

AGENT = Path(__file__).with_name("stand_in_agent.py")
REQUEST = Request((Message("system", "# role: translator\nYou write kernels."), Message("user", "Task: relu")))
TABLE = """
title = "Stand-in"
documented = "tests"
command = ["{python}", "{agent}", "{does}", "{user}"]
keys = ["STAND_IN_KEY"]
login = [".stand-in/login"]
readable = ["{folder}"]
environment = [["PORT", "{port}"]]
network = {network}
reply = "result"
input_tokens = "usage.input_tokens"
output_tokens = "usage.output_tokens"
[[files]]
path = "$folder/mcp.json"
when = "tools"
text = '{{"mcpServers": {{"cupilot": {{"command": "$program", "args": $arguments}}}}}}'
"""

pytestmark = pytest.mark.skipif(not landlock_version(), reason="the kernel does not offer Landlock")


def toy_tools(**options: Any) -> ToyTools:
    return ToyTools(SPECS, **options)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's home, with a login and something private."""
    home = tmp_path / "user"
    (home / ".stand-in").mkdir(parents=True)
    (home / ".stand-in" / "login").write_text("token")
    (home / "private").write_text("private")
    return home


@pytest.fixture
def agent(tmp_path: Path, home: Path) -> Callable[..., Any]:
    def opened(does: str, *, network: bool = False, timeout_s: float = 60.0, port: int = 9) -> Any:
        path = tmp_path / "agent.toml"
        path.write_text(
            TABLE.format(
                python=sys.executable, agent=AGENT, does=does, user=home, folder=AGENT.parent, port=port,
                network=str(network).lower(),
            )
        )  # fmt: skip
        keys = {"STAND_IN_KEY": "sk-secret", "OTHER_KEY": "sk-other"}
        return open_agent(f"agent/{path}", keys=keys, home=home, timeout_s=timeout_s)

    return opened


def played(model: Any, **budget: Any) -> tuple[Kernel | Failure, ToyTools]:
    tools = toy_tools(budget=ToolBudget(**budget))
    return Dialogue(model, REQUEST, tools, "translator", "translate").run(), tools


def test_an_agent_lists_checks_and_submits_over_mcp(agent: Callable[..., Any]) -> None:
    model = agent("compile 1,check,check 2,submit")
    kernel, tools = played(model)
    assert kernel == Kernel(f"{KERNEL}2\n")
    assert tools.called[:4] == ["compile", "check", "check", "submit"]
    assert [use.tool for turn in tools.turns for use in turn.uses] == ["compile", "check", "check", "submit"]
    assert sum(turn.input_tokens + turn.output_tokens for turn in tools.turns) == 750
    assert works_alone(model)


def test_an_agent_gives_up_with_a_reason(agent: Callable[..., Any]) -> None:
    found, _ = played(agent("give_up"))
    assert isinstance(found, Failure)
    assert (found.kind, found.message) == ("given-up", "it cannot work")


def test_what_an_agent_reports_is_passed_on_and_replayed(
    agent: Callable[..., Any], device: Device, tmp_path: Path
) -> None:
    """With the tools of a run; moves that cannot be read are refused first."""
    log, model = SqliteCallLog(tmp_path / "run.sqlite"), agent("compile 1,report")
    reports = []
    for asked in (Recorder(model, log), Replay(log, model.name)):
        dialogue = Dialogue(asked, REQUEST, real_tools(device), "translator", "translate")
        assert dialogue.run() == Kernel(f"{KERNEL}1\n")
        assert [use.tool for turn in dialogue.tools.turns for use in turn.uses] == ["compile", "submit", "submit"]
        refused, taken = (turn.uses[0].outcome for turn in dialogue.tools.turns[1:3])
        assert refused.startswith("not called: Entry 1 of `moves` has to be an object")
        assert taken.endswith("; it returns x")
        reports.append(dialogue.report)
    assert reports == [Report((ObservedMove("straight-copy", "{ return x; }"),), "it returns x")] * 2


def real_tools(device: Device) -> KernelTools:
    def evaluate(kernel: Kernel, *, only_build: bool = False, wait_s: float | None = None) -> Evaluation:
        return Evaluation(kernel.digest, "relu", "sample", failure=Failure("build", ONLY_BUILT, "it compiles"))

    return KernelTools(evaluate, ToolTexts(TASK, device, load_deck()), ToolBudget())


def test_the_best_kernel_is_handed_in_when_an_agent_ends_without_a_submission(agent: Callable[..., Any]) -> None:
    for does, why in (("check 1", "ended without a submission"), ("check 1,die", "ended with status 3")):
        kernel, tools = played(agent(does))
        assert kernel == Kernel(f"{KERNEL}1\n")
        assert f"{why}; its best kernel is handed in" in tools.turns[-1].note


def test_an_agent_that_does_nothing_is_a_failure(agent: Callable[..., Any]) -> None:
    found, tools = played(agent(""))
    assert isinstance(found, Failure)
    assert (found.kind, found.message) == ("no-submission", "the agent ended without a submission")
    assert tools.called == []


def test_an_agent_that_fails_or_hangs_is_a_failure_without_its_key(agent: Callable[..., Any]) -> None:
    found, _ = played(agent("talk,fail"))
    assert isinstance(found, Failure)
    assert "ended with status 1: the account [key] is out of credit" in found.message
    found, _ = played(agent("hang", timeout_s=3.0))
    assert isinstance(found, Failure)
    assert "did not end within 3 s" in found.message


def test_an_agent_that_loops_has_a_limited_number_of_calls(agent: Callable[..., Any]) -> None:
    kernel, tools = played(agent("check 1,loop,submit"), turns=2)
    assert isinstance(kernel, Kernel)
    assert tools.called.count("check") == 12
    assert tools.called.count("submit") >= 1


def test_a_question_without_tools_is_answered_in_text(agent: Callable[..., Any]) -> None:
    reply = agent("talk").complete(REQUEST)
    assert reply == Reply("key sk-secret", 700, 50, reply.model)
    with pytest.raises(ModelError, match=r"status 1: the account \[key\]"):
        agent("talk,fail").complete(REQUEST)


def test_an_agent_sees_and_changes_nothing_of_its_users(agent: Callable[..., Any], home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        closed = agent("talk,pry", port=port).complete(REQUEST).text
        opened = agent("talk,pry", port=port, network=True).complete(REQUEST).text
    common = (
        "write outside: PermissionError", "read the user's file: PermissionError", "read its login: allowed",
        "change its login: PermissionError", "write its folder: allowed", "write its home: allowed",
    )  # fmt: skip
    for said in (closed, opened):
        assert [line for line in common if line not in said] == []
    assert "use the network: allowed" in opened
    assert "use the network: allowed" not in closed
    assert "sk-other" not in closed
    assert (home / ".stand-in" / "login").read_text() == "token"
    assert sorted(path.name for path in home.iterdir()) == [".stand-in", "private"]


def test_a_recorded_agent_is_replayed_without_running(agent: Callable[..., Any], tmp_path: Path) -> None:
    log, usage = SqliteCallLog(tmp_path / "run.sqlite"), Usage()
    model = agent("check 1,submit")
    kernel, tools = played(Recorder(CappedModel(model, usage, None, None), log, usage))
    assert usage.spent.tokens == 750
    again, replayed = played(Replay(log, model.name))
    assert again == kernel
    assert replayed.turns == tools.turns
    assert replayed.called == ["submit"], "only the submission is made again"


# --- the table -------------------------------------------------------------------------------


def test_every_agent_of_the_table_says_where_it_is_documented_and_how_it_gets_our_server() -> None:
    assert set(coding_agents()) == {"claude-code", "codex", "gemini-cli", "opencode"}
    for agent in coding_agents().values():
        assert agent.documented.startswith("https://")
        assert agent.checked
        assert any("$arguments" in file.text or "$whole" in file.text for file in agent.files)
        assert ("$prompt" in agent.command) != agent.prompt_last


@pytest.mark.parametrize(
    ("name", "why"),
    [("agent/nobody", "unknown agent 'nobody'"), ("agent/nothing.toml", "nothing.toml"), ("agent/bad.toml", "no TOML")],
)
def test_an_agent_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("title = ")
    with pytest.raises(Exception, match=why) as caught:
        open_agent(name, keys={})
    assert "\n" not in str(caught.value)


def test_a_program_that_is_not_installed_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('title = "A"\ndocumented = "x"\ncommand = ["no-such-agent"]\n')
    with pytest.raises(UserError, match="the program 'no-such-agent' is not installed"):
        open_agent(f"agent/{path}", keys={})


# --- the socket ------------------------------------------------------------------------------


def test_the_socket_survives_nonsense_and_an_end_in_the_middle(tmp_path: Path) -> None:
    tools = toy_tools()
    with ToolSocket(tools, tmp_path / "s", "translator", 5) as server:
        raw = socket.socket(socket.AF_UNIX)
        raw.connect(str(tmp_path / "s"))
        stream = raw.makefile("rwb")
        for line in (b"nonsense", b"[1]", b"{}", b'{"call": "check", "arguments": [1]}', b"[" * 100_000):
            stream.write(line + b"\n")
            stream.flush()
            assert "text" in json.loads(stream.readline())
        raw.close()
        client = ToolClient(tmp_path / "s")
        assert tuple(spec.name for spec in client.list()) == NAMES
        assert client.call("compile", {"code": "x"}) == "compile says fine"
        assert "The work is done" in client.call("submit", {})
        assert "The work is done" in client.call("check", {})
        assert server.ended is not None
    with pytest.raises(Exception, match="has ended"):
        client.call("check", {})
    client.close()
    with pytest.raises(Exception, match="no tools at"):
        ToolClient(tmp_path / "nowhere")
