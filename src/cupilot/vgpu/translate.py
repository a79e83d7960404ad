"""PTX kernels to native code: parse, emit LLVM IR, compile.

Parsing is done once per module, compiling once per kernel, on its first launch; what was compiled is kept on disk by
content.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from cupilot.vgpu.emit import Emitter, KernelCode
from cupilot.vgpu.ptx.parse import PtxError, parse_module
from cupilot.vgpu.ptx.syntax import Function, Module

DIGEST_BYTES = 32


class Translator:
    """Compiles kernels for this machine; native code stays alive as long as this object."""

    def __init__(self, library: ctypes.CDLL, folder: Path | None = None) -> None:
        """Compiled kernels are kept in ``folder``, which must be of this machine and of this runtime library."""
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._library = library
        self._folder = folder
        self._target = llvm.Target.from_default_triple()
        self._features = llvm.get_host_cpu_features().flatten()
        self._engines: list[Any] = []
        self._pipes: tuple[int, int] | None = None

    def start_process(self, prepare: Callable[[Path], object]) -> None:
        """From now on another process translates and keeps kernels: one that never holds untrusted code.

        So this process needs no right to write where translations are kept.  ``prepare`` is called there first, with
        the folder that it must be able to write.  The other process ends with this one.
        """
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        (wishes, wish), (news, tell) = os.pipe(), os.pipe()
        if os.fork() == 0:
            for descriptor in (wish, news):
                os.close(descriptor)
            with suppress(BaseException):
                prepare(self._folder)
                self._serve(wishes, tell)
            os._exit(0)
        for descriptor in (wishes, tell):
            os.close(descriptor)
        self._pipes = (wish, news)

    def _serve(self, wishes: int, tell: int) -> None:
        with os.fdopen(wishes, "rb") as source:
            while head := source.read(16):
                text, kernel = (source.read(size).decode() for size in struct.unpack("<QQ", head))
                with suppress(Exception):  # whoever asked will see why when it tries itself
                    self.compile(parse_module(text), kernel, text)
                os.write(tell, b"\0")

    def _ask(self, text: str, kernel: str) -> None:
        """Returns when the translation is kept, or cannot be."""
        if self._pipes is None:
            return
        wish, news = self._pipes
        parts = [part.encode() for part in (text, kernel)]
        with suppress(OSError):
            for part in (struct.pack("<QQ", *map(len, parts)), *parts):
                sent = 0
                while sent < len(part):
                    sent += os.write(wish, part[sent:])
            os.read(news, 1)

    @staticmethod
    def text(image: bytes) -> str:
        """The PTX inside a fat binary image."""
        start = image.find(b".version")
        if start < 0:
            raise PtxError("the image holds no PTX; build with a virtual architecture (code=compute_XX)")
        end = image.find(b"\0", start)
        return image[start : end if end >= 0 else len(image)].decode()

    @staticmethod
    def parse(text: str) -> Module:
        return parse_module(text)

    def compile(self, module: Module, kernel: str, text: str) -> tuple[KernelCode, int]:
        """Emit and compile one kernel of a module with this text; gives its description and its function's address."""
        function = module.functions.get(kernel)
        if function is None or not function.is_kernel:
            raise PtxError("the module has no such kernel")
        path = self._place(text, kernel)
        kept = _load(path)
        if kept is None:
            self._ask(text, kernel)
            kept = _load(path)
        code, native = kept if kept is not None else (_emit(module, function), b"")
        for name in code.calls:
            llvm.add_symbol(name, function_address(self._library, name))
        address, made = self._native(code, native)
        if not address:
            raise PtxError("the kernel could not be compiled to native code")
        if kept is None and path is not None:
            _keep(path, code, made)
        return code, address

    def _native(self, code: KernelCode, native: bytes) -> tuple[int, bytes]:
        """Load object code, or make it from the IR when there is none."""
        try:
            # with object code at hand the module's content does not matter, only that there is one
            module = llvm.parse_assembly("" if native else code.ir)
            module.verify()
        except RuntimeError as error:
            line = str(error).strip().partition("\n")[0]
            raise PtxError(f"the kernel cannot be translated: {line}") from error
        # an engine owns its target machine, so each gets one of its own
        machine = self._target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=self._features, opt=2, jit=True
        )
        engine = llvm.create_mcjit_compiler(module, machine)
        made: list[bytes] = []
        engine.set_object_cache(lambda module, data: made.append(data), lambda module: native or None)
        engine.finalize_object()
        self._engines.append(engine)
        return int(engine.get_function_address(code.symbol)), made[0] if made else b""

    def _place(self, text: str, kernel: str) -> Path | None:
        if self._folder is None:
            return None
        known = "\0".join(
            (text, kernel, engine_digest(), llvmlite.__version__, llvm.get_host_cpu_name(), self._features)
        )
        return self._folder / sha256(known.encode()).hexdigest()[:32]


def _emit(module: Module, function: Function) -> KernelCode:
    """IR of a kernel; calls and labels that do not fit together are the PTX's fault, like all that is missing."""
    try:
        return Emitter(module, function).kernel()
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise PtxError(f"the kernel cannot be translated ({reason})") from error


@cache
def engine_digest() -> str:
    """Of the sources that decide what a kernel becomes."""
    package = Path(str(files("cupilot.vgpu")))
    total = sha256()
    for path in sorted(p for folder in ("emit", "lower", "ptx") for p in (package / folder).rglob("*.py")):
        total.update(path.read_bytes())
    total.update((package / "layout.py").read_bytes())
    return total.hexdigest()


def _load(path: Path | None) -> tuple[KernelCode, bytes] | None:
    """What was kept; anything unreadable, changed or of another kernel is made again."""
    if path is None:
        return None
    try:
        kept = path.read_bytes()
        if kept[:DIGEST_BYTES] != _digest(path, kept[DIGEST_BYTES:]):
            return None
        code, native = pickle.loads(kept[DIGEST_BYTES:])  # as trusted as the native code in it
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ValueError, TypeError, ImportError):
        return None
    return code, native


def _digest(path: Path, data: bytes) -> bytes:
    """Of the content and of the name, which says what it was made from."""
    return sha256(path.name.encode() + data).digest()


def _keep(path: Path, code: KernelCode, native: bytes) -> None:
    """Kept for the next process; a disk that is full costs time only."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=".making-", delete=False) as draft:
            made = pickle.dumps((code, native))
            draft.write(_digest(path, made) + made)
        os.replace(draft.name, path)


def function_address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of the runtime lies in memory."""
    try:
        return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
    except AttributeError as error:
        raise PtxError(f"unsupported on the virtual GPU: the runtime has no {name}") from error
