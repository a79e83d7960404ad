"""Going on with a run, and choosing who writes the kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import cupilot.devices
from cupilot.cli.agent_options import choose_models, role_model
from cupilot.cli.terminal import Terminal
from cupilot.errors import StoreError, UserError
from cupilot.runs.agents import transcript
from cupilot.testing.samples import SPEC

Cli = Callable[..., SimpleNamespace]


def test_a_finished_run_ends_the_same_again(cli: Cli) -> None:
    first = cli("optimize", "relu.py", "--json", "-", "--out", "here", "--max-evaluations", "3")
    again = cli("resume", "here", "--json", "-")
    assert (again.status, again.out) == (0, first.out)
    assert Path("here/task.py").exists()
    report = json.loads(again.out)
    assert report["stopped"] == "budget"


def test_times_of_another_gpu_are_not_added(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name may be another GPU on another machine."""
    assert cli("optimize", "relu.py").status == 0
    other = SimpleNamespace(name="virtual:sample", spec=replace(SPEC, name="another"))
    monkeypatch.setattr(cupilot.devices, "open_device", lambda *_: other)
    ran = cli("resume", "runs/relu-1")
    assert (ran.status, ran.err) == (2, "cupilot: runs/relu-1 was begun on sample; virtual:sample is another here\n")


def test_there_must_be_a_run(cli: Cli) -> None:
    ran = cli("resume", "nowhere")
    assert (ran.status, ran.err) == (2, "cupilot: nowhere holds no run: there is no run.sqlite in it\n")


def test_a_kernel_of_the_users_own_comes_first(cli: Cli) -> None:
    Path("mine.cu").write_text("// width 1\n")
    assert cli("optimize", "relu.py", "--kernel", "mine.cu", "--json", "out.json").status == 0
    report = json.loads(Path("out.json").read_text())
    assert report["first"]["timing"]["time_s"] == pytest.approx(5e-4)
    ran = cli("optimize", "relu.py", "--kernel", "missing.cu")
    assert ran.status == 2
    assert "missing.cu cannot be read" in ran.err


def test_a_budget_is_kept_and_shown(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--max-evaluations", "2")
    assert "stopped: the budget is spent" in ran.out
    assert "left: 0 evaluations" in ran.out


def test_searching_without_guidance_is_recorded(cli: Cli) -> None:
    cli("optimize", "relu.py", "--no-roofline", "--json", "out.json")
    assert json.loads(Path("out.json").read_text())["guided"] is False


def test_a_model_makes_the_agents_llm() -> None:
    terminal = Terminal(quiet=True)
    models = (("all", "ollama/qwen"), ("translator", "openai/gpt"))
    assert choose_models(None, "ollama/qwen", [("translator", "openai/gpt")], terminal) == models
    with pytest.raises(UserError, match="leave out --agents expert"):
        choose_models("expert", "ollama/qwen", [], terminal)


def test_roles_are_checked() -> None:
    assert role_model("revisor=a/b") == ("revisor", "a/b")
    with pytest.raises(Exception, match="not of the form"):
        role_model("painter=a/b")


def test_transcripts_are_found_by_task(tmp_path: Path) -> None:
    (tmp_path / "transcripts").mkdir()
    (tmp_path / "transcripts" / "relu.jsonl").write_text("")
    assert transcript(tmp_path, "relu") == tmp_path / "transcripts" / "relu.jsonl"
    with pytest.raises(UserError, match="no transcript for gelu"):
        transcript(tmp_path, "gelu")


def test_a_dry_run_says_what_it_may_cost_and_begins_nothing(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--estimate", "--model", "ollama/qwen", "--population", "4", "--generations", "2")
    assert ran.status == 0
    rows = {line.split("  ")[0].strip(): line for line in ran.out.splitlines()}
    written = rows["translator: write"].split()[2]
    assert written == "40", "four first strategies and two children in two generations, each in up to five turns"
    assert rows["revisor: repair"].split()[2] == "40"
    assert "at most 0.00 USD" in ran.out
    assert "nothing is spent" in cli("optimize", "relu.py", "--estimate").out
    assert not Path("runs").exists()


def test_a_pool_that_cannot_be_fed_does_not_lose_the_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupilot.strategies.pool import Pool

    def full(self: Pool, record: object) -> bool:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Pool, "add", full)
    ran = cli("optimize", "relu.py", "--out", "here", "--pool", "pool.sqlite")
    assert ran.status == 0, ran.err
    assert "best kernel" in ran.out
