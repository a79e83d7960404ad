"""A small run with everything a report has to show, and one whose every text is hostile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cupilot.evolution.store import SqliteStore, create_store
from cupilot.records import (
    Budget,
    Check,
    Counter,
    Evaluation,
    Failure,
    Individual,
    Kernel,
    Launch,
    LineCost,
    Move,
    Profile,
    RunResult,
    Strategy,
    Timing,
    ToolUse,
    Turn,
)
from cupilot.testing.samples import EVALUATION, INFO, LAUNCH

DEVICE = "virtual:a100-80gb"
RUN_INFO = replace(INFO, device=DEVICE, population=4, generations=2, budget=Budget(evaluations=40, wall_s=600.0))
BASELINE = Timing(5e-4, "modelled", DEVICE, "dram")
SOURCE = """__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = fmaxf(x[i], 0.0f) + 1.0f;
  }
}
"""
HOSTILE = (
    "</script><script>globalThis.hacked = 1</script><!--<script><img src=x onerror='globalThis.hacked = 2'>&amp;\u202e"
)
"""The last character makes text run backwards."""
HALF = "\ud800"
"""Half a character, which no file can hold; records are JSON, so a run can."""
TURNS = (
    Turn("translator", (ToolUse("compile", "compiles; 40 registers", "k", 0.2),
                        ToolUse("check", "right, 50 µs", "k", 3.0)), 9000, 1000),
    Turn("translator", (), 12000, 500, "no action in the reply"),
    Turn("translator", note="the turns are spent; its best kernel is handed in"),
)  # fmt: skip


def counters(source: str, **values: float) -> tuple[Counter, ...]:
    return tuple(Counter(name, value, source) for name, value in values.items())


def launch(scale: float) -> Launch:
    """Of a kernel that moves 8 MB and makes a million operations, with ``scale`` instructions for each."""
    return replace(
        LAUNCH,
        counters=(
            *counters("PTX", warp_instructions=2e5 * scale, lane_instructions=6e6 * scale, flop_fp32=1e6),
            *counters("SASS", global_load_requests=3e4, global_load_sectors=1.2e5, global_store_requests=3e4,
                      global_store_sectors=1.2e5, sass_instructions=1.5e5 * scale),
            *counters("model", l2_read_sectors=1.2e5, l2_write_sectors=1.2e5, dram_read_bytes=4e6,
                      dram_write_bytes=4e6),
        ),
        lines=(LineCost(2, 5e4 * scale, 1.2e4), LineCost(4, 1.5e5 * scale, 2.4e5)),
    )  # fmt: skip


def right(source: str, scale: float, **parts_us: float) -> Evaluation:
    parts = tuple((name, value * 1e-6) for name, value in parts_us.items())
    timing = Timing(
        sum(value for _, value in parts), "modelled", DEVICE, max(parts, key=lambda p: p[1])[0], parts, "", 0.1
    )
    return replace(
        EVALUATION, kernel=Kernel(source).digest, device=DEVICE, timing=timing, baseline=BASELINE,
        profile=Profile(DEVICE, (launch(scale),), sampled=True), checks=(Check("normal", "37x1031", 3.4, 128.0, "ok"),),
    )  # fmt: skip


def wrong(stage: str, kind: str, message: str, log: str = "") -> Evaluation:
    return Evaluation("", "relu", DEVICE, Failure(stage, kind, message, log))


VECTOR = Move.of("vector-load", "fewer requests", bytes=16)
UNROLL = Move.of("unroll", factor=2)
INVENTED = Move.of("warp-magic", "a model thought of it")


def strategy(*moves: Move, text: str = "") -> Strategy:
    return Strategy(moves, text)


def individuals() -> tuple[Individual, ...]:
    """0 is plain; 1 and 2 are first strategies, 3 repairs 2, 4 was never written; 5 crosses 1 and 3 and is the best;
    6 is a mutation of 5 that is slower."""
    texts = [SOURCE.replace("i < n", f"i < n  /* {number} */") for number in range(7)]
    kernels = [Kernel(text) for text in texts]

    def timed(number: int, scale: float, latency: float) -> Evaluation:
        return right(texts[number], scale, latency=latency, dram=200)

    wrong_result = wrong("verify", "wrong-result", "element 7 is 1.5", "a log")
    unwritten = wrong("translate", "no-kernel", "no recipe")
    narrow = strategy(Move.of("vector-load", bytes=8), UNROLL)
    return (
        Individual(0, 0, "plain", strategy(), kernels[0], timed(0, 4, 800), (), "to begin"),
        Individual(1, 0, "initial", strategy(VECTOR), kernels[1], timed(1, 2, 300), (0,)),
        Individual(2, 0, "initial", strategy(UNROLL), kernels[2], wrong_result, (0,)),
        Individual(3, 0, "revise", strategy(UNROLL), kernels[3], timed(3, 3, 600), (2,), "repairs 2"),
        Individual(4, 0, "initial", strategy(INVENTED), Kernel(""), unwritten, (0,)),
        Individual(5, 1, "cross", strategy(VECTOR, UNROLL), kernels[5], timed(5, 1, 50), (1, 3), turns=TURNS),
        Individual(6, 1, "mutate", narrow, kernels[6], timed(6, 1.5, 150), (5,)),
    )


NOTES = (("guidance", "5: held back by traffic to DRAM"), ("given-up", "2: nothing to repair"), ("stop", "enough"))


@contextmanager
def writing(folder: Path) -> Iterator[SqliteStore]:
    store = create_store(folder)
    try:
        yield store
    finally:
        store.close()


def write_run(folder: Path, some: Iterable[Individual] | None = None, *, finished: bool = True) -> Path:
    """A run's folder with these individuals, by default all of them."""
    held = individuals() if some is None else tuple(some)
    with writing(folder) as store:
        store.begin(RUN_INFO)
        for one in held:
            store.add(one)
        for kind, text in NOTES:
            store.note(kind, text)
        if finished:
            store.finish(RunResult(RUN_INFO, held[0], held[5], len(held), 2, "generations", str(folder)))
    return folder


def hostile_individuals() -> tuple[Individual, ...]:
    """The same run, with every text that somebody else may write turned against the page."""
    found = []
    for one in individuals():
        moves = tuple(replace(move, reason=HOSTILE) for move in one.strategy.moves)
        source = f"// {HOSTILE}{HALF}\n{one.kernel.source}" if one.kernel.source else ""
        failure = one.evaluation.failure
        evaluation = one.evaluation
        if failure is not None:
            evaluation = replace(evaluation, failure=Failure(failure.stage, HOSTILE, HOSTILE + HALF, HOSTILE + HALF))
        found.append(replace(
            one, strategy=Strategy(moves, HOSTILE + HALF), kernel=Kernel(source), evaluation=evaluation, reason=HOSTILE,
            turns=(Turn(HOSTILE, (ToolUse(HOSTILE, HOSTILE),), 1, 1, HOSTILE),),
        ))  # fmt: skip
    return tuple(found)


def write_hostile_run(folder: Path) -> Path:
    info = replace(RUN_INFO, task=HOSTILE, task_source=HOSTILE, agents=HOSTILE)
    with writing(folder) as store:
        store.begin(info)
        for one in hostile_individuals():
            store.add(one)
        store.note("guidance", HOSTILE)
        store.note(HOSTILE, f"5: {HOSTILE}")
    return folder
