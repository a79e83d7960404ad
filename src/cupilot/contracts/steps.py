"""Steps of the work, for those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

STAGES = ("writing", "waiting", "building", "checking", "timing")
REFERENCE, DONE = "reference", "done"


@dataclass(frozen=True)
class Step:
    """Work has come to a stage: one of `STAGES`, or ``done``; ``what`` says more in words.

    ``who`` tells pieces of work apart: a kernel's digest while it is evaluated, a name of its own while a role writes.
    ``reference`` is what all kernels of a task share; without words it is over.
    """

    stage: str
    who: str
    what: str = ""


Watch = Callable[[Step], None]
"""Told of steps, from several threads; it looks on and changes nothing."""
