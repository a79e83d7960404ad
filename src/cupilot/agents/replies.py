"""The replies that roles are asked for, one frozen dataclass each; see `cupilot.llm.ask`."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.llm import schema
from cupilot.llm.schema import described

GIVE_UP = "give-up"

_MOVE = "one move as NAME(PARAMETER=VALUE, ...)  # REASON; the parentheses only if the move has parameters"

REPORT = "the moves that the code makes, with the parameters that it has"


@dataclass(frozen=True)
class ObservedMove:
    """A move that the code makes, and a line that shows it."""

    move: str = described(_MOVE)
    quote: str = described("one line of the source, word for word, in which the move can be seen", default="")


@dataclass(frozen=True)
class KernelReply:
    """A whole kernel file."""

    code: str = schema.source_code("the complete file, nothing left out")
    notes: str = described("what was done and what was left out, in a sentence or two", default="")
    moves: tuple[ObservedMove, ...] = described(REPORT, default=())


@dataclass(frozen=True)
class AimReply:
    """What the kernel should aim for."""

    aim: str = described("one sentence: what to aim for next, and why")


@dataclass(frozen=True)
class StrategyReply:
    """A strategy in words."""

    moves: tuple[str, ...] = described(_MOVE)
    text: str = described("the idea of the strategy in a sentence or two", default="")
    reason: str = described("why it should pay here, in a sentence", default="")


@dataclass(frozen=True)
class StrategiesReply:
    """Several strategies, no two alike."""

    strategies: tuple[StrategyReply, ...] = described("the strategies")


@dataclass(frozen=True)
class AlignReply:
    """What a kernel does, as a strategy."""

    moves: tuple[ObservedMove, ...] = described("the moves that the code really makes")
    text: str = described("what the kernel does, in a sentence or two", default="")


@dataclass(frozen=True)
class RepairReply:
    """A repaired kernel, or why there is none."""

    verdict: str = described(f"repaired, or {GIVE_UP} when the kernel cannot be repaired", default="repaired")
    reason: str = described("the cause of the failure, and what was changed; or why it cannot be repaired", default="")
    code: str = schema.source_code("the complete repaired file; empty when given up", default="")
    moves: tuple[ObservedMove, ...] = described(REPORT, default=())
