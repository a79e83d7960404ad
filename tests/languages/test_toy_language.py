"""A language in a folder of its own, through the command line: nothing of the product was changed for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOY = Path(__file__).parent / "toy"
TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return 3 * x + 1


def get_inputs():
    return [torch.rand(4096, 512)]


def get_init_inputs():
    return []
"""
KERNEL = "scale 3\nshift 1\n"


@pytest.fixture
def cupilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PYTHONPATH", str(TOY))
    (tmp_path / "affine.py").write_text(TASK)
    (tmp_path / "kernel.toy").write_text(KERNEL)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "cupilot", *words)
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)

    return run


def test_a_kernel_is_evaluated(cupilot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = cupilot("evaluate", "kernel.toy", "--task", "affine.py", "--json", "result.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "affine: correct" in done.stdout
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["repeat"]["kernel"]["language"] == "toy"
    (tmp_path / "kernel.toy").write_text("scale 3\nshift 2\n")
    wrong = cupilot("evaluate", "kernel.toy", "--task", "affine.py")
    assert (wrong.returncode, "wrong-result" in wrong.stdout) == (1, True)


def test_a_search_starts_from_it_and_keeps_its_language(cupilot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    few = ("--max-evaluations", "1", "--no-pool", "--out", "run")
    done = cupilot("optimize", "affine.py", "--kernel", "kernel.toy", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kernel: run/best.toy" in done.stdout
    assert (tmp_path / "run" / "best.toy").read_text() == KERNEL
    assert not (tmp_path / "run" / "best.cu").exists()
    again = cupilot("verify", "run/result.json")
    assert again.returncode == 0, again.stdout + again.stderr
    written = cupilot("export", "run", "--to", "torch-extension", "--out", "extension")
    assert written.returncode == 0, written.stderr
    assert "* float(3)" in (tmp_path / "extension" / "kernel.cu").read_text()


def test_the_best_file_follows_the_best_kernel(cupilot, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    few = ("--population", "2", "--generations", "1", "--max-evaluations", "3", "--no-pool", "--out", "run")
    done = cupilot("optimize", "affine.py", "--kernel", "kernel.toy", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    (best,) = (tmp_path / "run").glob("best.*")
    assert best.suffix == ".cu", "the expert writes CUDA, and beats the toy kernel"
    assert "__global__" in best.read_text()
