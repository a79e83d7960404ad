"""A run as its store has it at this moment, and what follows from that alone."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

from cupilot.errors import DeviceError, StoreError
from cupilot.evolution.progress import WHY
from cupilot.evolution.ranking import best_of, comparable
from cupilot.evolution.store import FILE, read_store
from cupilot.gpu import GpuSpec, load_spec
from cupilot.llm.call_log import SqliteCallLog
from cupilot.llm.recording import RecordedCall
from cupilot.llm.role import role_of
from cupilot.records import Individual, RunInfo, ToolTotals
from cupilot.records.turn import NO_TOOLS


@dataclass(frozen=True)
class Asked:
    """What one role asked language models for; ``unpriced`` calls have no known price."""

    role: str
    calls: int
    input_tokens: int
    output_tokens: int
    price_usd: float
    unpriced: int


@dataclass(frozen=True)
class Run:
    """Everything a report is made of.  ``info`` is None before the run has begun, ``stopped`` empty until it ended;
    ``spec`` is None where the device is in no catalogue."""

    name: str
    info: RunInfo | None
    individuals: tuple[Individual, ...]
    notes: tuple[tuple[str, str], ...]
    stopped: str
    asked: tuple[Asked, ...] = ()
    spec: GpuSpec | None = None
    ended_tools: ToolTotals | None = None

    @cached_property
    def tools(self) -> ToolTotals:
        """What tools came to: as the run counted, or while it goes on, as far as individuals were kept."""
        if self.ended_tools is not None and self.ended_tools.turns:
            return self.ended_tools
        return reduce(lambda total, one: total.plus(one.turns), self.individuals, NO_TOOLS)

    @cached_property
    def plain(self) -> Individual | None:
        """The first kernel that is right, which all others are compared with."""
        return next((one for one in self.individuals if one.time_s is not None), None)

    @cached_property
    def ranked(self) -> tuple[Individual, ...]:
        """Those whose times may be compared with the plain kernel's."""
        plain = self.plain
        return tuple(one for one in self.individuals if plain is not None and one.time_s and comparable(one, plain))

    @cached_property
    def best(self) -> Individual | None:
        """The fastest, or the simplest of those that tie with it; as the search has it."""
        return best_of(self.ranked, self.info.tie) if self.ranked and self.info is not None else None

    @cached_property
    def evaluations(self) -> int:
        return sum(1 for one in self.individuals if one.kernel.source)

    @cached_property
    def failed(self) -> tuple[Individual, ...]:
        """Those without a time that were not repaired."""
        return tuple(one for one in self.individuals if one.time_s is None and one.superseded_by is None)

    @property
    def why(self) -> str:
        """Why it ended, in words; empty until it did."""
        return WHY.get(self.stopped, self.stopped)


def read_run(folder: Path) -> Run:
    """What the folder's store holds; nothing is written, and the run may go on meanwhile."""
    with closing(read_store(folder)) as store:
        info = store.info() if store.begun else None
        result = store.result()
        individuals, notes = tuple(store.individuals()), tuple(store.notes())
    asked = () if info is None or not info.models else totals(recorded_calls(folder))
    spec = None if info is None else spec_of(info)
    return Run(
        folder.absolute().name, info, individuals, notes, "" if result is None else result.stopped, asked, spec,
        None if result is None else result.tools,
    )  # fmt: skip


def spec_of(info: RunInfo) -> GpuSpec | None:
    """None where the GPU is not in the catalogue, or the run does not say which one it was."""
    try:
        return load_spec(info.gpu or info.device.removeprefix("virtual:"))
    except DeviceError:
        return None


def recorded_calls(folder: Path) -> tuple[RecordedCall, ...]:
    try:
        with closing(SqliteCallLog(folder / FILE, readonly=True)) as log:
            return tuple(log.calls())
    except StoreError:  # none was recorded yet
        return ()


def totals(calls: Iterable[RecordedCall]) -> tuple[Asked, ...]:
    """By role, in the order in which the roles first asked."""
    found: dict[str, Asked] = {}
    for call in calls:
        role = role_of(call.request) or "other"
        before = found.get(role, Asked(role, 0, 0, 0, 0.0, 0))
        found[role] = Asked(
            role, before.calls + 1, before.input_tokens + call.reply.input_tokens,
            before.output_tokens + call.reply.output_tokens, before.price_usd + (call.price_usd or 0.0),
            before.unpriced + (call.price_usd is None),
        )  # fmt: skip
    return tuple(found.values())
