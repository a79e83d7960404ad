"""The two charts of a run: the roofline with every individual on it, and how the best time came down."""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.evolution.result import moves_text
from cupilot.gpu import GpuSpec
from cupilot.gpu.roofline import LEVELS, Roof, precision_in_use, profile_work, roof_of
from cupilot.gpu.units import sources_of
from cupilot.numbers import PAGE
from cupilot.records import Individual
from cupilot.report.chart import Row, Scalar, chart, fine_ticks, part
from cupilot.report.roofline_chart import compute_ceilings, roofline_chart
from cupilot.report.run import Run
from cupilot.tasks.roofline_position import roofline_point

MOST_TICKS = 5


@dataclass(frozen=True)
class Scale:
    """What the vertical axis counts: floating-point operations, or instructions where a run has no such operations
    (copies, comparisons)."""

    word: str
    unit: str
    counter: str = ""

    def amount(self, one: Individual) -> float:
        profile = one.evaluation.profile
        if profile is None:
            return 0.0
        return profile.total(self.counter) if self.counter else profile_work(profile).flop


FLOP = Scale("operations", "flop")
INSTRUCTIONS = Scale("warp instructions", "inst", "warp_instructions")


@dataclass(frozen=True)
class Chart:
    """A specification's JSON, and sentences about what it shows and what it does not."""

    spec: str
    notes: tuple[str, ...] = ()


def roofline(run: Run) -> Chart | None:
    """None where the GPU is not known or nobody has a place."""
    best, spec = run.best, run.spec
    if best is None or best.evaluation.profile is None or spec is None or run.info is None:
        return None
    scale = FLOP if any(FLOP.amount(one) for one in run.ranked) else INSTRUCTIONS
    roof = roof_of(spec, precision_in_use(best.evaluation.profile.launches, run.info.precision))
    dots = [dot for one in run.ranked if (dot := _dot(one, run, roof, scale)) is not None]
    if not any(level in dot for dot in dots for level in LEVELS):
        return None
    placed = {dot["id"] for dot in dots}
    notes = [f"{roof.gpu}, {roof.precision}; {_origins(best, scale)}"]
    if scale is INSTRUCTIONS:
        notes.append("no kernel of this run makes floating-point operations that count, so instructions stand for them")
    if missing := len(run.individuals) - len(placed):
        notes.append(f"{missing} of {len(run.individuals)} individuals have no place: they failed or counted nothing")
    text = roofline_chart(
        roof, compute_ceilings(roof) if scale is FLOP else _issue_ceiling(spec), scale.word, scale.unit,
        points=part(
            "roofline_individuals", unit=f" {scale.unit} per byte of ", generations=_generations(run),
            generation_ticks=_generation_ticks(run),
        ),
        datasets={"dots": dots},
        xs=[float(str(dot[level])) for dot in dots for level in LEVELS if level in dot],
        ys=[float(str(dot["y"])) for dot in dots],
        description=f"Roofline of {roof.gpu} with {len(placed)} individuals",
    )  # fmt: skip
    return Chart(text, tuple(notes))


def _origins(best: Individual, scale: Scale) -> str:
    """Where times, operations and bytes are from; they are the same for all that are ranked."""
    timing, profile = best.evaluation.timing, best.evaluation.profile
    assert timing is not None, "ranked individuals have a time"
    assert profile is not None, "the best has a profile where there is a roofline"
    of_bytes = {sources_of(launch, ("dram_read_bytes", "dram_write_bytes")) for launch in profile.launches}
    measured = "measured by ncu" if of_bytes == {"ncu"} else "modelled"
    return f"times are {timing.source}, {scale.word} are counted, bytes of L2 and DRAM {measured}"


def _issue_ceiling(spec: GpuSpec) -> list[tuple[str, float]]:
    return [("instruction issue", spec.sms * spec.clock_hz * spec.schedulers_per_sm)]


def _dot(one: Individual, run: Run, roof: Roof, scale: Scale) -> Row | None:
    """The whole call, not its launches, with an intensity for each level that it moved bytes through."""
    profile, timing, amount = one.evaluation.profile, one.evaluation.timing, scale.amount(one)
    if profile is None or timing is None or amount <= 0:
        return None
    work = profile_work(profile)
    rate = amount / timing.time_s
    intensities = {level: amount / work.bytes(level) for level in LEVELS if work.bytes(level) > 0}
    return {
        **_common(one, run), **intensities, "y": rate, "zone": roofline_point(roof, "", work, timing).zone,
        "rate": PAGE.quantity(rate, f"{scale.unit}/s"),
    }  # fmt: skip


def _common(one: Individual, run: Run) -> dict[str, Scalar]:
    """What every dot of an individual has, in both charts."""
    best, plain, timing = run.best, run.plain, one.evaluation.timing
    kind = "best" if one is best else "plain" if one is plain else "other"
    time = "" if timing is None else f"{PAGE.duration(timing.time_s)} ({timing.source})"
    return {
        "id": one.id, "kind": kind, "generation": one.generation, "rank": ("other", "plain", "best").index(kind),
        "individual": f"{one.id} ({kind})" if kind != "other" else str(one.id), "made": made_by(one), "time": time,
        "limit": "" if timing is None else timing.limit, "moves": moves_text(one.strategy) or "none",
        "label": f"individual {one.id}, generation {one.generation}, {time}",
    }  # fmt: skip


def made_by(one: Individual) -> str:
    """Such as ``cross of 3 and 7, generation 2``."""
    of = (
        f" of {' and '.join(map(str, one.parents))}"
        if one.parents and one.origin in ("cross", "mutate", "revise")
        else ""
    )
    return f"{one.origin}{of}, generation {one.generation}"


def _repaired(one: Individual) -> str:
    return "" if one.superseded_by is None else f", repaired by {one.superseded_by}"


def _generations(run: Run) -> list[int]:
    return [0, max(1, *(one.generation for one in run.individuals), 1)]


def _generation_ticks(run: Run) -> list[int]:
    """A few of them, the last included."""
    last = _generations(run)[1]
    return sorted(
        {round(last * n / MOST_TICKS) for n in range(MOST_TICKS + 1)} if last > MOST_TICKS else range(last + 1)
    )


def convergence(run: Run) -> Chart | None:
    """Best time so far over the individuals; None as long as nobody has a time."""
    best = run.best
    if best is None or run.plain is None:
        return None
    ranked = {one.id for one in run.ranked}
    unit = PAGE.time_unit([one.time_s for one in run.ranked])
    points: list[Row] = []
    failed: list[Row] = []
    line: list[Row] = []
    least_s = float("inf")
    for number, one in enumerate(run.individuals, start=1):
        if one.id in ranked and one.time_s is not None:
            points.append({**_common(one, run), "n": number, "t": one.time_s / unit.scale_s})
            least_s = min(least_s, one.time_s)
        elif one.evaluation.failure is not None:
            failure = one.evaluation.failure
            failed.append({
                **_common(one, run), "n": number, "failure": f"{failure.stage}: {failure.kind}",
                "message": failure.message, "label": f"individual {one.id} failed: {failure.kind}{_repaired(one)}",
            })  # fmt: skip
        if points:
            line.append({"n": number, "t": least_s / unit.scale_s})
    baseline = best.evaluation.baseline
    lines: list[Row] = []
    if baseline is not None:
        lines.append({"t": baseline.time_s / unit.scale_s, "label": f"PyTorch eager ({baseline.source})"})
    compiled = best.evaluation.compiled
    if compiled is not None:
        lines.append({"t": compiled.time_s / unit.scale_s, "label": f"torch.compile ({compiled.source})"})
    times = [float(str(row["t"])) for row in (*points, *lines)]
    y_domain = [min(times) / 1.5, max(times) * 2]
    source = best.evaluation.timing.source if best.evaluation.timing is not None else ""
    text = chart(
        "convergence", {"points": points, "failed": failed, "best": line, "lines": lines},
        description=f"Best time so far over {len(run.individuals)} individuals",
        x_domain=[0.5, len(run.individuals) + 0.5], y_domain=y_domain, y_ticks=fine_ticks(*y_domain),
        y_title=f"time, {unit.name} ({source})", generations=_generations(run),
    )  # fmt: skip
    return Chart(text, ("the line is the best so far; × marks individuals that failed",) if failed else ())
