"""The server's request to the worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ToolRequest:
    """A call of a tool; kernel and task are texts, never paths."""

    tool: str
    device: str
    kernel: str = ""
    task: str = ""
    task_name: str = "task"
    precision: str = "fp32"
    entry: str = "forward"
    args: str = ""
    timeout_s: float = 60.0
    words: tuple[str, ...] = ()
