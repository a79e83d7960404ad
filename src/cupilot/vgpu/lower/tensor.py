"""Matrix instructions (PTX ISA: wmma, mma, ldmatrix, stmatrix, movmatrix)."""

from __future__ import annotations

from cupilot.vgpu.lower.table import Opcode

OPCODES: dict[str, Opcode] = {}
