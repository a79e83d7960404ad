"""What a role's reply has to hold, one frozen dataclass each; see `cupilot.llm.ask`."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.llm import schema
from cupilot.llm.schema import meant

GIVE_UP = "give-up"

_MOVE = "one move as NAME(PARAMETER=VALUE, ...)  # REASON; the parentheses only if the move has parameters"


@dataclass(frozen=True)
class KernelReply:
    """A whole kernel file."""

    code: str = schema.code("the complete file, nothing left out")
    notes: str = meant("what was done, in a sentence or two", default="")


@dataclass(frozen=True)
class AimReply:
    """What the kernel should aim for."""

    aim: str = meant("one sentence: what to aim for next, and why")


@dataclass(frozen=True)
class StrategyReply:
    """A strategy in words."""

    moves: tuple[str, ...] = meant(_MOVE)
    text: str = meant("the idea of the whole in a sentence or two", default="")
    reason: str = meant("why it should pay here, in a sentence", default="")


@dataclass(frozen=True)
class StrategiesReply:
    """Several strategies, no two alike."""

    strategies: tuple[StrategyReply, ...] = meant("the strategies")


@dataclass(frozen=True)
class SeenMove:
    """A move that the code makes, and where."""

    move: str = meant(_MOVE)
    quote: str = meant("one line of the source, word for word, in which the move can be seen", default="")


@dataclass(frozen=True)
class AlignReply:
    """What a kernel does, as a strategy."""

    moves: tuple[SeenMove, ...] = meant("the moves that the code really makes")
    text: str = meant("what the kernel does, in a sentence or two", default="")


@dataclass(frozen=True)
class RepairReply:
    """A repaired kernel, or why there is none."""

    verdict: str = meant(f"repaired, or {GIVE_UP} when the kernel cannot be repaired", default="repaired")
    reason: str = meant("the cause of the failure, and what was changed; or why it cannot be repaired", default="")
    code: str = schema.code("the complete repaired file; empty when given up", default="")
