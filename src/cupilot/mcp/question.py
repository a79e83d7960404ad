"""What the server asks of the worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What a tool is asked; texts, never paths."""

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
