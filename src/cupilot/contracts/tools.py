"""Tools that a role may use while it works on one kernel, and its budget for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cupilot.records import Kernel, ToolBudget, ToolUse, Turn


@dataclass(frozen=True)
class ToolSpec:
    """A tool as a model sees it; ``parameters`` is the JSON schema of an object, as text."""

    name: str
    description: str
    parameters: str


@dataclass(frozen=True)
class ToolCall:
    """A model's call of a tool; ``arguments`` are JSON as the model wrote it.

    ``id`` connects the call with its answer.  ``extra`` is JSON that the provider wants back with the call.
    """

    name: str
    arguments: str = "{}"
    id: str = ""
    extra: str = ""


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool answers; ``use`` is for the record.

    ``submitted`` ends the dialogue with a kernel, ``given_up`` ends it with the reason why there is none.  ``moves``
    and ``notes`` are what the writer reports of a submitted kernel: each move with a line of the source that shows it,
    and what was done.
    """

    text: str
    use: ToolUse
    submitted: Kernel | None = None
    given_up: str = ""
    moves: tuple[tuple[str, str], ...] = ()
    notes: str = ""


class Tool(Protocol):
    """One tool: its name, what it is for, the JSON schema of its arguments, and the call."""

    @property
    def spec(self) -> ToolSpec: ...

    def call(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Carry out a call.

        A wrong argument, a kernel that fails and a machine that does are answers too: a model cannot handle exceptions.
        """


class Tools(Protocol):
    """The tools of one dialogue about one kernel; the only way in which a role reaches a device.

    Used by one thread at a time.
    """

    @property
    def budget(self) -> ToolBudget: ...

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What was recorded so far."""

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Call a tool by name; an unknown name is an answer that says so."""

    def best(self) -> Kernel | None:
        """What is worth handing in when the dialogue ends without `submit`: the fastest that was checked and right."""

    def record(self, turn: Turn) -> None:
        """Keep a turn for the record of the run."""
