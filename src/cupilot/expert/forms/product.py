"""Products of two matrices or of two batches of them, and what is done to the result pointwise.

Covered: ``mm``, ``matmul``, ``bmm``, ``linear``, ``addmm`` and ``einsum`` of two floating tensors, operands that are
transposed views, a bias of one number per column, and one triangle of the result (``triu``, ``tril``) before or after
what follows pointwise.  Dimensions of the left operand that the right one does not have are rows.  Not covered:
results of one row or one column but of ``linear``, products of more than two tensors, operands that are computed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from string import ascii_lowercase

from cupilot.errors import UserError
from cupilot.expert.form import Form, Graph, axis, described
from cupilot.expert.pointwise import chain, is_pointwise
from cupilot.expert.storage import FLOATING, PRECISIONS
from cupilot.records import Op, Task
from cupilot.tasks import learn_structures, scaled_tasks
from cupilot.tasks.operators import base_name

FACTS = {
    "batch": "products of one call", "m": "rows of a result", "n": "columns of a result", "k": "length of the sums",
    "batched": "whether there are batches at all",
    "shared_a": "whether all products have the same left operand", "shared_b": "the same of the right one",
    "trans_a": "whether the left operand lies transposed: columns are neighbours in memory, not inner steps",
    "trans_b": "whether the right operand lies transposed: inner steps are neighbours in memory, not columns",
    "bias": "whether a number per column is added",
    "triangle": "the part of the result that is not zero: upper, lower or empty for all of it",
    "triangular": "whether both operands are zero where the result is",
    "stored": "whether both operands are 16-bit numbers of one type, which tensor cores take as they are",
}  # fmt: skip

MAIN = ("mm", "matmul", "bmm", "linear", "addmm", "einsum")
TRIANGLES = {"triu": "upper", "tril": "lower"}
NEAR = "a product is known of two floating tensors"


@dataclass(frozen=True)
class Operand:
    """An argument and the letters of its dimensions as they lie in memory."""

    name: str
    letters: str


@dataclass(frozen=True)
class Operands:
    """Both factors, and the letters of the result."""

    left: Operand
    right: Operand
    out: str

    def size(self, graph: Graph, letter: str) -> int:
        operand = self.left if letter in self.left.letters else self.right
        return graph.spec(operand.name).shape[operand.letters.index(letter)]

    def code(self, letter: str) -> str:
        """A dimension's size as C."""
        name, operand = ("a", self.left) if letter in self.left.letters else ("b", self.right)
        return f"{name}.size({operand.letters.index(letter)})"


@dataclass(frozen=True)
class Tail:
    """What follows a product: pointwise steps, and the triangle that is kept before or after them."""

    steps: tuple[Op, ...] = ()
    triangle: str = ""
    diagonal: int = 0
    first: bool = True


def read(graph: Graph) -> Form | str:
    """Templates see ``pointwise``, what follows as C of one float ``x``; ``sizes``, ``result_sizes``, C of dimensions;
    ``agree``, conditions in C; ``keep``, which results stay, and ``keep_first``, whether that comes before the rest.
    """
    main = graph.only(*MAIN)
    tail = _tail(graph, main) if main is not None and graph.all_floating() else None
    if main is None or tail is None:
        return ""
    operands = _operands(graph, main)
    if isinstance(operands, str):
        return operands
    shape = _shape(operands)
    if shape is None:
        return "the dimensions do not fold into those of matrices"
    left, right, bias = operands.left, operands.right, _bias(main)
    sizes = {name: prod(operands.size(graph, c) for c in letters) for name, letters in shape.groups.items()}
    single = min(sizes["m"], sizes["n"]) == 1 and base_name(main.target) != "linear"  # sums of their own
    if single or set(graph.arguments) != {left.name, right.name, *bias}:
        return ""
    if any(len(shape.groups["n"]) != 1 or graph.spec(name).shape != (sizes["n"],) for name in bias):
        return "a bias is known of one number per column only"
    triangle, batched = tail.triangle, bool(shape.groups["batch"])
    plain = tail.diagonal == 0 and not (shape.trans_a or shape.trans_b or batched)
    facts = {
        **sizes, "batched": batched, "shared_a": shape.shared_a, "shared_b": shape.shared_b,
        "trans_a": shape.trans_a, "trans_b": shape.trans_b, "bias": bool(bias), "triangle": triangle,
        "triangular": bool(triangle) and plain and _triangles(graph.task) == (triangle, triangle),
    }  # fmt: skip
    stored = _stored(graph, left.name, right.name)
    facts |= {"stored": bool(stored)} | ({"precision": stored} if stored else {})
    names = {left.name: "a", **({} if left.name == right.name else {right.name: "b"}), **dict.fromkeys(bias, "bias")}
    code = {
        "pointwise": chain(tail.steps, {main.name: "x"}),
        "same": left.name == right.name,
        "dims_a": len(left.letters), "dims_b": len(right.letters),
        "sizes": {name: " * ".join(map(operands.code, group)) or "1" for name, group in shape.groups.items()},
        "result_sizes": ", ".join(map(operands.code, operands.out)),
        "agree": [
            f"a.size({left.letters.index(c)}) == b.size({right.letters.index(c)})"
            for c in left.letters if c in right.letters
        ],
        "keep": f"col - row {'>=' if triangle == 'upper' else '<='} {tail.diagonal}" if triangle else "",
        "keep_first": tail.first,
    }  # fmt: skip
    title = described(
        f"Product of two matrices in {graph.spec(left.name).dtype if stored else 'single precision'}", tail.steps
    )
    return Form("product", title, facts, names, code)


def _stored(graph: Graph, left: str, right: str) -> str:
    """The precision of operands that are 16-bit numbers of one type."""
    one, other = graph.spec(left).dtype, graph.spec(right).dtype
    return PRECISIONS.get(one, "") if one == other else ""


@dataclass(frozen=True)
class Shape:
    """How letters fold into the dimensions of matrices, and how the operands lie in memory."""

    groups: Mapping[str, str]
    trans_a: bool
    trans_b: bool
    shared_a: bool
    shared_b: bool


def _shape(operands: Operands) -> Shape | None:
    left, right, out = operands.left, operands.right, operands.out
    batch = [c for c in out if c in left.letters and c in right.letters]
    rows = [c for c in out if c not in right.letters]
    columns = [c for c in out if c not in left.letters]
    inner = [c for c in left.letters if c in right.letters and c not in out]
    shared_a, shared_b = False, False
    if not batch and len(rows) > 1 and _order(left, [rows, inner]) is None:
        # a transposed batch on one side only: the other operand serves all its products
        batch, rows, shared_b = rows[:-1], rows[-1:], True
    elif not batch and len(columns) > 1:
        batch, columns, shared_a = columns[:-1], columns[-1:], True
    trans_a = _order(left, [[] if shared_a else batch, rows, inner])
    trans_b = _order(right, [[] if shared_b else batch, inner, columns])
    if trans_a is None or trans_b is None or list(out) != [*batch, *rows, *columns] or not (rows and columns and inner):
        return None
    groups = {"batch": "".join(batch), "m": "".join(rows), "n": "".join(columns), "k": "".join(inner)}
    return Shape(groups, trans_a, trans_b, shared_a, shared_b)


def _order(operand: Operand, groups: Sequence[Sequence[str]]) -> bool | None:
    """False when the dimensions lie in the order of the groups, true when the last two are swapped, else None."""
    *front, middle, last = ("".join(group) for group in groups)
    start = "".join(front)
    return {start + middle + last: False, start + last + middle: True}.get(operand.letters)


# --- operands --------------------------------------------------------------------------------


def _operands(graph: Graph, main: Op) -> Operands | str:
    """Both operands by their letters in memory, or what is in the way."""
    kind = base_name(main.target)
    factors = main.operands[1:] if kind == "addmm" else main.operands[:2]
    if len(factors) != 2:
        return NEAR
    letters = _equation(main, len(factors)) if kind == "einsum" else _letters(graph, kind, factors)
    if letters is None:
        return f"{NEAR} with dimensions that agree"
    found = [_in_memory(graph, name, named) for name, named in zip(factors, letters[:2], strict=True)]
    views = {op.name for op in graph.task.graph if base_name(op.target) in VIEWS}
    used = {view for _, passed in found for view in passed}
    if views != used or not all(graph.is_tensor(operand.name) for operand, _ in found):
        return ""
    left, right = (operand for operand, _ in found)
    if any(len(set(operand.letters)) != len(operand.letters) for operand in (left, right)):
        return "a product is known without diagonals of its operands"
    return Operands(left, right, letters[2])


def _equation(main: Op, factors: int) -> tuple[str, str, str] | None:
    """The letters of an einsum of two tensors."""
    text = str(main.attribute("equation", "")).replace(" ", "")
    sides = text.split("->")
    terms = sides[0].split(",")
    plain = len(sides) == 2 and len(terms) == factors and all(term.isalpha() for term in (*terms, sides[1]))
    return (terms[0], terms[1], sides[1]) if plain else None


def _letters(graph: Graph, kind: str, factors: Sequence[str]) -> tuple[str, str, str] | None:
    """Letters for the operators with fixed places: batches first, then m, k and n."""
    left, right = (graph.spec(name).shape for name in factors)
    if len(left) < 2 or len(right) < 2:
        return None
    front = [c for c in ascii_lowercase if c not in "kmn"][: max(len(left), len(right)) - 2]
    if len(front) != max(len(left), len(right)) - 2:
        return None
    batch_a, batch_b = ("".join(front[len(front) - len(shape) + 2 :]) for shape in (left, right))
    common = min(len(batch_a), len(batch_b))
    if common and left[-2 - common : -2] != right[-2 - common : -2]:
        return None
    return batch_a + "mk", batch_b + ("nk" if kind == "linear" else "kn"), "".join(front) + "mn"


VIEWS = ("numpy_T", "t", "transpose", "permute", "swapaxes", "mT")


def _in_memory(graph: Graph, name: str, letters: str) -> tuple[Operand, tuple[str, ...]]:
    """The argument behind views that only permute dimensions, and the views on the way."""
    passed: tuple[str, ...] = ()
    while name in graph.ops and base_name(graph.ops[name].target) in VIEWS:
        op = graph.ops[name]
        order = _permutation(op, len(letters))
        source = [""] * len(letters)
        for letter, place in zip(letters, order, strict=True):
            source[place] = letter
        name, letters, passed = op.operands[0], "".join(source), (*passed, name)
    return Operand(name, letters), passed


def _permutation(op: Op, rank: int) -> list[int]:
    """Where each dimension of a view lies in what it is a view of."""
    order = list(range(rank))
    kind = base_name(op.target)
    if kind in ("numpy_T", "t"):
        return order[::-1]
    dims = op.attribute("dims")
    if kind == "permute" and isinstance(dims, tuple):
        return [axis(dim, rank) for dim in dims]
    one, other = (-2, -1) if kind == "mT" else (op.attribute("dim0", 0), op.attribute("dim1", 1))
    one, other = axis(one, rank), axis(other, rank)
    order[one], order[other] = order[other], order[one]
    return order


def _bias(main: Op) -> tuple[str, ...]:
    kind = base_name(main.target)
    return main.operands[:1] if kind == "addmm" else main.operands[2:] if kind == "linear" else ()


# --- what follows ----------------------------------------------------------------------------


def _tail(graph: Graph, main: Op) -> Tail | None:
    """None when something else follows than pointwise steps of this shape and one triangle at their start or end."""
    if base_name(main.target) == "addmm" and (main.attribute("alpha", 1), main.attribute("beta", 1)) != (1, 1):
        return None
    place = graph.task.graph.index(main)
    after = list(graph.task.graph[place + 1 :])
    triangle, diagonal, first = "", 0, True
    known = {main.name}
    steps: list[Op] = []
    renamed: dict[str, str] = {}
    for number, op in enumerate(after):
        operands = tuple(renamed.get(name, name) for name in op.operands)
        same = op.output.shape == main.output.shape and op.output.dtype in FLOATING
        if not same or not operands or not set(operands) <= known:
            return None
        kind = base_name(op.target)
        if kind in TRIANGLES and not triangle and number in (0, len(after) - 1) and operands[0] == _last(main, steps):
            triangle, diagonal, first = TRIANGLES[kind], int(str(op.attribute("diagonal", 0))), number == 0
            renamed[op.name] = operands[0]
            continue
        if not is_pointwise(op) or (triangle and main.name in op.operands):
            return None
        steps.append(Op(op.name, op.target, operands, op.attributes, op.output))
        known.add(op.name)
    return Tail(tuple(steps), triangle, diagonal, first)


def _last(main: Op, steps: Sequence[Op]) -> str:
    return steps[-1].name if steps else main.name


@cache
def _triangles(task: Task) -> tuple[str, ...]:
    """Which triangle of each input is not zero, as the task's own inputs have it."""
    try:
        versions = scaled_tasks(task)
        structures = learn_structures(versions[0] if versions else task)
    except UserError:
        return ()
    return tuple(structure.zero_outside if structure is not None else "" for structure in structures)
