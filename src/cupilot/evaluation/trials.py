"""The calls that kernels of a task are judged by (see `judge`), made once per task and when they are first needed.

References of large tasks are made for slices of the result (`tasks.slices`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Thread

from cupilot.contracts import Call, Outcome
from cupilot.errors import CupilotError
from cupilot.evaluation.verify import ANYWHERE, DROPPED, SPREAD
from cupilot.records import Task
from cupilot.tasks import Case, Probe, SlicedCase
from cupilot.tasks.case import Drawn
from cupilot.tasks.draw import SPECIAL
from cupilot.tasks.flop import task_flop
from cupilot.tasks.operators import operator
from cupilot.tasks.process import TaskProcess, process_of
from cupilot.tasks.remote import RemoteSlicedCase
from cupilot.tasks.slicing import Slicing
from cupilot.tasks.structure import Structure

SAMPLE_BUDGET = 60_000_000
"""Lane instructions per launch at the true shape; small launches run in full."""
WHOLE_ELEMENTS, WHOLE_FLOP = 1 << 24, 2e10
"""Up to here the reference of the true shape is made as a whole."""
LARGEST_WHOLE_BYTES = 3 << 30
"""What arguments and results may take where no slices can be cut (the reference needs five times as much); what is
larger
runs at the true shape for its time and findings, and is compared at a smaller one."""

LONGEST_AXIS = 1 << 20
"""Indices that workers choose slices from."""

FIRST_KINDS = ("own", "normal", "permuted")
ORDINARY_KINDS = (*FIRST_KINDS, "large", "constant", "planted", "one-hot")
"""What a kernel must get right to be right for its task."""
SPECIAL_KINDS = ("wide", "denormal", "nan", "infinity", "special")
ALL_KINDS = (*ORDINARY_KINDS, *SPECIAL_KINDS[:-1])
TRUE_KIND = "normal"
REDRAW = 1_000_003
"""Between the seeds of one draw and the next."""
MIXED_KINDS = ("mixed", "special")
"""Several kinds in one tensor, for the true shape, where every kind by itself would take long."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One call that a candidate is judged by, and which NaN and infinities out of place are ``excused``."""

    case: Case | SlicedCase
    excused: tuple[str, ...] = ()
    order: int = 0

    @property
    def drawn(self) -> Drawn:
        return self.case.drawn

    def call(self, arguments: str, sample_budget: int | None = None, sample_seed: int = 0) -> Call:
        task, values = self.drawn.task, self.drawn.bound(arguments)
        label = f"{task.name}, {self.case.kind} inputs"
        slices = self.case.looked_at if isinstance(self.case, SlicedCase) else None
        if slices is not None and any(output.shape[slices.axis] > LONGEST_AXIS for output in task.outputs):
            slices = None  # choosing would take longer than sending everything
        return Call(
            label, values, task.outputs, sample_budget, self.order, sample_seed=sample_seed, looked_at=slices
        )  # fmt: skip


@dataclass
class Trials:
    """Of one task; everything is made when it is first needed."""

    task: Task
    seed: int
    watch: Callable[[str], None] = lambda what: None
    """Told which reference is being made, and nothing when it is."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _made: dict[tuple[str, str], Trial] = field(default_factory=dict)
    _probes: dict[str, tuple[Probe, ...]] = field(default_factory=dict)

    @cached_property
    def process(self) -> TaskProcess:
        """Where the task runs."""
        return process_of(self.task.source)

    @property
    def versions(self) -> tuple[Task, ...]:
        with self._lock:
            return self._versions

    @property
    def structures(self) -> tuple[Structure | None, ...]:
        """What inputs look like, from the smallest version there is."""
        with self._lock:
            return self._structures

    @cached_property
    def _versions(self) -> tuple[Task, ...]:
        return self.process.scaled_tasks(self.task)

    @cached_property
    def _structures(self) -> tuple[Structure | None, ...]:
        return self.process.learn_structures(self.versions[0] if self.versions else self.task, self.seed)

    @cached_property
    def _slicing(self) -> Slicing | None:
        return self.process.find_slicing(self.versions[-1], self.seed) if self.versions else None

    def small(self) -> list[Trial]:
        """Smaller versions, in full, so that each kind is there once; the last has its blocks in another order."""
        found = [trial for version, kinds in self._small() for trial in self.whole(version, kinds)]
        return [*found, self.again(self.versions[-1])] if self.versions else []

    def _small(self) -> Iterator[tuple[Task, tuple[str, ...]]]:
        """Smaller versions, each with its kinds of inputs."""
        for number, version in enumerate(self.versions):
            others = (TRUE_KIND, *(kind for kind in ALL_KINDS if kind not in FIRST_KINDS))
            kinds = FIRST_KINDS if number == 0 else others
            yield version, kinds if len(self.versions) > 1 else ALL_KINDS

    def first(self) -> Iterator[Callable[[], Trial]]:
        """What makes the calls that every kernel needs, one after another."""
        for version, kinds in self._small():
            yield from (partial(self._whole, version, kind) for kind in kinds)
        yield from (partial(self.true, kind) for kind in (TRUE_KIND, *MIXED_KINDS))

    def prepare(self, trials: Iterable[Trial]) -> None:
        """Make what comparing some of them will need, while a kernel runs; whatever goes wrong is said then."""
        with suppress(CupilotError):
            for trial in trials:
                if isinstance(trial.case, SlicedCase):
                    trial.case.prepare()

    def ask_ahead(self, results: Iterable[tuple[Trial, Outcome]]) -> None:
        """Have what is to be compared with these results made, in this order, while others are compared."""
        asked = [
            trial.case.ask_ahead(number, output.runs)
            for trial, result in results
            if isinstance(trial.case, RemoteSlicedCase) and trial.case.is_known
            for number, output in enumerate(result.outputs)
            if [each.shape for each in result.outputs] == [each.shape for each in trial.drawn.task.outputs]
        ]
        if asked:
            Thread(target=lambda: [make() for make in asked], daemon=True).start()

    def again(self, version: Task) -> Trial:
        """The same inputs a second time, with blocks in another order."""
        return replace(self._whole(version, TRUE_KIND), order=1)

    def true(self, kind: str = TRUE_KIND, order: int = 0) -> Trial:
        """The shape that the task is about."""
        key = (self.task.name, f"true shape, {kind}")
        trial = self._kept(key, lambda: Trial(self._true_case(kind, self.seed), self._excused(kind)))
        return replace(trial, order=order)

    def redrawn(self, trial: Trial, number: int) -> Trial:
        """The same kind of inputs for the same shape, drawn anew."""
        drawn, seed = trial.drawn, self.seed + REDRAW * number

        def make() -> Trial:
            is_sliced = isinstance(trial.case, SlicedCase)
            again = self._true_case if is_sliced else partial(self._whole_case, drawn.task)
            return replace(trial, case=again(drawn.kind, seed))

        return replace(self._kept((drawn.task.name, f"{drawn.kind}, draw {number}"), make), order=trial.order)

    def stand_ins(self, elements: int) -> list[Trial]:
        """The largest version with at most so many elements, and those that keep one size and shrink the others."""
        largest = self.process.scaled_tasks(self.task, elements)[:1]
        versions = dict.fromkeys((*largest, *self.process.long_tasks(self.task, elements)))
        return [self._whole(version, TRUE_KIND) for version in versions]

    def probes(self, base: Task) -> list[tuple[Probe, Trial]]:
        """Versions near one that is served, which tell of each size what multiples a kernel needs."""
        with self._lock:
            if base.name not in self._probes:
                self._probes[base.name] = self.process.probe_tasks(self.task, base)
        return [(probe, self._whole(probe.task, TRUE_KIND)) for probe in self._probes[base.name]]

    def whole(self, version: Task, kinds: Iterable[str]) -> list[Trial]:
        """A version on some kinds of inputs, in full."""
        return [self._whole(version, kind) for kind in kinds]

    def _whole(self, version: Task, kind: str) -> Trial:
        make = partial(self._whole_case, version, kind, self.seed)
        return self._kept((version.name, kind), lambda: Trial(make(), self._excused(kind)))

    def _whole_case(self, version: Task, kind: str, seed: int) -> Case:
        # the second version's structure is the first one's: labels stay within the sizes of their own draw
        return self.process.make_case(version, kind, seed, self._known)

    def _kept(self, key: tuple[str, str], make: Callable[[], Trial]) -> Trial:
        with self._lock:
            if key not in self._made:
                self.watch(f"{', '.join(key)} inputs")
                try:
                    self._made[key] = make()
                finally:
                    self.watch("")
            return self._made[key]

    def _excused(self, kind: str) -> tuple[str, ...]:
        """NaN and infinities that need not be where PyTorch has them, for inputs that hold some (see `EXCUSES`)."""
        found = [operator(op.target) for op in self.task.graph]
        names, kinds = {each.name for each in found}, {each.kind for each in found}
        if kind not in SPECIAL:
            return ()
        # PyTorch's own implementations of attention differ in what NaN does, by processor and by what a mask hides
        if not names or "attention" in kinds:
            return (ANYWHERE,)
        excused = []
        # whoever scales by a diagonal leaves out the zeros beside it, which PyTorch multiplies with NaN and infinity;
        # a product with a zero that is always there may be left out too, and then NaN does not spread through it
        zeros = any(structure is not None and structure.zero_outside for structure in self.structures)
        if any(each.compares for each in found) or ("diag" in names and "product" in kinds) or zeros:
            excused.append(DROPPED)
        # sums of products put together from several, as error-corrected ones are, turn infinity into NaN
        if kind != "nan" and any(each.sums_products for each in found):
            excused.append(SPREAD)
        return tuple(excused)

    def drawn(self, kind: str = TRUE_KIND) -> Drawn:
        """Inputs of the true shape, without their results."""
        return self.process.draw_case(self.task, kind, self.seed, self._known)

    @property
    def _known(self) -> tuple[Structure | None, ...] | None:
        """The structures, unless labels must stay within the sizes of their own draw."""
        return None if any(s is not None and s.high for s in self.structures) else self.structures

    def _true_case(self, kind: str, seed: int) -> Case | SlicedCase:
        task = self.task
        elements = sum(a.tensor.elements for a in task.arguments if a.tensor is not None)
        elements += sum(output.elements for output in task.outputs)
        if elements > WHOLE_ELEMENTS or task_flop(task) > WHOLE_FLOP:
            slicing = self._slicing
            if slicing is not None or task.minimal_bytes > LARGEST_WHOLE_BYTES:
                return self.process.sliced_case(task, kind, seed, self._known, slicing)
        return self._whole_case(task, kind, seed)
