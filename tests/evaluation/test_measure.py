"""Statistics on synthetic samples whose true ratio is known, and the taking of turns with made-up processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupilot.contracts import Built, Call, Output, Reference, Sample, Timed
from cupilot.evaluation.measure import (
    ALONE,
    WARMUPS,
    Comparison,
    Measurement,
    baseline_of,
    compare,
    measure,
    median_interval,
    throttled_by,
    timing_of,
    unfinished,
)
from cupilot.records import Failure, Kernel, TensorSpec

Draw = Callable[[np.random.Generator, int], Any]
TRIALS, PAIRS = 200, 40


def steady(rng: np.random.Generator, count: int) -> Any:
    return np.exp(0.03 * rng.standard_normal(count))


def skewed(rng: np.random.Generator, count: int) -> Any:
    return 1 + 0.05 * rng.exponential(size=count)


def wild(rng: np.random.Generator, count: int) -> Any:
    """One sample in ten is several times too long, as when something else ran."""
    return steady(rng, count) * np.where(rng.random(count) < 0.1, rng.uniform(2, 20, count), 1.0)


def quantised(rng: np.random.Generator, count: int) -> Any:
    """What events tell of a kernel of a few microseconds."""
    return np.maximum(np.round(10 * steady(rng, count) * 2) / 2, 0.5)


def trials(noise: Draw, ratio: float, *, drift: float = 0.0, pairs: int = PAIRS) -> Iterator[Comparison]:
    """Comparisons where the baseline takes ``ratio`` times as long; both slow down by ``drift`` to the end."""
    rng = np.random.default_rng(5)
    common = 1 + drift * np.linspace(0, 1, pairs)
    for trial in range(TRIALS):
        baseline, candidate = ratio * noise(rng, pairs) * common, noise(rng, pairs) * common
        yield compare("baseline", baseline.tolist(), candidate.tolist(), seed=trial)


# --- statistics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [steady, skewed, wild])
@pytest.mark.parametrize("drift", [0.0, 0.4])
def test_the_interval_covers_the_true_ratio_at_its_rate(noise: Draw, drift: float) -> None:
    found = [c.interval.low <= 1.3 <= c.interval.high for c in trials(noise, 1.3, drift=drift)]
    assert 0.91 <= np.mean(found) <= 0.985, "nominal: 0.95"


@pytest.mark.parametrize("noise", [steady, skewed, wild, quantised])
@pytest.mark.parametrize("drift", [0.0, 0.4])
def test_equals_hardly_ever_win(noise: Draw, drift: float) -> None:
    found = list(trials(noise, 1.0, drift=drift))
    assert np.mean([c.is_win for c in found]) <= 0.05, "nominal: 0.025"
    assert np.mean([c.is_loss for c in found]) <= 0.05


def test_without_pairs_drift_would_make_a_winner() -> None:
    # the same samples, the baseline's all taken after the candidate's: what alternating turns prevent
    rng = np.random.default_rng(3)
    both = steady(rng, 2 * PAIRS) * (1 + 0.4 * np.linspace(0, 1, 2 * PAIRS))
    assert compare("baseline", both[PAIRS:].tolist(), both[:PAIRS].tolist()).is_win
    assert not compare("baseline", both[1::2].tolist(), both[::2].tolist()).interval.low > 1.03


@pytest.mark.parametrize("noise", [steady, wild])
def test_a_gain_of_five_percent_is_seen(noise: Draw) -> None:
    assert np.mean([c.is_win for c in trials(noise, 1.05, drift=0.2)]) >= 0.95


def test_a_slower_candidate_is_a_loss_and_says_so() -> None:
    found = next(trials(steady, 0.8))
    assert (found.is_win, found.is_loss) == (False, True)
    assert str(found).startswith("baseline: 0.")
    assert str(found).endswith("40 pairs), slower")


def test_few_pairs_are_never_a_win() -> None:
    few = compare("baseline", [2.0] * 9, [1.0] * 9)
    assert (few.speedup, few.interval.low, few.is_win) == (2.0, 2.0, False)
    assert "too few" in str(few)
    assert compare("baseline", [2.0] * 10, [1.0] * 10).is_win


def test_an_interval_that_touches_one_is_no_win() -> None:
    assert not compare("baseline", [1.0] * 20, [1.0] * 20).is_win


@given(
    st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=1, max_size=31).filter(
        lambda p: len(p) % 2
    ),
    st.floats(1e-3, 1e3),
)
def test_units_do_not_matter_and_rivals_can_be_swapped(pairs: list[tuple[float, float]], scale: float) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    there = compare("", one, other)
    scaled = compare("", [scale * a for a in one], [scale * b for b in other])
    assert scaled.speedup == pytest.approx(there.speedup)
    assert scaled.interval.high == pytest.approx(there.interval.high)
    assert compare("", other, one).speedup == pytest.approx(1 / there.speedup)
    assert there.interval.low <= there.speedup * (1 + 1e-12)
    assert there.speedup <= there.interval.high * (1 + 1e-12)


def test_the_same_samples_give_the_same_numbers() -> None:
    values = steady(np.random.default_rng(0), 30).tolist()
    assert median_interval(values, 1) == median_interval(values, 1)
    assert median_interval(values, 1) != median_interval(values, 2)


@pytest.mark.parametrize("samples", [[], [0.0], [1.0, -1.0], [float("nan")], [float("inf")]])
def test_samples_are_times(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="positive, finite times"):
        median_interval(samples)


def test_pairs_have_two_sides() -> None:
    with pytest.raises(ValueError, match="3 and 2 samples make no pairs"):
        compare("baseline", [1.0, 1.0, 1.0], [1.0, 1.0])


# --- taking samples -------------------------------------------------------------------------------

BUILT = Built(Kernel("candidate"), Path("none"), "", ())
RIVAL = Built(Kernel("rival"), Path("none"), "", ())
CALL = Call("", (np.zeros(4, np.float32),), (TensorSpec((4,)),))


@dataclass
class Runner:
    """A process that takes ``time_s`` and returns the rotation that it was given."""

    name: str
    device: Bench
    time_s: Callable[[Bench], float]
    honest: bool = True
    after_s: float = 5e-6
    ahead: bool = True
    dies_at: int = 1 << 30
    samples: list[Sample] = field(default_factory=list)
    kept: list[Output] = field(default_factory=list)

    def turn(self, rotation: int, keep: bool = False) -> bool:
        self.device.log.append(self.name)
        if len(self.samples) >= self.dies_at:
            return False
        self.samples.append(Sample(self.time_s(self.device), self.ahead, self.after_s))
        self.device.warmth += 0.002
        if keep:
            self.kept.append(result(rotation if self.honest else 1))
        return True

    def finish(self) -> Timed:
        failure = Failure("time", "device-error", f"{self.name} died") if len(self.samples) >= self.dies_at else None
        return Timed(tuple(self.samples), tuple(self.kept), failure)


def result(rotation: int) -> Output:
    return Output((4,), np.random.default_rng(rotation).standard_normal(4).astype(np.float32))


class Bench:
    """A device that gets warmer, and slower, with every turn."""

    flush_bytes = 1 << 20
    note = ""

    def __init__(self, torch_cuda: str = "13.0", **changes: dict[str, Any]) -> None:
        self.torch_cuda = torch_cuda
        self.changes = changes
        self.warmth = 1.0
        self.log: list[str] = []
        self.rng = np.random.default_rng(0)

    def state(self) -> tuple[tuple[str, float], ...]:
        return (("throttle_reasons", 4.0), ("sm_clock_hz", 1e9 / self.warmth))

    def counters(self, built: Built) -> str:
        return "made up"

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def timed_process(
        self, built: Built, call: Call, timeout_s: float, reference: Reference | None = None
    ) -> Iterator[Runner]:
        name = built.kernel.source if reference is None else "compiled" if reference.compiled else "eager"
        base = {"candidate": 1e-3, "rival": 1.2e-3, "eager": 2e-3, "compiled": 1.5e-3}[name]
        self.log.append(f"start {name}")
        noise = lambda bench: base * bench.warmth * float(np.exp(0.01 * bench.rng.standard_normal()))  # noqa: E731
        yield Runner(name, self, **({"time_s": noise} | self.changes.get(name, {})))

    def repeat(
        self, built: Built, call: Call, rotations: Sequence[int], timeout_s: float
    ) -> tuple[tuple[Output, ...], ...] | Failure:
        return tuple((result(rotation),) for rotation in rotations)


def run(bench: Bench, **options: Any) -> Measurement | Failure:
    return measure(bench, BUILT, CALL, 10.0, pairs=20, **options)


def measured(bench: Bench, **options: Any) -> Measurement:
    found = run(bench, **options)
    assert isinstance(found, Measurement), found
    return found


def test_everybody_is_timed_in_turns() -> None:
    bench = Bench()
    found = measured(bench, reference=Reference("source"), rival=RIVAL)
    assert [c.rival for c in found.comparisons] == ["PyTorch eager", "torch.compile", "the other kernel"]
    assert [c.pairs for c in found.comparisons] == [20, 20, 20]
    assert found.is_win
    for comparison, ratio in zip(found.comparisons, (2.0, 1.5, 1.2), strict=True):
        assert comparison.speedup == pytest.approx(ratio, rel=0.02), "although it became twice as slow meanwhile"
    start = bench.log.index("start candidate")
    assert bench.log[:start].count("eager") == WARMUPS + ALONE, "alone before there is a candidate"
    rounds = bench.log[start + 1 + WARMUPS :]
    assert rounds[:8] == ["rival", "compiled", "eager", "candidate", "candidate", "eager", "compiled", "rival"]
    assert found.before != found.after
    assert "clocks were kept down by the power limit" in found.notes
    assert timing_of(found, "cuda:0").source == "measured"
    baseline = baseline_of(found, "cuda:0")
    assert baseline is not None
    assert (baseline.source, baseline.time_s) == ("measured", found.comparisons[0].median_s)


def test_without_pytorch_for_cuda_there_is_no_baseline_and_no_win() -> None:
    found = measured(Bench(torch_cuda=""), reference=Reference("source"))
    assert (found.comparisons, found.is_win, baseline_of(found, "cuda:0")) == ((), False, None)
    assert "no baseline: the installed PyTorch has no CUDA" in found.notes


@pytest.mark.parametrize("dies_at", [0, WARMUPS + 3, WARMUPS + ALONE + 7])
def test_a_rival_that_fails_is_left_out_with_a_note(dies_at: int) -> None:
    found = measured(Bench(compiled={"dies_at": dies_at}), reference=Reference("source"))
    assert [c.rival for c in found.comparisons] == ["PyTorch eager"]
    assert "no torch.compile: compiled died" in found.notes


def test_a_candidate_that_fails_is_a_failure() -> None:
    failure = run(Bench(candidate={"dies_at": WARMUPS + 5}), reference=Reference("source"))
    assert isinstance(failure, Failure)
    assert failure.message == "candidate died"


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"candidate": {"honest": False}}, "other-result", "other results than in a fresh process"),
        ({"candidate": {"after_s": 1e-2}}, "unfinished-work", "busy for another 10000 µs"),
        ({"candidate": {"time_s": lambda bench: 0.0}}, "no-time", "launched nothing"),
        (
            {"eager": {"time_s": lambda bench: 4e-3 if "start candidate" in bench.log else 2e-3}},
            "disturbed",
            "PyTorch eager took 2.00 times as long beside the candidate's process as alone",
        ),
    ],
)
def test_times_that_are_not_believed(changes: dict[str, Any], kind: str, words: str) -> None:
    failure = run(Bench(**changes), reference=Reference("source"))
    assert isinstance(failure, Failure), failure
    assert (failure.stage, failure.kind) == ("time", kind)
    assert words in failure.message


def test_a_host_that_is_too_slow_is_noted() -> None:
    found = measured(Bench(candidate={"ahead": False}))
    assert "in 20 of 20 samples the GPU waited for the host, and that time is in them" in found.notes
    assert not any("waited" in note for note in measured(Bench()).notes)


def test_a_moment_after_the_end_is_the_hosts() -> None:
    assert unfinished([Sample(1e-5, True, 4e-5)] * 5) is None
    assert unfinished([Sample(1e-5, True, 9e-5)] * 5) is not None
    assert unfinished([Sample(1e-5, True, 4e-5)] * 5 + [Sample(1e-5, True, 1.0)] * 4) is None, "a few wild ones"


def test_idle_clocks_are_not_throttled() -> None:
    assert throttled_by((("throttle_reasons", 3.0),)) == ()
    assert throttled_by(()) == ()
    assert throttled_by((("throttle_reasons", 0x24),)) == ("the power limit", "its temperature")
