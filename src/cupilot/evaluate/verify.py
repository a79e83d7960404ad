"""Whether a kernel's results are right: the one rule by which results are compared.

The reference is the module in float64 on the same inputs.  The yardstick is PyTorch's own error on
these inputs: for each element, the root mean square error of PyTorch's float32 result among results
of like magnitude, and at least one rounding of the result itself (its *level*).  A result passes if

- every element is there, written, and of the right type; NaN and infinity stand where the reference
  (or PyTorch's float32, when float32 itself overflows) has them;
- no element is off by more than ``element`` times its level, plus one rounding of the output's
  root mean square and the smallest normal number (devices flush what is below);
- the root mean square error is at most ``norm`` times that of the levels.

The multiples depend on the declared precision.  For fp32 they let any order of summation pass (one
float32 accumulator over some ten thousand terms is about 12 levels in norm), while inputs rounded
to tf32 or fp16 are off by hundreds of levels on signed inputs.  Lower precisions get their unit
roundoff in place of float32's.  Integers and booleans must match exactly.

Not covered: a single float32 accumulator over much longer sums of one sign, which loses so many
bits that it is rejected like a lower precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupilot.records import Check, Failure
from cupilot.tasks import Case
from cupilot.tasks.magnitude import bin_of, chunks

Array = NDArray[Any]


@dataclass(frozen=True)
class Budget:
    """What a precision allows: multiples of PyTorch's own error, if that were made in this precision."""

    unit_roundoff: float
    element: float
    norm: float


BUDGETS = {
    "fp32": Budget(unit_roundoff=2.0**-24, element=128.0, norm=16.0),
    "tf32": Budget(unit_roundoff=2.0**-11, element=32.0, norm=2.0),
    "fp16": Budget(unit_roundoff=2.0**-11, element=32.0, norm=2.0),
    "bf16": Budget(unit_roundoff=2.0**-8, element=32.0, norm=2.0),
}
"""Keys are the precisions of `cupilot.tasks`."""


@dataclass(frozen=True)
class _Limits:
    """A budget in terms of one output: multiples of the level, and how the level is made."""

    element: float
    norm: float
    roundoff: float
    smallest: float

    @classmethod
    def of(cls, precision: str, dtype: np.dtype[Any], compared: int) -> _Limits:
        """With few elements the norm says no more than an element, so its multiple approaches theirs."""
        budget, kind = BUDGETS[precision], np.finfo(dtype)
        roundoff = float(kind.eps) / 2
        coarser = max(1.0, budget.unit_roundoff / roundoff)
        norm = min(budget.element, budget.norm * (1 + 4 / np.sqrt(max(1, compared))))
        return cls(budget.element * coarser, norm * coarser, roundoff, float(kind.tiny))


@dataclass(frozen=True)
class _Output:
    """One output, flat, with everything that its elements are judged by; ``scale`` is a root mean square."""

    got: Array
    written: Array
    expected: Array
    native: Array
    native_error: Array
    limits: _Limits
    scale: float


@dataclass
class _Tally:
    """What the pass over an output's elements found; ``worst`` is in units of what is allowed."""

    compared: int = 0
    worst: float = 0.0
    worst_index: int = 0
    misplaced: int = 0
    misplaced_index: int = 0
    squares: float = 0.0
    level_squares: float = 0.0


def compare(
    case: Case, outputs: Sequence[Array], written: Sequence[Array], precision: str, *, partial: bool = False
) -> tuple[Check, Failure | None]:
    """Compare a call's outputs with a case, by the rule above.

    ``written`` masks the elements that the kernel stored to.  All must be, unless ``partial``: then
    those that are written are compared, and an output without any is a failure.
    The check's ``error`` is the largest element error in levels, ``allowed`` the multiple in force.
    """
    problem = _form_problem(case, outputs)
    if problem:
        return _uncompared(case, precision, problem, "wrong-shape")
    for index, mask in enumerate(written):
        problem = _unwritten_problem(case, index, mask, partial)
        if problem:
            return _uncompared(case, precision, problem, "unwritten")
    found = [_compare_output(case, index, outputs[index], written[index], precision) for index in range(len(outputs))]
    failures = [failure for _, failure in found if failure is not None]
    check = next((check for check, failure in found if failure is not None), max(found, key=_strain)[0])
    return check, failures[0] if failures else None


def _strain(found: tuple[Check, Failure | None]) -> float:
    check = found[0]
    return check.error / check.allowed if check.allowed else check.error


def _uncompared(case: Case, precision: str, problem: str, kind: str) -> tuple[Check, Failure]:
    message = f"{problem} (inputs: {case.kind}, shape {case.shapes})"
    check = Check(case.kind, case.shapes, 0.0, BUDGETS[precision].element, "values were not compared")
    return check, Failure("verify", kind, message)


def _form_problem(case: Case, outputs: Sequence[Array]) -> str:
    """What is wrong with number, shapes or types of the outputs, or nothing."""
    if len(outputs) != len(case.native):
        return f"the kernel returns {len(outputs)} outputs, expected {len(case.native)}"
    for index, (output, native) in enumerate(zip(outputs, case.native, strict=True)):
        if output.shape != native.shape:
            return f"output {index} has shape {_shape(output)}, expected {_shape(native)}"
        if output.dtype != native.dtype:
            return f"output {index} has type {output.dtype}, expected {native.dtype}"
    return ""


def _shape(array: Array) -> str:
    return "x".join(map(str, array.shape)) or "scalar"


def _unwritten_problem(case: Case, index: int, mask: Array, partial: bool) -> str:
    mask = np.asarray(mask, dtype=bool)
    missing = mask.size - int(np.count_nonzero(mask))
    if mask.shape != case.native[index].shape:
        return f"the mask of output {index} has shape {_shape(mask)}, expected {_shape(case.native[index])}"
    if not missing or (partial and missing < mask.size):
        return ""
    first = _place(int(np.argmin(mask.reshape(-1))), mask.shape)
    return f"output {index}: {missing} of {mask.size} elements were never written, the first at {first}"


def _place(flat_index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(part) for part in np.unravel_index(flat_index, shape))


def _compare_output(case: Case, index: int, got: Array, mask: Array, precision: str) -> tuple[Check, Failure | None]:
    if got.dtype.kind != "f":
        return _compare_exact(case, index, got, mask)
    expected = case.expected[index].reshape(-1)
    mask = np.asarray(mask, dtype=bool).reshape(-1)
    limits = _Limits.of(precision, got.dtype, int(np.count_nonzero(mask)))
    output = _Output(
        got.reshape(-1), mask, expected, case.native[index].reshape(-1), case.native_errors[index],
        limits, case.magnitudes[index],
    )  # fmt: skip
    tally = _Tally()
    for part in chunks(expected.size):
        _count(tally, output, part)
    norm = _norm_strain(tally, output)
    check = Check(
        case.kind, case.shapes, tally.worst * limits.element, limits.element,
        f"{tally.compared} elements; norm {norm * limits.norm:.3g} of {limits.norm:.3g}; "
        f"in units of PyTorch's own error, {precision}",
    )  # fmt: skip
    if not tally.misplaced and tally.worst <= 1 and norm <= 1:
        return check, None
    place = _place(tally.misplaced_index if tally.misplaced else tally.worst_index, got.shape)
    values = float(got[place]), float(case.expected[index][place])
    magnitude = abs(values[0] - values[1]) / (max(abs(values[1]), output.scale) or 1.0)
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
    return check, Failure("verify", "wrong-result", message)


def _compare_exact(case: Case, index: int, output: Array, mask: Array) -> tuple[Check, Failure | None]:
    expected = case.expected[index]
    wrong = (output != expected) & np.asarray(mask, dtype=bool)
    count = int(np.count_nonzero(wrong))
    check = Check(case.kind, case.shapes, float(count), 0.0, "integers; wrong elements")
    if not count:
        return check, None
    place = _place(int(np.argmax(wrong.reshape(-1))), wrong.shape)
    message = (
        f"output {index} differs at {place}: got {output[place]}, expected {expected[place]}; "
        f"{count} of {wrong.size} elements differ (inputs: {case.kind}, shape {case.shapes})"
    )
    return check, Failure("verify", "wrong-result", message)


def _count(tally: _Tally, output: _Output, part: slice) -> None:
    """Take one chunk of an output's elements into the tally."""
    chosen = np.flatnonzero(output.written[part])
    got = output.got[part][chosen].astype(np.float64)
    expected = output.expected[part][chosen]
    tally.compared += got.size

    finite = np.isfinite(got) & np.isfinite(expected)
    if not finite.all():
        native = output.native[part][chosen].astype(np.float64)
        misplaced = ~finite & ~_same_special(got, expected) & ~_same_special(got, native)
        if tally.misplaced == 0 and misplaced.any():
            tally.misplaced_index = part.start + int(chosen[np.argmax(misplaced)])
        tally.misplaced += int(np.count_nonzero(misplaced))
        chosen, got, expected = chosen[finite], got[finite], expected[finite]
    if not got.size:
        return
    limits = output.limits
    error = np.abs(got - expected)
    level = np.sqrt(output.native_error[bin_of(expected)] ** 2 + (limits.roundoff * expected) ** 2)
    strain = error / (limits.element * level + limits.roundoff * output.scale + limits.smallest)
    worst = int(np.argmax(strain))
    if strain[worst] > tally.worst:
        tally.worst, tally.worst_index = float(strain[worst]), part.start + int(chosen[worst])
    tally.squares += float(np.dot(error, error))
    tally.level_squares += float(np.dot(level, level))


def _same_special(got: Array, other: Array) -> Array:
    """Both NaN, or the same infinity."""
    return np.asarray((np.isnan(got) & np.isnan(other)) | (np.isinf(got) & (got == other)))


def _norm_strain(tally: _Tally, output: _Output) -> float:
    """Root mean square error over what is allowed of it."""
    limits, root = output.limits, np.sqrt(max(1, tally.compared))
    allowed = limits.norm * np.sqrt(tally.level_squares) / root + limits.roundoff * output.scale + limits.smallest
    return float(np.sqrt(tally.squares) / root / allowed)
