"""What a result file says of a kernel, with everything that is needed to see whether it is so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cupilot.errors import DataError, UserError
from cupilot.files import read_json
from cupilot.records import Kernel, Proof, TaskSource, Timing, from_plain

LONGEST_S, LARGEST_SEED = 1e7, 2**63 - 1


@dataclass(frozen=True)
class RecordedResult:
    """A kernel that passed: its task, its time on a device, and the proof.

    ``task`` is the task's name; ``verdict`` is the sentence on it and ``standing`` its place beside PyTorch, both empty
    in results of old.
    """

    task: str
    task_source: str
    precision: str
    kernel: Kernel
    device: str
    timing: Timing
    proof: Proof
    timeout_s: float
    speedup: float | None = None
    verdict: str = ""
    standing: str = ""
    baseline_source: str = ""

    @property
    def task_text(self) -> TaskSource:
        """The task, to be loaded again."""
        return TaskSource(name=self.task, source=self.task_source, precision=self.precision)


def read_recorded_result(path: Path) -> RecordedResult:
    """What a result file says, a run's or that of one evaluation; whatever is wrong with it is one sentence."""
    found = read_recorded_results(path)
    if len(found) > 1:
        raise UserError(f"{path} holds {len(found)} shapes, where the result of one is wanted")
    return found[0]


def read_recorded_results(path: Path) -> tuple[RecordedResult, ...]:
    """The same, and each shape's of a task that has several."""
    report = read_json(path, "the result file")
    report = report.get("best", report) if isinstance(report, dict) else None
    shapes = report.get("shapes") if isinstance(report, dict) else None
    parts = shapes if isinstance(shapes, list) and shapes else [report]
    return tuple(_read_report(path, part) for part in parts)


def _read_report(path: Path, report: object) -> RecordedResult:
    if not isinstance(report, dict) or not report.get("proof") or not report.get("repeat"):
        raise UserError(f"{path} holds no proof: it is no result of a kernel that passed")
    try:
        return _recorded_result(report, report["repeat"])
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a result file of this version: {error}") from error


def _recorded_result(report: dict[str, Any], repeat: dict[str, Any]) -> RecordedResult:
    # a benchmark's results have none: their PyTorch times were recorded elsewhere
    speedup, proof = report.get("speedup"), from_plain(Proof, report["proof"])
    timeout_s = from_plain(float, repeat["timeout_s"], "timeout_s")
    if not 0 < timeout_s <= LONGEST_S or not 0 <= proof.seed <= LARGEST_SEED:
        raise ValueError("its time limit or its seed is out of range")
    task = from_plain(TaskSource, repeat["task"], "task")
    return RecordedResult(
        task=task.name,
        task_source=task.source,
        precision=task.precision,
        kernel=from_plain(Kernel, repeat["kernel"]),
        device=from_plain(str, report["device"], "device"),
        timing=from_plain(Timing, report["timing"]),
        proof=proof,
        timeout_s=timeout_s,
        speedup=None if speedup is None else float(speedup),
        verdict=str(report.get("verdict", "")),
        standing=str(report.get("standing", "")),
        baseline_source=str((report.get("baseline") or {}).get("source", "")),
    )
