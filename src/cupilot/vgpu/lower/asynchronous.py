"""Asynchronous copies and their barriers (PTX ISA: cp.async, mbarrier)."""

from __future__ import annotations

from cupilot.vgpu.lower.table import Opcode

OPCODES: dict[str, Opcode] = {}
