"""Benchmarks: ``level1`` searches kernels for a suite of problems, ``table`` evaluates strategies for the ablation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from cupilot.cli.choices import add_device, add_jobs, add_json, add_precision, positive, seconds, seed
from cupilot.cli.terminal import Terminal
from cupilot.tasks.suite import TENSOR_TYPES

HELP = "measure the search on a suite of problems"


def configure(parser: ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="what", metavar="level1|table", required=True)
    level1 = kinds.add_parser("level1", help="all problems of KernelBench's level 1, against recorded times")
    level1.add_argument("--out", metavar="DIR", required=True, help="results, kernels and runs go there")
    level1.add_argument("--budget", metavar="N", type=positive, default=40, help="evaluations per problem (40)")
    level1.add_argument("--resume", action="store_true", help="continue where DIR ends")
    level1.add_argument("--again", action="store_true", help="evaluate the kernels in DIR anew instead of searching")
    level1.add_argument("--seed", metavar="N", type=seed, default=0, help="same seed, same results (0)")
    level1.add_argument(
        "--reuse",
        metavar="DIR",
        help="reuse results of precision-independent problems, and any faster kernels, from DIR",
    )
    add_precision(level1)
    level1.add_argument(
        "--dtype", metavar="T", default="fp32", choices=tuple(TENSOR_TYPES),
        help="what tensors are made of: fp32, fp16 or bf16 (fp32)",
    )  # fmt: skip
    level1.add_argument("--suite", metavar="DIR", help="a folder of tasks in KernelBench form instead of level 1")
    level1.add_argument("--only", metavar="LIST", help="problems, such as 1,23,40-46")
    level1.add_argument("--population", metavar="N", type=positive, default=8, help="individuals kept (8)")
    level1.add_argument(
        "--generations", metavar="N", type=positive, default=4, help="after the first population (4)"
    )  # fmt: skip
    add_jobs(level1)
    add_device(level1)
    table = kinds.add_parser("table", help="the tables that benchmarks/ablation_replay.py replays searches on")
    table.add_argument("--only", metavar="LIST", help="tasks, such as softmax,product")
    table.add_argument("--out", metavar="DIR", help="where tables are put (those that come with cupilot)")
    table.add_argument("--seconds", metavar="S", type=seconds, help="stop after that long; the next time it goes on")
    for kind in (level1, table):
        add_json(kind)


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.cli.bench_level1 import run_level1
    from cupilot.cli.bench_table import run_table

    commands = {"level1": run_level1, "table": run_table}
    return commands[options.what](options, terminal)
