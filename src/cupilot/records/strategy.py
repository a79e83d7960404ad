"""What is evolved: strategies, made of moves, each move naming a card."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One typed choice of a card; ``choices`` lists what makes sense, the first is the default."""

    name: str
    choices: tuple[Value, ...]
    text: str = ""

    @property
    def default(self) -> Value:
        return self.choices[0]


@dataclass(frozen=True)
class CounterRatio:
    """``counter`` may be at most ``at_most`` times the counter ``per``."""

    counter: str
    per: str
    at_most: float


@dataclass(frozen=True)
class Evidence:
    """What a move leaves behind in a kernel.

    A move is visible when any pattern of ``source`` matches the code (comments do not count; ``{name}`` is the move's
    parameter) or any counter of ``counters`` is above zero.  ``by_choice`` are more patterns, each for one value of a
    parameter, as pairs like ``("bytes=16", "float4")``.  Then ``block_size``, a parameter of the card, must be the
    block size of some launch, and ``ratio`` must hold; both are checked only against a profile.
    """

    source: tuple[str, ...] = ()
    by_choice: tuple[tuple[str, str], ...] = ()
    counters: tuple[str, ...] = ()
    block_size: str = ""
    ratio: CounterRatio | None = None


@dataclass(frozen=True)
class Card:
    """What is known about a kind of move; one data file each, see docs/add-a-card.md.

    ``zones`` and ``relieves`` say when the move pays: in which roofline zone, on which limit.
    ``needs`` and ``excludes`` name other cards.  ``text`` is one paragraph for people and LLMs.  ``families`` are
    the operator families (`cupilot.tasks.operators`) whose kernels can use the move; none named means all.
    Without ``evidence``, a claim of this move must quote a line of the kernel.
    """

    name: str
    title: str
    text: str
    zones: tuple[str, ...]
    relieves: tuple[str, ...]
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    min_capability: float = 0.0
    families: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    evidence: Evidence | None = None

    def runs_on(self, capability: float) -> bool:
        """Whether a device of this compute capability has what the move uses."""
        return capability >= self.min_capability

    def allows(self, precision: str) -> bool:
        """Whether a task that is solved in this precision may use the move."""
        return not self.precisions or precision in self.precisions

    def parameter(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(f"card {self.name} has no parameter {name}")


@dataclass(frozen=True)
class Move:
    """A card with its parameters chosen, and the reason it was chosen."""

    card: str
    parameters: tuple[tuple[str, Value], ...] = ()
    reason: str = ""

    @staticmethod
    def of(card: str, reason: str = "", **parameters: Value) -> Move:
        """Build a move; parameters are kept sorted so that equal moves compare equal."""
        return Move(card, tuple(sorted(parameters.items())), reason)

    def get(self, name: str, default: Value | None = None) -> Value | None:
        return dict(self.parameters).get(name, default)

    def same(self, other: Move) -> bool:
        """Equal but for the reason."""
        return (self.card, self.parameters) == (other.card, other.parameters)


@dataclass(frozen=True)
class Strategy:
    """An ordered set of moves (no card twice) and a short free text."""

    moves: tuple[Move, ...] = ()
    text: str = ""

    def __post_init__(self) -> None:
        cards = [move.card for move in self.moves]
        if len(set(cards)) != len(cards):
            raise ValueError(f"a strategy names a card at most once: {cards}")

    def move(self, card: str) -> Move | None:
        for move in self.moves:
            if move.card == card:
                return move
        return None

    @property
    def cards(self) -> frozenset[str]:
        return frozenset(move.card for move in self.moves)


@dataclass(frozen=True)
class Guidance:
    """What the Roofline Prophet says: where the kernel stands and what to aim for."""

    zone: str
    limit: str
    headroom: float
    sentence: str
