"""Run a task on fake tensors, which have shapes and types but no memory; on real ones where its Python needs values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from cupilot.errors import TaskError
from cupilot.tasks.execute import isolated

T = TypeVar("T")


def on_fake_tensors(action: Callable[[bool], T]) -> T:
    """What an action on a task comes to; it is told whether tensors are fake.

    A task that looks at values (``.item()``, ``if x.sum() > 0``) is run once more with real tensors.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with isolated(seed=0), _no_logs():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                return action(True)
        except TaskError as error:
            if not looks_at_values(error):
                raise
    with isolated(seed=0):
        return action(False)


@contextmanager
def _no_logs() -> Iterator[None]:
    """PyTorch logs what fails on fake tensors with a traceback; the task's error says it in a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def looks_at_values(error: BaseException) -> bool:
    """Whether a task failed only because fake tensors have no values to look at."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    kinds = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kinds):
        cause = cause.__cause__ or cause.__context__
    return cause is not None
