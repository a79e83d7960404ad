"""The same from Python: `optimize`, `evaluate` and `profile`.

A task is a file in KernelBench form, or a PyTorch class with example inputs::

    import torch, cupilot
    from my_model import Gelu  # a torch.nn.Module

    result = cupilot.optimize(Gelu, [torch.rand(4096, 4096)], device="virtual:a100-80gb")
    print(result.speedup, result.strategy)
    print(result.source)  # the kernel: a torch extension in one .cu file

What the command line prints is returned here, and nothing is written but the run's folder.  Mistakes are
`cupilot.errors.UserError`, everything else below `cupilot.errors.CupilotError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupilot import __version__
from cupilot.cli.choices import TIMEOUT_S, choose_device, next_folder
from cupilot.cli.commands.evaluate import read_kernel
from cupilot.cli.searching import Asked, begin
from cupilot.cli.team import LLM_IN_FLIGHT, choose_team
from cupilot.cli.terminal import Terminal
from cupilot.errors import UserError
from cupilot.evolution.result import moves_text
from cupilot.evolution.store import holds_run
from cupilot.records import Budget, Evaluation, Failure, Kernel, RunInfo, RunResult, Task

if TYPE_CHECKING:
    import torch

    from cupilot.evaluation.profiling import Profiled


@dataclass(frozen=True)
class Optimized:
    """The outcome of a search; ``run`` has everything, ``folder`` the files."""

    run: RunResult

    @property
    def source(self) -> str:
        """The best kernel: one ``.cu`` file in torch-extension form."""
        return self.run.best.kernel.source

    @property
    def time_s(self) -> float:
        """Its time; `source_of_time` says whether that was measured."""
        assert self.run.best.time_s is not None
        return self.run.best.time_s

    @property
    def source_of_time(self) -> str:
        timing = self.run.best.evaluation.timing
        return timing.source if timing is not None else ""

    @property
    def speedup(self) -> float | None:
        """Over PyTorch in eager mode, on the same device and from the same source of times."""
        return self.run.best.evaluation.speedup

    @property
    def strategy(self) -> str:
        return moves_text(self.run.best.strategy)

    @property
    def folder(self) -> Path:
        return Path(self.run.folder)


def optimize(
    model: type[torch.nn.Module] | str | Path,
    inputs: Sequence[Any] | None = None,
    *,
    init: Sequence[Any] = (),
    device: str | None = None,
    agents: str | None = None,
    llm: str | None = None,
    precision: str = "fp32",
    seed: int = 0,
    population: int = 8,
    generations: int = 4,
    evaluations: int | None = None,
    out: str | Path | None = None,
) -> Optimized:
    """Search for a faster kernel, as ``cupilot optimize`` does.

    ``init`` is what the class is constructed with, ``llm`` a model such as ``deepseek/deepseek-chat``, ``evaluations``
    the most kernels that are tried, ``out`` the run's folder.
    """
    terminal = Terminal(quiet=True)
    task = task_of(model, inputs, init, precision)
    found = choose_device(device, terminal)
    team, models = choose_team(agents, llm, [], terminal)
    folder = next_folder(Path("runs"), task.name) if out is None else Path(out)
    if holds_run(folder):
        raise UserError(f"{folder} already holds a run; choose another folder")
    info = RunInfo(
        task.name, task.source, found.name, team, seed, population, generations, __version__, models=models,
        in_flight=LLM_IN_FLIGHT if models else 4, budget=Budget(evaluations=evaluations), precision=precision,
    )  # fmt: skip
    return Optimized(begin(Asked(task, found, info, folder), terminal))


def evaluate(
    kernel: str | Path,
    model: type[torch.nn.Module] | str | Path,
    inputs: Sequence[Any] | None = None,
    *,
    init: Sequence[Any] = (),
    device: str | None = None,
    precision: str = "fp32",
    entry: str = "forward",
    arguments: str = "",
    seed: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Evaluation:
    """Verify and time one kernel, as ``cupilot evaluate`` does; a wrong kernel is an evaluation with a ``failure``.

    ``kernel`` is a path or the source itself, ``arguments`` what to call ``entry`` with where names do not say it.
    """
    from cupilot.evaluation import Evaluator

    task = task_of(model, inputs, init, precision)
    found = choose_device(device, Terminal(quiet=True))
    return Evaluator(found, seed, timeout_s)(task, kernel_of(kernel, entry, arguments))


def profile(
    kernel: str | Path,
    model: type[torch.nn.Module] | str | Path,
    inputs: Sequence[Any] | None = None,
    *,
    init: Sequence[Any] = (),
    device: str | None = None,
    precision: str = "fp32",
    entry: str = "forward",
    arguments: str = "",
    timeout_s: float = TIMEOUT_S,
) -> Profiled | Failure:
    """Where a kernel's time goes, as ``cupilot profile`` has it, or why there is nothing to say; it is not verified."""
    from cupilot.evaluation.profiling import Profiler

    task = task_of(model, inputs, init, precision)
    found = choose_device(device, Terminal(quiet=True))
    return Profiler(task, timeout_s=timeout_s)(found, kernel_of(kernel, entry, arguments))


def task_of(
    model: type[torch.nn.Module] | str | Path, inputs: Sequence[Any] | None, init: Sequence[Any], precision: str
) -> Task:
    """The task in a file, or made of a class and its inputs."""
    from cupilot.tasks import load_task
    from cupilot.tasks.from_module import module_source
    from cupilot.tasks.load import task_from_source

    if isinstance(model, (str, Path)):
        if inputs is not None:
            raise UserError("a task file has its own inputs: leave out inputs, or give the class instead of the file")
        return load_task(Path(model), precision)
    if inputs is None:
        raise UserError(f"{model.__name__} needs example inputs: optimize({model.__name__}, [torch.rand(...)])")
    return task_from_source(module_source(model, inputs, init), model.__name__, precision, where=model.__name__)


def kernel_of(kernel: str | Path, entry: str, arguments: str) -> Kernel:
    """A kernel from a file, or from its text, which has more than one line."""
    if isinstance(kernel, str) and "\n" in kernel:
        return Kernel(kernel, entry, arguments)
    return read_kernel(Path(kernel), entry, arguments)
