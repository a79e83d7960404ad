"""The ablation's table: every strategy of a task's frame, evaluated once, so that searches can be replayed on it.

An entry is timed by the model at the task's true shape on sampled blocks, as any evaluation is.  It is checked less
than a candidate of a search: one smaller version on normal inputs against float64, and the findings of the blocks that
ran.  Several strategies are compiled as one source, each in a namespace of its own, because most of a build's time is
the same for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from cupilot.contracts import Call, Device, Outcome
from cupilot.errors import DataError
from cupilot.evaluation.binding import bound_arguments
from cupilot.evaluation.sample_seed import sample_seed
from cupilot.evaluation.trials import SAMPLE_BUDGET, TRUE_KIND, Trial, Trials
from cupilot.evaluation.verify import compare
from cupilot.evolution.result import moves_text
from cupilot.expert.prophet import foresee
from cupilot.expert.render import render
from cupilot.expert.space import Space
from cupilot.records import Evaluation, Failure, Kernel, Strategy, Task, from_plain, to_plain
from cupilot.tasks.case import Drawn

TABLES = "tables"
DEVICE = "virtual:a100-80gb"
TOGETHER = 12
"""Strategies that are compiled as one source."""
TIMEOUT_S = 300.0
CHECKED = "modelled at the true shape on sampled blocks; results checked for one smaller version on normal inputs"

_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)
_FORWARD = re.compile(r"^torch::Tensor forward\(([^)]*)\)", re.MULTILINE)


@dataclass(frozen=True)
class TableEntry:
    """One strategy: its moves in words (none: plain), its modelled time and what binds it, or why it has none.

    ``zone`` and ``aim`` are the guidance that the Prophet gives for it: the roofline's zone, and the limit as cards
    name it; ``headroom`` is its time over the task's bound.
    """

    moves: str = ""
    time_s: float | None = None
    limit: str = ""
    zone: str = ""
    aim: str = ""
    headroom: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class TableHead:
    """What a table is of; the first line of its file."""

    task: str
    source: str
    device: str
    version: str
    checked: str = CHECKED


def read_table(path: Path) -> tuple[TableHead, dict[str, TableEntry]]:
    """A table by moves; a line that was cut off when its writer was killed is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")
    if len(lines) < 2:
        raise DataError(f"{path} is no table")
    entries = [from_plain(TableEntry, json.loads(line), path.name) for line in lines[1:-1]]
    return from_plain(TableHead, json.loads(lines[0]), path.name), {entry.moves: entry for entry in entries}


def source_digest(task: Task) -> str:
    return sha256(task.source.encode()).hexdigest()[:16]


def fill_table(
    path: Path, head: TableHead, strategies: Sequence[Strategy], evaluate: Callable[[list[Strategy]], list[TableEntry]],
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """Evaluate what a table lacks, some at a time; each step is on disk before the next, and says how far it is."""
    known: dict[str, TableEntry] = {}
    if path.exists():
        found, known = read_table(path)
        if found != head:
            raise DataError(f"{path} is a table of something else: {found}")
    lines = [json.dumps(to_plain(head)), *(_line(entry) for entry in known.values())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    missing = [one for one in strategies if moves_text(one) not in known]
    yield len(known), len(strategies)
    for start in range(0, len(missing), TOGETHER):
        entries = evaluate(missing[start : start + TOGETHER])
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(_line(entry) + "\n" for entry in entries))
        yield len(known) + start + len(entries), len(strategies)


def _line(entry: TableEntry) -> str:
    shown = {name: value for name, value in to_plain(entry).items() if value not in ("", None) or name == "time_s"}
    shown["headroom"] = round(entry.headroom, 3)
    if entry.time_s is not None:
        shown["time_s"] = float(f"{entry.time_s:.6g}")
    return json.dumps(shown)


class TableEvaluator:
    """Evaluates strategies of one task for its table."""

    def __init__(self, device: Device, task: Task, space: Space) -> None:
        self._device, self._task, self._space = device, task, space
        self._trials = Trials(task, seed=0)
        self._drawn: Drawn | None = None

    def __call__(self, strategies: list[Strategy]) -> list[TableEntry]:
        kernels = [render(self._space, strategy) for strategy in strategies]
        found = self._together(kernels) if len(kernels) > 1 else None
        if found is None:  # one of them may be to blame: each alone
            found = [self._alone(kernel) for kernel in kernels]
        return [replace(entry, moves=moves_text(one)) for one, entry in zip(strategies, found, strict=True)]

    def _together(self, kernels: list[Kernel]) -> list[TableEntry] | None:
        """All of them in one build, and in one process unless one of them fails; None when they cannot be built."""
        built = self._device.build(put_together(kernels))
        arguments = [bound_arguments(kernel, self._task) for kernel in kernels]
        if isinstance(built, Failure) or any(isinstance(each, Failure) for each in arguments):
            return None
        calls = [
            call
            for number, kernel in enumerate(kernels)
            for call in self._calls(kernel, f"{arguments[number]}, {number}")
        ]
        each = len(calls) // len(kernels)
        groups = [calls[place : place + each] for place in range(0, len(calls), each)]
        outcomes = self._device.run(built, calls, TIMEOUT_S)
        if any(isinstance(outcome, Failure) for outcome in outcomes):  # it may have ended the process for all
            return [self._judged(self._device.run(built, group, TIMEOUT_S)) for group in groups]
        return [self._judged(outcomes[place : place + each]) for place in range(0, len(calls), each)]

    def _alone(self, kernel: Kernel) -> TableEntry:
        built, arguments = self._device.build(kernel), bound_arguments(kernel, self._task)
        if isinstance(built, Failure) or isinstance(arguments, Failure):
            return _failed(built if isinstance(built, Failure) else arguments)
        return self._judged(self._device.run(built, self._calls(kernel, arguments), TIMEOUT_S))

    def _calls(self, kernel: Kernel, arguments: str) -> list[Call]:
        """Of a smaller version, if there is one, and of the true shape."""
        if self._drawn is None:
            self._drawn = self._trials.drawn()
        inputs, seed = self._drawn.bound(arguments), sample_seed(0, kernel, TRUE_KIND)
        true = Call("table", inputs, self._task.outputs, SAMPLE_BUDGET, sample_seed=seed)
        return [*(trial.call(arguments) for trial in self._smaller()), true]

    def _judged(self, outcomes: Sequence[Outcome | Failure]) -> TableEntry:
        *smaller, true = outcomes
        for trial, outcome in zip(self._smaller(), smaller, strict=True):
            if isinstance(outcome, Failure):
                return _failed(outcome)
            (_, wrong) = compare(trial.case, outcome.outputs, self._task.precision, excused=trial.excused)
            if wrong is not None:
                return _failed(wrong)
        if isinstance(true, Failure):
            return _failed(true)
        timing = self._device.time(true.profile)
        evaluation = Evaluation("", self._task.name, self._device.name, timing=timing, profile=true.profile)
        guidance = foresee(self._task, evaluation, self._device.spec)
        return TableEntry("", timing.time_s, timing.limit, guidance.zone, guidance.limit, guidance.headroom)

    def _smaller(self) -> list[Trial]:
        """The largest smaller version on normal inputs; none where there is no such version."""
        return self._trials.whole(self._trials.versions[-1], (TRUE_KIND,)) if self._trials.versions else []


def put_together(kernels: Sequence[Kernel]) -> Kernel:
    """One source with all of them; a last argument says which one is meant."""
    found = _FORWARD.search(kernels[0].source)
    if found is None or any(kernel.entry != "forward" for kernel in kernels):
        raise DataError("only functions called forward that return one tensor can be put together")
    names = [part.split()[-1].lstrip("&*") for part in found[1].split(",")]
    includes = dict.fromkeys(line for kernel in kernels for line in _INCLUDE.findall(kernel.source))
    bodies = [f"namespace s{number} {{\n{_INCLUDE.sub('', kernel.source)}\n}}" for number, kernel in enumerate(kernels)]
    cases = [f"        case {number}: return s{number}::forward({', '.join(names)});" for number in range(len(kernels))]
    last = f"torch::Tensor choose({found[1]}, int64_t which) {{\n    switch (which) {{\n" + "\n".join(cases)
    last += f"\n    }}\n    return {names[0]};\n}}\n"
    return Kernel("\n".join([*includes, *bodies, last]), entry="choose")


def _failed(failure: Failure | str) -> TableEntry:
    assert isinstance(failure, Failure)
    return TableEntry("", None, failure=f"{failure.stage}: {failure.kind}")
