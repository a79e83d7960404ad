"""The table at the end of a run: plain kernel, best kernel, PyTorch, and what to type next."""

from __future__ import annotations

import shlex
from pathlib import Path

from cupilot.cli.commands.evaluate import timing_cells
from cupilot.cli.terminal import Terminal
from cupilot.evolution.progress import WHY
from cupilot.evolution.result import best_file, moves_text, run_report
from cupilot.numbers import ratio
from cupilot.records import Individual, RunResult, ToolTotals
from cupilot.records.verdict import verdict_sentence


def show_result(result: RunResult, terminal: Terminal, task: Path, device: str | None) -> None:
    """Print the result, and how the best kernel came about."""
    plain_s = time_s(result.first)
    rows = []
    for title, individual in (("plain kernel", result.first), ("best kernel", result.best)):
        timing = individual.evaluation.timing
        assert timing is not None
        time, limit, source = timing_cells(timing)
        rows.append((title, time, ratio(individual.evaluation.speedup), ratio(plain_s / timing.time_s), limit, source))
    baseline = result.best.evaluation.baseline
    if baseline is not None:
        time, limit, source = timing_cells(baseline)
        rows.append(("PyTorch eager", time, ratio(1.0), ratio(plain_s / baseline.time_s), limit, source))
    compiled = result.best.evaluation.compiled
    if compiled is not None:
        time, limit, source = timing_cells(compiled)
        over = result.best.evaluation.compiled_over_eager
        rows.append(("torch.compile", time, ratio(over), ratio(plain_s / compiled.time_s), limit, source))
    terminal.line()
    terminal.line(f"{result.info.task}: {verdict_sentence(result.best.evaluation)}")
    terminal.table(("", "time", "vs PyTorch", "vs plain", "limit", "source"), rows, emphasis=1)
    terminal.line()
    terminal.line(f"strategy: {moves_text(result.best.strategy) or 'none; the plain kernel was not beaten'}")
    terminal.line(f"stopped: {WHY[result.stopped]} ({result.evaluations} evaluated, {result.failures} failed)")
    if result.tools.turns:
        terminal.line(tools_line(result.tools))
    best = Path(result.folder) / best_file(result.best.kernel)
    terminal.line(f"kernel: {best}")
    command = ["cupilot", "evaluate", str(best), "--task", str(task)]
    if device is not None:
        command += ["--device", device]
    if result.info.precision != "fp32":
        command += ["--precision", result.info.precision]
    if result.stopped == "interrupted":
        terminal.line(f"resume: {shlex.join(('cupilot', 'resume', result.folder))}")
    terminal.line(f"next: {shlex.join(command)}")
    terminal.report(run_report(result))


def time_s(individual: Individual) -> float:
    assert individual.time_s is not None, "only timed individuals are shown"
    return individual.time_s


def tools_line(tools: ToolTotals) -> str:
    """What the tools of language models came to, and what they added to asking once."""
    uses = ", ".join(f"{name} {count}" for name, count in sorted(tools.uses, key=lambda use: (-use[1], use[0])))
    return (
        f"tools: {tools.turns} turns in {tools.dialogues} dialogues ({uses or 'none used'}); they added "
        f"{tools.more_tokens} of {tools.tokens} tokens, and {tools.device_s:.0f} s on the device"
    )
