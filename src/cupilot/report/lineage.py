"""The lineage: who came of whom, with a place for everybody in a drawing that grows downwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean

from cupilot.records import Individual, RunInfo
from cupilot.report.steps import Step, path, steps

COLUMN, ROW = 58.0, 74.0
MARGIN = 34.0


@dataclass(frozen=True)
class Node:
    """An individual in the lineage; ``mark`` is ``plain``, ``best``, ``failed``, ``repaired`` or empty.

    ``remarks`` are what the run noted about it, ``on_path`` says that the best kernel came of it, ``children`` how many
    others did.  ``x`` and ``y`` are its place in the drawing.
    """

    individual: Individual
    mark: str
    step: Step | None
    remarks: tuple[tuple[str, str], ...]
    on_path: bool
    children: int
    x: float
    y: float

    @property
    def dead_end(self) -> bool:
        """Has no time, so nothing but repairs can come of it."""
        return self.mark in ("failed", "repaired")


@dataclass(frozen=True)
class Edge:
    """From a parent to a child; ``on_path`` leads to the best kernel."""

    parent: Node
    child: Node
    on_path: bool


@dataclass(frozen=True)
class Generation:
    """``epoch`` and ``number`` within it, and who was made then."""

    epoch: int
    number: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Lineage:
    generations: tuple[Generation, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float
    path: tuple[Node, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for generation in self.generations for node in generation.nodes)


def lineage(
    individuals: Sequence[Individual], best: Individual | None, notes: Sequence[tuple[str, str]], info: RunInfo
) -> Lineage:
    """Everybody, by generation; ids of parents that are not there are left out."""
    taken = steps(individuals)
    line = () if best is None else path(best, individuals)
    ancestors = {one.id for one in line}
    rows = _rows(individuals)
    widest = max((len(row) for row in rows), default=1)
    places = _places(rows, widest)
    plain = next((one.id for one in individuals if one.time_s is not None), None)
    nodes = {
        one.id: Node(
            one, _mark(one, plain, best), taken.get(one.id), _remarks(one.id, notes), one.id in ancestors,
            sum(one.id in other.parents for other in individuals), *places[one.id],
        )
        for one in individuals
    }  # fmt: skip
    edges = tuple(
        Edge(nodes[id_], nodes[one.id], _leads(nodes[id_], nodes[one.id]))
        for one in individuals
        for id_ in one.parents
        if id_ in nodes
    )
    return Lineage(
        _generations(nodes, info), edges, 2 * MARGIN + (widest - 1) * COLUMN, 2 * MARGIN + max(len(rows) - 1, 0) * ROW,
        tuple(nodes[one.id] for one in line),
    )  # fmt: skip


def _leads(parent: Node, child: Node) -> bool:
    return child.on_path and child.step is not None and child.step.base == parent.individual.id


def _mark(one: Individual, plain: int | None, best: Individual | None) -> str:
    if one.time_s is None:
        return "failed" if one.superseded_by is None else "repaired"
    if best is not None and one.id == best.id and one.id != plain:
        return "best"
    return "plain" if one.id == plain else ""


def _remarks(id_: int, notes: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    head = f"{id_}: "
    return tuple((kind, text.removeprefix(head)) for kind, text in notes if text.startswith(head))


def _generations(nodes: Mapping[int, Node], info: RunInfo) -> tuple[Generation, ...]:
    rounds = info.generations + 1
    listed = sorted(nodes.values(), key=lambda node: (node.individual.generation, node.individual.id))
    return tuple(
        Generation(number // rounds, number % rounds, tuple(held))
        for number, held in groupby(listed, key=lambda node: node.individual.generation)
    )


def _rows(individuals: Sequence[Individual]) -> list[list[Individual]]:
    """By generation; below, those that came of somebody in the same one, such as repairs."""
    known = {one.id: one for one in individuals}
    depths: dict[int, int] = {}
    for one in individuals:
        kin = [depths[id_] for id_ in one.parents if id_ in depths and known[id_].generation == one.generation]
        depths[one.id] = 1 + max(kin) if kin else 0
    rows: dict[tuple[int, int], list[Individual]] = {}
    for one in individuals:
        rows.setdefault((one.generation, depths[one.id]), []).append(one)
    return [rows[key] for key in sorted(rows)]


def _places(rows: Sequence[Sequence[Individual]], widest: int) -> dict[int, tuple[float, float]]:
    """In each row near one's parents, evenly spread."""
    found: dict[int, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        middle = (widest - 1) / 2 * COLUMN + MARGIN

        def wish(one: Individual, middle: float = middle) -> tuple[float, int]:
            above = [found[id_][0] for id_ in one.parents if id_ in found]
            return (fmean(above) if above else middle), one.id

        left = middle - (len(row) - 1) / 2 * COLUMN
        for column, one in enumerate(sorted(row, key=wish)):
            found[one.id] = left + column * COLUMN, MARGIN + number * ROW
    return found
