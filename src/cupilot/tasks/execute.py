"""Run the user's task file: a fresh namespace, no lasting effects, mistakes as one sentence.

For the process that tasks run in (`process`), whose walls keep what a file does by mistake or malice from us.
Its module is not registered in ``sys.modules``, so a file that pickles its own classes is not covered.
"""

from __future__ import annotations

import inspect
import random
import re
import sys
import threading
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cupilot.errors import TaskError

if TYPE_CHECKING:
    import torch

REASON_CHARACTERS = 240
MOST_BYTES = 16 << 20
_ALONE = threading.RLock()


def read_source(path: Path) -> str:
    """The text of a task file, or a `TaskError` that says why there is none."""
    try:
        if path.exists() and not path.is_file():  # a folder, or a device that never ends
            raise TaskError(f"{path}: the task file cannot be read (it is not a plain file)")
        if path.stat().st_size > MOST_BYTES:
            raise TaskError(f"{path}: not a task file (it has more than {MOST_BYTES >> 20} MiB)")
        with tokenize.open(path) as file:  # in the encoding that it declares, as Python reads it
            return file.read()
    except FileNotFoundError:
        raise TaskError(f"{path}: there is no such task file") from None
    except (UnicodeDecodeError, SyntaxError) as error:
        told = re.search(r"unknown encoding.*: (\S+)$", str(error))
        problem = f"there is no encoding {told.group(1)}" if told else "its text is not UTF-8"
        raise TaskError(f"{path}: not a Python file ({problem})") from None
    except OSError as error:
        raise TaskError(f"{path}: the task file cannot be read ({error.strerror})") from None


@contextmanager
def blamed(where: str, what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into one sentence: place, what went wrong, reason."""
    try:
        yield
    except TaskError:
        raise
    except SystemExit:
        raise TaskError(f"{where}: {what} (it calls exit)") from None
    except Exception as error:
        raise TaskError(f"{where}: {what} ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 3] + "..."


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed every global generator for the block, and undo that and the default type afterwards.

    What the file prints goes to stderr, because stdout belongs to the command's own result.  All of this is the whole
    process's, so one thread at a time is in here.
    """
    import torch

    with _ALONE:
        yield from _isolated(torch, seed)


def _isolated(torch: Any, seed: int) -> Iterator[None]:
    from cupilot.tasks.on_cpu import OnCpu

    states = (torch.get_rng_state(), np.random.get_state(), random.getstate(), torch.get_default_dtype())
    try:
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        with redirect_stdout(sys.stderr), torch.no_grad(), OnCpu():
            yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
        torch.set_default_dtype(states[3])


def run_source(source: str, where: str) -> dict[str, Any]:
    """Execute the file's text in a fresh namespace and see that it has KernelBench form."""
    try:
        code = compile(source, where, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        place = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise TaskError(f"{where}: not a Python file ({text}{place})") from None
    namespace: dict[str, Any] = {"__name__": "cupilot_task", "__file__": where}
    with blamed(where, "the task file cannot be imported"):
        exec(code, namespace)
    if not inspect.isclass(namespace.get("Model")):
        raise TaskError(f"{where}: not in KernelBench form (there is no class Model)")
    if not callable(namespace.get("get_inputs")):
        raise TaskError(f"{where}: not in KernelBench form (there is no function get_inputs)")
    return namespace


def init_inputs(namespace: Mapping[str, Any], where: str) -> tuple[Any, ...]:
    """What ``get_init_inputs`` returns, the constructor's arguments; a task without it has none."""
    with blamed(where, "get_init_inputs fails"):
        return tuple(namespace["get_init_inputs"]()) if "get_init_inputs" in namespace else ()


def build_model(namespace: dict[str, Any], where: str) -> torch.nn.Module:
    """``Model(*get_init_inputs())`` in the mode its constructor leaves it in, as KernelBench runs it."""
    import torch

    arguments = init_inputs(namespace, where)
    with blamed(where, "Model cannot be constructed"):
        model = namespace["Model"](*arguments)
    if not isinstance(model, torch.nn.Module):
        raise TaskError(f"{where}: Model is not a torch.nn.Module")
    return model


def draw_inputs(namespace: dict[str, Any], where: str) -> tuple[Any, ...]:
    """What ``get_inputs`` returns: tensors and scalars, nothing nested."""
    import torch

    with blamed(where, "get_inputs fails"):
        values = namespace["get_inputs"]()
    if not isinstance(values, (list, tuple)):
        raise TaskError(f"{where}: get_inputs returns a {type(values).__name__}, not a list")
    for index, value in enumerate(values):
        if not isinstance(value, (torch.Tensor, bool, int, float, str)):
            raise TaskError(f"{where}: input {index} is a {type(value).__name__}, not a tensor or a scalar")
    return tuple(values)


def run_model(model: torch.nn.Module, inputs: tuple[Any, ...], where: str) -> tuple[torch.Tensor, ...]:
    """The model's outputs as a tuple of tensors."""
    import torch

    with blamed(where, "Model does not run on the inputs"):
        result = model(*inputs)
    outputs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    if not outputs:
        raise TaskError(f"{where}: Model returns nothing")
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            raise TaskError(f"{where}: Model returns a {type(output).__name__}, not a tensor or a tuple of tensors")
    return outputs
