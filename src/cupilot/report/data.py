"""What a run's report shows: plain records, made from the run by pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from cupilot.evolution.budget import WORDS as BUDGET_WORDS
from cupilot.numbers import PAGE, TimeUnit
from cupilot.records import Individual, Move, RunInfo, Timing
from cupilot.records.verdict import verdict_sentence
from cupilot.report.costs import Fact, PartRow, facts, part_rows
from cupilot.report.lineage import Lineage, lineage
from cupilot.report.run import Asked, Run
from cupilot.report.run_charts import Chart, convergence, roofline
from cupilot.report.sources import Sources, sources
from cupilot.report.steps import MoveWorth, worths
from cupilot.strategies.algebra import move_text
from cupilot.strategies.deck import Deck, load_deck


@dataclass(frozen=True)
class Headline:
    """One line of the summary's table: a kernel or PyTorch, with where its time is from."""

    title: str
    timing: Timing
    vs_pytorch: float | None
    vs_plain: float | None
    id: int | None = None


@dataclass(frozen=True)
class ShownMove:
    """A move with what its card says; ``about`` is empty for a card that nobody wrote."""

    text: str
    title: str
    about: str
    reason: str


@dataclass(frozen=True)
class FailureKind:
    """Failures of one stage and kind, with the first one's message."""

    stage: str
    kind: str
    ids: tuple[int, ...]
    message: str


@dataclass(frozen=True)
class Cap:
    """What was spent of one kind, in words; ``share`` of its cap, None where there is none or it is not known."""

    name: str
    spent: str
    cap: str
    share: float | None


@dataclass(frozen=True)
class RunView:
    """A whole report; parts that the run has nothing for yet are None or empty."""

    run: Run
    unit: TimeUnit
    headlines: tuple[Headline, ...]
    verdict: str
    moves: tuple[ShownMove, ...]
    guidance: str
    roofline: Chart | None
    convergence: Chart | None
    lineage: Lineage | None
    worths: tuple[MoveWorth, ...]
    parts: tuple[PartRow, ...]
    facts: tuple[Fact, ...]
    failures: tuple[FailureKind, ...]
    caps: tuple[Cap, ...]
    sources: Sources
    remarks: tuple[tuple[str, str], ...]


def run_view(run: Run) -> RunView:
    """Everything the page shows of a run, however far it has come."""
    plain, best, deck = run.plain, run.best, load_deck()
    several = plain is not None and best is not None
    return RunView(
        run=run,
        unit=PAGE.time_unit([one.time_s for one in run.ranked]),
        headlines=headlines(run),
        verdict=verdict_sentence(run.best.evaluation) if run.best is not None else "",
        moves=() if best is None else tuple(shown_move(move, deck) for move in best.strategy.moves),
        guidance=next((text for kind, text in reversed(run.notes) if kind == "guidance"), ""),
        roofline=roofline(run),
        convergence=convergence(run),
        lineage=None if run.info is None else lineage(run.individuals, best, run.notes, run.info),
        worths=worths(run.individuals, best, deck),
        parts=part_rows(plain, best) if several and plain is not None and best is not None else (),
        facts=facts(plain, best, run.spec) if several and plain is not None and best is not None else (),
        failures=failure_kinds(run.individuals),
        caps=() if run.info is None else caps(run, run.info),
        sources=sources(run.individuals, run.spec),
        remarks=run.notes,
    )


def headlines(run: Run) -> tuple[Headline, ...]:
    """The best kernel, the plain one and PyTorch; a speed-up over PyTorch only where the two times may be compared."""
    plain, best = run.plain, run.best
    if plain is None or best is None or plain.time_s is None:
        return ()
    shown = [("best kernel", best)] if best is not plain else []
    shown.append(("plain kernel", plain))
    found = [
        Headline(title, timing, one.evaluation.speedup, plain.time_s / timing.time_s, one.id)
        for title, one in shown
        if (timing := one.evaluation.timing) is not None
    ]
    baseline = best.evaluation.baseline
    if baseline is not None:
        alike = {baseline.source, found[0].timing.source} != {"measured", "modelled"}
        found.append(Headline("PyTorch eager", baseline, 1.0, plain.time_s / baseline.time_s if alike else None))
    compiled = best.evaluation.compiled
    if compiled is not None:
        alike = {compiled.source, found[0].timing.source} != {"measured", "modelled"}
        over = best.evaluation.compiled_over_eager
        found.append(Headline("torch.compile", compiled, over, plain.time_s / compiled.time_s if alike else None))
    return tuple(found)


def shown_move(move: Move, deck: Deck) -> ShownMove:
    card = deck.get(move.card)
    if card is None:
        return ShownMove(move_text(move), move.card, "", move.reason)
    return ShownMove(move_text(move), card.title, card.text, move.reason)


def failure_kinds(individuals: Sequence[Individual]) -> tuple[FailureKind, ...]:
    """The most frequent first."""
    found: dict[tuple[str, str], FailureKind] = {}
    for one in individuals:
        failure = one.evaluation.failure
        if failure is None:
            continue
        key = failure.stage, failure.kind
        before = found.get(key, FailureKind(*key, (), failure.message))
        found[key] = FailureKind(*key, (*before.ids, one.id), before.message)
    return tuple(sorted(found.values(), key=lambda kind: (-len(kind.ids), kind.stage, kind.kind)))


def caps(run: Run, info: RunInfo) -> tuple[Cap, ...]:
    """Evaluations and calls as spent; wall and device time are not recorded, so only their caps are known."""
    asked = run.asked
    spent: dict[str, float] = {"evaluations": run.evaluations}
    if asked:
        spent |= {"tokens": sum(one.input_tokens + one.output_tokens for one in asked), "usd": _usd(asked)}
    found = []
    for field in fields(info.budget):
        cap, used = getattr(info.budget, field.name), spent.get(field.name)
        if cap is None and used is None:
            continue
        share = used / cap if used is not None and cap else None
        found.append(
            Cap(
                field.name,
                "not recorded" if used is None else BUDGET_WORDS[field.name].format(used),
                "no cap" if cap is None else BUDGET_WORDS[field.name].format(cap),
                share,
            )
        )
    return tuple(found)


def _usd(asked: Sequence[Asked]) -> float:
    return sum(one.price_usd for one in asked)
