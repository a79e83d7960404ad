"""LLM agents from the command line: what they are shown, how long it may be, and that it is the same the next time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cupilot.tasks
from cupilot.contracts import Reply, Request
from cupilot.evolution.store import create_store, open_store
from cupilot.llm import role_of
from cupilot.records import Task
from cupilot.runs import agents
from cupilot.strategies.pool import open_pool

Cli = Callable[..., SimpleNamespace]

SOURCE = "__global__ void relu() {}\ntorch::Tensor forward(torch::Tensor x) { return x; }\n// width "
SMALL = ("--population", "2", "--generations", "1", "--model", "ollama/m", "--pool", "pool.sqlite")


class Willing:
    """Answers every role with something usable; kernels differ by sample."""

    name = "ollama/m"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Reply:
        self.requests.append(request)
        # without a schema there are tools, and code is a submission
        fields = json.loads(request.schema)["properties"] if request.schema else {"code": {}}
        answers: dict[str, Any] = {
            "aim": "wider",
            "strategies": [{"moves": ["unroll(factor=4)"], "text": "", "reason": ""}],
            "code": f"{SOURCE}{request.sample + 1}\n",
            "moves": [] if "reason" not in fields else ["unroll(factor=8)"],
        }
        text = json.dumps({name: answers.get(name, "") for name in fields})
        return Reply(text, 100, 10, self.name)

    def prompts(self, role: str) -> list[str]:
        return ["".join(m.text for m in one.messages) for one in self.requests if role_of(one) == role]


@pytest.fixture
def model(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Willing:
    """The model that is opened, whatever its name; other task files are other tasks."""
    load_task, open_recorded = cupilot.tasks.load_task, agents._open_model

    def load(path: Path, precision: str = "fp32") -> Task:
        task: Task = load_task(path, precision)
        return replace(task, source=path.read_text())

    def opened(name: str, task: str, keys: Any, replay: Path | None, stack: Any) -> Any:
        return willing if replay is None else open_recorded(name, task, keys, replay, stack)

    willing = Willing()
    monkeypatch.setattr(cupilot.tasks, "load_task", load)
    monkeypatch.setattr(agents, "_open_model", opened)
    Path("other.py").write_text("# another task\n")
    return willing


def test_a_move_without_a_card_that_paid_is_a_card_in_later_runs(cli: Cli, model: Willing) -> None:
    """The expert of these tests makes the move `vector`, which the shipped cards do not know."""
    assert cli("optimize", "relu.py", "--pool", "pool.sqlite").status == 0
    with open_pool(Path("pool.sqlite"), seed=False) as pool:
        assert [sorted(record.strategy.cards) for record in pool.records()] == [["vector"]]
    assert cli("optimize", "other.py", *SMALL, "--out", "one").status == 0
    shown = "Vector. Relieves dram. Vector. Part of strategies that gained up to 5.00x over plain kernels on relu."
    assert all(shown in prompt for prompt in model.prompts("manager"))
    assert len(model.prompts("manager")) >= 2

    before, asked = len(model.requests), len(model.prompts("manager"))
    with open_pool(Path("pool.sqlite")) as pool:
        for record in pool.records(shipped=False):
            pool.forget(record.id)
    assert cli("resume", "one").status == 0
    assert len(model.requests) == before, "a run that goes on is shown what it was shown"
    again = cli("optimize", "other.py", *SMALL, "--replay", "one", "--out", "two", "--json", "-")
    assert (again.status, len(model.requests)) == (0, before)
    assert json.loads(again.out)["best"] == json.loads(Path("one/result.json").read_text())["best"]

    assert cli("optimize", "other.py", *SMALL, "--no-pool", "--out", "three").status == 0
    assert not any("- vector(" in prompt for prompt in model.prompts("manager")[asked:])
    assert len(model.prompts("manager")) > asked


def test_the_task_at_hand_does_not_learn_from_itself(cli: Cli, model: Willing) -> None:
    assert cli("optimize", "relu.py", "--pool", "pool.sqlite").status == 0
    assert cli("optimize", "relu.py", *SMALL).status == 0
    assert model.prompts("manager")
    assert not any("- vector(" in prompt for prompt in model.prompts("manager"))


def test_a_run_that_goes_on_feeds_its_own_pool(cli: Cli) -> None:
    assert cli("optimize", "relu.py", "--pool", "mine.sqlite", "--out", "here").status == 0
    Path("mine.sqlite").unlink()
    assert cli("resume", "here").status == 0
    with open_pool(Path("mine.sqlite"), seed=False) as pool:
        assert len(pool) == 1


def test_lengths_hold_for_all_calls_and_when_a_run_goes_on(cli: Cli, model: Willing) -> None:
    short = ("--reply-tokens", "99", "--prompt-tokens", "1500")
    assert cli("optimize", "relu.py", *SMALL, "--out", "here", *short).status == 0
    before = len(model.requests)
    assert {request.max_tokens for request in model.requests} == {99}
    assert max(sum(len(m.text) for m in one.messages) for one in model.requests) <= 4 * 1520
    assert cli("resume", "here").status == 0
    assert len(model.requests) == before
    ran = cli("optimize", "relu.py", *SMALL, "--reply-tokens", "99", "--estimate", "--turns", "1")
    row = next(line for line in ran.out.splitlines() if line.startswith("translator: write"))
    assert row.split()[2:6] == ["3", "48000", "+", "297"]
    ran = cli(
        "optimize", "relu.py", *SMALL, "--reply-tokens", "99", "--estimate", "--turns", "4", "--turn-tokens", "20000"
    )
    row = next(line for line in ran.out.splitlines() if line.startswith("translator: write"))
    assert row.split()[2:6] == ["12", "240000", "+", "1188"], (
        "four turns of a quarter of the tokens and the last window"
    )


def test_no_call_is_made_beyond_the_cap(cli: Cli, model: Willing) -> None:
    ran = cli("optimize", "relu.py", *SMALL, "--max-tokens", "500", "--out", "here")
    assert ran.status == 0, ran.err
    assert "stopped: the budget is spent" in ran.out
    # each costs 110; those under way at the same time are counted when they end
    assert 5 <= len(model.requests) <= 5 + agents.LLM_IN_FLIGHT
    assert Path("here/best.cu").exists()


def test_a_run_in_use_is_left_alone(cli: Cli) -> None:
    store = create_store(Path("here"))
    ran = cli("optimize", "relu.py", "--out", "here")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    store.close()
    assert cli("optimize", "relu.py", "--out", "there").status == 0
    writer = open_store(Path("there"))
    writer.repeat()
    ran = cli("resume", "there")
    assert (ran.status, ran.err) == (2, "cupilot: another process is at work on the run in there\n")
    writer.close()
    assert cli("resume", "there").status == 0


def test_a_store_of_an_older_version_is_one_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("optimize", "relu.py", "--out", "here").status == 0
    monkeypatch.setattr("cupilot.evolution.store.SCHEMA", 3)
    ran = cli("resume", "here")
    said = "cupilot: here/run.sqlite was written by an older version of cupilot (schema 2, this one reads 3)\n"
    assert (ran.status, ran.err) == (2, said)
    monkeypatch.undo()


def test_a_replay_of_nothing_is_one_sentence(cli: Cli, model: Willing) -> None:
    ran = cli("optimize", "relu.py", *SMALL, "--replay", "nowhere", "--out", "here")
    assert (ran.status, ran.err) == (2, "cupilot: nowhere holds no run: there is no run.sqlite in it\n")
    assert not Path("here").exists()
