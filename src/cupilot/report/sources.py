"""All kernels of a run for the diff: texts that share most of their lines, kept once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cupilot.gpu import GpuSpec
from cupilot.records import Individual
from cupilot.report.costs import line_shares

DIGITS = 4


@dataclass(frozen=True)
class Source:
    """A kernel as numbers of lines in `Sources.lines`; ``costs`` are pairs of line (from 1) and share of ``basis``."""

    id: int
    lines: tuple[int, ...]
    basis: str
    costs: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Sources:
    lines: tuple[str, ...]
    kernels: tuple[Source, ...]


def sources(individuals: Sequence[Individual], spec: GpuSpec | None) -> Sources:
    """Of everybody who has a kernel, failed ones included."""
    numbers: dict[str, int] = {}
    found = []
    for one in individuals:
        if not one.kernel.source:
            continue
        lines = tuple(numbers.setdefault(line, len(numbers)) for line in one.kernel.source.rstrip("\n").split("\n"))
        costs = line_shares(one, spec)
        shares = () if costs is None else tuple((line, round(share, DIGITS)) for line, share in costs.shares)
        found.append(Source(one.id, lines, "" if costs is None else costs.basis, shares))
    return Sources(tuple(numbers), tuple(found))
