"""The process that a task's text runs in, as ours sees it.

A task is somebody's Python: it may hang, end its process, take all memory.  So it runs in a confined process
(`server`), one for each text, and whatever goes wrong there is a `TaskError` in one sentence.  The process is started
when a task is loaded, kept while somebody uses it, and for a while after that: a task that is loaded is usually
evaluated next.  It ends with ours in any case.

PyTorch is imported once, in the process that all of them are forked from; ours never does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from cupilot.devices.job import JobArgument
from cupilot.errors import DataError, TaskError, UserError
from cupilot.places import Runs
from cupilot.records import Task, TaskSource, from_plain, to_plain
from cupilot.sandbox.bubblewrap import find_bubblewrap
from cupilot.sandbox.fork_server import Child, ForkServer
from cupilot.sandbox.frames import receive_frame, send_frame
from cupilot.sandbox.process import Limits, bare_environment
from cupilot.tasks.bind import Binding
from cupilot.tasks.bundle import bundled
from cupilot.tasks.embed import embed_imports
from cupilot.tasks.execute import read_source
from cupilot.tasks.expectation import Expectation
from cupilot.tasks.inspect import ModuleFacts
from cupilot.tasks.remote import RemoteCase, RemoteDrawn, RemoteSlicedCase
from cupilot.tasks.scale import Probe
from cupilot.tasks.server import OK, USER_ERROR, Structures
from cupilot.tasks.slicing import Slicing
from cupilot.tasks.stored import ALTERED, available_bytes, remove, stored_positions, taken_expectation
from cupilot.toolchain.signature import Parameter

T = TypeVar("T")

LOAD_S, VERSIONS_S, RESULTS_S = 120.0, 600.0, 3600.0
"""How long a task may take to load, to run in smaller versions, and to compute its results at any size."""
PATIENCE_S = 2.0
"""How long an end that has begun may take."""
SHARED_MEMORY = Path("/dev/shm")
MODULE = "cupilot.tasks.server"
KEPT = 2
"""Processes that are kept though nobody uses them."""
TASKS = 64 + 4 * (os.cpu_count() or 1)
SHARE = 0.8
"""Of the memory that is free when it starts, what a task may use."""
MALLOC = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1073741824"
"""Memory that a reference no longer needs serves the next operator as it is: asking the system for it anew, page by
page, would take longer than computing."""


# --- tasks, as commands ask for them ----------------------------------------------------------------


def load_task(path: Path, precision: str = "fp32", change: Callable[[str], str] = str) -> Task:
    """The task in a KernelBench-form file; anything wrong is a `TaskError` in one sentence."""
    return load_source(begin_task(path, precision, change))


def begin_task(path: Path, precision: str = "fp32", change: Callable[[str], str] = str) -> TaskSource:
    """The text of a task file, with what it imports from its own folder; its process starts, and nobody waits.

    Of a file with several shapes it is the first one's.  ``change`` may make another task of the text.
    """
    text = task_texts(path, precision)[0]
    source = replace(text, name=path.stem, source=change(text.source))
    process_of(source.source).file = str(path)
    return source


def task_texts(path: Path, precision: str = "fp32") -> tuple[TaskSource, ...]:
    """The tasks of a file: one, or one for each of its shapes (see `bundle`); their names tell them apart."""
    text = embed_imports(read_source(path), path.parent)
    return shaped_tasks(TaskSource(name=path.stem, source=text, precision=precision), str(path))


def shaped_tasks(source: TaskSource, where: str) -> tuple[TaskSource, ...]:
    """The tasks of a text, likewise; ``where`` is what messages call it."""
    texts = bundled(source.source, where)
    return tuple(replace(source, name=f"{source.name} {text.shape}".rstrip(), source=text.source) for text in texts)


def load_source(source: TaskSource) -> Task:
    """The task in a request; error messages name it by its file if it has one, else by its own name."""
    return process_of(source.source).load(source)


def bind_task(
    task: Task, parameters: Sequence[Parameter] | None, *, entry: str = "forward", fills_outputs: bool = False
) -> Binding:
    """See `cupilot.tasks.bind.bind_task`."""
    return process_of(task.source).bind_task(task, parameters, entry=entry, fills_outputs=fills_outputs)


def module_facts(task: Task) -> ModuleFacts:
    """See `cupilot.tasks.inspect.module_facts`."""
    return process_of(task.source).module_facts(task)


def process_of(source: str) -> TaskProcess:
    """The process of a task's text, started if there is none."""
    return _processes(os.getpid()).of(source)


def start_server() -> None:
    """Begin to import PyTorch in the other process, so that the first task need not wait for all of it."""
    _processes(os.getpid()).server()


# --- one process -------------------------------------------------------------------------------------


class TaskProcess:
    """One text's process; safe to use from several threads, which take turns.

    When it has ended for the task's fault, every later request fails for the same reason.
    """

    def __init__(self, server: ForkServer, limits: Limits | None = None, load_s: float = LOAD_S) -> None:
        self._server, self._load_s = server, load_s
        self._path = tuple(os.path.abspath(entry) for entry in sys.path)
        readable = [Path(entry) for entry in self._path if entry != os.sep]
        limits = limits or Limits(memory_bytes=int(SHARE * available_bytes()), tasks=TASKS)
        self._child: Child = server.begin(readable, limits)
        self._lock = threading.Lock()
        self._handles = itertools.count()
        self._forgotten: deque[int] = deque()
        self._failure = ""
        self.file = ""
        weakref.finalize(self, server.abandon, self._child)

    @property
    def usable(self) -> bool:
        return not self._failure and self._server.alive

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where it keeps its files."""
        return self._child.folders

    def close(self) -> None:
        """End it now, rather than when nobody has it any more."""
        with self._lock:
            if not self._failure:
                self._failure = "the task's process is closed"
                self._server.end(self._child)

    # --- requests: see the functions of the same names

    def load(self, source: TaskSource) -> Task:
        where = self.file or source.name
        return self._ask(
            "load", Task, where, "loading", self._load_s,
            source=source.source, name=source.name, precision=source.precision, where=where, path=self._path,
        )  # fmt: skip

    def bind_task(
        self, task: Task, parameters: Sequence[Parameter] | None, *, entry: str, fills_outputs: bool
    ) -> Binding:  # fmt: skip
        given = None if parameters is None else tuple(parameters)
        return self._ask(
            "bind_task", Binding, task.name, "loading", self._load_s,
            task=task, parameters=given, entry=entry, fills_outputs=fills_outputs,
        )  # fmt: skip

    def module_facts(self, task: Task) -> ModuleFacts:
        return self._ask("module_facts", ModuleFacts, task.name, "loading", self._load_s, task=task)

    def scaled_tasks(self, task: Task, limit_elements: int = 1 << 18) -> tuple[Task, ...]:
        return self._versions("scaled_tasks", tuple[Task, ...], task, limit_elements=limit_elements)

    def long_tasks(self, task: Task, limit_elements: int) -> tuple[Task, ...]:
        return self._versions("long_tasks", tuple[Task, ...], task, limit_elements=limit_elements)

    def probe_tasks(self, task: Task, base: Task, limit_elements: int = 1 << 18) -> tuple[Probe, ...]:
        return self._versions("probe_tasks", tuple[Probe, ...], task, base=base, limit_elements=limit_elements)

    def _versions(self, request: str, kind: type[T], task: Task, /, **values: object) -> T:
        return self._ask(request, kind, task.name, "running in smaller versions", VERSIONS_S, task=task, **values)

    def learn_structures(self, task: Task, seed: int) -> tuple[Any, ...]:
        kind: Any = Structures
        found = self._ask(
            "learn_structures", kind, task.name, "drawing its inputs", VERSIONS_S, task=task, seed=seed
        )  # fmt: skip
        return tuple(found)

    def find_slicing(self, small: Task, seed: int) -> Slicing | None:
        kind: Any = Slicing | None
        found: Slicing | None = self._ask(
            "find_slicing", kind, small.name, "computing its results", VERSIONS_S, small=small, seed=seed
        )
        return found

    def draw_case(self, task: Task, kind: str, seed: int, structures: Structures = None) -> RemoteDrawn:
        drawn = self._drawn(task, kind, seed)
        self._results(
            "draw_case", type(None), drawn, "drawing its inputs", task=task, kind=kind, seed=seed, structures=structures
        )
        return drawn

    def make_case(self, task: Task, kind: str, seed: int, structures: Structures = None) -> RemoteCase:
        drawn = self._drawn(task, kind, seed)
        stored = self._results(
            "make_case", tuple[tuple[JobArgument, ...], ...], drawn, "computing its results",
            task=task, kind=kind, seed=seed, structures=structures,
        )  # fmt: skip
        kept = tuple(self._keep(fields) for fields in stored)
        case = RemoteCase(drawn, stored=kept)
        weakref.finalize(case, remove, tuple(itertools.chain(*kept)))
        return case

    def sliced_case(
        self, task: Task, kind: str, seed: int, structures: Structures, slicing: Slicing | None
    ) -> RemoteSlicedCase:  # fmt: skip
        drawn = self._drawn(task, kind, seed)
        self._results(
            "sliced_case", type(None), drawn, "drawing its inputs",
            task=task, kind=kind, seed=seed, structures=structures, slicing=slicing,
        )  # fmt: skip
        return RemoteSlicedCase(drawn, slicing)

    def bound(self, handle: int, expressions: str) -> tuple[JobArgument, ...]:
        stored = self._ask(
            "bound", tuple[JobArgument, ...], "the task", "drawing its inputs", RESULTS_S,
            handle=handle, expressions=expressions,
        )  # fmt: skip
        return self._keep(stored)

    def prepare(self, handle: int) -> None:
        """See `SlicedCase.prepare`."""
        self._ask("prepare", type(None), "the task", "computing its results", RESULTS_S, handle=handle)

    def expectation(self, handle: int, output: int, where: Runs | None) -> Expectation:
        path = self._child.folders[-1] / f"positions{next(self._handles)}"
        stored = self._ask(
            "expectation", tuple[JobArgument, ...], "the task", "computing its results", RESULTS_S,
            handle=handle, output=output, where=stored_positions(where, path),
        )  # fmt: skip
        return taken_expectation(self._keep(stored))

    def _keep(self, stored: Sequence[JobArgument]) -> tuple[JobArgument, ...]:
        """The same with files that are out of the task's reach."""

        def keep(each: JobArgument) -> JobArgument:
            if each.items is not None:
                return replace(each, items=tuple(map(keep, each.items)))
            return replace(each, file=str(self._child.keep(each.file))) if each.file else each

        try:
            return tuple(map(keep, stored))
        except (OSError, ValueError):
            raise TaskError(ALTERED) from None

    def _drawn(self, task: Task, kind: str, seed: int) -> RemoteDrawn:
        drawn = RemoteDrawn(task, kind, seed, process=self, handle=next(self._handles))
        # may run at any moment, so it takes no lock
        weakref.finalize(drawn, self._forgotten.append, drawn.handle)
        return drawn

    def _results(self, request: str, kind: type[T], drawn: RemoteDrawn, doing: str, /, **values: object) -> T:
        return self._ask(request, kind, drawn.task.name, doing, RESULTS_S, handle=drawn.handle, **values)

    # --- the wire

    def _ask(self, request: str, kind: type[T], name: str, doing: str, timeout_s: float, /, **values: object) -> T:
        """Raises a `TaskError` that names the task and what it was doing."""
        self._server.wait_until_ready()
        with self._lock:
            if self._failure:
                raise TaskError(self._failure)
            message = {"do": request, "task": name, "forget": self._forget(), "values": to_plain(values)}
            try:
                send_frame(self._child.connection, json.dumps(message).encode(), timeout_s)
                reply = json.loads(receive_frame(self._child.connection, timeout_s))
                status, found = reply["status"], reply["found"]
                if status == OK:
                    return from_plain(kind, found, request)
            except TimeoutError:
                self._fail(f"{name} did not finish {doing} within {timeout_s:g} s")
            except (EOFError, OSError):
                self._fail(f"{name} {{how}} while {doing}", PATIENCE_S)
            except (ValueError, KeyError, TypeError, DataError):
                self._fail(f"{name} disturbed the process that it runs in while {doing}")
            except BaseException:
                # interrupted: an answer that nobody waits for would be taken for the next one
                self._failure = f"{name} was interrupted while {doing}"
                self._server.abandon(self._child)
                raise
        error = UserError(found) if status == USER_ERROR else TaskError(found)
        if reply.get("trace"):
            error.add_note(str(reply["trace"]))
        raise error

    def _forget(self) -> list[int]:
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._forgotten.popleft())
        return found

    def _fail(self, sentence: str, patience_s: float = 0.0) -> NoReturn:
        """The process is of no use any more."""
        ending = self._server.end(self._child, patience_s)
        if ending.excess:
            how = ending.excess
        elif ending.is_ours:
            how = "cut the connection to the process that it runs in"
        elif ending.status == -signal.SIGKILL:
            how = "was killed (by itself, or because the machine ran out of memory)"
        elif ending.status < 0:
            how = f"crashed with {signal.Signals(-ending.status).name}"
        else:
            how = f"ended its own process (status {ending.status})"
        self._failure = sentence.replace("{how}", how)
        raise TaskError(self._failure)


# --- all of them -------------------------------------------------------------------------------------


class _Processes:
    """The server and the processes of this program; one of each text."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServer | None = None
        self._alive: weakref.WeakValueDictionary[str, TaskProcess] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[str, TaskProcess] = OrderedDict()

    def of(self, source: str) -> TaskProcess:
        server = self.server()
        with self._lock:
            found = self._alive.get(source)
            if found is None or not found.usable:
                found = self._alive[source] = TaskProcess(server)
            self._recent[source] = found
            self._recent.move_to_end(source)
            while len(self._recent) > KEPT:
                self._recent.popitem(last=False)
            return found

    def server(self) -> ForkServer:
        with self._lock:
            if self._server is None or not self._server.alive:
                self._server = open_server()
                weakref.finalize(self, self._server.close)
            return self._server


@cache
def _processes(program: int) -> _Processes:
    """One for each process of ours: after a fork, the child has none."""
    return _Processes()


def open_server() -> ForkServer:
    """A server that tasks are forked from, with folders of its own; it ends with our process."""
    places = [*([SHARED_MEMORY] if os.access(SHARED_MEMORY, os.W_OK) else []), Path(tempfile.gettempdir())]
    folders = [Path(tempfile.mkdtemp(prefix="cupilot-", dir=place)) for place in places]
    environment = bare_environment(folders[0], "OMP_NUM_THREADS", "MKL_NUM_THREADS") | {"GLIBC_TUNABLES": MALLOC}
    # PyTorch's compiler makes a folder for itself as soon as it is imported, and leaves it
    environment["TMPDIR"] = str(folders[-1])
    return ForkServer(find_bubblewrap().program, MODULE, folders, environment)
