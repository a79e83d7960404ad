"""One candidate's way from an idea to a verdict: strategy, kernel, evaluation, repairs, alignment.

This runs in a thread of its own, several at a time.  It decides nothing about the search and shares nothing but the
agents and the evaluations, which are thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from cupilot.contracts import Agents, Brief, Tools
from cupilot.evolution.result import moves_text
from cupilot.records import Evaluation, Failure, Kernel, Strategy, Turn

DRAWS = 12  # tries to breed a strategy that was not tried before
ANOTHER = 1_000_000  # apart from the samples of all other candidates
# a correct kernel this much slower than the one it came from is worth a look by the revisor
REGRESSION = 1.5


@dataclass(frozen=True)
class Assignment:
    """A candidate to be developed; without a strategy, one is bred from the brief's parents."""

    number: int
    generation: int
    origin: str
    brief: Brief
    reason: str
    strategy: Strategy | None = None
    kernel: Kernel | None = None
    known: frozenset[str] = frozenset()  # strategies tried so far, in words
    evaluations: int = 2  # the first kernel's, and one for each repair


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
    """All attempts at one assignment, and remarks for the record; no attempt when nothing new was bred."""

    assignment: Assignment
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
    development = Development(assignment)
    brief = assignment.brief
    strategy = assignment.strategy
    if strategy is None:
        strategy = _breed(assignment, agents, Random(f"{seed}/{assignment.number}"))
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
        aligned = agents.align(brief, kernel, strategy, evaluation) if evaluation.correct else strategy
        development.attempts.append(Attempt(aligned, kernel, evaluation, _turns(tools)))
        if left == 0 or not _needs_revision(evaluation, brief):
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


def _breed(assignment: Assignment, agents: Agents, rng: Random) -> Strategy | None:
    """A strategy that was not tried; when crossing only gives known ones, each parent is mutated in turn."""
    brief, parents = assignment.brief, assignment.brief.parents
    for draw in range(DRAWS):
        if draw > 0:  # the same question would get the same answer
            brief = replace(brief, sample=assignment.brief.sample + draw * ANOTHER)
        if draw > 1:
            brief = replace(brief, parents=(parents[draw % len(parents)],))
        strategy = agents.cross(brief, rng)
        if moves_text(strategy) not in assignment.known:
            return strategy
    return None


def _needs_revision(evaluation: Evaluation, brief: Brief) -> bool:
    if not evaluation.correct:
        return True
    fastest_s = min((one.time_s for one in brief.parents if one.time_s is not None), default=None)
    timing = evaluation.timing
    return fastest_s is not None and timing is not None and timing.time_s > REGRESSION * fastest_s
