"""The wiring of a run: device, store, pool, agents, executor and the loop, opened here and closed here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from cupilot import __version__
from cupilot.contracts import Agents, Brief, Device, Executor, ExecutorOptions, Preparing, Step, Store, Watch
from cupilot.errors import StoreError, UnmatchedTask
from cupilot.evolution.budget import Spending
from cupilot.evolution.development import OpenTools, no_tools
from cupilot.evolution.evaluation_cache import EvaluationCache
from cupilot.evolution.loop import Evolution
from cupilot.evolution.observed_agents import ObservedAgents
from cupilot.evolution.progress import Progress
from cupilot.evolution.result import replace_file
from cupilot.evolution.run_state import RunState
from cupilot.evolution.store import create_store, discard_store, next_folder, open_store
from cupilot.gpu.spec import GpuSpec
from cupilot.records import (
    Evaluation,
    EvaluationRequest,
    Guidance,
    Individual,
    Kernel,
    PoolRecord,
    RunInfo,
    RunResult,
    Task,
    TaskSource,
)
from cupilot.records.scope import TASK
from cupilot.runs.agents import NO_LIMITS, PromptLimits, open_agents
from cupilot.runs.open_tools import open_tools
from cupilot.runs.options import SearchOptions, Settings
from cupilot.runs.pool import RunPool, pool_path
from cupilot.runs.shutdown import shut_down
from cupilot.threads import DaemonThreads

RUNS = Path("runs")
TASK_FILE = "task.py"


class Observer:
    """Sees a run from outside and cannot affect it; this one ignores everything.

    Called from several threads.
    """

    def __call__(self, event: Progress | Step) -> None:
        """A step of a candidate, or progress of the search."""

    def notify(self, sentence: str) -> None:
        """Something that the user should know now."""

    def preparing(self, what: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """The device makes something once on this machine; the callback gets how many parts of how many are done."""
        return nullcontext(lambda done, of: None)

    def searching(self, state: RunState) -> AbstractContextManager[object]:
        """Entered while the search runs."""
        return nullcontext()


def optimize(options: SearchOptions, settings: Settings, observer: Observer | None = None) -> RunResult:
    """Begin a run and carry it out; a run that fails before it has begun leaves no folder."""
    observer, task = observer or Observer(), options.task
    with open_session(options.device, settings, observer, (task,)) as session:
        folder = options.folder or next_folder(RUNS, task.name)
        store = create_store(folder)
        try:
            observer.notify(f"run {folder}: seed {options.seed}")
            if options.replay is not None:
                with closing(open_store(options.replay)) as recorded:
                    store.inherit(recorded)
            info = options.info(session.device.spec.name)
            return _run(
                session, task, info, store, folder,
                pool=options.pool, limits=options.prompt_limits, replay=options.replay,
            )  # fmt: skip
        finally:
            begun = store.begun
            store.close()
            if not begun:
                discard_store(folder)


def resume(folder: Path, settings: Settings, observer: Observer | None = None) -> RunResult:
    """Continue a run that was stopped or killed; it ends as it would have ended.

    The run is repeated from its seed.  Evaluations and model replies that its store holds are used again.
    """
    from cupilot.tasks import load_source

    observer = observer or Observer()
    with closing(open_store(folder)) as store:
        info = store.info()
        if info.version != __version__:
            raise StoreError(f"{folder} was begun by cupilot {info.version}; this is {__version__}")
        # the user's file may have changed or moved since; the store has it as it was
        replace_file(folder / TASK_FILE, info.task_source)
        task = load_source(TaskSource(name=info.task, source=info.task_source, precision=info.precision))
        with open_session(info.device, settings, observer, (task,)) as session:
            spec = session.device.spec
            if info.gpu and info.gpu != spec.name:
                raise StoreError(f"{folder} was begun on {info.gpu}; {info.device} is {spec.name} here")
            known = store.repeat()
            observer.notify(f"run {folder}: seed {info.seed}, {len(known)} individuals so far")
            return _run(session, task, info, store, folder, known=known)


def _run(
    session: Session,
    task: Task,
    info: RunInfo,
    store: Store,
    folder: Path,
    *,
    pool: Path | None = None,
    limits: PromptLimits = NO_LIMITS,
    replay: Path | None = None,
    known: Iterable[Individual] = (),
) -> RunResult:
    settings = session.settings
    memory = RunPool(task, info, store, pool_path(store, pool, settings.cache))
    opening = open_agents(
        info, store, folder=folder, deck=memory.deck, keys=settings.keys, limits=limits, replay=replay
    )
    with opening as (agents, spent), open_tools(session, task, info, memory.deck, folder, replay) as tools:
        return search(
            session, task, info, store, agents, folder=folder, spent=spent, known=known,
            recall=memory.recall, remember=memory.remember, tools=tools,
            fallback_kernel=lambda task: expert_kernel(task, session.device.spec),
        )  # fmt: skip


@dataclass(frozen=True)
class Session:
    """A device and the executor that evaluates on it, for one search or for many."""

    device: Device
    executor: Executor
    settings: Settings
    observer: Observer

    def evaluate(self, task: Task, kernel: Kernel, *, seed: int, timeout_s: float) -> Evaluation:
        """One evaluation, waited for."""
        request = EvaluationRequest(
            task=TaskSource.of(task), kernel=kernel, device=self.device.name, gpu=self.device.spec.name, seed=seed,
            timeout_s=timeout_s,
        )  # fmt: skip
        return self.executor.submit(request).result()


@contextmanager
def open_session(
    device_name: str, settings: Settings, observer: Observer, tasks: tuple[Task, ...] = ()
) -> Iterator[Session]:
    """Open the device and the executor; the executor ends with the block, whatever happens."""
    from cupilot.executors import open_executor

    device = open_device(device_name, settings, observer)
    executor = open_executor(
        settings.executor,
        ExecutorOptions(
            slots=settings.jobs, cache=settings.cache, sandbox=settings.sandbox, scheduler=settings.scheduler,
            tasks=tasks, watch=observer, notify=observer.notify,
        ),
    )  # fmt: skip
    with shut_down(executor):
        yield Session(device, executor, settings, observer)


def open_device(name: str, settings: Settings, observer: Observer) -> Device:
    """Open a device by its full name, ready for use."""
    from cupilot import devices

    device = devices.open_device(name, settings.cache, settings.sandbox)
    prepare(device, observer)
    return device


def evaluate(
    device: Device, task: Task | TaskSource, kernel: Kernel, *, seed: int, timeout_s: float,
    watch: Watch = lambda step: None, require: tuple[str, ...] = (TASK,),
) -> Evaluation:  # fmt: skip
    """Verify and time one kernel on an open device; a task that is not loaded is, while the kernel is built."""
    from cupilot.evaluation import Evaluator

    source, known = (TaskSource.of(task), (task,)) if isinstance(task, Task) else (task, ())
    request = EvaluationRequest(
        task=source, kernel=kernel, device=device.name, seed=seed, timeout_s=timeout_s, require=require
    )
    return Evaluator(lambda name: device, watch=watch, tasks=known)(request)


def prepare(device: Device, observer: Observer) -> None:
    """Have the device make what it makes once per machine before anybody waits for a result."""
    if isinstance(device, Preparing) and (what := device.unprepared()):
        with observer.preparing(what) as tell:
            device.prepare(tell)


def search(
    session: Session,
    task: Task,
    info: RunInfo,
    store: Store,
    agents: Agents,
    *,
    folder: Path | None = None,
    spent: Callable[[], tuple[int, float]] = lambda: (0, 0.0),
    known: Iterable[Individual] = (),
    recall: Callable[[Task, Evaluation], tuple[PoolRecord, ...]] = lambda task, evaluation: (),
    remember: Callable[[Individual, Individual, Guidance | None], None] = lambda plain, best, guidance: None,
    fallback_kernel: Callable[[Task], Kernel | None] = lambda task: None,
    tools: Callable[[EvaluationCache], OpenTools] = lambda evaluate: no_tools,
    limited: bool = True,
) -> RunResult:
    """One search in an open session; the store stays the caller's.

    ``limited`` ends it within 5 % of the least time that is attainable.
    """
    from cupilot.tasks.lower_bound import task_limit

    observer, spec = session.observer, session.device.spec
    limit_s = task_limit(spec, task).time_s
    threads = DaemonThreads(info.in_flight)
    with shut_down(threads), observer.searching(RunState(info, time.monotonic(), limit_s)):
        return Evolution(
            task=task,
            info=info,
            agents=ObservedAgents(agents, observer),
            executor=session.executor,
            threads=threads,
            store=store,
            spec=spec,
            folder=folder,
            limit_s=limit_s if limited else None,
            spending=Spending(info.budget, time.monotonic, spent),
            recall=recall,
            remember=remember,
            fallback_kernel=fallback_kernel,
            tools=tools,
            known=known,
            observer=observer,
        ).run()


def expert_kernel(task: Task, spec: GpuSpec) -> Kernel | None:
    """The expert's plain kernel, for tasks it knows."""
    from cupilot.expert import Expert

    try:
        return Expert().generate(Brief(task, spec))
    except UnmatchedTask:
        return None
