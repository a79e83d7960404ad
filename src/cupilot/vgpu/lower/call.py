"""Calls of device functions."""

from __future__ import annotations

from cupilot.vgpu.lower.table import Opcode

OPCODES: dict[str, Opcode] = {}
