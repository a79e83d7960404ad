"""A kernel's profile and nothing else: one run at the task's true shape, counted and timed, not verified.

The call is the one that `evaluate` takes its profile from: the same inputs for a seed, the same sampled
blocks.  What the results are is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cupilot.contracts import Call, Device
from cupilot.evaluation.binding import bound_arguments
from cupilot.evaluation.launch_view import ProfileView, part_times, profile_view, unlike
from cupilot.evaluation.sample_seed import sample_seed
from cupilot.evaluation.trials import SAMPLE_BUDGET, TRUE_KIND, Trials
from cupilot.gpu.roofline import Roof, precision_in_use, roof_of
from cupilot.gpu.spec import GpuSpec
from cupilot.records import Evaluation, Failure, Kernel, Profile, Task, Timing
from cupilot.tasks.case import Drawn
from cupilot.tasks.roofline_position import RooflinePoint, RooflinePosition, roofline_points, roofline_position
from cupilot.toolchain.names import short_name


@dataclass(frozen=True)
class Profiled:
    """One kernel on one device.

    ``times`` and ``places`` have an entry for each launch in order; ``places`` has one more for the whole call, last.
    ``operations`` are the times of fills, copies and what PyTorch computes.  ``finding`` is what the kernel did wrong
    without stopping, in the blocks that ran.
    """

    device: str
    profile: Profile
    timing: Timing
    times: tuple[Timing, ...]
    operations: tuple[Timing, ...]
    roof: Roof
    places: tuple[RooflinePoint, ...]
    standing: RooflinePosition
    finding: Failure | None = None

    def view(self, spec: GpuSpec, kernel: Kernel) -> ProfileView:
        """Its launches and operations as they are shown."""
        return profile_view(self.profile, spec, kernel, self.timing, self.times, self.operations)


@dataclass(frozen=True)
class ProfileReport:
    """What ``cupilot profile --json`` writes; ``failures`` are pairs of a device and why there is nothing about it.

    ``failure`` is the first of them, where other commands have theirs.
    """

    task: str
    kernel: str
    precision: str
    devices: tuple[Profiled, ...]
    failures: tuple[tuple[str, Failure], ...] = ()
    verified: bool = False
    failure: Failure | None = None


class Profiler:
    """Profiles kernels of one task; inputs are drawn once, for all devices."""

    def __init__(self, task: Task, seed: int = 0, timeout_s: float = 120.0) -> None:
        self._task, self._seed, self._timeout_s = task, seed, timeout_s
        self._drawn: Drawn | None = None

    def __call__(self, device: Device, kernel: Kernel) -> Profiled | Failure:
        task = self._task
        built = device.build(kernel)
        if isinstance(built, Failure):
            return built
        arguments = bound_arguments(built.kernel, task)
        if isinstance(arguments, Failure):
            return arguments
        inputs = self._inputs().bound(arguments)
        drawn = sample_seed(self._seed, built.kernel, TRUE_KIND)
        call = Call(f"{task.name}, profile", inputs, task.outputs, SAMPLE_BUDGET, lenient=True, sample_seed=drawn)
        (outcome,) = device.run(built, (call,), self._timeout_s)
        if isinstance(outcome, Failure):
            return outcome
        return replace(profiled(device, task, outcome.profile), finding=outcome.finding)

    def _inputs(self) -> Drawn:
        if self._drawn is None:
            self._drawn = Trials(self._task, self._seed).drawn()
        return self._drawn


def profiled(device: Device, task: Task, profile: Profile) -> Profiled:
    """What a profile says: times of its parts, and where they lie on the roofline."""
    timing = device.time(profile)
    times, operations = part_times(profile, device.time)
    roof = roof_of(device.spec, precision_in_use(profile.launches, task.precision))
    labels = unlike([short_name(launch.kernel) for launch in profile.launches])
    places = roofline_points(roof, task, profile, timing, labels, times)
    evaluation = Evaluation("", task.name, device.name, timing=timing, profile=profile, precision=task.precision)
    standing = roofline_position(task, evaluation, device.spec)
    return Profiled(device.name, profile, timing, times, operations, roof, places, standing)
