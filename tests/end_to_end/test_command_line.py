"""The program as a user runs it: real tasks, the real virtual GPU, the built-in expert."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SMALLER = {"matmul": ("4096", "512"), "softmax": ("ROWS = 1024", "ROWS = 64")}
"""What the ordinary test line changes in examples, whose references and copies take most of the time at full size."""

SCALE = """
#include <torch/extension.h>
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    %s
}
torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = (int)x.numel();
    scale<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""


def cupilot(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cupilot", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)


def smaller(example: str, folder: Path) -> Path:
    """The same task with fewer elements, as a file of the same name."""
    text, (old, new) = (EXAMPLES / f"{example}.py").read_text(), SMALLER[example]
    assert old in text
    path = folder / f"{example}.py"
    path.write_text(text.replace(old, new))
    return path


def optimize(task: Path, folder: Path, name: str) -> dict[str, Any]:
    done = cupilot(
        "optimize", task, "--seed", "1", "--population", "4", "--generations", "1",
        "--out", folder / name, "--json", folder / f"{name}.json", "--pool", folder / "pool.sqlite", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "modelled, A100-80GB" in done.stdout
    assert "virtual:a100-80gb: no CUDA GPU was found" in done.stdout or "driver is present" in done.stdout
    result: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return result


@pytest.mark.parametrize(
    ("example", "gain", "twice", "whole"),
    [
        ("matmul", 8.0, True, False),
        pytest.param("matmul", 8.0, False, True, marks=pytest.mark.slow),
        pytest.param("softmax", 1.5, False, True, marks=pytest.mark.slow),
    ],
)
def test_optimize_finds_a_faster_kernel_and_the_same_one_again(
    tmp_path: Path, example: str, gain: float, twice: bool, whole: bool
) -> None:
    task = EXAMPLES / f"{example}.py" if whole else smaller(example, tmp_path)
    first = optimize(task, tmp_path, "one")
    assert (first["task"], first["device"], first["agents"]) == (example, "virtual:a100-80gb", "expert")
    for key in ("first", "best"):
        assert first[key]["correct"]
        assert first[key]["failure"] is None
        assert first[key]["timing"]["source"] == first[key]["baseline"]["source"] == "modelled"
        # inputs of both signs, at small, odd and true shapes
        assert {check["inputs"] for check in first[key]["checks"]} >= {"normal", "wide"}
    assert first["first"]["timing"]["time_s"] >= gain * first["best"]["timing"]["time_s"]
    if twice:
        again = optimize(task, tmp_path, "two")
        # the first run's own record in the pool must not change the second
        assert again["best"]["kernel"] == first["best"]["kernel"]
        assert again["best"]["timing"] == first["best"]["timing"]
        assert again["evaluations"] == first["evaluations"]
    # what was found stands on its own
    done = cupilot("evaluate", tmp_path / "one" / "best.cu", "--task", task, "--json", "-",
                   "--seed", "7", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    evaluation = json.loads(done.stdout)
    assert evaluation["correct"]
    # other inputs, so branches that depend on them are taken a little differently
    assert evaluation["timing"]["time_s"] == pytest.approx(first["best"]["timing"]["time_s"], rel=0.01)
    assert set(evaluation) >= {"correct", "failure", "timing", "baseline", "speedup", "profile"}


def test_llm_agents_search_with_recorded_replies_and_again_from_their_own_record(tmp_path: Path) -> None:
    words = ("optimize", smaller("softmax", tmp_path), "--agents", "llm", "--model", f"replay/{EXAMPLES}", "--no-pool",
             "--population", "4", "--generations", "1")  # fmt: skip
    done = cupilot(*words, "--out", tmp_path / "one", "--json", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["agents"] == "llm"
    assert report["first"]["timing"]["time_s"] >= 1.5 * report["best"]["timing"]["time_s"]
    with closing(sqlite3.connect(tmp_path / "one" / "run.sqlite")) as connection:
        roles = {role for (role,) in connection.execute("SELECT role FROM llm_call")}
    assert roles >= {"generator", "prophet", "manager", "translator", "revisor"}
    again = cupilot(*words, "--replay", tmp_path / "one", "--out", tmp_path / "two", "--json", "-", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["best"]["kernel"] == report["best"]["kernel"]


@pytest.mark.parametrize(
    ("body", "stage", "kind"),
    [
        ("if (i < n) y[i] = x[i];", "verify", "wrong-result"),
        ("if (i < n) y[i] = x[i]", "build", "compile-error"),
        ("for (;;) if (n < 0) return;", "run", "time-out"),
    ],
)
def test_a_candidate_that_fails_is_one_sentence_and_status_1(tmp_path: Path, body: str, stage: str, kind: str) -> None:
    (tmp_path / "kernel.cu").write_text(SCALE % body)
    done = cupilot(
        "evaluate", "kernel.cu", "--task", EXAMPLES / "relu.py", "--timeout", "6", "--json", "-", cwd=tmp_path
    )
    assert done.returncode == 1
    evaluation = json.loads(done.stdout)
    assert not evaluation["correct"]
    assert (evaluation["failure"]["stage"], evaluation["failure"]["kind"]) == (stage, kind)
    assert evaluation["failure"]["message"]
    assert done.stderr.count(f"relu: rejected ({stage}, {kind})") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("optimize", "nothing.py"), "nothing.py"),
        (("optimize", "broken.py"), "broken.py"),
        (("optimize", "good.py", "--device", "virtual:b9000"), "b9000"),
        (("optimize", "good.py", "--device", "cuda:0"), "cuda:0"),
        (("optimize", "good.py", "--agents", "llm"), "LLM"),
        (("evaluate", "missing.cu", "--task", "good.py"), "missing.cu"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_status_2(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "broken.py").write_text("import a_module_that_does_not_exist\n")
    (tmp_path / "good.py").write_text((EXAMPLES / "relu.py").read_text())
    done = cupilot(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("cupilot: ")]) == 1
    assert not (tmp_path / "runs").exists(), "nothing was begun"
