"""Verify a kernel against the PyTorch module it replaces, and time it."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cupilot.cli.choices import (
    TIMEOUT_S,
    add_call,
    add_device,
    add_json,
    add_precision,
    add_require,
    open_chosen,
    requirements,
    seconds,
    seed,
)
from cupilot.cli.terminal import Terminal
from cupilot.evolution.result import evaluation_report, repeat_report
from cupilot.languages import read_kernel
from cupilot.numbers import duration, ratio
from cupilot.records import Evaluation, Timing
from cupilot.records.scope import TASK
from cupilot.records.verdict import bundle_sentence, mean_speedup, verdict_sentence
from cupilot.text import first_lines

LOG_LINES = 20
REQUIRED = (TASK,)
HELP = "verify and time one kernel"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "kernel", metavar="KERNEL", help="a .cu file as a torch extension, or a .py with ModelNew or Model"
    )
    parser.add_argument("--task", metavar="TASK.py", required=True, help="the PyTorch module, in KernelBench form")
    add_device(parser)
    add_call(parser)
    add_precision(parser)
    parser.add_argument("--seed", metavar="N", type=seed, help="of the verification inputs (random, kept in the proof)")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="seconds it may run (60)")
    add_require(parser, REQUIRED)
    parser.add_argument("--verbose", action="store_true", help="show every comparison and what the verdict rests on")
    add_torch_ops(parser)
    add_json(parser)


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.tasks import begin_task, task_texts

    # first, because importing PyTorch takes as long as everything else until the kernel is built
    first = begin_task(Path(options.task), options.precision)
    from cupilot.runs import evaluate

    kernel = read_kernel(Path(options.kernel), options.entry, options.args, options=options.options)
    device = open_chosen(options.device, terminal)
    # no candidate can know a random seed; the proof tells it afterwards
    drawn = secrets.randbits(32) if options.seed is None else options.seed
    tasks = task_texts(Path(options.task), options.precision)
    reports: list[dict[str, Any]] = []
    evaluations: list[Evaluation] = []
    for task in tasks if len(tasks) > 1 else (first,):
        with terminal.steps("evaluating") as watch:
            evaluation = evaluate(
                device, task, kernel, seed=drawn, timeout_s=options.timeout, watch=watch,
                require=requirements(options.require, REQUIRED),
            )  # fmt: skip
        evaluations.append(evaluation)
        reports.append(evaluation_report(evaluation) | repeat_report(task, kernel, options.timeout))
    if len(evaluations) > 1:
        terminal.line(f"{first.name}: {bundle_sentence(evaluations)}")
    for evaluation in evaluations:
        show(evaluation, terminal, verbose=options.verbose)
    terminal.report(reports[0] if len(reports) == 1 else bundle_report(first.name, evaluations, reports))
    return 0 if all(evaluation.correct for evaluation in evaluations) else 1


def bundle_report(name: str, evaluations: Sequence[Evaluation], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several shapes for ``--json``: what holds for all of them, and each by itself."""
    failed = next((report for report in reports if not report["correct"]), None)
    return {
        "task": name,
        "correct": failed is None,
        "failure": failed and failed["failure"],
        "verdict": bundle_sentence(evaluations),
        "speedup": mean_speedup(evaluations),
        "shapes": list(reports),
    }


def add_torch_ops(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--allow-torch-ops", dest="options", action="store_const", const=("torch-ops",), default=(),
        help="a ModelNew may compute with PyTorch as well",
    )  # fmt: skip


def show(evaluation: Evaluation, terminal: Terminal, verbose: bool = False) -> None:
    """The verdict in a sentence, then the times; ``verbose`` adds what was compared."""
    terminal.line(f"{evaluation.task}: {verdict_sentence(evaluation)}")
    if evaluation.scope is not None:
        for difference in (*evaluation.scope.values, *evaluation.scope.other_shapes):
            terminal.line(f"not for {difference.what}: {difference.evidence}")
        if verbose:
            terminal.line(f"rests on {evaluation.scope.basis}")
    for check in evaluation.checks if verbose else ():
        note = f" ({check.note})" if check.note else ""
        terminal.line(
            f"compared on {check.inputs} inputs, {check.shapes}: "
            f"error {check.error:.2g} of {check.allowed:.2g} allowed{note}"
        )
    if evaluation.correct and evaluation.timing is not None:
        rows = [("kernel", *timing_cells(evaluation.timing), ratio(evaluation.speedup))]
        if evaluation.baseline is not None:
            rows.append(("PyTorch eager", *timing_cells(evaluation.baseline), ratio(1.0)))
        if evaluation.compiled is not None:
            rows.append(("torch.compile", *timing_cells(evaluation.compiled), ratio(evaluation.compiled_over_eager)))
        terminal.table(("", "time", "limit", "source", "vs PyTorch"), rows)
    if evaluation.failure is not None and evaluation.failure.details:
        terminal.line(first_lines(evaluation.failure.details, LOG_LINES))


def timing_cells(timing: Timing) -> tuple[str, str, str]:
    """Time, what limits it, and where it is known from, such as ``modelled, A100-80GB``."""
    device = timing.device.removeprefix("virtual:").upper()
    return duration(timing.time_s), timing.limit, f"{timing.source}, {device}"
