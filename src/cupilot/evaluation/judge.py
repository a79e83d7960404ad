"""Right or wrong: the calls that a kernel is judged by, in their order, and what follows from them.

A kernel is right for its task when it is right at the task's shape on every ordinary kind of input.  What the verdict
rests on is chosen by what the kernel does:

1. Smaller versions of the task run in full on all kinds of inputs, and the task's own shape on sampled blocks.  What
   sampled blocks wrote is compared, and their stores must account for the whole output.
2. Where a sample does not say enough (several launches that hand results on, atomics, a result that is one sum), the
   task's shape runs in full.  When that would take too long, versions that keep one size and shrink the others stand
   for it, beside what sampled blocks stored without having read what other blocks would have written.
3. A kernel that serves no other shape meets all kinds of inputs at the task's shape, in full where that can be
   afforded.  One that runs other code there than at smaller shapes meets draws that mix all kinds.

A refusal (an error that the wrapper raises) may depend on the shape alone: refusing some inputs of a shape and serving
others is a failure, and so is refusing the task's shape.  What else the kernel holds for is the verdict's `Scope`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Thread

from cupilot.contracts import Built, Device, Outcome
from cupilot.evaluation.call_order import in_hidden_order, inconsistency
from cupilot.evaluation.coverage import Line, is_comparable, is_independent, lines_of, unaccounted
from cupilot.evaluation.near import Comparison
from cupilot.evaluation.sample_seed import sample_seed
from cupilot.evaluation.trials import ALL_KINDS, MIXED_KINDS, SAMPLE_BUDGET, SPECIAL_KINDS, TRUE_KIND, Trial, Trials
from cupilot.records import Check, Difference, Failure, Profile, Scope, Task
from cupilot.records.scope import EVERY_SHAPE, ONE_SHAPE
from cupilot.tasks import SlicedCase

FULL_INSTRUCTIONS, STAND_IN_INSTRUCTIONS = 1e10, 4e9
"""Lane instructions up to which the task's shape, or a version in its place, runs in full where a sample says nothing;
about 4 s and 2 s."""
ONLY_SHAPE_INSTRUCTIONS = 1e11
"""The same for a kernel that serves no other shape: nothing else can be compared."""
FULL_BYTES = 2 << 30
"""Results that a full run may write; the checks need as much memory again."""
FULL_TIMEOUT_S, ONLY_SHAPE_TIMEOUT_S = 120.0, 400.0
LARGEST_ELEMENTS = 1 << 24

SHAPE_FAULTS = frozenset({
    "out-of-bounds", "misaligned", "uninitialized", "wrong-result", "unwritten", "wrong-shape", "launch-error",
    "shared-race", "global-race", "async-race", "divergent-barrier", "barrier", "deadlock", "crash", "time-out",
    "unsupported", "limit", "use-after-free", "invalid-barrier", "trap", "assert",
})  # fmt: skip
"""Mistakes that a kernel may make at shapes that it was not written for; anything else is a failure anywhere."""


@dataclass
class Verdict:
    """What was found out; ``profile`` is that of the call whose time counts."""

    checks: list[Check] = field(default_factory=list)
    failure: Failure | None = None
    profile: Profile | None = None
    scope: Scope = field(default_factory=Scope)


@dataclass
class _Shape:
    """One version of the task, run on some kinds of inputs."""

    task: Task
    checks: list[Check] = field(default_factory=list)
    refusals: list[Failure] = field(default_factory=list)
    failure: Failure | None = None
    values: list[Difference] = field(default_factory=list)
    differing: list[Trial] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    lines: set[Line] = field(default_factory=set)

    def take(self, trial: Trial, result: Outcome | Failure, compared: Comparison) -> None:
        """Judge one call."""
        kind = trial.case.kind
        self.kinds.add(kind)
        if isinstance(result, Failure):
            if result.kind == "wrapper-error":
                self.refusals.append(result)
            else:
                self._differs(trial, result)
            return
        self.lines |= lines_of(result.profile)
        check, failure = compared(trial, result)
        failure = failure or unaccounted(trial, result)
        self.checks.append(check)
        if failure is not None:
            self._differs(trial, failure)

    def _differs(self, trial: Trial, failure: Failure) -> None:
        """Special values excuse mistakes, not tricks."""
        kind = trial.case.kind
        if kind in SPECIAL_KINDS and failure.kind in SHAPE_FAULTS:
            self.values.append(Difference(kind, failure.message))
            self.differing.append(trial)
        elif self.failure is None:
            self.failure = failure

    @property
    def is_served(self) -> bool:
        return self.failure is None and not self.refusals

    @property
    def is_fickle(self) -> bool:
        """Refused on some inputs and served on others: a refusal that does not depend on the shape."""
        return bool(self.refusals) and bool(self.checks)

    @property
    def misconduct(self) -> Failure | None:
        """What no shape excuses: tricks, and refusals by value."""
        if self.failure is not None and self.failure.kind not in SHAPE_FAULTS:
            return self.failure
        return _fickle(self) if self.is_fickle else None

    @property
    def problem(self) -> Difference | None:
        """Why it is not served."""
        if self.refusals:
            return Difference(_sizes(self.task), f"refused: {self.refusals[0].message}")
        return Difference(_sizes(self.task), self.failure.message) if self.failure is not None else None


class Judge:
    """Judges one kernel of a task."""

    def __init__(self, device: Device, built: Built, arguments: str, trials: Trials, timeout_s: float) -> None:
        self._device, self._built, self._arguments = device, built, arguments
        self._trials, self._task, self._timeout_s = trials, trials.task, timeout_s
        self._compare = Comparison(trials.task.precision, trials.redrawn, self._again)
        self._verdict = Verdict()
        self._own = _Shape(self._task)
        self._compared: set[Line] = set()
        self._stand_ins: list[_Shape] = []
        self._mixed: list[tuple[Trial, Outcome | Failure]] = []

    def __call__(self) -> Verdict:
        versions, result = self._first_calls()
        served, verdict = [version for version in versions if version.is_served], self._verdict
        verdict.failure = next((failure for version in versions if (failure := version.misconduct) is not None), None)
        if verdict.failure is None:
            self._judge_task(served, result)
        verdict.checks = [check for shape in (*served, *self._stand_ins, self._own) for check in shape.checks]
        verdict.failure = verdict.failure or self._wavering((*served, *self._stand_ins, self._own))
        if verdict.failure is None:
            verdict.scope = self._scope(versions, served)
        return verdict

    # --- the calls ----------------------------------------------------------------------------

    def _first_calls(self) -> tuple[list[_Shape], Outcome | Failure]:
        """All smaller versions and the task's shape in one process, each kind of input at one version at least.

        A small task is its own first version, and must be served there.
        """
        plan = self._trials.small()
        own = [self._trials.true(kind) for kind in (TRUE_KIND, *MIXED_KINDS)]
        results = self._run(plan, sampled=own)
        results, (last, *mixed) = results[: len(plan)], results[len(plan) :]
        versions = self._judged(plan, results)
        self._mixed = [
            (trial, result)
            for trial, result in zip(own[1:], mixed, strict=True)
            if isinstance(result, Failure) or is_comparable(trial, result.profile)
        ]
        same = next((version for version in versions if version.task.name == self._task.name), None)
        if same is not None and not same.is_served:
            return versions, same.failure or same.refusals[0]
        served = [version for version in versions if version.is_served]
        known = set().union(*(version.kinds for version in served))
        missing = [kind for kind in ALL_KINDS if kind not in known]
        if served and missing:  # what the versions that failed were to show
            plan = [*self._trials.whole(served[0].task, missing), self._trials.again(served[0].task)]
            self._judged(plan, self._run(plan), served)
        return versions, last

    def _judged(
        self, plan: Sequence[Trial], results: Sequence[Outcome | Failure], known: Iterable[_Shape] = ()
    ) -> list[_Shape]:
        shapes = {shape.task.name: shape for shape in known}
        for trial, result in zip(plan, results, strict=True):
            task = trial.drawn.task
            shapes.setdefault(task.name, _Shape(task)).take(trial, result, self._compare)
        return list(shapes.values())

    def _run(
        self, full: Sequence[Trial], sampled: Sequence[Trial] = (), timeout_s: float = 0.0
    ) -> tuple[Outcome | Failure, ...]:
        calls = [trial.call(self._arguments) for trial in full]
        for trial in sampled:
            drawn = sample_seed(self._trials.seed, self._built.kernel, trial.case.kind)
            calls.append(trial.call(self._arguments, SAMPLE_BUDGET, drawn))
        # the process of the task is idle while the kernel runs
        Thread(target=self._trials.prepare, args=(list(sampled),), daemon=True).start()
        groups = [trial.drawn.task.name for trial in (*full, *sampled)]
        limit_s, key = max(timeout_s, self._timeout_s), f"{self._built.kernel.digest} {self._trials.seed}"
        return in_hidden_order(
            lambda numbers: self._device.run(self._built, [calls[number] for number in numbers], limit_s), groups, key
        )

    def _wavering(self, shapes: Iterable[_Shape]) -> Failure | None:
        """A call that went wrong on special values and goes right in another process: it was not the values."""
        profile = self._verdict.profile
        found = next(((shape, shape.differing[0]) for shape in shapes if shape.differing), None)
        if found is None or profile is None:
            return None
        (shape, trial), true = found, self._trials.true()
        sampled = profile.sampled and shape is self._own
        result, again = self._run((), sampled=(trial, true)) if sampled else self._run((trial,), sampled=(true,))
        if isinstance(result, Outcome) and self._compare(trial, result)[1] is None and not unaccounted(trial, result):
            message = f"on {trial.case.kind} inputs it was wrong in one call, and right in another with the same inputs"
            return Failure("verify", "inconsistent", message)
        return inconsistency(profile, again) if profile.sampled else None

    def _again(self, trials: Sequence[Trial], sampled: bool) -> tuple[Outcome | Failure, ...]:
        return self._run((), trials) if sampled else self._run(trials, timeout_s=FULL_TIMEOUT_S)

    # --- the task's own shape -----------------------------------------------------------------

    def _judge_task(self, served: list[_Shape], result: Outcome | Failure) -> None:
        verdict, true, own = self._verdict, self._trials.true(), self._own
        if isinstance(result, Failure):
            verdict.failure = result
            return
        verdict.profile = result.profile
        ran = lines_of(result.profile)
        self._compared = set().union(*(version.lines for version in served))
        comparable = is_comparable(true, result.profile)
        if served and comparable:
            others = [(trial, found) for trial, found in self._mixed if isinstance(found, Outcome)]
            self._trials.ask_ahead([(true, result), *others])
        # a kernel that fails elsewhere has to show all of its own shape, if it can
        if (served and comparable) or not self._ran_in_full(true, result.profile, served):
            if comparable:
                own.take(true, result, self._compare)
            else:
                self._take_known(true, result)
                if own.failure is None and not self._stood_in_for(result.profile):
                    verdict.failure = Failure("verify", "unverified", self._unverified(result.profile))
        for trial, mixed in self._mixed:
            own.take(trial, mixed, self._compare)
        if own.failure is None and verdict.failure is None and (not served or not ran <= self._compared):
            self._judge_kinds(result.profile, ALL_KINDS if not served else MIXED_KINDS)
        verdict.failure = verdict.failure or own.failure or next(iter(own.refusals), None)
        if verdict.failure is None and (unseen := ran - self._compared - own.lines):
            verdict.failure = _unseen_code(unseen)

    def _take_known(self, true: Trial, result: Outcome) -> None:
        """Of a sample that cannot be compared as a whole, what is known: stored by blocks that read nothing unknown.

        What a single launch stored must be right.  What several did may not be final, so that only its being right
        says something.
        """
        profile, own = result.profile, self._own
        if not all(output.values.size for output in result.outputs) or not is_independent(true, profile):
            return
        check, failure = self._compare(true, result, partial=True)
        if failure is None:
            own.kinds.add(true.case.kind)
            own.checks.append(check)
            own.lines |= lines_of(profile, complete=True)
        elif all(output.launches == 1 for output in result.outputs):
            own.checks.append(check)
            own.failure = failure

    def _judge_kinds(self, profile: Profile, kinds: Sequence[str]) -> None:
        """Kinds of inputs at the task's shape, and where that is cheap once more with blocks in another order."""
        trials = [self._trials.true(kind) for kind in kinds if kind not in self._own.kinds]
        if is_comparable(self._trials.true(), profile):
            trials.append(self._trials.true(TRUE_KIND, order=1))
            for trial, result in zip(trials, self._run((), sampled=trials), strict=True):
                self._own.take(trial, result, self._compare)
            return
        if not self._is_affordable(profile, FULL_INSTRUCTIONS):
            return  # the versions that stand in for it have met them
        for trial in trials:
            (result,) = self._run((trial,), timeout_s=FULL_TIMEOUT_S)
            self._own.take(trial, result, self._compare)

    def _is_affordable(self, profile: Profile, instructions: float) -> bool:
        """Whether the task's shape can be run and compared in full."""
        case = self._trials.true().case
        known = not isinstance(case, SlicedCase) or case.is_known
        return known and profile.total("lane_instructions") <= instructions and self._task.output_bytes <= FULL_BYTES

    def _ran_in_full(self, true: Trial, profile: Profile, served: list[_Shape]) -> bool:
        limit, timeout_s = FULL_INSTRUCTIONS, FULL_TIMEOUT_S
        if not served and not is_comparable(true, profile):
            limit, timeout_s = ONLY_SHAPE_INSTRUCTIONS, ONLY_SHAPE_TIMEOUT_S
        if not self._is_affordable(profile, limit):
            return False
        (whole,) = self._run((true,), timeout_s=timeout_s)
        self._own.take(true, whole, self._compare)
        if isinstance(whole, Outcome):
            self._verdict.profile = whole.profile  # the time is that of the call whose values were compared
        return True

    def _stood_in_for(self, profile: Profile) -> bool:
        """Versions that keep one size, and the largest that runs in full, in place of the task's shape."""
        share = STAND_IN_INSTRUCTIONS / max(profile.total("lane_instructions"), 1.0)
        elements = int(min(LARGEST_ELEMENTS, share * (self._task.minimal_bytes // 4)))
        for trial in self._trials.stand_ins(elements):
            # the call whose time counts has a twin in another process, at a place that the wrapper cannot know
            twins = () if self._stand_ins else (self._trials.true(),)
            result, *again = self._run((trial,), sampled=twins, timeout_s=FULL_TIMEOUT_S)
            shape = _Shape(trial.drawn.task)
            shape.take(trial, result, self._compare)
            if shape.refusals:
                continue
            self._stand_ins.append(shape)
            self._compared |= shape.lines
            self._own.failure = self._own.failure or shape.failure
            for twin in again:
                self._own.failure = self._own.failure or inconsistency(profile, twin)
        return bool(self._stand_ins)

    def _unverified(self, profile: Profile) -> str:
        return (
            f"its results at the task's shape cannot be compared: a sample of blocks says nothing about this kernel,"
            f" and {profile.total('lane_instructions'):.2g} lane instructions are too many to run it in full;"
            f" let it serve smaller shapes too"
        )

    # --- what else it holds for ---------------------------------------------------------------

    def _scope(self, versions: list[_Shape], served: list[_Shape]) -> Scope:
        others = [version for version in versions if version.task.name != self._task.name]
        problems = tuple(problem for version in others if (problem := version.problem) is not None)
        other = next((version for version in others if version.is_served), None)
        if not problems:
            shapes = EVERY_SHAPE if others else ""
        else:
            shapes = self._served_sizes(other.task) if other is not None else ONE_SHAPE
        found: dict[str, Difference] = {}
        for shape in (*served, *self._stand_ins, self._own):
            found |= {difference.what: difference for difference in shape.values if difference.what not in found}
        if len(found) > 1:
            found.pop("special", None)  # the kinds by themselves say more
        return Scope(shapes, problems, tuple(found.values()), self._basis(served))

    def _served_sizes(self, base: Task) -> str:
        """Which multiples of each size are served, found out around a version that is."""
        found: dict[str, int] = {}
        probes = self._trials.probes(base)
        for (probe, trial), result in zip(probes, self._run([trial for _, trial in probes]), strict=True):
            shape = _Shape(probe.task)
            shape.take(trial, result, self._compare)
            if shape.is_served:
                found.setdefault(probe.size, probe.factor)
        limits = [f"{size} a multiple of {factor}" for size, factor in found.items() if factor > 1]
        fixed = dict.fromkeys(probe.size for probe, _ in probes if probe.size not in found)
        return ", ".join((f"shapes such as {_sizes(base)}", *limits, *(f"{size} of few values" for size in fixed)))

    def _basis(self, served: list[_Shape]) -> str:
        profile = self._verdict.profile
        assert profile is not None
        text = "the task's shape was run but not compared"
        if self._own.checks:
            how = "sampled blocks" if profile.sampled else "all blocks"
            text = f"{how} of the task's shape on {_count(len(self._own.kinds), 'kind')} of inputs"
        if self._stand_ins:
            text += f"; {', '.join(_sizes(shape.task) for shape in self._stand_ins)} stand in for it"
        return text + "".join(f"; {_sizes(v.task)} in full on {_count(len(v.kinds), 'kind')}" for v in served)


def _fickle(shape: _Shape) -> Failure:
    message = (
        f"the wrapper refuses some inputs of {_sizes(shape.task)} and serves others:"
        f" a refusal may depend on shapes only ({shape.refusals[0].message})"
    )
    return Failure("verify", "refuses-values", message)


def _unseen_code(lines: set[Line]) -> Failure:
    kernel, first = min(lines, key=lambda line: line[1])
    message = (
        f"{_count(len(lines), 'line')} of its code, such as line {first} of {kernel}, ran at the task's shape only,"
        f" where the results could not be compared"
    )
    return Failure("verify", "unverified", message)


def _sizes(task: Task) -> str:
    """A version's name for its shape: that of its first input, or all of its inputs'."""
    tensors = [argument.tensor for argument in task.arguments if argument.tensor is not None]
    return " and ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors if t is not None) or task.name


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
