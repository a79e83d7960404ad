"""The command line with everything below it replaced: no compiler, no torch, no GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

import cupilot.devices
import cupilot.evaluation
import cupilot.expert
import cupilot.tasks
from cupilot.cli.environment import KEYS
from cupilot.errors import DeviceError, TaskError
from cupilot.records import (
    Evaluation,
    EvaluationRequest,
    Failure,
    Guidance,
    Kernel,
    Move,
    Strategy,
    Task,
    TaskSource,
    Timing,
)
from cupilot.testing.samples import EVALUATION, SPEC, TASK

DEVICE = "virtual:sample"
WIDTHS = (1, 2, 4, 8)


class FakeExpert:
    """One card with one parameter; the kernel's text names it."""

    name = "expert"

    def generate(self, brief: Any) -> Kernel:
        return Kernel("// width 0\n")

    def foresee(self, task: Task, evaluation: Evaluation, spec: Any, kernel: Kernel | None = None) -> Guidance:
        return Guidance("memory-bound", "dram", 2.0, "fewer bytes")

    def initialize(self, brief: Any, count: int, rng: Random) -> tuple[Strategy, ...]:
        return tuple(Strategy((Move.of("vector", width=width),)) for width in WIDTHS[:2])

    def cross(self, brief: Any, rng: Random) -> Strategy:
        return Strategy((Move.of("vector", width=rng.choice(WIDTHS)),))

    def translate(self, brief: Any, strategy: Strategy) -> Kernel | Failure:
        return Kernel(f"// width {strategy.moves[0].get('width')}\n")

    def align(self, brief: Any, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Strategy:
        return strategy

    def read(self, brief: Any, kernel: Kernel, evaluation: Evaluation) -> Strategy:
        return Strategy()

    def revise(self, brief: Any, kernel: Kernel, strategy: Strategy, evaluation: Evaluation) -> Failure:
        return Failure("revise", "given-up", "nothing to repair")


class FakeEvaluator:
    """Wider is faster, 8 is wrong."""

    def __init__(self, open_device: Any, *, slots: int = 1, watch: Any = None, tasks: Any = ()) -> None:
        self.open_device = open_device

    def __call__(self, request: EvaluationRequest) -> Evaluation:
        task, kernel, self.device = request.task, request.kernel, self.open_device(request.device)
        width = int(kernel.source.split()[-1])
        assert EVALUATION.proof is not None
        proof = replace(EVALUATION.proof, task=sha256(task.source.encode()).hexdigest())
        verdict = replace(EVALUATION, kernel=kernel.digest, task=task.name, device=self.device.name, proof=proof)
        if width == 8:
            failure = Failure("verify", "wrong-result", "element 7 differs\nby a lot", "a long log")
            return replace(verdict, failure=failure, timing=None, profile=None)
        return replace(
            verdict,
            timing=Timing(1e-3 / (1 + width), "modelled", self.device.name, "dram"),
            baseline=Timing(5e-4, "modelled", self.device.name, "dram"),
        )


def _load_task(path: Path, precision: str = "fp32", change: object = None) -> Task:
    if not path.exists():
        raise TaskError(f"the task file {path} does not exist")
    return replace(TASK, name=path.stem, precision=precision)


def _load_source(task: TaskSource) -> Task:
    return replace(TASK, name=task.name, source=task.source, precision=task.precision)


def _open_device(name: str, cache: Path, sandbox: str = "auto") -> Any:
    if name != DEVICE:
        raise DeviceError(f"unknown device {name!r}; known devices are {DEVICE}")
    return SimpleNamespace(name=name, spec=SPEC)


def replace_layers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Replace the layers below, and go to a folder with a task file."""
    monkeypatch.setattr(cupilot.tasks, "load_task", _load_task)
    monkeypatch.setattr(cupilot.tasks, "begin_task", lambda *about: TaskSource.of(_load_task(*about)))
    monkeypatch.setattr(cupilot.tasks, "load_source", _load_source)
    monkeypatch.setattr(cupilot.devices, "open_device", _open_device)
    monkeypatch.setattr(cupilot.devices, "default_device", lambda: (DEVICE, "no CUDA GPU was found"))
    monkeypatch.setattr(cupilot.devices, "device_names", lambda: (DEVICE, "virtual:other"))
    monkeypatch.setattr(cupilot.evaluation, "Evaluator", FakeEvaluator)
    monkeypatch.setattr(cupilot.expert, "Expert", FakeExpert)
    for key in (*KEYS, "CUPILOT_DEBUG", "CUPILOT_SANDBOX"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("CUPILOT_CACHE", str(folder / "cache"))
    monkeypatch.chdir(folder)
    Path("relu.py").write_text("# a task\n")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    replace_layers(monkeypatch, tmp_path)


@pytest.fixture
def cli(fakes: None, capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run a command; gives its status and what it wrote."""
    from cupilot.cli import main

    def run(*arguments: str) -> SimpleNamespace:
        status = main(arguments)
        written = capsys.readouterr()
        return SimpleNamespace(status=status, out=written.out, err=written.err)

    return run
