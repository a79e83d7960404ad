"""Half and bfloat16 arithmetic, single and packed."""

from __future__ import annotations

from cupilot.vgpu.lower.table import Opcode

OPCODES: dict[str, Opcode] = {}
