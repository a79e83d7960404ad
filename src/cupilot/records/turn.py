"""What a model did on its way to one kernel: a turn for each of its replies, with the tools that it used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ToolBudget:
    """What one dialogue about a kernel may take: a model's replies, its tokens in and out, and seconds of evaluations.

    One turn means no tools: the first reply is the kernel.
    """

    turns: int = 5
    tokens: int = 120_000
    device_s: float = 300.0


@dataclass(frozen=True)
class ToolUse:
    """One call of a tool; ``outcome`` is its answer in a line, ``kernel`` the digest of the kernel it was about.

    ``device_s`` is how long its evaluation took, which is not counted again when the answer was known already.
    """

    tool: str
    outcome: str
    kernel: str = ""
    device_s: float = 0.0


@dataclass(frozen=True)
class Turn:
    """One reply.  ``note`` says what happened besides tools: no action in it, or why the dialogue ended with it."""

    role: str
    uses: tuple[ToolUse, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    note: str = ""


@dataclass(frozen=True)
class ToolTotals:
    """What all dialogues of a run came to; ``uses`` are (tool, calls) pairs.

    ``more_tokens`` are those of all turns but the first of each dialogue: what the tools added to one question.
    """

    dialogues: int = 0
    turns: int = 0
    uses: tuple[tuple[str, int], ...] = ()
    tokens: int = 0
    more_tokens: int = 0
    device_s: float = 0.0

    def plus(self, turns: Iterable[Turn]) -> ToolTotals:
        """With the turns of one candidate; a dialogue begins where the role changes."""
        turns = tuple(turn for turn in turns if turn.uses or _tokens(turn))
        if not turns:
            return self
        firsts = [turn for n, turn in enumerate(turns) if n == 0 or turns[n - 1].role != turn.role]
        counts = dict(self.uses)
        for use in (use for turn in turns for use in turn.uses):
            counts[use.tool] = counts.get(use.tool, 0) + 1
        tokens = sum(_tokens(turn) for turn in turns)
        return ToolTotals(
            self.dialogues + len(firsts),
            self.turns + len(turns),
            tuple(sorted(counts.items())),
            self.tokens + tokens,
            self.more_tokens + tokens - sum(_tokens(turn) for turn in firsts),
            self.device_s + sum(use.device_s for turn in turns for use in turn.uses),
        )


ONE_TURN, NO_TOOLS = ToolBudget(turns=1), ToolTotals()


def _tokens(turn: Turn) -> int:
    return turn.input_tokens + turn.output_tokens
