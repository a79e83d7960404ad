"""Whether a kernel's results are right: the one rule by which results are compared.

The reference is the module in float64 on the same inputs.  The yardstick is what float32 costs on these
inputs (an element's *level*): the root mean square error, among results of like magnitude, of a plain
float32 evaluation of the textbook formula (`cupilot.tasks.textbook`) or of PyTorch, whichever is larger,
and at least one rounding of the result itself.  A result passes if

- every element is there, written, and of the right type; NaN and infinity stand where the reference
  (or PyTorch's float32, when float32 itself overflows) has them;
- no element is off by more than ``element`` times its level (or its own error in the textbook formula), plus one
  rounding of the output's root mean square and the smallest normal number (devices flush what is below);
- the root mean square error is at most ``norm`` times that of the levels.

The multiples depend on the declared precision.  Honest float32 kernels were seen at about one level in norm and five
in an element; inputs rounded to tf32 or fp16 are off by more than a hundred levels on signed inputs (not on long
sums of one sign, in which a single accumulator loses as much).  Elements of a product may be off by ``CANCELLED``
roundings of the root mean square.  For lower precisions the level also has what rounding the inputs to them does to
the result.
A result of a lower precision, or stored in a narrower type, may be off by two roundings in addition; PyTorch's own
error is then what it has beyond one rounding.  Integers and booleans must match exactly.

Not covered: a single float32 accumulator over much more than `textbook.CHAIN` terms of one sign, which loses so many
bits that it is rejected like a lower precision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cupilot.arrays import Array, float_limits, is_floating
from cupilot.contracts import Output
from cupilot.records import Check, Failure, Task
from cupilot.tasks import Case, Expectation, SlicedCase
from cupilot.tasks.flop import sums_products
from cupilot.tasks.indices import Choice
from cupilot.tasks.magnitude import bin_of, chunks


@dataclass(frozen=True)
class Budget:
    """What a precision allows: its rounding, and multiples of an error that cannot be avoided in it."""

    unit_roundoff: float
    element: float
    norm: float


BUDGETS = {
    "fp32": Budget(unit_roundoff=2.0**-24, element=48.0, norm=8.0),
    "tf32": Budget(unit_roundoff=2.0**-11, element=32.0, norm=3.0),
    "fp16": Budget(unit_roundoff=2.0**-11, element=32.0, norm=3.0),
    "bf16": Budget(unit_roundoff=2.0**-8, element=32.0, norm=3.0),
}
"""Keys are the precisions of `cupilot.tasks`."""
FIRST_WRONG, FAR = 6, 0.1
"""How many wrong elements are listed: those that are off by this share of the worst."""
DROPPED, SPREAD, ANYWHERE = "dropped", "spread", "anywhere"
EXCUSES: dict[str, Callable[[Array, Array], Array]] = {
    DROPPED: lambda got, expected: np.isnan(expected) & ~np.isnan(got),
    SPREAD: lambda got, expected: ~np.isfinite(expected) & ~np.isfinite(got),
    ANYWHERE: lambda got, expected: np.ones(got.shape, bool),
}
"""Of results and what is expected: a NaN that was passed over; an infinity that became a NaN or another one; all."""
FINE = BUDGETS["fp32"].unit_roundoff
CUT = 2.0
"""Roundings to a coarser type than float32 that a result may be off by, however exactly it was computed."""
CANCELLED = 16.0
"""Roundings (of a coarser precision than float32 half ones) of the output's root mean square that an element of a
product may be off by: its terms are as large as that, and what is left of them when they cancel has their error.  Three
products of tf32 in place of one are off by some four roundings of the largest term."""
FEW = 2.0
"""How much more of the norm a single element may have, in multiples of it."""


@dataclass(frozen=True)
class _Limits:
    """A budget for one output: multiples of the level, and the last rounding of results that are not float32."""

    element: float
    norm: float
    coarse: float
    coarse_norm: float
    smallest: float
    floor: float = FINE

    @classmethod
    def of(cls, precision: str, dtype: np.dtype[Any], compared: int, product: bool = False) -> _Limits:
        """With few elements the norm says no more than an element, so its multiple approaches theirs."""
        budget, (stored, smallest) = BUDGETS[precision], float_limits(dtype)
        norm = min(budget.element, budget.norm * (1 + FEW / np.sqrt(max(1, compared))))
        # numbers that are cut off instead of rounded, as tensor cores do it, are off by up to two roundings all one
        # way; what is only stored in a coarser type is rounded to nearest, half as much in the mean
        declared, stored = (unit if unit > FINE else 0.0 for unit in (budget.unit_roundoff, stored))
        floor = CANCELLED * max(FINE, declared / 2) if product else FINE
        return cls(budget.element, norm, CUT * max(declared, stored), max(CUT * declared, stored), smallest, floor)

    @staticmethod
    def level(errors: Array, expected: Array) -> Array:
        """The error that cannot be avoided: that of computing, and at least one rounding of float32."""
        return np.sqrt(errors**2 + (FINE * expected) ** 2)

    def storing(self, expected: Array) -> Array:
        """What the last rounding, to a coarser type or precision, may cost however exactly a result was computed."""
        return self.coarse * np.abs(expected)


@dataclass
class _Tally:
    """What the pass over an output's elements found; ``worst`` is in units of what is allowed."""

    compared: int = 0
    worst: float = 0.0
    worst_index: int = 0
    misplaced: int = 0
    excused: int = 0
    misplaced_index: int = 0
    squares: float = 0.0
    level_squares: float = 0.0
    expected_squares: float = 0.0


def compare(
    case: Case | SlicedCase,
    outputs: Sequence[Output],
    precision: str,
    *,
    partial: bool = False,
    excused: Sequence[str] = (),
) -> tuple[Check, Failure | None]:
    """Compare a call's outputs with a case, by the rule above.

    All elements must be written, unless ``partial``: then those that are written are compared, and an
    output without any is a failure.  NaN and infinity out of place that are ``excused`` (see `EXCUSES`) are only noted.
    The check's ``error`` is the largest element error in levels, ``allowed`` the multiple in force.
    """
    problem = _form_problem(case.drawn.task, outputs)
    if problem:
        return _uncompared(case, precision, problem, "wrong-shape")
    for index, output in enumerate(outputs):
        if output.alias and not _is_same_result(case, index, output, outputs):
            problem = f"output {index} lies in the memory of {output.alias}: a result needs memory of its own"
            return _uncompared(case, precision, problem, "aliased-output")
        problem = _unwritten_problem(index, output, partial)
        if problem:
            return _uncompared(case, precision, problem, "unwritten")
    found = [_compare_output(case, index, output, precision, excused) for index, output in enumerate(outputs)]
    failures = [failure for _, failure in found if failure is not None]
    check = next((check for check, failure in found if failure is not None), max(found, key=_strain)[0])
    return check, failures[0] if failures else None


def _is_same_result(case: Case | SlicedCase, index: int, output: Output, outputs: Sequence[Output]) -> bool:
    """Whether an output shares its memory with another one that the reference has the same values for."""
    kind, _, number = output.alias.partition(" ")
    if kind != "output" or outputs[int(number)].shape != output.shape:
        return False
    one, other = (case.expectation(each, output.runs).expected for each in (index, int(number)))
    return bool(np.array_equal(one, other, equal_nan=True))


def _strain(found: tuple[Check, Failure | None]) -> float:
    return found[0].strain


def _uncompared(case: Case | SlicedCase, precision: str, problem: str, kind: str) -> tuple[Check, Failure]:
    message = f"{problem} (inputs: {case.kind}, shape {case.shapes})"
    check = Check(case.kind, case.shapes, 0.0, BUDGETS[precision].element, "values were not compared")
    return check, Failure("verify", kind, message)


def _form_problem(task: Task, outputs: Sequence[Output]) -> str:
    """What is wrong with number, shapes or types of the outputs, or nothing."""
    if len(outputs) != len(task.outputs):
        return f"the kernel returns {len(outputs)} outputs, expected {len(task.outputs)}"
    for index, (output, wanted) in enumerate(zip(outputs, task.outputs, strict=True)):
        if output.shape != wanted.shape:
            return f"output {index} has shape {_shape(output.shape)}, expected {_shape(wanted.shape)}"
        if str(output.values.dtype) != wanted.dtype:
            return f"output {index} has type {output.values.dtype}, expected {wanted.dtype}"
    return ""


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _unwritten_problem(index: int, output: Output, partial: bool) -> str:
    missing = output.elements - output.written_elements
    if output.runs is None or not missing or (partial and output.values.size):
        return ""
    table = output.runs.table
    first = int(table[0].sum()) if len(table) and not table[0, 0] else 0
    return (
        f"output {index}: {missing} of {output.elements} elements were never written, "
        f"the first at {_place(first, output.shape)}"
    )


def _place(flat_index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(part) for part in np.unravel_index(flat_index, shape))


def _compare_output(
    case: Case | SlicedCase, index: int, output: Output, precision: str, excused: Sequence[str]
) -> tuple[Check, Failure | None]:
    wanted = case.expectation(index, output.runs)
    got = output.values
    if wanted.positions is not None and wanted.positions.size != got.size:
        places = wanted.positions if output.runs is None else wanted.positions.within(output.runs)
        got = places.of_values(got)
    if not is_floating(got.dtype):
        return _compare_exact(case, index, output, got, wanted, not excused)
    limits = _Limits.of(precision, got.dtype, got.size, sums_products(case.drawn.task))
    tally = _Tally()
    for part in chunks(got.size):
        _count(tally, got, wanted, limits, part, excused)
    norm = _norm_strain(tally, wanted, limits)
    check = Check(
        case.kind, case.shapes, tally.worst * limits.element, limits.element,
        f"{tally.compared} elements; norm {norm * limits.norm:.3g} of {limits.norm:.3g}; "
        f"{max(tally.worst, norm):.2f} of what {precision} allows, in units of what float32 costs"
        + f"; {tally.excused} NaN or infinities are not PyTorch's, which is not held against it" * bool(tally.excused),
        strain=np.inf if tally.misplaced else max(tally.worst, norm),
    )  # fmt: skip
    if not tally.misplaced and tally.worst <= 1 and norm <= 1:
        return check, None
    at = tally.misplaced_index if tally.misplaced else tally.worst_index
    place = _place(at if wanted.positions is None else int(wanted.positions[at]), output.shape)
    values = float(got[at]), float(wanted.expected[at])
    magnitude = abs(values[0] - values[1]) / (max(abs(values[1]), wanted.scale) or 1.0)
    if tally.misplaced:
        reason = f"NaN or infinity out of place in {tally.misplaced} of {tally.compared} elements"
    elif tally.worst > 1:
        reason = f"error {magnitude:.2g} of magnitude, {tally.worst:.2g} times what {precision} allows"
    else:
        reason = f"all elements together are {norm:.2g} times as far off as {precision} allows"
    message = (
        f"output {index} differs at {place}: got {values[0]:.9g}, expected {values[1]:.9g}; {reason} "
        f"(inputs: {case.kind}, shape {case.shapes})"
    )
    far = 0.0 if tally.misplaced else FAR * abs(values[0] - values[1])
    return check, Failure("verify", "wrong-result", message, _first_wrong(got, wanted, output.shape, far))


def _first_wrong(got: Array, wanted: Expectation, shape: tuple[int, ...], far: float) -> str:
    """The first elements that are off by so much, or with ``far`` zero, NaN or infinite where the other is not.

    Where errors are says more than the worst of them; a single one is in the message already.
    """
    found: list[str] = []
    for part in chunks(got.size):
        values, expected = got[part].astype(np.float64), wanted.expected[part].astype(np.float64)
        with np.errstate(invalid="ignore"):
            off = np.abs(values - expected)
        odd = (np.isfinite(values) != np.isfinite(expected)) | (np.isnan(values) != np.isnan(expected))
        for at in np.flatnonzero(off >= far if far else odd)[: FIRST_WRONG - len(found)]:
            flat = part.start + int(at)
            place = _place(flat if wanted.positions is None else int(wanted.positions[flat]), shape)
            found.append(f"{place}: got {values[at]:.6g}, expected {expected[at]:.6g}")
        if len(found) >= FIRST_WRONG:
            break
    return "first wrong elements: " + "; ".join(found) if len(found) > 1 else ""


def _compare_exact(
    case: Case | SlicedCase, index: int, output: Output, got: Array, wanted: Expectation, strict: bool
) -> tuple[Check, Failure | None]:
    # indices of numbers that the module computes first may differ between float64 and its own precision
    wrong = (got != wanted.expected) & (got != wanted.native)
    if wanted.choice:
        wrong = Choice(*wanted.choice).wrong(got, wanted.expected, wanted.positions, lenient=not strict)
        strict = True
    count = int(np.count_nonzero(wrong))
    check = Check(
        case.kind,
        case.shapes,
        float(count),
        0.0,
        f"{got.size} integers; wrong elements",
        np.inf if count and strict else 0.0,
    )
    if not count or not strict:
        return check, None
    at = int(np.argmax(wrong))
    place = _place(at if wanted.positions is None else int(wanted.positions[at]), output.shape)
    message = (
        f"output {index} differs at {place}: got {got[at]}, expected {wanted.expected[at]}; "
        f"{count} of {wrong.size} elements differ (inputs: {case.kind}, shape {case.shapes})"
    )
    return check, Failure("verify", "wrong-result", message)


def _count(
    tally: _Tally, values: Array, wanted: Expectation, limits: _Limits, part: slice, excused: Sequence[str]
) -> None:
    """Take one chunk of an output's elements into the tally."""
    got, expected = values[part].astype(np.float64), wanted.expected[part]
    chosen = np.arange(part.start, part.start + got.size)
    tally.compared += got.size

    finite = np.isfinite(got) & np.isfinite(expected)
    if not finite.all():
        native = wanted.native[part].astype(np.float64)
        misplaced = ~finite & ~_same_special(got, expected) & ~_same_special(got, native)
        forgiven = np.zeros(misplaced.shape, bool)
        for name in excused:
            forgiven |= misplaced & EXCUSES[name](got, expected)
        tally.excused += int(np.count_nonzero(forgiven))
        misplaced &= ~forgiven
        if tally.misplaced == 0 and misplaced.any():
            tally.misplaced_index = int(chosen[np.argmax(misplaced)])
        tally.misplaced += int(np.count_nonzero(misplaced))
        chosen, got, expected = chosen[finite], got[finite], expected[finite]
    if not got.size:
        return
    error = np.abs(got - expected)
    level, storing = limits.level(wanted.errors[bin_of(expected)], expected), limits.storing(expected)
    alone = level if wanted.own is None else np.maximum(level, wanted.own[chosen])
    floor = limits.floor * wanted.scale + limits.smallest
    strain = error / (limits.element * alone + storing + floor)
    worst = int(np.argmax(strain))
    if strain[worst] > tally.worst:
        tally.worst, tally.worst_index = float(strain[worst]), int(chosen[worst])
    # not a dot product: the library behind it wakes all processors for it
    tally.squares += float(np.square(error).sum())
    tally.level_squares += float(np.square(level).sum())
    tally.expected_squares += float(np.square(expected).sum())


def _same_special(got: Array, other: Array) -> Array:
    """Both NaN, or the same infinity."""
    return np.asarray((np.isnan(got) & np.isnan(other)) | (np.isinf(got) & (got == other)))


def _norm_strain(tally: _Tally, wanted: Expectation, limits: _Limits) -> float:
    """Root mean square error over what is allowed of it."""
    root = np.sqrt(max(1, tally.compared))
    allowed = limits.norm * np.sqrt(tally.level_squares) / root + FINE * wanted.scale + limits.smallest
    allowed += limits.coarse_norm * np.sqrt(tally.expected_squares) / root
    return float(np.sqrt(tally.squares) / root / allowed)
