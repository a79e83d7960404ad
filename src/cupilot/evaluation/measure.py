"""Measuring on a real GPU: a kernel and PyTorch in turns, and how sure the speedup is.

Samples come in pairs, one of the baseline and one of the candidate, in alternating order: what befalls both (clocks,
temperature, another user of the GPU) cancels in the ratio of a pair.  The speedup is the median of these ratios, which
a few wild samples do not move; its interval comes from a bootstrap over the pairs, with a fixed seed.  A win is a win
only when the whole interval lies above one.

A time is not believed when a fresh process comes to other results for the values of some turns (they were not computed
in that time), when the device is still busy after the wrapper's stream is done, or when the baseline suffers from the
candidate's company.

Not covered: noise that lasts over many pairs and hits only one of the two (a candidate that heats the GPU and then
runs in the shade of the baseline's pause); alternating turns keep that small.  Picking the best of many candidates by
their samples flatters it: measure the winner again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cupilot.arrays import Array, disagreement
from cupilot.contracts import Built, Call, Measuring, Reference, Sample, TimedProcess
from cupilot.records import Comparison, Failure, Interval, Measurement, Timing
from cupilot.records.measurement import State

PAIRS, WARMUPS, ALONE, WITNESSES = 40, 10, 10, 3
DISTURBED = 1.25
"""How much slower a baseline may be beside the candidate's process than it was alone."""
AFTER_S, AFTER_SHARE = 50e-6, 0.2
"""What a device may seem busy with when the wrapper's stream is done: the host's own delay."""
# what lowers clocks, among NVML's reasons: being idle or a user's own setting does not
THROTTLES = {
    0x4: "the power limit", 0x8: "a hardware slowdown", 0x20: "its temperature", 0x40: "its temperature (hardware)",
    0x80: "the power supply",
}  # fmt: skip
RESAMPLES = 2000
LEVEL = 0.95


def timing_of(found: Measurement, device: str) -> Timing:
    """As the record that everybody ranks by."""
    flushed = f"L2 flushed ({found.flushed_bytes >> 20} MB)" if found.flushed_bytes else "L2 not flushed"
    parts = (
        f"median of {len(found.samples_s)} samples, {found.interval_s.low:.4g} s to {found.interval_s.high:.4g} s",
        f"{found.warmups} warm-ups", flushed, *map(str, found.comparisons), *found.notes,
    )  # fmt: skip
    return Timing(found.median_s, "measured", device, note="; ".join(parts))


def baseline_of(found: Measurement, device: str) -> Timing | None:
    """The first rival's time, measured in turns with the candidate's."""
    if not found.comparisons:
        return None
    first = found.comparisons[0]
    return Timing(first.median_s, "measured", device, note=f"{first.rival}, median of {first.pairs} samples")


# --- statistics ------------------------------------------------------------------------------


def compare(rival: str, rival_s: Sequence[float], candidate_s: Sequence[float], seed: int = 0) -> Comparison:
    """Pair by pair, in the order they were taken."""
    if len(rival_s) != len(candidate_s):
        raise ValueError(f"{len(rival_s)} and {len(candidate_s)} samples make no pairs")
    ratios = _times(rival_s) / _times(candidate_s)
    return Comparison(
        rival, tuple(rival_s), median(rival_s), median(ratios), median_interval(ratios, seed), len(ratios)
    )


def median(values: Sequence[float] | Array) -> float:
    return float(np.median(_times(values)))


def median_interval(
    values: Sequence[float] | Array, seed: int = 0, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> Interval:
    """A percentile bootstrap of the median."""
    times = _times(values)
    rng = np.random.default_rng(seed)
    medians = np.median(times[rng.integers(0, times.size, (resamples, times.size))], axis=1)
    low, high = np.quantile(medians, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(low), float(high))


def _times(values: Sequence[float] | Array) -> Array:
    times = np.asarray(values, np.float64)
    if not times.size or not (np.isfinite(times) & (times > 0)).all():
        raise ValueError("samples are positive, finite times, at least one")
    return times


# --- taking samples --------------------------------------------------------------------------


@dataclass
class _Side:
    """One timed process, and what its turns were for."""

    name: str
    process: TimedProcess
    purposes: list[str] = field(default_factory=list)
    rotations: list[int] = field(default_factory=list)
    alive: bool = True

    def turns(self, purpose: str, count: int = 1, keep: bool = False) -> bool:
        for _ in range(count):
            if not self.alive:
                break
            # values that nobody can know before
            rotation = secrets.randbits(32)
            self.purposes.append("kept" if keep else purpose)
            self.rotations.append(rotation)
            self.alive = self.process.turn(rotation, keep)
        return self.alive

    def samples(self, *purposes: str) -> tuple[Sample, ...]:
        found = zip(self.purposes, self.process.finish().samples, strict=False)
        return tuple(sample for purpose, sample in found if purpose in purposes)

    @property
    def paired(self) -> tuple[Sample, ...]:
        return self.samples("pair", "kept")


def measure(
    device: Measuring, built: Built, call: Call, timeout_s: float, *, reference: Reference | None = None,
    inputs: Sequence[Any] = (), rival: Built | None = None, pairs: int = PAIRS, seed: int = 0,
) -> Measurement | Failure:  # fmt: skip
    """Time a call in turns with PyTorch, eager and compiled, on ``inputs`` (the module's own), or another kernel."""
    notes = [f"counters: {device.counters(built)}", *([device.note] if device.note else [])]
    against: list[tuple[str, Built, Call, Reference | None]] = []
    if reference is not None and device.torch_cuda:
        own = Call(call.label, tuple(inputs), call.outputs)
        for name, compiled in (("PyTorch eager", False), ("torch.compile", True)):
            against.append((name, built, own, Reference(reference.source, reference.precision, compiled)))
    elif reference is not None:
        notes.append("no baseline: the installed PyTorch has no CUDA")
    if rival is not None:
        against.append(("the other kernel", rival, call, None))
    with device.lock(), ExitStack() as stack:
        before = device.state()
        # the rivals are alone at first: the candidate's process does not exist yet
        rivals = [
            _Side(name, stack.enter_context(device.timed_process(kernel, own, timeout_s, torch)))
            for name, kernel, own, torch in against
        ]
        for side in rivals:
            side.turns("warm-up", WARMUPS)
            side.turns("alone", ALONE)
        candidate = _Side("", stack.enter_context(device.timed_process(built, call, timeout_s)))
        _take_pairs(candidate, [side for side in rivals if side.alive], pairs)
        failure = candidate.process.finish().failure
        for side in rivals:
            problem = side.process.finish().failure
            notes += [f"no {side.name}: {problem.message}"] if problem is not None else []
        after = device.state()
    if failure is not None:
        return failure
    rivals = [side for side in rivals if len(side.paired) == pairs]
    failure = unfinished(candidate.paired) or next((f for side in rivals if (f := disturbed(side))), None)
    failure = failure or _witnessed(device, built, call, timeout_s, candidate)
    times = tuple(sample.time_s for sample in candidate.paired)
    if failure is not None or min(times) <= 0:
        return failure or Failure("time", "no-time", "no time passed on the GPU: the wrapper launched nothing")
    notes += [*_host_notes(candidate.paired), *(f"clocks were kept down by {reason}" for reason in throttled_by(after))]
    compared = tuple(compare(side.name, [s.time_s for s in side.paired], times, seed) for side in rivals)
    return Measurement(
        times, median(times), median_interval(times, seed), compared, WARMUPS, device.flush_bytes, before, after,
        tuple(notes),
    )  # fmt: skip


def _take_pairs(candidate: _Side, rivals: Sequence[_Side], pairs: int) -> None:
    """A round is a sample of everybody, forwards and backwards in turn."""
    kept = {secrets.randbelow(pairs) for _ in range(WITNESSES)}
    sides = [candidate, *rivals] if candidate.turns("warm-up", WARMUPS) else []
    for number in range(pairs):
        for side in sides if number % 2 else sides[::-1]:
            side.turns("pair", keep=side is candidate and number in kept)


def _witnessed(device: Measuring, built: Built, call: Call, timeout_s: float, side: _Side) -> Failure | None:
    """Whether a fresh process comes to the results that were kept."""
    kept = side.process.finish().kept
    rotations = [r for r, purpose in zip(side.rotations, side.purposes, strict=True) if purpose == "kept"]
    again = device.repeat(built, call, rotations, timeout_s)
    if isinstance(again, Failure):
        return again
    fresh = [output for outputs in again for output in outputs]
    if [(o.shape, o.values.dtype) for o in kept] != [(o.shape, o.values.dtype) for o in fresh]:
        return Failure("time", "other-result", "while it was timed, a call returned other shapes or types")
    for one, other in zip(kept, fresh, strict=True):
        bits = np.dtype(f"u{one.values.itemsize}")
        words = disagreement(one.values.view(bits), other.values.view(bits), str(one.values.dtype))
        if words:
            message = f"while it was timed, a call had other results than in a fresh process: {words}"
            return Failure("time", "other-result", message)
    return None


def unfinished(samples: Sequence[Sample]) -> Failure | None:
    """Work that goes on when the wrapper's stream is done is work that was not timed."""
    after_s, time_s = (median([max(value, 1e-12) for value in values]) for values in (
        [sample.after_s for sample in samples], [sample.time_s for sample in samples],
    ))  # fmt: skip
    if after_s <= AFTER_S + AFTER_SHARE * time_s:
        return None
    message = f"the GPU was busy for another {after_s * 1e6:.0f} µs when the wrapper's stream was done"
    return Failure("time", "unfinished-work", message)


def disturbed(side: _Side) -> Failure | None:
    """A baseline that slows down beside the candidate's process was not compared fairly."""
    alone, beside = (median([s.time_s for s in samples]) for samples in (side.samples("alone"), side.paired))
    if beside <= DISTURBED * alone:
        return None
    message = f"{side.name} took {beside / alone:.2f} times as long beside the candidate's process as alone"
    return Failure("time", "disturbed", f"{message}: something else runs on the GPU")


def _host_notes(samples: Sequence[Sample]) -> tuple[str, ...]:
    behind = sum(not sample.ahead for sample in samples)
    if 2 * behind <= len(samples):
        return ()
    return (f"in {behind} of {len(samples)} samples the GPU waited for the host, and that time is in them",)


def throttled_by(state: State) -> tuple[str, ...]:
    """What keeps the clocks down, in words."""
    bits = int(dict(state).get("throttle_reasons", 0))
    return tuple(words for bit, words in THROTTLES.items() if bits & bit)
