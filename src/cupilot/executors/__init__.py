"""Where evaluations run: ``local`` threads, or workers of a ``dask`` or ``ray`` cluster.

An executor is one module of this package, or of the entry-point group ``cupilot.executors``, with a function
``open_executor(options: ExecutorOptions) -> Executor``.  Modules are found by scanning, so adding one edits no file.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points

from cupilot.contracts import Executor, ExecutorOptions
from cupilot.errors import UserError

DEFAULT = "local"
GROUP = "cupilot.executors"


def executor_names() -> tuple[str, ...]:
    """All executors: those of this package, and those that other packages add."""
    found = {module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")}
    return tuple(sorted(found | set(entry_points(group=GROUP).names)))


def open_executor(name: str, options: ExecutorOptions) -> Executor:
    """Open an executor by name."""
    if name not in executor_names():
        raise UserError(f"unknown executor {name!r}; known executors are {', '.join(executor_names())}")
    added = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    executor: Executor = import_module(added.get(name, f"{__name__}.{name}")).open_executor(options)
    return executor
