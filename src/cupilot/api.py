"""The same from Python: `optimize`, `evaluate` and `profile`, which are offered by ``import cupilot``.

A task is a PyTorch class with example inputs, or a file in KernelBench form:

>>> import torch, cupilot
>>> from my_model import Swish  # a torch.nn.Module
>>> result = cupilot.optimize(Swish, [torch.rand(1024, 4096)], device="virtual:a100-80gb", evaluations=1, out="run")
>>> result.speedup > 1.5, result.source_of_time
(True, 'modelled')
>>> result.source == (result.folder / "best.cu").read_text()  # the kernel: a torch extension in one .cu file
True

What the command line prints is returned here.  Only the run's folder and the cache (builds, and the pool of strategies)
are written.  The environment is not read: `Settings` has the cache folder, the keys of language models and where
evaluations run.  The user's mistakes are
`cupilot.errors.UserError`; everything raised on purpose is below `cupilot.errors.CupilotError`.  A kernel that fails
is not an exception but a value with a ``failure``.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupilot import runs
from cupilot.errors import UserError
from cupilot.evolution.result import moves_text
from cupilot.evolution.store import holds_run
from cupilot.languages import make_kernel, read_kernel
from cupilot.records import Budget, Evaluation, Failure, Kernel, RunResult, Task, TaskSource
from cupilot.records.scope import REQUIREMENTS, TASK
from cupilot.runs import SearchOptions, Settings
from cupilot.runs.agents import EVERY_ROLE

if TYPE_CHECKING:
    import torch

    from cupilot.contracts import Device
    from cupilot.evaluation.profiling import Profiled

__all__ = ["Optimized", "Settings", "evaluate", "optimize", "profile"]

EXPERT = "expert"
TIMEOUT_S = 60.0


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
        """``modelled`` or ``measured``."""
        timing = self.run.best.evaluation.timing
        return timing.source if timing is not None else ""

    @property
    def speedup(self) -> float | None:
        """Over PyTorch in eager mode, on the same device and from the same source of times."""
        return self.run.best.evaluation.speedup

    @property
    def strategy(self) -> str:
        """The best kernel's moves, on one line."""
        return moves_text(self.run.best.strategy)

    @property
    def folder(self) -> Path:
        """Where ``best.cu``, ``result.json`` and the store are."""
        return Path(self.run.folder)


def optimize(
    model: type[torch.nn.Module] | str | Path,
    inputs: Sequence[Any] | None = None,
    *,
    init: Sequence[Any] = (),
    device: str | None = None,
    agents: str = EXPERT,
    precision: str = "fp32",
    seed: int = 0,
    population: int = 8,
    generations: int = 4,
    epochs: int = 1,
    evaluations: int | None = None,
    wall_s: float | None = None,
    usd: float | None = None,
    pool: str | Path | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
) -> Optimized:
    """Search for a faster kernel, as ``cupilot optimize`` does.

    ``model`` is a class, constructed with ``init`` and called with ``inputs``, or the path of a task file.  ``agents``
    is ``expert`` or a language model such as ``deepseek/deepseek-chat``.  ``evaluations``, ``wall_s`` and ``usd`` end
    the search when so many kernels were tried, so much time or money was spent.  ``out`` is the run's folder
    (``runs/<task>-<n>``), ``pool`` the file of strategies to ask and feed (the user's own).
    """
    task = task_of(model, inputs, init, precision)
    name = language_model(agents)
    folder = None if out is None else Path(out)
    if folder is not None and holds_run(folder):
        raise UserError(f"{folder} already holds a run; choose another folder")
    options = SearchOptions(
        task=task,
        device=device_name(device),
        folder=folder,
        models=() if name is None else ((EVERY_ROLE, name),),
        seed=seed,
        population=population,
        generations=generations,
        epochs=epochs,
        budget=Budget(evaluations, wall_s, usd=usd),
        pool=None if pool is None else Path(pool),
    )
    return Optimized(runs.optimize(options, settings or Settings()))


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
    seed: int | None = None,
    timeout_s: float = TIMEOUT_S,
    require: Sequence[str] = (TASK,),
    settings: Settings | None = None,
) -> Evaluation:
    """Verify and time one kernel, as ``cupilot evaluate`` does; a wrong kernel is an evaluation with a ``failure``.

    ``kernel`` is a path or the source itself: a torch extension, or Python with a KernelBench ``ModelNew``.
    ``arguments`` is what to call ``entry`` with where names do not say it, such as ``"inputs[0], model.eps"``.
    Without a ``seed`` the inputs are random; the proof tells the seed.  ``require`` names what the kernel must hold
    for: task, values, any-shape; ``evaluation.scope`` says what it holds for.

    >>> evaluation = cupilot.evaluate("swish.cu", "swish.py", device="virtual:a100-80gb")
    >>> evaluation.correct, evaluation.timing.source, evaluation.timing.limit
    (True, 'modelled', 'latency')
    >>> evaluation.scope.shapes
    'any shape'
    >>> evaluation = cupilot.evaluate(open("swish.cu").read().replace("i < n", "i < n - 1"), "swish.py")
    >>> evaluation.failure.stage, evaluation.failure.kind
    ('verify', 'unwritten')
    """
    task = task_of(model, inputs, init, precision)
    found = open_named(device, settings)
    seed = secrets.randbits(32) if seed is None else seed
    unknown = [name for name in require if name not in REQUIREMENTS]
    if unknown:
        raise UserError(f"require {unknown[0]!r} is not one of {', '.join(REQUIREMENTS)}")
    return runs.evaluate(
        found, task, kernel_of(kernel, entry, arguments), seed=seed, timeout_s=timeout_s, require=tuple(require)
    )


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
    settings: Settings | None = None,
) -> Profiled | Failure:
    """Where a kernel's time goes, as ``cupilot profile`` has it, or why there is nothing to say; it is not verified.

    >>> profiled = cupilot.profile("swish.cu", "swish.py")
    >>> profiled.standing.zone, profiled.profile.launches[0].grid
    ('memory-bound', (16384, 1, 1))
    """
    from cupilot.evaluation.profiling import Profiler

    task = task_of(model, inputs, init, precision)
    found = open_named(device, settings)
    return Profiler(task, timeout_s=timeout_s)(found, kernel_of(kernel, entry, arguments))


def task_of(
    model: type[torch.nn.Module] | str | Path, inputs: Sequence[Any] | None, init: Sequence[Any], precision: str
) -> Task:
    """The task in a file, or made of a class and its inputs."""
    from cupilot.tasks import load_source, load_task
    from cupilot.tasks.from_module import module_source

    if isinstance(model, (str, Path)):
        if inputs is not None:
            raise UserError("a task file has its own inputs: leave out inputs, or give the class instead of the file")
        return load_task(Path(model), precision)
    if inputs is None:
        raise UserError(f"{model.__name__} needs example inputs: optimize({model.__name__}, [torch.rand(...)])")
    source = module_source(model, inputs, init)
    return load_source(TaskSource(name=model.__name__, source=source, precision=precision))


def kernel_of(kernel: str | Path, entry: str, arguments: str) -> Kernel:
    """A kernel from a file, or from its text, which has more than one line."""
    if isinstance(kernel, str) and "\n" in kernel:
        return make_kernel(kernel, entry, arguments)
    return read_kernel(Path(kernel), entry, arguments)


def device_name(name: str | None) -> str:
    """The device asked for, else the best one of this machine."""
    from cupilot.devices import default_device

    return default_device()[0] if name is None else name


def open_named(name: str | None, settings: Settings | None) -> Device:
    return runs.open_device(device_name(name), settings or Settings(), runs.Observer())


def language_model(agents: str) -> str | None:
    """The model that ``agents`` names; None for the expert."""
    if agents == EXPERT:
        return None
    if "/" not in agents:
        raise UserError(f"agents {agents!r} is neither {EXPERT!r} nor a model such as 'deepseek/deepseek-chat'")
    return agents
