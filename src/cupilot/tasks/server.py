"""What runs in the process of a task: requests in, records out, arrays in files.

The only process that executes the text of a task.  It is a confined child of `cupilot.sandbox.fork_server`, which has
imported PyTorch and exported a small module, so that this takes a fraction of a second.
"""

from __future__ import annotations

import inspect
import json
import os
import socket
import sys
import tempfile
import traceback
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cupilot.arrays import PAGE
from cupilot.devices.job import JobArgument
from cupilot.errors import TaskError, UserError
from cupilot.places import Runs
from cupilot.records import Task, from_plain, to_plain
from cupilot.sandbox.frames import receive_frame, send_frame
from cupilot.tasks.bind import Binding, bind_task
from cupilot.tasks.case import TILE_PAGES, Drawn, draw_case, make_case
from cupilot.tasks.case import learn_structures as learn
from cupilot.tasks.inspect import ModuleFacts, module_facts
from cupilot.tasks.load import task_from_source
from cupilot.tasks.scale import Probe, long_tasks, probe_tasks, scaled_tasks
from cupilot.tasks.slices import SlicedCase
from cupilot.tasks.slicing import Slicing, find_slicing
from cupilot.tasks.stored import Store, taken
from cupilot.tasks.structure import Structure
from cupilot.toolchain.signature import Parameter

OK, TASK_ERROR, USER_ERROR = "ok", "task", "user"
WARM_UP = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(4, 4)]
"""
TILES = 4
"""Of large inputs, that there should be room for in shared memory."""
Structures = tuple[Structure | None, ...] | None


def warm_up() -> None:
    """Import PyTorch and what exporting a graph needs; with one thread, because others would not survive a fork."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    task_from_source(WARM_UP, "warm-up", "fp32", "warm-up")
    torch.set_num_threads(threads)


def serve(connection: socket.socket, folders: Sequence[Path]) -> None:
    """Answer requests until our parent closes its end."""
    store = Store(folders)
    tempfile.tempdir = str(store.folder(TILES * TILE_PAGES * PAGE))  # what is mapped there need not go to a disk
    server = Server(store)
    try:
        while True:
            send_frame(connection, server.answer(receive_frame(connection)))
    except (EOFError, OSError):
        os._exit(0)


class Server:
    """Methods without an underscore are requests; their annotations say how records are read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cases: dict[int, Drawn | SlicedCase] = {}
        self._arguments: dict[tuple[int, int], JobArgument] = {}

    def answer(self, text: bytes) -> bytes:
        """Carry out one request; whatever goes wrong is one sentence."""
        asked = json.loads(text)
        name = asked["task"]
        for handle in asked["forget"]:
            self._forget(handle)
        try:
            found = to_plain(self._called(asked["do"], asked["values"]))
            return _reply(OK, found)
        except TaskError as error:
            return _reply(TASK_ERROR, str(error))
        except UserError as error:
            return _reply(USER_ERROR, str(error))
        except OSError as error:
            return _reply(TASK_ERROR, f"{name}: its arrays cannot be stored ({error})")
        except BaseException as error:  # a task can turn anything upside down
            words = " ".join(str(error).split())[:200]
            return _reply(TASK_ERROR, f"{name}: {type(error).__name__} {words}".rstrip(), traceback.format_exc())

    def _called(self, request: str, values: dict[str, Any]) -> Any:
        method = getattr(self, request)
        hints = typing.get_type_hints(method)
        names = inspect.signature(method).parameters
        return method(**{name: from_plain(hints[name], values[name], name) for name in names})

    # --- what a task is -----------------------------------------------------------------------

    def load(self, source: str, name: str, precision: str, where: str, path: tuple[str, ...]) -> Task:
        """``path`` is where modules are looked for, as in the parent."""
        sys.path[:] = path
        return task_from_source(source, name, precision, where)

    def bind_task(
        self, task: Task, parameters: tuple[Parameter, ...] | None, entry: str, fills_outputs: bool
    ) -> Binding:  # fmt: skip
        return bind_task(task, parameters, entry=entry, fills_outputs=fills_outputs)

    def module_facts(self, task: Task) -> ModuleFacts:
        return module_facts(task)

    def scaled_tasks(self, task: Task, limit_elements: int) -> tuple[Task, ...]:
        return scaled_tasks(task, limit_elements)

    def long_tasks(self, task: Task, limit_elements: int) -> tuple[Task, ...]:
        return long_tasks(task, limit_elements)

    def probe_tasks(self, task: Task, base: Task, limit_elements: int) -> tuple[Probe, ...]:
        return probe_tasks(task, base, limit_elements)

    def learn_structures(self, task: Task, seed: int) -> Structures:
        return learn(task, seed)

    def find_slicing(self, small: Task, seed: int) -> Slicing | None:
        return find_slicing(small, seed)

    # --- inputs and results -------------------------------------------------------------------

    def draw_case(self, handle: int, task: Task, kind: str, seed: int, structures: Structures) -> None:
        self._cases[handle] = draw_case(task, kind, seed, structures)

    def make_case(
        self, handle: int, task: Task, kind: str, seed: int, structures: Structures
    ) -> tuple[tuple[JobArgument, ...], ...]:
        """What each output should be; the inputs stay here until somebody asks for them."""
        case = make_case(task, kind, seed, structures)
        self._cases[handle] = case.drawn
        return tuple(self._store.expectation(case.expectation(output, None)) for output in range(len(case.expected)))

    def sliced_case(
        self, handle: int, task: Task, kind: str, seed: int, structures: Structures, slicing: Slicing | None
    ) -> None:  # fmt: skip
        self._cases[handle] = SlicedCase(draw_case(task, kind, seed, structures), slicing)

    def bound(self, handle: int, expressions: str) -> tuple[JobArgument, ...]:
        """The same file for the same tensor each time."""
        case = self._cases[handle]
        drawn = case.drawn if isinstance(case, SlicedCase) else case
        return tuple(self._argument(handle, value) for value in drawn.bound(expressions))

    def _argument(self, handle: int, value: Any) -> JobArgument:
        if isinstance(value, tuple):
            return JobArgument(items=tuple(self._argument(handle, item) for item in value))
        if not isinstance(value, np.ndarray):
            return self._store.value(value)
        # the case keeps its arrays, so that each is known by its identity
        key = handle, id(value)
        if key not in self._arguments:
            self._arguments[key] = self._store.argument(value)
        return self._arguments[key]

    def prepare(self, handle: int) -> None:
        case = self._cases[handle]
        assert isinstance(case, SlicedCase)
        case.prepare()

    def expectation(self, handle: int, output: int, where: JobArgument) -> tuple[JobArgument, ...]:
        case = self._cases[handle]
        assert isinstance(case, SlicedCase)
        table: Any = taken(where)
        return self._store.expectation(case.expectation(output, None if table is None else Runs(table)))

    def _forget(self, handle: int) -> None:
        self._cases.pop(handle, None)
        for key in [key for key in self._arguments if key[0] == handle]:
            del self._arguments[key]


def _reply(status: str, found: object, trace: str = "") -> bytes:
    return json.dumps({"status": status, "found": found, "trace": trace}).encode()
