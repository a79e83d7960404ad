"""A whole run whose model uses tools: what is counted, shown, recorded and replayed, and what a dying server costs."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_cli_llm import SMALL, SOURCE, Willing

from cupilot.contracts import Reply, Request, ToolCall
from cupilot.errors import ModelError
from cupilot.evolution.store import open_store
from cupilot.llm import open_agent, role_of
from cupilot.runs import agents
from cupilot.sandbox.confine import landlock_version

Cli = Callable[..., SimpleNamespace]


class Trying(Willing):
    """Checks a first version, submits a wider one; ``lives`` is how many requests it answers."""

    lives = 10**9
    moves: tuple[dict[str, str], ...] = ()

    def complete(self, request: Request) -> Reply:
        if len(self.requests) >= self.lives:
            raise ModelError("ollama/m: the server at here cannot be reached")
        if not request.tools:
            return super().complete(request)
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        # the numbers of one sample are its own: 10, 11, then 20, 21
        number = 10 * (request.sample + 1) + min(turn, 1)
        call = ("check", "submit")[min(turn, 1)]
        given: dict[str, Any] = {"code": f"{SOURCE}{number}\n"}
        if call == "submit" and self.moves:
            given["moves"] = self.moves
        calls = (ToolCall(call, json.dumps(given), f"c{turn}"),)
        return Reply("", 1000, 100, self.name, calls=calls)


@pytest.fixture
def model(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Trying:
    trying, open_recorded = Trying(), agents._open_model

    def opened(name: str, task: str, keys: Any, replay: Path | None, stack: Any) -> Any:
        return trying if replay is None else open_recorded(name, task, keys, replay, stack)

    monkeypatch.setattr(agents, "_open_model", opened)
    return trying


def evaluated(folder: str) -> list[tuple[str, list[str]]]:
    store = open_store(Path(folder))
    found = [
        (one.kernel.source.split()[-1], [use.tool for turn in one.turns for use in turn.uses])
        for one in store.individuals()
    ]
    store.close()
    return found


def test_only_submissions_are_individuals_and_tools_are_counted_and_shown(cli: Cli, model: Trying) -> None:
    ran = cli("optimize", "relu.py", *SMALL, "--out", "here")
    assert ran.status == 0, ran.err
    found = evaluated("here")
    made = [(number, tools) for number, tools in found if tools]
    assert made
    assert all(tools == ["check", "submit"] and number.endswith("1") for number, tools in made)
    line = next(line for line in ran.out.splitlines() if line.startswith("tools: "))
    count = len(made)
    assert line == (
        f"tools: {2 * count} turns in {count} dialogues (check {count}, submit {count}); they added {1100 * count} of "
        f"{2200 * count} tokens, and 0 s on the device"
    )
    report = json.loads(Path("here/result.json").read_text())
    assert report["tools"]["dialogues"] == count
    assert report["evaluations"] == len(found)


def questions_about_code(model: Trying) -> int:
    """Requests with the prompt `translator_align`."""
    schemas = [one.schema for one in model.requests if role_of(one) == "translator" and one.schema]
    return sum(set(json.loads(schema)["properties"]) == {"moves", "text"} for schema in schemas)


def strategies(folder: str) -> list[list[str]]:
    """The cards of each candidate that was written in a dialogue."""
    store = open_store(Path(folder))
    found = [sorted(one.strategy.cards) for one in store.individuals() if one.turns]
    store.close()
    return found


def test_moves_that_come_with_a_submission_are_stored_and_not_asked_for(cli: Cli, model: Trying) -> None:
    model.moves = (
        {"move": "straight-copy", "quote": "torch::Tensor forward(torch::Tensor x) { return x; }"},
        {"move": "split-loop", "quote": "a line that is not there"},
    )
    assert cli("optimize", "relu.py", *SMALL, "--out", "told").status == 0
    told = strategies("told")
    assert told
    assert all(cards == ["straight-copy"] for cards in told)
    assert questions_about_code(model) == 0

    model.moves = ()
    assert cli("optimize", "relu.py", *SMALL, "--out", "asked").status == 0
    assert questions_about_code(model) == len(strategies("asked")) > 0


def test_a_replay_and_a_resumed_run_ask_and_evaluate_nothing_again(
    cli: Cli, model: Trying, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("optimize", "relu.py", *SMALL, "--out", "one").status == 0
    before = len(model.requests)
    with sqlite3.connect("one/run.sqlite") as database:
        ((answers,),) = database.execute("SELECT count(*) FROM tool_call")
    assert answers >= 2
    ran = cli("optimize", "relu.py", *SMALL, "--replay", "one", "--out", "two", "--json", "-")
    assert (ran.status, len(model.requests)) == (0, before), ran.err
    assert evaluated("two") == evaluated("one")
    assert json.loads(ran.out)["tools"] == json.loads(Path("one/result.json").read_text())["tools"]
    with sqlite3.connect("one/run.sqlite") as database:
        database.execute("DELETE FROM run WHERE name = 'result'")
    assert cli("resume", "one").status == 0
    assert len(model.requests) == before


@pytest.mark.parametrize("lives", [1, 5, 6, 8])
def test_a_server_that_is_killed_in_the_middle_ends_no_run(cli: Cli, model: Trying, lives: int) -> None:
    model.lives = lives
    ran = cli("optimize", "relu.py", *SMALL, "--in-flight", "1", "--out", "here")
    assert ran.status == 0, ran.err
    assert Path("here/best.cu").exists()
    model.lives = 10**9
    with sqlite3.connect("here/run.sqlite") as database:
        ((recorded,),) = database.execute("SELECT count(*) FROM llm_call")
    assert recorded == lives


def test_one_turn_is_the_old_way(cli: Cli, model: Trying) -> None:
    ran = cli("optimize", "relu.py", *SMALL, "--turns", "1", "--out", "here")
    assert ran.status == 0, ran.err
    assert not any(request.tools for request in model.requests)
    assert all(request.schema for request in model.requests)
    assert not any(tools for _, tools in evaluated("here"))
    assert "tools: " not in ran.out


STAND_IN = Path(__file__).parents[1] / "mcp_server" / "stand_in_agent.py"


@pytest.mark.skipif(not landlock_version(), reason="the kernel does not offer Landlock")
def test_a_coding_agent_writes_the_kernels_of_a_run(cli: Cli, model: Trying, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in speaks MCP with our server, whose tools are this run's."""
    pytest.importorskip("mcp", reason="needs cupilot[mcp]")
    Path("agent.toml").write_text(
        f'title = "Stand-in"\ndocumented = "tests"\nnetwork = false\nreadable = ["{STAND_IN.parent}"]\n'
        'reply = "result"\n'
        f'command = ["{sys.executable}", "{STAND_IN}", "check 3,check 4,submit"]\n'
        '[[files]]\npath = "$folder/mcp.json"\nwhen = "tools"\n'
        'text = \'{"mcpServers": {"cupilot": {"command": "$program", "args": $arguments}}}\'\n'
    )
    opened = agents._open_model

    def by_name(name: str, *rest: Any) -> Any:
        return open_agent(name, keys={}) if name.startswith("agent/") else opened(name, *rest)

    monkeypatch.setattr(agents, "_open_model", by_name)
    chosen = ("--role-model", "translator=agent/agent.toml", "--population", "1", "--in-flight", "1")
    ran = cli("optimize", "relu.py", *SMALL, *chosen, "--out", "here")
    assert ran.status == 0, ran.err
    assert ("4", ["check", "check", "submit"]) in evaluated("here")
    line = next(line for line in ran.out.splitlines() if line.startswith("tools: "))
    dialogues = int(re.findall(r"in (\d+) dialogues", line)[0])
    assert f"(check {2 * dialogues}, submit {dialogues})" in line
    assert Path("here/best.cu").read_text().endswith("// version 4\n")
