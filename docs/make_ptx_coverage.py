"""Writes ptx-coverage.md from the opcode table: ``python docs/make_ptx_coverage.py``."""

from __future__ import annotations

from pathlib import Path

from cupilot.vgpu.lower.coverage import page

if __name__ == "__main__":
    Path(__file__).with_name("ptx-coverage.md").write_text(page())
