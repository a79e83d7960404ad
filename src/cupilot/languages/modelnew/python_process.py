"""The process that a ModelNew file's Python code runs in: ``python -m ...modelnew.python_process DESCRIPTOR FOLDER``.

The file runs in the PyTorch of this process, on tensors whose memory is the worker's (`tensors`), with PyTorch's loader
replaced (`loader`) and ``torch.cuda`` answering for the virtual GPU (`torch_cuda`).  The worker sends commands - load
the file, construct the module, run ``forward`` - and gets a report of each.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import traceback
from ast import literal_eval
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cupilot.gpu import load_spec
from cupilot.languages.modelnew.extension import FILE
from cupilot.languages.modelnew.loader import ExtensionError, Loader, Unbuilt
from cupilot.languages.modelnew.operators import Operators
from cupilot.languages.modelnew.sizes import sizes_of
from cupilot.languages.modelnew.state import Place
from cupilot.languages.modelnew.tensors import NAMES, DeviceTensor, Memory
from cupilot.languages.modelnew.torch_cuda import pretend_cuda
from cupilot.languages.modelnew.wire import Wire, decoded
from cupilot.sandbox.confine import confine
from cupilot.toolchain.abi import TensorValue

MODULE = "solution"
REASON_CHARACTERS = 400
STEPS = 12


def main(descriptor: int, folder: Path) -> None:
    torch.set_num_threads(1)
    wire = Wire(descriptor)
    confine((), (folder,))
    runner: Runner | None = None
    with contextlib.suppress(EOFError):  # the worker has ended
        while True:
            message, _ = wire.receive()
            if runner is None or message["do"] == "load":
                runner = Runner(wire, message["source"], message["gpu"], message["torch_ops"])
            wire.send(runner.act(message))


class Runner:
    """The file, its modules by constructor's arguments and task, and the results of the last call."""

    def __init__(self, wire: Wire, source: str, gpu: str, torch_ops: bool) -> None:
        self._source = source
        self._memory = Memory(wire)
        pretend_cuda(load_spec(gpu), self._memory)
        self._operators = Operators(self._memory, allowed=torch_ops)
        self._loader = Loader(source, self._memory)
        self._loader.install()
        self._module = ModuleType(MODULE)
        self._models: dict[tuple[str, str], torch.nn.Module] = {}
        self._model: torch.nn.Module | None = None
        self._kept: tuple[DeviceTensor, ...] = ()

    def act(self, message: dict[str, Any]) -> dict[str, Any]:
        """Carry out a command of the worker; gives the report."""
        if message["do"] == "load":
            return self._done("load", self._load)
        if message["do"] == "construct":
            done = self._done("wrapper-error", lambda: self._construct(message["init"], message["task"]))
            return done | ({} if "problem" in done or done["wanted"] else {"places": self._places()})
        if message["do"] == "forward":
            self._operators.begin(counting=True)
            done = self._done("wrapper-error", lambda: self._forward(message["inputs"], message["state"]))
            self._operators.begin(counting=False)
            done |= {"operators": list(self._operators.counts.items()), "operations": self._operators.operations}
            return done | {"outputs": [output.value() for output in self._kept]}
        self._kept = ()
        self._loader.release()
        return {"do": "done"}

    def _done(self, kind: str, action: Callable[[], None]) -> dict[str, Any]:
        """Run code of the file; an exception is a problem of that kind."""
        done: dict[str, Any] = {"do": "done"}
        try:
            with self._operators:
                action()
        except Unbuilt:
            pass
        except SystemExit:
            done["problem"] = {"kind": "crash", "message": "the solution calls exit", "log": ""}
        except (Exception, KeyboardInterrupt) as error:
            done["problem"] = {"kind": kind, "message": _reason(error), "log": _steps(error)}
        return done | {"wanted": list(self._loader.wanted.values())}

    def _load(self) -> None:
        # classes and functions look up their module and their source
        sys.modules[MODULE] = self._module
        self._module.__file__ = FILE
        linecache.cache[FILE] = (len(self._source), None, self._source.splitlines(keepends=True), FILE)
        exec(compile(self._source, FILE, "exec", dont_inherit=True), self._module.__dict__)
        if not isinstance(_solution(self._module.__dict__), type):
            raise TypeError("there is no class ModelNew, and no class Model either")

    def _construct(self, init: str, task: str) -> None:
        names = self._module.__dict__
        names.update(
            (name, size) for name, size in sizes_of(self._source, task).items() if type(names.get(name)) is int
        )
        if (init, task) not in self._models:
            torch.manual_seed(0)
            self._models[init, task] = _solution(names)(*literal_eval(init)).cuda()
        self._model = self._models[init, task]

    def _places(self) -> list[Place]:
        assert self._model is not None
        found = []
        for named, is_parameter in ((self._model.named_parameters(), True), (self._model.named_buffers(), False)):
            for name, tensor in named:
                dtype = NAMES.get(tensor.dtype, "")
                found.append(Place(name, tuple(tensor.shape), tuple(tensor.stride()), dtype, is_parameter))
        return found

    def _forward(self, inputs: list[Any], state: dict[str, Any]) -> None:
        assert self._model is not None
        for name, value in state.items():
            _put(self._model, name, self._memory.borrowed(decoded(value)))
        given = [self._memory.borrowed(v) if isinstance(v, TensorValue) else v for v in decoded(inputs)]
        with torch.no_grad():
            result = self._model(*given)
        outputs = tuple(result) if isinstance(result, (list, tuple)) else (result,)
        for number, output in enumerate(outputs):
            if not isinstance(output, DeviceTensor):
                kind = "a tensor on the host" if isinstance(output, torch.Tensor) else f"a {type(output).__name__}"
                raise TypeError(f"output {number} of forward is {kind}, not a tensor on the GPU")
        self._kept = outputs


def _solution(names: Mapping[str, Any]) -> Any:
    """The solution's class; some authors call it like the task's."""
    return names.get("ModelNew", names.get("Model"))


def _put(model: torch.nn.Module, path: str, value: DeviceTensor) -> None:
    """Replace a parameter or buffer, in all modules that share it."""
    owner, _, name = path.rpartition(".")
    before = getattr(model.get_submodule(owner), name)
    after: Any = value
    if isinstance(before, torch.nn.Parameter):
        after = torch.nn.Parameter(value, requires_grad=before.requires_grad)
    for module in model.modules():
        for kept in (module._parameters, module._buffers):
            for own in [own for own, tensor in kept.items() if tensor is before]:
                kept[own] = after


def _steps(error: BaseException) -> str:
    """The lines of the file that led to an exception, the last ones of many, and the exception."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE][-STEPS:]
    steps = [f"{FILE}, line {frame.lineno}, in {frame.name}: {frame.line}\n" for frame in frames]
    return "".join((*steps, *traceback.format_exception_only(error)))


def _reason(error: BaseException) -> str:
    """One sentence, with the last line of the file that led there; an extension's message stays as it is."""
    if isinstance(error, ExtensionError):
        return str(error)
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return f"{FILE}, line {error.lineno}: {error.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    words = " ".join(str(error).split())
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return f"{FILE}, line {lines[-1]}: {text}"[:REASON_CHARACTERS] if lines else text[:REASON_CHARACTERS]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
