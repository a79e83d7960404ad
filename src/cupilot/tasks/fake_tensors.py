"""Run a task on fake tensors, which have shapes and types but no memory; on real ones where its Python needs values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cupilot.errors import TaskError
from cupilot.tasks.execute import isolated

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def on_fake_tensors(action: Callable[[bool], T]) -> T:
    """What an action on a task comes to; it is told whether tensors are fake.

    A task that looks at values (``.item()``, ``if x.sum() > 0``) is run once more with real tensors.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    with isolated(seed=0), _no_logs():
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), _parameters_replaced():
                return action(True)
        except TaskError as error:
            if not looks_at_values(error):
                raise
    with isolated(seed=0):
        return action(False)


@contextmanager
def _parameters_replaced() -> Iterator[None]:
    """``module.half()`` and ``module.to(...)`` replace fake parameters by others; PyTorch would exchange their insides,
    which it refuses while somebody has a weak reference to one, as its fake mode does.

    Parameters that several modules share stay shared.
    """
    import torch

    replaced: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = {}
    before = torch.nn.Module._apply

    def _apply(self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        if recurse:
            for child in self.children():
                child._apply(fn)  # type: ignore[no-untyped-call]
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in replaced:
                applied = fn(parameter)
                if applied is parameter:
                    continue
                replaced[id(parameter)] = parameter, torch.nn.Parameter(applied, parameter.requires_grad)
            self._parameters[name] = replaced[id(parameter)][1]
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    torch.nn.Module._apply = _apply  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module._apply = before  # type: ignore[method-assign]


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
