from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cupilot.evaluation
import cupilot.expert
from cupilot.errors import UnmatchedTask
from cupilot.evolution.store import open_store
from cupilot.records import Evaluation, Kernel, Task

Cli = Callable[..., Any]


def test_says_what_was_chosen_and_why(cli: Cli) -> None:
    ran = cli("optimize", "relu.py")
    assert ran.status == 0
    assert "device virtual:sample: no CUDA GPU was found" in ran.out
    assert "agents expert: no LLM key is set" in ran.out
    assert ran.err == ""


def test_shows_progress_and_a_table(cli: Cli) -> None:
    lines = cli("optimize", "relu.py").out.splitlines()
    assert any(
        line.startswith("generation 0 of 4: best 333 µs modelled, 1.50x speed-up, 3 evaluated") for line in lines
    )
    rows = {line.split("  ")[0]: line for line in lines}
    assert "modelled, SAMPLE" in rows["best kernel"]
    assert rows["plain kernel"].split()[2:4] == ["1.00", "ms"]
    assert rows["best kernel"].split()[2:6] == ["200", "µs", "2.50x", "5.00x"]
    assert rows["PyTorch eager"].split()[2:6] == ["500", "µs", "1.00x", "2.00x"]
    assert "strategy: vector(width=4)" in lines
    assert "kernel: runs/relu-1/best.cu" in lines
    assert lines[-1] == "next: cupilot evaluate runs/relu-1/best.cu --task relu.py"


def test_leaves_a_run_that_can_be_read(cli: Cli) -> None:
    cli("optimize", "relu.py", "--seed", "5")
    folder = Path("runs/relu-1")
    assert (folder / "best.cu").read_text() == "// width 4\n"
    store = open_store(folder)
    assert (store.info().seed, store.info().device, store.info().agents) == (5, "virtual:sample", "expert")
    assert store.result() is not None
    store.close()


def test_json_on_stdout_is_alone_there(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--json", "-")
    report = json.loads(ran.out)
    assert (report["task"], report["device"], report["agents"], report["seed"]) == (
        "relu",
        "virtual:sample",
        "expert",
        0,
    )
    assert report["first"]["timing"]["time_s"] == pytest.approx(1e-3)
    assert report["best"]["timing"]["time_s"] == pytest.approx(2e-4)
    assert report["best"]["correct"] is True
    assert report["best"]["speedup"] == pytest.approx(2.5)
    assert report["strategy"] == "vector(width=4)"
    assert report["folder"] == "runs/relu-1"
    assert report["failures"] == 1
    assert report["evaluations"] == 5
    assert "best kernel" in ran.err


def test_json_into_a_file(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--json", "out.json", "--out", "here")
    assert json.loads(Path("out.json").read_text()) == json.loads(Path("here/result.json").read_text())
    assert "best kernel" in ran.out


def test_same_seed_same_result(cli: Cli) -> None:
    reports = []
    for _ in range(2):
        report = json.loads(cli("optimize", "relu.py", "--seed", "3", "--jobs", "3", "--json", "-").out)
        report.pop("folder")
        reports.append(report)
    assert reports[0] == reports[1]


def test_quiet(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--quiet")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_runs_never_share_a_folder(cli: Cli) -> None:
    for _ in range(3):
        assert cli("optimize", "relu.py").status == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["relu-1", "relu-2", "relu-3"]


def test_a_folder_with_a_run_is_refused(cli: Cli) -> None:
    assert cli("optimize", "relu.py", "--out", "here").status == 0
    before = Path("here/result.json").read_text()
    ran = cli("optimize", "relu.py", "--out", "here")
    assert (ran.status, ran.err) == (
        2,
        "cupilot: --out here already holds a run; choose another folder, or use `cupilot resume`\n",
    )
    assert Path("here/result.json").read_text() == before


def test_a_folder_that_is_a_file(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--out", "relu.py")
    assert (ran.status, ran.err) == (2, "cupilot: --out relu.py is not a folder\n")


def test_llm_agents_need_a_model(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--agents", "llm")
    assert (ran.status, ran.err) == (
        2,
        "cupilot: LLM agents need a model: --model PROVIDER/NAME, for instance --model deepseek/deepseek-chat\n",
    )
    assert not Path("runs").exists()


def test_a_key_alone_does_not_change_the_agents_and_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "very-secret")
    ran = cli("optimize", "relu.py")
    assert "agents expert: GEMINI_API_KEY is set, but no --model is given" in ran.out
    assert "very-secret" not in ran.out + ran.err


def test_a_task_nobody_can_write_leaves_nothing_behind(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def unmatched(self: Any, task: Task) -> Kernel:
        raise UnmatchedTask("the expert has no recipe for aten.fft")

    monkeypatch.setattr(cupilot.expert.Expert, "generate", unmatched)
    ran = cli("optimize", "relu.py")
    assert (ran.status, ran.err) == (2, "cupilot: the expert has no recipe for aten.fft\n")
    assert list(Path("runs").iterdir()) == []


def test_a_plain_kernel_that_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupilot.expert.Expert, "generate", lambda self, task: Kernel("// width 8\n"))
    ran = cli("optimize", "relu.py")
    assert ran.status == 1
    assert ran.err == (
        "cupilot: the plain kernel for relu failed (verify, wrong-result: element 7 differs by a lot); "
        "there is nothing to start from\n"
    )


def interrupting(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Ctrl-C when the loop waits for a result after ``count`` of them."""
    from cupilot.evolution import loop

    take, left = loop.Evolution.take, iter(range(count))

    def interrupted(self: Any) -> None:
        if next(left, None) is None:
            monkeypatch.setattr(loop.Evolution, "take", take)
            raise KeyboardInterrupt
        take(self)

    monkeypatch.setattr(loop.Evolution, "take", interrupted)


def test_ctrl_c_keeps_the_best(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(monkeypatch, 2)
    ran = cli("optimize", "relu.py", "--jobs", "1")
    assert ran.status == 0
    assert "stopped: interrupted by the user" in ran.out
    assert "resume: cupilot resume runs/relu-1" in ran.out
    assert Path("runs/relu-1/best.cu").read_text().startswith("// width")


def test_ctrl_c_before_there_is_anything(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupting(monkeypatch, 0)
    ran = cli("optimize", "relu.py")
    assert (ran.status, ran.err) == (130, "cupilot: interrupted\n")


def test_the_device_asked_for_is_in_the_next_command(cli: Cli) -> None:
    ran = cli("optimize", "relu.py", "--device", "virtual:sample")
    assert "device virtual:sample: as asked" in ran.out
    assert ran.out.rstrip().endswith("--task relu.py --device virtual:sample")


def test_an_internal_error_is_a_sentence(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Evaluation:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(cupilot.evaluation, "Evaluator", lambda *arguments, **more: broken)
    ran = cli("optimize", "relu.py")
    assert ran.status == 3
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("cupilot: internal error, ZeroDivisionError: division by zero; this is a bug in cupilot")
    assert json.loads(cli("optimize", "relu.py", "--json", "-").out)["error"]["kind"] == "internal"
    monkeypatch.setenv("CUPILOT_DEBUG", "1")
    assert "Traceback" in cli("optimize", "relu.py").err
