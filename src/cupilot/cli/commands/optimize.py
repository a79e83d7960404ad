"""Search for a faster kernel for a PyTorch module; the best one is verified and kept."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from cupilot import __version__
from cupilot.cli.choices import (
    TIMEOUT_S,
    add_device,
    add_json,
    add_precision,
    choose_device,
    positive,
    seconds,
)
from cupilot.cli.searching import Asked, begin, show
from cupilot.cli.team import LLM_IN_FLIGHT, Lengths, add_models, choose_team, show_estimate
from cupilot.cli.terminal import Terminal
from cupilot.errors import UserError
from cupilot.evolution.store import holds_run, next_folder
from cupilot.languages import read_kernel
from cupilot.records import Budget, RunInfo

HELP = "search for a faster kernel"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK.py", help="the PyTorch module, in KernelBench form")
    add_device(parser)
    add_models(parser)
    parser.add_argument("--kernel", metavar="FILE", help="start from this kernel instead of a plain one")
    add_precision(parser)
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="same seed, same result (0)")
    parser.add_argument("--population", metavar="N", type=positive, default=8, help="individuals kept (8)")
    parser.add_argument("--generations", metavar="N", type=positive, default=4, help="after the first population (4)")
    parser.add_argument(
        "--epochs", metavar="N", type=positive, default=1, help="times to start again from the best (1)"
    )
    parser.add_argument(
        "--patience", metavar="N", type=positive, default=3, help="generations without a gain before it ends (3)"
    )
    parser.add_argument("--out", metavar="DIR", help="the run's folder (runs/<task>-<n>)")
    add_json(parser)
    parser.add_argument("--jobs", metavar="N", type=positive, help="evaluations at a time (processors, at most 4)")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="for one candidate (60)")
    parser.add_argument("--no-roofline", action="store_true", help="search without the roofline's guidance")
    parser.add_argument("--pool", metavar="FILE", type=Path, help="the pool of strategies to ask and feed")
    parser.add_argument("--no-pool", action="store_true", help="neither ask nor feed the pool of strategies")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    caps = parser.add_argument_group("budget, whichever is reached first")
    caps.add_argument("--max-evaluations", metavar="N", type=positive, help="kernels that are evaluated")
    caps.add_argument("--max-time", metavar="S", type=seconds, help="wall time")
    caps.add_argument("--max-device-time", metavar="S", type=seconds, help="time spent evaluating")
    caps.add_argument("--max-tokens", metavar="N", type=positive, help="of language models, in and out")
    caps.add_argument("--max-usd", metavar="X", type=float, help="for language models whose price is known")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.tasks import load_task

    path = Path(options.task)
    task = load_task(path, options.precision)
    kernel = read_kernel(Path(options.kernel)) if options.kernel is not None else None
    device = choose_device(options.device, terminal)
    agents, models = choose_team(options.agents, options.model, options.role_model, terminal)
    info = RunInfo(
        task.name,
        task.source,
        device.name,
        agents,
        options.seed,
        options.population,
        options.generations,
        __version__,
        epochs=options.epochs,
        guided=not options.no_roofline,
        pooled=not options.no_pool,
        patience=options.patience,
        timeout_s=options.timeout,
        in_flight=LLM_IN_FLIGHT if models else 4,
        budget=Budget(
            options.max_evaluations, options.max_time, options.max_device_time, options.max_tokens, options.max_usd
        ),
        models=models,
        kernel=kernel,
        precision=options.precision,
        gpu=device.spec.name,
    )
    lengths = Lengths(options.prompt_tokens, options.reply_tokens)
    if options.estimate:
        show_estimate(info, lengths, terminal)
        return 0
    folder = run_folder(options.out, task.name)
    terminal.line(f"run {folder}: seed {options.seed}")
    asked = Asked(task, device, info, folder, options.pool, lengths, options.replay, options.jobs)
    result = begin(asked, terminal)
    show(result, terminal, path, options.device)
    return 0


def run_folder(out: str | None, task: str) -> Path:
    if out is None:
        return next_folder(Path("runs"), task)
    folder = Path(out)
    if holds_run(folder):
        raise UserError(f"--out {folder} already holds a run; choose another folder, or go on with `cupilot resume`")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is not a folder")
    return folder
