from __future__ import annotations

from random import Random

import pytest

from cupilot.contracts import Brief, Device
from cupilot.errors import UnmatchedTask
from cupilot.expert import Expert
from cupilot.expert.form import Form, Graph
from cupilot.expert.forms import reduction
from cupilot.expert.matching import Problem, match
from cupilot.expert.recipe import load_recipes
from cupilot.expert.render import render
from cupilot.expert.space import Space
from cupilot.records import Kernel, Strategy, Task
from cupilot.strategies import load_deck, parse
from cupilot.tasks.load import task_from_source
from evaluating import evaluator_on

RECIPES = load_recipes()
DECK = load_deck()
EXPERT = Expert()


def task_of(body: str, *shapes: tuple[int, ...], precision: str = "fp32") -> Task:
    """A task whose module returns ``body``, of as many tensors a, b, ... as there are shapes."""
    names = "abc"[: len(shapes)]
    inputs = ", ".join(f"torch.rand{shape!r}" for shape in shapes)
    source = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n"
        f"    def forward(self, {', '.join(names)}):\n        return {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return task_from_source(source, "task", precision, where="test")


def problem_of(body: str, *shapes: tuple[int, ...]) -> Problem:
    return match(task_of(body, *shapes), RECIPES)


def rendered(body: str, *shapes: tuple[int, ...], moves: str = "") -> str:
    return render(Space(problem_of(body, *shapes), DECK), parse(moves, DECK)).source


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        ("torch.sum(a, dim=1)", "sum"),
        ("a.mean(1)", "mean"),
        ("a.prod(1)", "prod"),
        ("torch.max(a, dim=1)[0]", "max"),
        ("torch.max(a, dim=1)[1]", "argmax"),
        ("torch.min(a, dim=1).values", "min"),
        ("torch.amin(a, dim=1)", "min"),
        ("torch.argmin(a, dim=1)", "argmin"),
    ],
)
def test_reductions_match_under_their_names(body: str, operation: str) -> None:
    problem = problem_of(body, (3, 40, 5))
    assert problem.recipe.name == "reduction"
    assert {name: problem.facts[name] for name in ("operation", "outer", "length", "inner", "rows")} == {
        "operation": operation, "outer": 3, "length": 40, "inner": 5, "rows": False,
    }  # fmt: skip


def test_neighbouring_dimensions_are_one() -> None:
    facts = problem_of("torch.sum(a, dim=(-1, 1))", (3, 4, 5)).facts
    assert (facts["outer"], facts["length"], facts["inner"], facts["rows"]) == (3, 20, 1, True)
    with pytest.raises(UnmatchedTask, match="neighbouring dimensions"):
        problem_of("torch.sum(a, dim=(0, 2))", (3, 4, 5))


def test_the_result_has_the_shape_of_the_operator() -> None:
    assert "torch::empty({x.size(0), 1, x.size(2)}" in rendered("torch.sum(a, dim=1, keepdim=True)", (3, 4, 5))
    assert "torch::empty({x.size(0), x.size(2)}" in rendered("torch.sum(a, dim=1)", (3, 4, 5))
    assert "torch::kInt64" in rendered("torch.argmax(a, dim=0)", (3, 4))
    assert "at::IntArrayRef()" in rendered("torch.amax(a, dim=0)", (40,))


def test_operators_around_a_reduction_are_fused() -> None:
    problem = problem_of("torch.relu(torch.sum(torch.abs(a) * b, dim=1))", (3, 4), (3, 4))
    assert problem.form.code["before"].formula == "abs -> mul"
    assert problem.form.code["pointwise"].formula == "relu"
    assert [operand.name for operand in problem.form.code["operands"]] == ["x", "x1"]
    values = problem_of("torch.relu(torch.max(a, dim=1)[0])", (3, 4))
    assert values.form.code["pointwise"].formula == "relu"


@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        ("a / torch.sum(a, dim=1, keepdim=True)", ((3, 4),)),  # used again
        ("torch.max(a, dim=1)", ((3, 4),)),  # two results
        ("torch.sum(a, dim=1, dtype=torch.float64)", ((3, 4),)),
        ("torch.sum(a + b, dim=1)", ((3, 4), (4,))),  # another shape
        ("torch.sum(a)", ((3, 4),)),  # a whole tensor is another form's
    ],
)
def test_what_is_no_plain_reduction_is_left_alone(body: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    assert not isinstance(reduction.read(Graph(task_of(body, *shapes))), Form)


def test_moves_follow_the_arrangement_of_the_elements() -> None:
    columns = Space(problem_of("torch.sum(a, dim=0)", (64, 64)), DECK)
    rows = Space(problem_of("torch.sum(a, dim=1)", (64, 64)), DECK)
    split, block = parse("split-length(parts=4)", DECK), parse("block-per-row", DECK)
    assert columns.faults(block)
    assert not columns.faults(split)
    assert rows.faults(split)
    assert not rows.faults(block)


def test_wide_loads_are_struck_where_rows_start_anywhere() -> None:
    space = Space(problem_of("torch.sum(a, dim=0)", (64, 63)), DECK)
    assert space.effective(parse("vector-load(bytes=16)", DECK)) == Strategy()


SHAPES = [(3, 40, 37), (4, 64, 32), (1, 1, 1), (2, 1000, 8)]
BODIES = [
    "torch.sum(a, dim=1)",
    "torch.mean(a * a, dim=2, keepdim=True)",
    "torch.max(a, dim=1)[0]",
    "torch.argmax(a, dim=2)",
    "torch.argmin(a, dim=0)",
    "torch.tanh(torch.prod(a, dim=1))",
]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(18))
def test_drawn_strategies_are_right(device: Device, number: int) -> None:
    body, shape = BODIES[number % len(BODIES)], SHAPES[(number + number // len(BODIES)) % len(SHAPES)]
    check_drawn(device, task_of(body, shape), number)


def check_drawn(device: Device, task: Task, seed: int) -> None:
    """A strategy drawn from the space is right, or asks for more than the device has."""
    space = Space(match(task, RECIPES), DECK)
    strategy = space.draw(Random(seed), lambda card: 0.6)
    kernel = EXPERT.translate(Brief(task, device.spec), strategy)
    assert isinstance(kernel, Kernel), kernel
    evaluation = evaluator_on(device, seed=seed, timeout_s=300.0)(task, kernel)
    failure = evaluation.failure
    assert failure is None or "resource" in failure.kind, (strategy, failure)
