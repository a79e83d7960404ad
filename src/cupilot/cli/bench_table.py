"""``cupilot bench table``: evaluate the strategies of the ablation's frames; goes on where it was stopped."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path

from cupilot import __version__
from cupilot.cli.choices import open_chosen
from cupilot.cli.terminal import Terminal
from cupilot.errors import UserError


def run_table(options: Namespace, terminal: Terminal) -> int:
    from cupilot.runs.frames import FOLDER, all_strategies, load_frames
    from cupilot.runs.strategy_table import DEVICE, TABLES, TableEvaluator, TableHead, fill_table, source_digest
    from cupilot.tasks import load_task

    frames = {frame.task: frame for frame in load_frames()}
    chosen = options.only.split(",") if options.only else list(frames)
    if unknown := [name for name in chosen if name not in frames]:
        raise UserError(f"there is no frame for {unknown[0]}; there are {', '.join(frames)}")
    device = open_chosen(DEVICE, terminal)
    folder = Path(options.out) if options.out else FOLDER / TABLES
    end_s = None if options.seconds is None else time.monotonic() + options.seconds
    counts: dict[str, tuple[int, int]] = {}
    with terminal.bar() as bar:
        for name in chosen:
            task = load_task(FOLDER / f"{name}.py")
            space = frames[name].space(task, device.spec)
            head = TableHead(task.name, source_digest(task), device.name, __version__)
            evaluator, strategies = TableEvaluator(device, task, space), all_strategies(space)
            for done, of in fill_table(folder / f"{name}.jsonl", head, strategies, evaluator):
                counts[name] = done, of
                bar(done, of, f"strategies of {name}")
                if end_s is not None and time.monotonic() > end_s:
                    break
            terminal.line(f"{name}: {counts[name][0]} of {counts[name][1]} strategies")
            if counts[name][0] < counts[name][1]:
                break
    terminal.report({"tables": [{"task": name, "done": done, "of": of} for name, (done, of) in counts.items()]})
    return 0
