"""Search for a faster kernel for a PyTorch module; the best one is verified and kept."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from cupilot.cli.agent_options import add_models, choose_models, show_estimate
from cupilot.cli.choices import (
    TIMEOUT_S,
    add_device,
    add_jobs,
    add_json,
    add_precision,
    add_require,
    amount,
    choose_device,
    positive,
    requirements,
    seconds,
    seed,
    settings_of,
)
from cupilot.cli.run_table import show_result
from cupilot.cli.terminal import Terminal
from cupilot.cli.terminal_observer import TerminalObserver
from cupilot.errors import UserError
from cupilot.evolution.store import holds_run
from cupilot.languages import read_kernel
from cupilot.records import Budget, ToolBudget
from cupilot.records.scope import SEARCH_REQUIREMENTS
from cupilot.runs.agents import PromptLimits

HELP = "search for a faster kernel"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK.py", help="the PyTorch module, in KernelBench form")
    add_device(parser)
    add_models(parser)
    parser.add_argument("--kernel", metavar="FILE", help="start from this kernel instead of a plain one")
    add_precision(parser)
    parser.add_argument("--seed", metavar="N", type=seed, default=0, help="same seed, same result (0)")
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
    add_jobs(parser)
    parser.add_argument(
        "--in-flight", metavar="N", type=positive,
        help="candidates developed at a time (half the population, at most 4, with LLM agents 12)",
    )  # fmt: skip
    parser.add_argument(
        "--islands", metavar="N", type=positive, default=1, help="populations that exchange their best each epoch (1)"
    )
    parser.add_argument(
        "--repair-slower", metavar="X", type=slowdown, default=1.0,
        help="repair correct kernels more than X times slower than their parent, or never (1: whenever it is no tie)",
    )  # fmt: skip
    parser.add_argument("--timeout", metavar="S", type=seconds, default=TIMEOUT_S, help="for one candidate (60)")
    add_require(parser, SEARCH_REQUIREMENTS)
    parser.add_argument("--no-roofline", action="store_true", help="search without the roofline's guidance")
    parser.add_argument("--pool", metavar="FILE", type=Path, help="the pool of strategies to ask and feed")
    parser.add_argument("--no-pool", action="store_true", help="neither ask nor feed the pool of strategies")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    caps = parser.add_argument_group("budget, whichever is reached first")
    caps.add_argument("--max-evaluations", metavar="N", type=positive, help="kernels that are evaluated")
    caps.add_argument("--max-time", metavar="S", type=seconds, help="wall time")
    caps.add_argument("--max-device-time", metavar="S", type=seconds, help="time spent evaluating")
    caps.add_argument("--max-tokens", metavar="N", type=positive, help="of language models, in and out")
    caps.add_argument("--max-usd", metavar="X", type=amount, help="for language models whose price is known")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.runs import SearchOptions, optimize
    from cupilot.tasks import load_task

    path = Path(options.task)
    task = load_task(path, options.precision)
    kernel = read_kernel(Path(options.kernel)) if options.kernel is not None else None
    device = choose_device(options.device, terminal)
    models = choose_models(options.agents, options.model, options.role_model, terminal)
    asked = SearchOptions(
        task=task,
        device=device,
        folder=run_folder(options.out),
        models=models,
        kernel=kernel,
        seed=options.seed,
        population=options.population,
        generations=options.generations,
        epochs=options.epochs,
        patience=options.patience,
        in_flight=options.in_flight,
        islands=options.islands,
        repair_slower=options.repair_slower,
        guided=not options.no_roofline,
        pooled=not options.no_pool,
        timeout_s=options.timeout,
        require=None if options.require is None else requirements(options.require, SEARCH_REQUIREMENTS),
        budget=Budget(
            options.max_evaluations, options.max_time, options.max_device_time, options.max_tokens, options.max_usd
        ),
        pool=options.pool,
        prompt_limits=PromptLimits(options.prompt_tokens, options.reply_tokens),
        replay=None if options.replay is None else Path(options.replay),
        dialogue=ToolBudget(options.turns, options.turn_tokens, options.turn_time),
    )
    if options.estimate:
        terminal.report(show_estimate(asked, terminal))
        return 0
    result = optimize(asked, settings_of(options), TerminalObserver(terminal))
    show_result(result, terminal, path, options.device)
    return 0


def slowdown(text: str) -> float | None:
    """An argument that is a factor, or never."""
    return None if text == "never" else amount(text)


def run_folder(out: str | None) -> Path | None:
    if out is None:
        return None
    folder = Path(out)
    if holds_run(folder):
        raise UserError(f"--out {folder} already holds a run; choose another folder, or use `cupilot resume`")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--out {folder} is not a folder")
    return folder
