"""Replay the ablation's searches on the shipped tables, and write docs/ablation.md.

    python benchmarks/ablation_replay.py --seeds 200 --jobs 2

The tables are made by ``cupilot bench table``.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from cupilot.gpu import load_spec
from cupilot.runs.replay import Trace
from cupilot.runs.replay_page import page
from cupilot.runs.replay_study import load_tables, results, study
from cupilot.runs.strategy_table import DEVICE

PAGE = Path(__file__).parents[1] / "docs" / "ablation.md"


def traces_of(task: str, seeds: int) -> tuple[Trace, ...]:
    (table,) = load_tables(load_spec(DEVICE.removeprefix("virtual:")), DEVICE, only=(task,))
    return study(table, range(seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="tasks, separated by commas")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    began_s = time.monotonic()
    only = tuple(filter(None, options.only.split(",")))
    tables = load_tables(load_spec(DEVICE.removeprefix("virtual:")), DEVICE, only=only)
    with ProcessPoolExecutor(options.jobs) as processes:
        jobs = [processes.submit(traces_of, table.task.name, options.seeds) for table in tables]
        traces = [trace for job in jobs for trace in job.result()]
    elapsed_s = time.monotonic() - began_s
    options.page.write_text(page(tables, results(traces), options.seeds), encoding="utf-8")
    print(f"{len(traces)} searches in {elapsed_s:.0f} s; {options.page} is written")


if __name__ == "__main__":
    main()
