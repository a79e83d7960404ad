"""What a run leaves for people and programs: the best kernel (``best.cu``) and ``result.json``.

Both are replaced as a whole whenever the best improves, so that a run that is stopped at any
moment leaves a usable kernel.  The same objects are what ``--json`` prints.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from cupilot.errors import unwritable
from cupilot.languages import language_of
from cupilot.records import Evaluation, Failure, Kernel, RunResult, Strategy, Task, TaskSource, to_plain
from cupilot.records.verdict import verdict_sentence
from cupilot.strategies.algebra import canonical, move_text, order
from cupilot.text import one_line

RESULT = "result.json"


def evaluation_report(evaluation: Evaluation) -> dict[str, Any]:
    """One evaluation for ``--json``: the record, with what it implies spelled out."""
    failure = evaluation.failure
    return {
        "task": evaluation.task,
        "kernel": evaluation.kernel,
        "device": evaluation.device,
        "precision": evaluation.precision,
        "correct": evaluation.correct,
        "failure": failure and _failure_report(failure),
        "timing": to_plain(evaluation.timing),
        "baseline": to_plain(evaluation.baseline),
        "compiled": to_plain(evaluation.compiled),
        "speedup": evaluation.speedup,
        "speedup_over_compiled": evaluation.speedup_over_compiled,
        "verdict": verdict_sentence(evaluation),
        "standing": evaluation.standing,
        "speedup_interval": to_plain(evaluation.speedup_interval),
        "scope": to_plain(evaluation.scope),
        "checks": to_plain(evaluation.checks),
        "profile": to_plain(evaluation.profile),
        "proof": to_plain(evaluation.proof),
        "measurement": to_plain(evaluation.measurement),
    }


def _failure_report(failure: Failure) -> dict[str, Any]:
    message = one_line(failure.message)
    return {"stage": failure.stage, "kind": failure.kind, "message": message, "findings": to_plain(failure.findings)}


def repeat_report(task: Task | TaskSource, kernel: Kernel, timeout_s: float) -> dict[str, Any]:
    """What ``cupilot verify`` needs to make an evaluation again; the proof's digests are of these texts."""
    return {
        "repeat": {
            "task": {"name": task.name, "source": task.source, "precision": task.precision},
            "kernel": to_plain(kernel),
            "timeout_s": timeout_s,
        }
    }


def run_report(result: RunResult) -> dict[str, Any]:
    """A whole run for ``--json`` and ``result.json``."""
    info = result.info
    return {
        "task": info.task,
        "device": info.device,
        "agents": info.agents,
        "seed": info.seed,
        "population": info.population,
        "generations": info.generations,
        "epochs": info.epochs,
        "guided": info.guided,
        "version": info.version,
        "evaluations": result.evaluations,
        "failures": result.failures,
        "stopped": result.stopped,
        "folder": result.folder,
        "tools": to_plain(result.tools),
        "strategy": canonical(result.best.strategy),
        "first": evaluation_report(result.first.evaluation),
        "best": evaluation_report(result.best.evaluation) | _repeat(result),
    }


def _repeat(result: RunResult) -> dict[str, Any]:
    info = result.info
    task = Task(info.task, info.task_source, (), (), (), result.best.evaluation.precision)
    return repeat_report(task, result.best.kernel, info.timeout_s)


def moves_text(strategy: Strategy) -> str:
    """The moves on one line, in canonical order; equal for strategies that ask for the same thing."""
    return " + ".join(move_text(move) for move in order(strategy).moves)


def to_json(report: dict[str, Any]) -> str:
    """Standard JSON; numbers that it cannot express (an infinite error) become null, halves of characters escapes."""
    return json.dumps(_expressible(report), indent=2, allow_nan=False) + "\n"


def write_best(folder: Path, result: RunResult) -> None:
    """Replace the best kernel and ``result.json``, each in one step."""
    best = folder / best_file(result.best.kernel)
    replace_file(best, result.best.kernel.source)
    for other in folder.glob("best.*"):
        if other != best:  # an earlier best, in another language
            other.unlink()
    replace_file(folder / RESULT, to_json(run_report(result)))


def best_file(kernel: Kernel) -> str:
    """The name of the file that the best kernel is written to."""
    return f"best{language_of(kernel).suffix}"


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file so that readers see the old content or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def _expressible(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _expressible(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_expressible(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
