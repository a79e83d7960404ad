"""PTX kernels to LLVM IR."""

from cupilot.vgpu.emit.kernel import BlockCost, Emitter, KernelCode
from cupilot.vgpu.emit.operands import Site

__all__ = ["BlockCost", "Emitter", "KernelCode", "Site"]
