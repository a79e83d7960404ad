"""How it is known that a kernel is right and how fast it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """How numbers are known; with the texts that its digests are of, enough to make and check the kernel again.

    ``source``, ``task`` and ``image`` are SHA-256 digests of the kernel's and the task's text and of the PTX that ran,
    ``tools`` pairs of name and version, ``seed`` that of all inputs, ``checks`` the comparisons that were made and
    ``worst`` the largest error among them as a share of what was allowed; ``baseline`` says what speed was compared
    with.
    """

    source: str
    task: str
    tools: tuple[tuple[str, str], ...]
    seed: int
    checks: int
    worst: float
    image: str = ""
    baseline: str = ""

    def __post_init__(self) -> None:
        if self.checks < 1:
            raise ValueError("a proof needs at least one comparison")
        if not 0 <= self.worst <= 1:
            raise ValueError(f"the worst error is a share of what was allowed, not {self.worst}")
