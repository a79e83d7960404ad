"""One candidate's way from an idea to a verdict: strategy, kernel, evaluation, repairs, alignment.

This runs in a thread of its own, several at a time.  It decides nothing about the search and shares nothing but the
agents and the evaluations, which are thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from cupilot.contracts import Agents, Brief, Tools
from cupilot.evolution.ranking import resolution
from cupilot.evolution.result import moves_text
from cupilot.records import Evaluation, Failure, Kernel, Strategy, Turn
from cupilot.records.run import MODELLED_TIE

DRAWS = 12  # tries to breed a strategy that was not tried before
OWN_DRAWS = 2  # of these, with the parents that were chosen
ANOTHER = 1_000_000  # apart from the samples of all other candidates


@dataclass(frozen=True)
class Assignment:
    """A candidate to be developed; without a strategy, one is bred from the brief's parents.

    With ``read``, the strategy is read out of the kernel that is given.  A correct kernel goes to the revisor when it
    is more than ``repair_slower`` times slower than its fastest parent, and by more than a tie; never with None.
    """

    number: int
    generation: int
    origin: str
    brief: Brief
    reason: str
    strategy: Strategy | None = None
    kernel: Kernel | None = None
    known: frozenset[str] = frozenset()  # strategies tried so far, in words
    evaluations: int = 2  # the first kernel's, and one for each repair
    read: bool = False
    repair_slower: float | None = 1.0
    tie: float = MODELLED_TIE
    island: int = 0
    alternatives: tuple[Brief, ...] = ()  # other parents, for when these give nothing new


@dataclass(frozen=True)
class Attempt:
    """One kernel and what came of it; the first is the translation, later ones are repairs.

    ``turns`` are those of the model that wrote it, and of the one that then found nothing to repair.
    """

    strategy: Strategy
    kernel: Kernel
    evaluation: Evaluation
    turns: tuple[Turn, ...] = ()


@dataclass
class Development:
    """All attempts at one assignment, and remarks for the record; no attempt when nothing new was bred.

    ``brief`` and ``origin`` are the assignment's, unless its parents gave nothing new and others did.
    """

    assignment: Assignment
    brief: Brief
    origin: str
    attempts: list[Attempt] = field(default_factory=list)
    remarks: list[tuple[str, str]] = field(default_factory=list)


OpenTools = Callable[[Brief, Kernel | None], Tools | None]
"""Tools for one dialogue, given the kernel that it starts from; None where a role has no tools."""


def no_tools(brief: Brief, kernel: Kernel | None) -> Tools | None:
    """The first reply is the kernel."""
    return None


def develop(
    assignment: Assignment,
    agents: Agents,
    evaluate: Callable[[Kernel], Evaluation],
    seed: int,
    open_tools: OpenTools = no_tools,
) -> Development:
    """Carry an assignment through; a failure on the way is part of the result."""
    development = Development(assignment, assignment.brief, assignment.origin)
    strategy = assignment.strategy
    if strategy is None:
        strategy = _breed(development, agents, Random(f"{seed}/{assignment.number}"))
    brief = development.brief
    if strategy is None:
        development.remarks.append(("nothing-new", f"{assignment.reason}: every strategy drawn was tried before"))
        return development
    tools = None if assignment.kernel else open_tools(brief, brief.parents[0].kernel if brief.parents else None)
    kernel = assignment.kernel or agents.translate(replace(brief, tools=tools), strategy)
    if isinstance(kernel, Failure):
        evaluation = Evaluation("", brief.task.name, "", kernel)
        development.attempts.append(Attempt(strategy, Kernel(""), evaluation, _turns(tools)))
        return development
    for left in range(assignment.evaluations - 1, -1, -1):
        evaluation = evaluate(kernel)
        aligned = _aligned(assignment, agents, brief, kernel, strategy, evaluation)
        development.attempts.append(Attempt(aligned, kernel, evaluation, _turns(tools)))
        if left == 0 or not _needs_revision(evaluation, assignment, brief):
            break
        tools = open_tools(brief, kernel)
        revised = agents.revise(replace(brief, tools=tools), kernel, strategy, evaluation)
        if isinstance(revised, Failure) or revised.kernel.digest == kernel.digest:
            last = development.attempts[-1]
            development.attempts[-1] = replace(last, turns=last.turns + _turns(tools))
        if isinstance(revised, Failure):
            if not evaluation.correct:
                development.remarks.append(("given-up", revised.message))
            break
        if revised.kernel.digest == kernel.digest:
            break
        kernel, strategy = revised.kernel, revised.strategy
    return development


def _turns(tools: Tools | None) -> tuple[Turn, ...]:
    return () if tools is None else tools.turns


def _breed(development: Development, agents: Agents, rng: Random) -> Strategy | None:
    """A strategy that was not tried: of the parents, or else of the first alternative that gives one."""
    assignment = development.assignment
    for draw in range(DRAWS):
        brief, again = assignment.brief, draw - OWN_DRAWS
        if again >= 0 and assignment.alternatives:
            brief = assignment.alternatives[again % len(assignment.alternatives)]
        # the same question would get the same answer
        sample = assignment.brief.sample + draw * ANOTHER
        strategy = agents.cross(replace(brief, sample=sample), rng)
        if moves_text(strategy) not in assignment.known:
            development.brief = replace(brief, sample=assignment.brief.sample)
            if brief is not assignment.brief:
                development.origin = "cross" if len(brief.parents) > 1 else "mutate"
            return strategy
    return None


def _aligned(
    assignment: Assignment, agents: Agents, brief: Brief, kernel: Kernel, strategy: Strategy, evaluation: Evaluation
) -> Strategy:
    if not evaluation.correct:
        return strategy
    if assignment.read and not strategy.moves:
        return agents.read(brief, kernel, evaluation)
    return agents.align(brief, kernel, strategy, evaluation)


def _needs_revision(evaluation: Evaluation, assignment: Assignment, brief: Brief) -> bool:
    if not evaluation.correct:
        return True
    timed = [one.evaluation for one in brief.parents if one.time_s is not None]
    if assignment.repair_slower is None or evaluation.timing is None or not timed:
        return False
    fastest = min(timed, key=lambda one: one.timing.time_s if one.timing is not None else 0.0)
    assert fastest.timing is not None
    slower = max(assignment.repair_slower, 1.0 + resolution(evaluation, fastest, assignment.tie))
    return evaluation.timing.time_s > slower * fastest.timing.time_s
