"""What a call at the task's shape covers: which lines of code ran, whether sampled blocks can be compared, and whether
their stores account for the output."""

from __future__ import annotations

from cupilot.contracts import Outcome
from cupilot.evaluation.trials import Trial
from cupilot.records import Failure, Profile, Task
from cupilot.tasks import SlicedCase

ACCOUNTED, EXACT = 0.9995, 1e-9
"""The share of the output that the stores of sampled blocks, scaled to the grid, must account for: all of it where
blocks store equally much, and else so much that what is missing may be the sample's error."""
DOUBT = 3.5
"""Standard errors of the mean within which a share of the output is not known to be missing."""

FILLS = ("fill", "memset")

Line = tuple[str, int]
"""A kernel's name, and a line of its source."""


def lines_of(profile: Profile, *, complete: bool = False) -> set[Line]:
    """The lines of each kernel that ran, or of the launches whose blocks had all that they read."""
    launches = [launch for launch in profile.launches if not (complete and launch.incomplete)]
    return {(launch.kernel, cost.line) for launch in launches for cost in launch.lines if cost.warp_instructions}


def is_comparable(trial: Trial, profile: Profile) -> bool:
    """Whether something is known of the result, and what (sampled) blocks wrote has its final values."""
    case = trial.case
    if not profile.sampled:
        return not isinstance(case, SlicedCase) or case.is_known
    if len(profile.launches) != 1 or not is_independent(trial, profile):
        return False
    if _is_doubtful(profile, trial.drawn.task):
        return False
    # what a fill wrote and no sampled block did may be final, or is left to blocks that did not run
    filled = any(operation.kind in FILLS for operation in profile.operations)
    return not filled or stored_share(profile, trial.drawn.task) >= ACCOUNTED


def is_independent(trial: Trial, profile: Profile) -> bool:
    """Whether something is known of parts of the result, and they do not depend on all blocks together."""
    case = trial.case
    if isinstance(case, SlicedCase) and (not case.is_known or case.needs_all):
        return False
    computed = any(operation.kind.startswith("aten.") for operation in profile.operations)
    return not computed and not profile.total("global_atomic_requests")


def stored_share(profile: Profile, task: Task) -> float:
    """What the launches store, sampled blocks scaled to the grid, as a share of the output."""
    return profile.total("global_store_bytes") / max(task.output_bytes, 1)


def _is_doubtful(profile: Profile, task: Task) -> bool:
    """Whether blocks store so unequally that the sampled ones do not tell if all of the output is written."""
    share = stored_share(profile, task)
    return share < ACCOUNTED and not _is_too_little(share, profile)


def _is_too_little(share: float, profile: Profile) -> bool:
    """Whether the rest of the output is missing, however the sample was drawn."""
    error = max((launch.counter("stored_error") for launch in profile.launches), default=0.0)
    return share * (1.0 + DOUBT * error) < 1.0 - EXACT


def unaccounted(trial: Trial, result: Outcome) -> Failure | None:
    """Sampled blocks whose stores, scaled to the grid, are less than the output.

    What they stored twice, or elsewhere, does not count.
    """
    profile = result.profile
    if not profile.sampled or len(profile.launches) != 1:
        return None
    distinct = sum(output.written_elements * output.values.itemsize for output in result.outputs)
    rate = distinct / max(profile.launches[0].counter("sampled_store_bytes"), 1.0)
    # a result that is returned twice is stored once
    rate = rate if any(output.alias for output in result.outputs) else min(1.0, rate)
    share = stored_share(profile, trial.drawn.task) * rate
    if not _is_too_little(share, profile):
        return None
    launch = profile.launches[0]
    message = (
        f"{launch.blocks_run} of {launch.blocks} blocks ran, and at their rate the grid stores {share:.6f} of the"
        f" output: the rest is never written (inputs: {trial.case.kind}, shape {trial.case.shapes})"
    )
    return Failure("verify", "unwritten", message)
