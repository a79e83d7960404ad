"""Atomic updates (PTX ISA: atom, red)."""

from __future__ import annotations

from cupilot.vgpu.lower.table import Opcode

OPCODES: dict[str, Opcode] = {}
