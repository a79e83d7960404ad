"""The order of a candidate's calls, and whether equal calls do equal work.

A wrapper can count its calls.  So that it cannot tell the call whose time counts from those whose values are compared,
calls come in an order that follows from the kernel's digest and the evaluation's seed: the same whenever the evaluation
is repeated, and not known to whoever wrote the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from cupilot.contracts import Outcome
from cupilot.records import Failure, Profile

ENDING = frozenset({"crash", "time-out", "limit"})
"""Failures after which a process makes no more calls, or none that has any time left."""
MOST_PROCESSES = 4
"""For one set of calls: where several shapes end the process, each gets its turn to do so."""
SAME_WORK = 0.02
"""By how much instructions of two calls with the same inputs may differ (atomics that race, waiting loops)."""

Results = tuple[Outcome | Failure, ...]


def in_hidden_order(run: Callable[[Sequence[int]], Results], groups: Sequence[str], key: str) -> Results:
    """Results of all calls, in the order of their numbers; ``run`` makes some of them in one process.

    A call that ends the process fails, and with it what was still to come of its own group (the version of the task
    that it is of).  The calls of other groups are made in another process.
    """
    found: dict[int, Outcome | Failure] = {}
    left = list(range(len(groups)))
    Random(key).shuffle(left)
    for _ in range(MOST_PROCESSES):
        results = run(left)
        found.update(zip(left, results, strict=True))
        end = _ended_at(results)
        left = [number for number in left[end + 1 :] if groups[number] != groups[left[end]]] if end >= 0 else []
        if not left:
            break
    return tuple(found[number] for number in range(len(groups)))


def _ended_at(results: Results) -> int:
    """The place of the call that ended the process, because none after it has a result; -1 when there is none."""
    end = len(results)
    while end > 0 and _kind(results[end - 1]) in ENDING and _kind(results[end - 1]) == _kind(results[-1]):
        end -= 1
    return end if end < len(results) - 1 else -1


def _kind(result: Outcome | Failure) -> str:
    return result.kind if isinstance(result, Failure) else ""


def inconsistency(timed: Profile, again: Outcome | Failure) -> Failure | None:
    """Whether another call with the inputs of the timed one did something else."""
    if isinstance(again, Failure):
        return again
    first, second = _launches(timed), _launches(again.profile)
    instructions = timed.total("lane_instructions"), again.profile.total("lane_instructions")
    if first != second:
        what = f"{_told(first)}, then {_told(second)}"
    elif max(instructions) > (1 + SAME_WORK) * min(instructions):
        what = f"{instructions[0]:.4g} lane instructions, then {instructions[1]:.4g}"
    else:
        return None
    return Failure("verify", "inconsistent", f"two calls with the same inputs do different work: {what}")


def _launches(profile: Profile) -> list[tuple[object, ...]]:
    return [(launch.kernel, launch.grid, launch.block, launch.dynamic_shared_bytes) for launch in profile.launches]


def _told(launches: list[tuple[object, ...]]) -> str:
    return ", ".join(f"{kernel} on {grid} blocks of {block}" for kernel, grid, block, _ in launches) or "no launch"
