"""Smaller versions of a task, made by replacing the integer constants at the top of its file.

Two versions: a round one (all sizes divided by one power of two, multiples of 32 where that is small
enough and of less where it is not, so that equal and divisible sizes stay so) and an odd one (a different
prime for every constant, so that a swapped axis or a missing remainder shows; where the module does not take
that, for all but one, or odd multiples of what has to divide a size: groups, heads).  Each is loaded and run before it
is returned, so that a version is a valid task.
Not covered: sizes written inside functions, and constants below 32, which are mostly modes
(kernel size, heads, an axis) and not sizes.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, permutations
from math import isqrt

from cupilot.errors import TaskError
from cupilot.records import Task
from cupilot.tasks.case import make_case
from cupilot.tasks.load import task_from_source, tensor_elements

SMALLEST_SIZE = 32
FLOORS = (32, 16, 8, 4)
"""Smallest sizes of versions, the first that suffices: tensors of four and five axes need smaller ones."""
STEPS = 24
"""Halvings that are tried; 2^24 brings every size that fits a GPU down to the smallest."""

ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow, ast.LShift: operator.lshift,
}  # fmt: skip
LARGEST_SIZE = 1 << 40
DIVISORS = (2, 4, 8, 16)
FACTORS = (1, 4, 16, 64)
"""Multiples that kernels ask for: of a vector, of half a warp or a tensor core's tile, of a block's tile."""
LONG_SIZE = 1024
PROBED = 3
"""Sizes that are looked at; a version costs a good part of a second to make."""


@dataclass(frozen=True)
class _Constant:
    """An integer constant, the name that it is assigned to, and where its value stands in the file."""

    name: str
    value: int
    line: int
    start: int
    stop: int


def scaled_tasks(task: Task, limit_elements: int = 1 << 18) -> tuple[Task, ...]:
    """The round and the odd version, each with at most ``limit_elements`` in all its tensors together.

    A task within the limit stands for its own round version.  Versions that do not run, or run
    other operators than the task, are left out; so the result may be empty.
    """
    constants = _constants(task.source)
    small = _elements(task) <= limit_elements
    found = [task] if small else _first(task, _round_sizes(constants), constants, limit_elements)
    if constants:
        odd = chain(_odd_sizes(constants), _divisible_sizes(constants, _divisors(task.source)))
        found = found + _first(task, odd, constants, limit_elements)
    return tuple(found)


def long_tasks(task: Task, limit_elements: int) -> tuple[Task, ...]:
    """Versions that keep one size and shrink all others, one for each size that fits into the limit.

    They reach what only a long dimension shows: its end, and what a kernel does beyond some length.
    """
    constants = _constants(task.source)
    found: list[Task] = []
    for kept, constant in enumerate(constants):
        if len(constants) > 1 and constant.value >= LONG_SIZE:
            shrunk = (
                tuple(constant.value if place == kept else floor for place in range(len(constants))) for floor in FLOORS
            )
            found += _first(task, shrunk, constants, limit_elements)
    return tuple(found)


@dataclass(frozen=True)
class Probe:
    """A version in which one size, and no other, is an odd multiple of ``factor``."""

    size: str
    factor: int
    task: Task


def probe_tasks(task: Task, base: Task, limit_elements: int = 1 << 18) -> tuple[Probe, ...]:
    """Versions near ``base`` that tell of each size which multiples a kernel needs, the least factor first."""
    constants = _constants(task.source)
    sizes = [constant.value for constant in _constants(base.source)]
    found: list[Probe] = []
    for place, constant in enumerate(constants[:PROBED] if len(sizes) == len(constants) else ()):
        for factor in FACTORS:
            changed = (*sizes[:place], sizes[place] // (2 * factor) * 2 * factor + factor, *sizes[place + 1 :])
            found += [
                Probe(constant.name, factor, version)
                for version in _first(task, [changed], constants, 2 * limit_elements)
            ]
    return tuple(found)


def _elements(task: Task) -> int:
    tensors = [argument.tensor for argument in task.arguments if argument.tensor is not None]
    return sum(tensor.elements for tensor in (*tensors, *task.outputs))


# --- constants in the file -----------------------------------------------------------------


def _constants(source: str) -> tuple[_Constant, ...]:
    """Module-level assignments of integers (or of arithmetic on integers) that may be sizes."""
    found: list[_Constant] = []
    for name, node in _integers(source):
        number = _integer(node)
        if number is not None and number >= SMALLEST_SIZE and node.lineno == node.end_lineno:
            assert node.end_col_offset is not None
            found.append(_Constant(name, number, node.lineno, node.col_offset, node.end_col_offset))
    return tuple(found)


def _integers(source: str) -> Iterator[tuple[str, ast.expr]]:
    """Values that are assigned at the top of a file, with their names."""
    for statement in ast.parse(source).body:
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        nodes = value.elts if isinstance(value, ast.Tuple) else [value]
        for name, node in zip(_targets(statement, len(nodes)), nodes, strict=True):
            if node is not None:
                yield name, node


def _targets(statement: ast.stmt, count: int) -> list[str]:
    """The names that so many values are assigned to, made up where they are not plain."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    nodes = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [node.id if isinstance(node, ast.Name) else "a size" for node in nodes]
    return names if len(names) == count else ["a size"] * count


def _integer(node: ast.expr | None) -> int | None:
    """The value of an integer expression without names."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in ARITHMETIC:
        return None
    left, right = _integer(node.left), _integer(node.right)
    if left is None or right is None or not 0 < right < LARGEST_SIZE or abs(left) > LARGEST_SIZE:
        return None
    if isinstance(node.op, (ast.Pow, ast.LShift)) and right > LARGEST_SIZE.bit_length():
        return None
    return int(ARITHMETIC[type(node.op)](left, right))


def _replaced(source: str, constants: tuple[_Constant, ...], sizes: tuple[int, ...]) -> str:
    lines = [line.encode() for line in source.split("\n")]  # lines and (byte) columns as ast counts them
    for constant, size in sorted(zip(constants, sizes, strict=True), key=lambda pair: -pair[0].start):
        line = lines[constant.line - 1]
        lines[constant.line - 1] = line[: constant.start] + str(size).encode() + line[constant.stop :]
    return b"\n".join(lines).decode()


# --- sizes to try, the largest first ---------------------------------------------------------


def _round_sizes(constants: tuple[_Constant, ...]) -> Iterator[tuple[int, ...]]:
    for floor in FLOORS:
        for step in range(1, STEPS):
            yield tuple(max(floor, size - size % floor) for size in (c.value >> step for c in constants))
    # a module that insists on some of its sizes may take the others smaller
    for kept in range(len(constants)):
        for floor in FLOORS:
            yield tuple(c.value if place == kept else floor for place, c in enumerate(constants))
    for shrunk in range(len(constants)):
        for floor in FLOORS:
            yield tuple(floor if place == shrunk else c.value for place, c in enumerate(constants))


def _odd_sizes(constants: tuple[_Constant, ...]) -> Iterator[tuple[int, ...]]:
    """Primes; the same prime for equal constants if the module insists; primes for all but one constant."""
    values = [constant.value for constant in constants]
    for together in (False, True):
        for floor in FLOORS:
            for step in range(STEPS):
                yield _primes(values, floor, step, together)
    for kept in range(len(values)):
        for floor in FLOORS:
            sizes = list(_primes(values, floor, STEPS, together=False))
            sizes[kept] = max(floor, 8)
            yield tuple(sizes)


def _divisors(source: str) -> tuple[int, ...]:
    """Small constants of the file, such as groups and heads, which may have to divide a size; then usual ones."""
    small = [number for _, node in _integers(source) if (number := _integer(node)) is not None]
    found = (number for number in small if 1 < number < SMALLEST_SIZE)
    return tuple(dict.fromkeys((*found, *DIVISORS)))


def _divisible_sizes(constants: tuple[_Constant, ...], divisors: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Odd multiples of a divisor for one size, two or all of them and primes for the others; then of another size."""
    values = [constant.value for constant in constants]
    places = range(len(values))
    some = [{place} for place in places] + [set(pair) for pair in combinations(places, 2)] + [set(places)]
    for divisor in divisors:
        for chosen in some:
            primes = _primes(values, FLOORS[-1], STEPS, together=False)
            yield tuple(size * divisor if place in chosen else size for place, size in enumerate(primes))
    for large, small in permutations(places, 2):
        if values[large] > values[small] and values[large] % values[small] == 0:
            sizes = list(_primes(values, FLOORS[-1], STEPS, together=False))
            sizes[large] = 3 * sizes[small]
            yield tuple(sizes)


def _primes(values: list[int], floor: int, step: int, together: bool) -> tuple[int, ...]:
    """A prime above each size, or above a half or a quarter of it in turn; never the same one twice."""
    used: dict[int, int] = {}
    found: list[int] = []
    for place, value in enumerate(values):
        if together and value in used:
            found.append(used[value])
            continue
        prime = max(3, max(floor, value >> step) >> (place % 3)) | 1
        while prime in found or not _is_prime(prime):
            prime += 2
        used[value] = prime
        found.append(prime)
    return tuple(found)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


# --- which of them work ----------------------------------------------------------------------


def _first(
    task: Task, candidates: Iterable[tuple[int, ...]], constants: tuple[_Constant, ...], limit_elements: int
) -> list[Task]:
    """The first version within the limit that loads, computes the same operators, and runs."""
    for sizes in dict.fromkeys(candidates):
        source = _replaced(task.source, constants, sizes)
        name = f"{task.name}@{'x'.join(map(str, sizes))}"
        try:
            if tensor_elements(source, name) > limit_elements:
                continue
            version = task_from_source(source, name, task.precision, where=name)
            if version.operators == task.operators:
                make_case(version, "own", seed=0)
                return [version]
        except TaskError:
            continue
    return []
