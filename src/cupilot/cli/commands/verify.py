"""Repeat an evaluation from its result file: same sources, same inputs, same checks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from cupilot.cli.choices import add_json, open_chosen
from cupilot.cli.commands.evaluate import show
from cupilot.cli.terminal import Terminal
from cupilot.evolution.recorded_result import RecordedResult, read_recorded_results
from cupilot.evolution.result import evaluation_report
from cupilot.records import Evaluation, Timing

HELP = "repeat the evaluation in a result file"
SAME_TIME, OTHER_TOOLS_TIME = 1e-6, 0.01
"""Modelled times come out the same, and nearly so where the compiled image or the tools are others; measured ones are
compared by whoever measures."""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("result", metavar="RESULT.json", help="of cupilot evaluate --json, or a run's result.json")
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    path = Path(options.result)
    results = read_recorded_results(path)
    reports = [_repeat(path, recorded, terminal) for recorded in results]
    problem = next((report["error"] for report in reports if "error" in report), None)
    error = {"error": problem} if problem else {}
    terminal.report(reports[0] if len(reports) == 1 else {"confirmed": not problem, "shapes": reports} | error)
    return 1 if problem else 0


def _repeat(path: Path, recorded: RecordedResult, terminal: Terminal) -> dict[str, Any]:
    """Say whether one result is confirmed."""
    from cupilot.evaluation.proof import differences, digest
    from cupilot.runs import evaluate

    proof, task = recorded.proof, recorded.task_text
    if digest(recorded.kernel.source) != proof.source or digest(task.source) != proof.task:
        text = f"{path} has been altered: its sources are not those that its proof was made of"
        terminal.warn(text)
        return {"confirmed": False, "error": {"kind": "altered", "message": text}}
    device = open_chosen(recorded.device, terminal)
    with terminal.steps("evaluating once more") as watch:
        evaluation = evaluate(device, task, recorded.kernel, seed=proof.seed, timeout_s=recorded.timeout_s, watch=watch)
    show(evaluation, terminal)
    others = differences(proof, evaluation.proof) if evaluation.proof is not None else ()
    for text in others:
        terminal.line(f"not as it was: {text}")
    problem = contradiction(recorded.timing, evaluation, OTHER_TOOLS_TIME if others else SAME_TIME)
    error = {"error": {"kind": "not-confirmed", "message": problem}} if problem else {}
    if problem:
        terminal.warn(f"{path} is not confirmed: {problem}")
    else:
        terminal.line(f"{path}: confirmed, seed {proof.seed}")
    return evaluation_report(evaluation) | {"confirmed": not problem} | error


def contradiction(timing: Timing, evaluation: Evaluation, tolerance: float) -> str:
    """How the repetition contradicts the recorded result; empty if it does not."""
    if evaluation.failure is not None or evaluation.timing is None:
        return evaluation.failure.message if evaluation.failure else "the kernel was not timed"
    now = evaluation.timing
    if timing.source != now.source:
        return f"the time was {timing.source}, and is now {now.source}"
    if now.source == "modelled" and abs(now.time_s - timing.time_s) > tolerance * timing.time_s:
        return f"the time is {now.time_s * 1e3:.6g} ms, and was {timing.time_s * 1e3:.6g} ms"
    return ""
