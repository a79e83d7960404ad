"""Random structured programs: written as PTX, and interpreted one thread at a time.

A program works on a few 32-bit variables with nested ``if``/``else``, loops with bounded trip counts, ``break``,
``continue``, early exits, guarded instructions and barriers, and ends by storing all variables.  Some variables are
the same in all threads, so both uniform and divergent control flow occurs.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

VARIABLES = 6
MASK = 0xFFFFFFFF
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": operator.add, "sub.u32": operator.sub, "mul.lo.u32": operator.mul, "xor.b32": operator.xor,
    "and.b32": operator.and_, "or.b32": operator.or_, "min.u32": min, "max.u32": max,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
Operand = str | int  # a variable such as "v2", or a literal


@dataclass(frozen=True)
class Condition:
    """``(left & mask) <relation> right``: the mask keeps all outcomes likely."""

    left: Operand
    mask: int
    relation: str
    right: int


@dataclass(frozen=True)
class Assign:
    target: str
    operation: str
    left: Operand
    right: Operand
    guard: Condition | None = None
    guard_negated: bool = False


@dataclass(frozen=True)
class If:
    condition: Condition
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """Runs ``(source & 3) + extra`` times; the count is fixed at entry."""

    number: int
    source: Operand
    extra: int
    body: tuple[Statement, ...]
    test_first: bool


@dataclass(frozen=True)
class Leave:
    """``break``, ``continue`` or ``exit`` (which stores the variables first) under a condition."""

    how: str
    condition: Condition


@dataclass(frozen=True)
class Barrier:
    pass


Statement = Assign | If | Loop | Leave | Barrier


class Writer:
    """Makes up one program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loops = 0

    def program(self) -> tuple[Statement, ...]:
        return tuple(self._statements(self.rng.randint(4, 8), 3, in_loop=False, top=True))

    def _statements(self, count: int, depth: int, *, in_loop: bool, top: bool = False) -> Iterator[Statement]:
        for _ in range(count):
            yield self._statement(depth, in_loop, top)

    def _statement(self, depth: int, in_loop: bool, top: bool) -> Statement:
        rng, choice = self.rng, self.rng.random()
        if choice < 0.35 or depth == 0:
            guard = self._condition() if rng.random() < 0.3 else None
            operation, left, right = rng.choice(list(OPERATIONS)), self._operand(), self._operand()
            return Assign(self._variable(), operation, left, right, guard, rng.random() < 0.5)
        if choice < 0.6:
            then = tuple(self._statements(rng.randint(1, 3), depth - 1, in_loop=in_loop))
            otherwise = tuple(self._statements(rng.randint(0, 2), depth - 1, in_loop=in_loop))
            return If(self._condition(), then, otherwise)
        if choice < 0.8:
            self.loops += 1
            number = self.loops
            body = tuple(self._statements(rng.randint(1, 4), depth - 1, in_loop=True))
            return Loop(number, self._operand(), rng.randint(0, 2), body, rng.random() < 0.5)
        if choice < 0.95:
            return Leave(
                rng.choice(("break", "continue", "exit") if in_loop else ("exit",)), self._condition(rare=True)
            )
        return Barrier() if top else self._statement(depth, in_loop, top)

    def _variable(self) -> str:
        return f"v{self.rng.randrange(VARIABLES)}"

    def _operand(self) -> Operand:
        return self._variable() if self.rng.random() < 0.8 else self.rng.choice((1, 2, 3, 7, 0x9E3779B9))

    def _condition(self, *, rare: bool = False) -> Condition:
        mask = 15 if rare else self.rng.choice((1, 3, 7))
        relation = "eq" if rare else self.rng.choice(list(COMPARISONS))
        return Condition(self._variable(), mask, relation, self.rng.randrange(mask + 1))


# --- as PTX ---------------------------------------------------------------------------------


class Printer:
    """A program as the body of a kernel; ``%r10``... are the variables, the rest are temporaries."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.out: list[str] = []
        self.labels = 0

    def body(self, program: tuple[Statement, ...]) -> str:
        self._statements(program, None)
        self._finish()
        return "\n".join(self.out)

    def _finish(self) -> None:
        for number in range(VARIABLES):
            self.out.append(f" st.global.u32 [%rd1+{4 * number}], %r{10 + number};")
        self.out.append(f" {self.rng.choice(('ret', 'exit'))};")

    def _label(self) -> str:
        self.labels += 1
        return f"$L{self.labels}"

    @staticmethod
    def _text(operand: Operand) -> str:
        return f"%r{10 + int(operand[1:])}" if isinstance(operand, str) else str(operand)

    def _test(self, c: Condition, predicate: str) -> None:
        self.out.append(f" and.b32 %r40, {self._text(c.left)}, {c.mask};")
        self.out.append(f" setp.{c.relation}.u32 {predicate}, %r40, {c.right};")

    def _statements(self, statements: tuple[Statement, ...], loop: tuple[str, str] | None) -> None:
        for statement in statements:
            match statement:
                case Assign():
                    self._assign(statement)
                case If():
                    self._if(statement, loop)
                case Loop():
                    self._loop(statement)
                case Leave():
                    self._leave(statement, loop)
                case Barrier():
                    self.out.append(" bar.sync 0;")

    def _assign(self, s: Assign) -> None:
        guard = ""
        if s.guard is not None:
            self._test(s.guard, "%p2")
            guard = "@!%p2 " if s.guard_negated else "@%p2 "
        self.out.append(f" {guard}{s.operation} {self._text(s.target)}, {self._text(s.left)}, {self._text(s.right)};")

    def _if(self, s: If, loop: tuple[str, str] | None) -> None:
        end, other = self._label(), self._label()
        self._test(s.condition, "%p1")
        if not s.otherwise:
            self.out.append(f" @!%p1 bra {end};")
            self._statements(s.then, loop)
        elif self.rng.random() < 0.5:
            self.out.append(f" @!%p1 bra {other};")
            self._statements(s.then, loop)
            self.out += [f" bra {end};", f"{other}:"]
            self._statements(s.otherwise, loop)
        else:
            self.out.append(f" @%p1 bra {other};")
            self._statements(s.otherwise, loop)
            self.out += [f" bra.uni {end};", f"{other}:"]
            self._statements(s.then, loop)
        self.out.append(f"{end}:")

    def _loop(self, s: Loop) -> None:
        top, step, end = self._label(), self._label(), self._label()
        count, limit = f"%r{50 + 2 * s.number}", f"%r{51 + 2 * s.number}"
        self.out += [
            f" and.b32 {limit}, {self._text(s.source)}, 3;",
            f" add.u32 {limit}, {limit}, {s.extra};",
            f" mov.u32 {count}, 0;",
        ]
        if s.test_first:
            self.out += [f"{top}:", f" setp.ge.u32 %p3, {count}, {limit};", f" @%p3 bra {end};"]
            self._statements(s.body, (end, step))
            self.out += [f"{step}:", f" add.u32 {count}, {count}, 1;", f" bra {top};"]
        else:
            self.out += [f" setp.eq.u32 %p3, {limit}, 0;", f" @%p3 bra {end};", f"{top}:"]
            self._statements(s.body, (end, step))
            self.out += [
                f"{step}:",
                f" add.u32 {count}, {count}, 1;",
                f" setp.lt.u32 %p4, {count}, {limit};",
                f" @%p4 bra {top};",
            ]
        self.out.append(f"{end}:")

    def _leave(self, s: Leave, loop: tuple[str, str] | None) -> None:
        self._test(s.condition, "%p5")
        if s.how == "exit":
            after = self._label()
            self.out.append(f" @!%p5 bra {after};")
            self._finish()
            self.out.append(f"{after}:")
        else:
            assert loop is not None
            self.out.append(f" @%p5 bra {loop[0] if s.how == 'break' else loop[1]};")


# --- one thread at a time -------------------------------------------------------------------


class _Left(Exception):
    def __init__(self, how: str) -> None:
        self.how = how


def interpret(program: tuple[Statement, ...], start: list[int]) -> list[int]:
    """The variables of one thread when it stores them."""
    values = {f"v{i}": value for i, value in enumerate(start)}
    with suppress(_Left):  # only an exit comes up to here
        _run(program, values)
    return list(values.values())


def _value(operand: Operand, values: dict[str, int]) -> int:
    return values[operand] if isinstance(operand, str) else operand


def _holds(c: Condition, values: dict[str, int]) -> bool:
    return COMPARISONS[c.relation](_value(c.left, values) & c.mask, c.right)


def _run(statements: tuple[Statement, ...], values: dict[str, int]) -> None:
    for s in statements:
        match s:
            case Assign():
                if s.guard is None or _holds(s.guard, values) != s.guard_negated:
                    left, right = _value(s.left, values), _value(s.right, values)
                    values[s.target] = OPERATIONS[s.operation](left, right) & MASK
            case If():
                _run(s.then if _holds(s.condition, values) else s.otherwise, values)
            case Loop():
                for _ in range((_value(s.source, values) & 3) + s.extra):
                    try:
                        _run(s.body, values)
                    except _Left as left:
                        if left.how == "exit":
                            raise
                        if left.how == "break":
                            break
            case Leave():
                if _holds(s.condition, values):
                    raise _Left(s.how)
