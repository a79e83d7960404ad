"""Benchmarks: ``level1`` searches kernels for a suite of problems, ``ablation`` takes parts of the method away."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from cupilot.cli.choices import add_device, add_jobs, add_json, add_precision, positive, seed
from cupilot.cli.terminal import Terminal
from cupilot.tasks.suite import TENSOR_TYPES

HELP = "measure the search on a suite of problems"


def configure(parser: ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="what", metavar="level1|ablation", required=True)
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
    ablation = kinds.add_parser("ablation", help="without guidance, without the pool, crossing code")
    ablation.add_argument("--seeds", metavar="N", type=positive, default=5, help="searches per task and variant (5)")
    for kind, generations in ((level1, 4), (ablation, 1)):
        kind.add_argument("--suite", metavar="DIR", help="a folder of tasks in KernelBench form instead of level 1")
        kind.add_argument("--only", metavar="LIST", help="problems, such as 1,23,40-46")
        kind.add_argument("--population", metavar="N", type=positive, default=8, help="individuals kept (8)")
        kind.add_argument(
            "--generations", metavar="N", type=positive, default=generations,
            help=f"after the first population ({generations})",
        )  # fmt: skip
        add_jobs(kind)
        add_device(kind)
        add_json(kind)


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.cli.bench_ablation import run_ablation_bench
    from cupilot.cli.bench_level1 import run_level1

    commands = {"level1": run_level1, "ablation": run_ablation_bench}
    return commands[options.what](options, terminal)
