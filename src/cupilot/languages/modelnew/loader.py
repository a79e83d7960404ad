"""``load_inline`` and ``load`` of `torch.utils.cpp_extension`, for sources that the trusted process builds.

A call with sources that have been built returns a module whose functions run on the virtual GPU.  Other sources are
listed as wanted, and the module that is returned cannot be used yet.  ``load`` takes files that this process can read,
with the headers beside them.  Not covered: operators called as ``torch.ops``, and results that are not tensors.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.utils.cpp_extension as theirs

from cupilot.languages.modelnew.extension import Extension, Source, literals
from cupilot.languages.modelnew.tensors import Buffer, DeviceTensor, Memory, placed
from cupilot.languages.modelnew.wire import decoded
from cupilot.toolchain.abi import DTYPE_CODES, TensorValue, WrapperError
from cupilot.toolchain.signature import signature_of

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
_CUDA_FILES = (".cu", ".cuh")


class ExtensionError(RuntimeError):
    """An exception of an extension's function; its text is the function's own message."""


class Unbuilt(BaseException):
    """A function was called whose extension is not built yet; a base exception, so that the file does not catch it."""


class Loader:
    """Replaces PyTorch's loader; ``wanted`` are extensions that have to be built."""

    def __init__(self, source: str, memory: Memory) -> None:
        self.wanted: dict[str, Extension] = {}
        # where texts begin, so that messages about them can name lines of the file; of equal texts the first
        self._lines = {text: lines.start for text, lines in reversed([*literals(source)]) if "\n" in text}
        self._memory = memory
        self._loaded: dict[str, _Loaded] = {}

    def install(self) -> None:
        """Replace PyTorch's functions, keeping their signatures."""
        for name, ours in (("load_inline", self.load_inline), ("load", self.load)):
            setattr(theirs, name, _in_place_of(getattr(theirs, name), ours))

    def load_inline(self, given: Mapping[str, Any]) -> ModuleType:
        host, cuda = (
            tuple(Source("", text, self._lines.get(text, 0)) for text in _listed(given.get(name)))
            for name in ("cpp_sources", "cuda_sources")
        )
        functions = tuple(given["functions"]) if isinstance(given.get("functions"), dict) else given.get("functions")
        return self._module(Extension(given["name"], host, cuda, _listed(functions), _flags(given)))

    def load(self, given: Mapping[str, Any]) -> ModuleType:
        folders = [Path(folder) for folder in _listed(given.get("extra_include_paths"))]
        read = [(Path(file), _with_headers(Path(file), folders, set())) for file in _listed(given["sources"])]
        host, cuda = (
            tuple(Source(path.name, text) for path, text in read if (path.suffix in _CUDA_FILES) == on_device)
            for on_device in (False, True)
        )
        return self._module(Extension(given["name"], host, cuda, (), _flags(given)))

    def release(self) -> None:
        """Free the results that no tensor refers to any more."""
        for loaded in self._loaded.values():
            loaded.release()

    def _module(self, extension: Extension) -> ModuleType:
        module = ModuleType(extension.name)
        entries = self._memory.ask(do="open", key=extension.key)[0]["entries"]
        if entries is None:
            self.wanted[extension.key] = extension
            module.__getattr__ = _unbuilt  # type: ignore[method-assign]
            return module
        loaded = self._loaded.setdefault(extension.key, _Loaded(extension, self._memory))
        for name, signature in entries:
            setattr(module, name, _Function(name, signature, loaded))
        return module


def _in_place_of(original: Any, ours: Callable[[Mapping[str, Any]], ModuleType]) -> Any:
    signature = inspect.signature(original)

    @wraps(original)
    def load(*args: Any, **kwargs: Any) -> ModuleType:
        return ours(signature.bind(*args, **kwargs).arguments)

    return load


def _unbuilt(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def call(*_: object, **__: object) -> Any:
        raise Unbuilt(name)

    return call


class _Loaded:
    """An extension that is built; its library is in the worker."""

    def __init__(self, extension: Extension, memory: Memory) -> None:
        self._key = extension.key
        self._memory = memory
        self._results: weakref.WeakSet[Buffer] = weakref.WeakSet()
        self._text = "\n".join(source.text for source in (*extension.host, *extension.cuda))

    def parameter_names(self, name: str) -> list[str]:
        return [parameter.name for parameter in signature_of(self._text, name) or ()]

    def call(self, name: str, values: Sequence[Any], tensors: Sequence[DeviceTensor]) -> list[DeviceTensor]:
        self.release()
        reply, _ = self._memory.ask(do="call", key=self._key, name=name, values=values)
        return [self._result(value, tensors) for value in decoded(reply["results"])]

    def release(self) -> None:
        """The library keeps its results until all of them are let go."""
        if not self._results:
            self._memory.ask(do="forget", key=self._key)

    def _result(self, value: TensorValue, tensors: Sequence[DeviceTensor]) -> DeviceTensor:
        for buffer in (tensor.buffer for tensor in tensors):
            if buffer.address <= value.pointer < buffer.address + buffer.size:
                return placed(buffer, value)  # an argument, or a part of one
        buffer = Buffer(self._memory, value.pointer, value.bytes, owned=False)
        self._results.add(buffer)
        return placed(buffer, value)


class _Function:
    """A function of an extension, as pybind11 would offer it."""

    def __init__(self, name: str, signature: str, loaded: _Loaded) -> None:
        self.__name__ = name
        takes, _, self._gives = signature.partition(" -> ")
        self._types = takes.strip("()").split(", ") if takes != "()" else []
        self._loaded = loaded

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors: list[DeviceTensor] = []
        given = [*args, *self._named(len(args), kwargs)]
        types = self._types + [""] * len(given)
        values = [self._value(value, kind, tensors) for value, kind in zip(given, types, strict=False)]
        try:
            results = self._loaded.call(self.__name__, values, tensors)
        except WrapperError as error:
            raise (ExtensionError if error.kind == "wrapper-error" else TypeError)(error.message) from None
        if self._gives in ("None", "Tensor", "Tensor?"):
            return results[0] if results else None
        return results if self._gives.endswith("[]") else tuple(results)

    def _named(self, count: int, kwargs: dict[str, Any]) -> list[Any]:
        if not kwargs:
            return []
        # defaults are filled in at the end alone
        names = self._loaded.parameter_names(self.__name__)[count:][: len(kwargs)]
        if set(names) != set(kwargs):
            raise TypeError(f"{self.__name__}(): after {count} arguments come {names}, not {list(kwargs)}")
        return [kwargs[name] for name in names]

    def _value(self, value: Any, kind: str, tensors: list[DeviceTensor]) -> Any:
        if isinstance(value, torch.Tensor):
            if kind.rstrip("?") in ("int", "float", "bool"):
                return value.item()
            if not isinstance(value, DeviceTensor):
                raise ExtensionError(
                    f"{self.__name__}: a tensor of {tuple(value.shape)} is on the host; kernels read device memory"
                )
            tensors.append(value)
            return value.value()
        if isinstance(value, (list, tuple)):
            return [self._value(item, kind.removesuffix("[]"), tensors) for item in value]
        if isinstance(value, torch.dtype):
            return DTYPE_CODES[str(value).removeprefix("torch.")]
        if isinstance(value, torch.device):
            return str(value)
        return value.item() if isinstance(value, np.generic) else value


# --- sources --------------------------------------------------------------------------------------


def _listed(value: Any) -> tuple[str, ...]:
    return () if value is None else (str(value),) if isinstance(value, (str, Path)) else tuple(map(str, value))


def _flags(given: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(flag for name in ("extra_cflags", "extra_cuda_cflags") for flag in _listed(given.get(name)))


def _with_headers(path: Path, folders: Sequence[Path], seen: set[Path]) -> str:
    """A source file with the files that it includes from beside it or from other folders, each once."""
    text = path.read_text(encoding="utf-8")

    def included(found: re.Match[str]) -> str:
        for folder in (path.parent, *folders):
            header = (folder / found.group(1)).resolve()
            if header.is_file():
                fresh = header not in seen
                seen.add(header)
                return _with_headers(header, folders, seen) if fresh else ""
        return found.group()

    return _INCLUDE.sub(included, text)
