"""PTX kernels to native code: parse, emit LLVM IR, compile.

Parsing is done once per module, compiling once per kernel, on its first launch.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as llvm

from cupilot.vgpu.emit import Emitter, KernelCode
from cupilot.vgpu.ptx.parse import PtxError, parse_module
from cupilot.vgpu.ptx.syntax import Module


class Translator:
    """Compiles kernels for this machine; native code stays alive as long as this object."""

    def __init__(self, library: ctypes.CDLL) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._library = library
        self._target = llvm.Target.from_default_triple()
        self._features = llvm.get_host_cpu_features().flatten()
        self._engines: list[Any] = []

    @staticmethod
    def parse(image: bytes) -> Module:
        """The PTX inside a fat binary image."""
        start = image.find(b".version")
        if start < 0:
            raise PtxError("the image holds no PTX; build with a virtual architecture (code=compute_XX)")
        end = image.find(b"\0", start)
        return parse_module(image[start : end if end >= 0 else len(image)].decode())

    def compile(self, module: Module, kernel: str) -> tuple[KernelCode, int]:
        """Emit and compile one kernel; gives its description and the address of its function."""
        function = module.functions.get(kernel)
        if function is None or not function.is_kernel:
            raise PtxError(f"the module has no kernel {kernel}")
        code = Emitter(module, function).kernel()
        for name in code.calls:
            llvm.add_symbol(name, function_address(self._library, name))
        # an engine owns its target machine, so each gets one of its own
        machine = self._target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=self._features, opt=2, jit=True
        )
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(code.ir), machine)
        engine.finalize_object()
        self._engines.append(engine)
        address = engine.get_function_address(code.symbol)
        if not address:
            raise PtxError(f"the kernel {kernel} could not be compiled to native code")
        return code, int(address)


def function_address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of the runtime lies in memory."""
    return int(ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0)
