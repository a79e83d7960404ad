from __future__ import annotations

import pytest
from test_reductions import check_drawn, problem_of, rendered, task_of

from cupilot.contracts import Device


@pytest.mark.parametrize(
    ("body", "shapes", "sizes"),
    [
        ("torch.matmul(a, b)", ((6, 40), (40, 1)), (6, 40, 1, True)),
        ("torch.mm(a, b)", ((6, 40), (40, 1)), (6, 40, 1, True)),
        ("torch.mv(a, b)", ((6, 40), (40,)), (6, 40, 1, True)),
        ("a @ b", ((1, 40), (40, 6)), (1, 40, 6, False)),
        ("a @ b", ((40,), (40, 6)), (1, 40, 6, False)),
    ],
)
def test_products_with_a_vector_are_sums(
    body: str, shapes: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]
) -> None:
    problem = problem_of(body, *shapes)
    assert problem.recipe.name == "reduction"
    assert problem.facts["vector"]
    assert tuple(problem.facts[name] for name in ("outer", "length", "inner", "rows")) == sizes


def test_the_vector_is_an_operand_of_its_own_length() -> None:
    text = rendered("torch.relu(a @ b)", (6, 40), (40, 1), moves="block-per-row\nwarp-shuffle\nvector-load(bytes=16)")
    assert "x1.numel() == length" in text
    assert "aligned(x1.data_ptr<float>()" in text
    assert "apply(part)" in text


def test_products_of_two_matrices_are_not_taken() -> None:
    assert problem_of("a @ b", (6, 40), (40, 3)).recipe.name != "reduction"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_drawn_strategies_are_right(device: Device, number: int) -> None:
    shapes = [((37, 400), (400, 1)), ((1, 300), (300, 41)), ((16, 1024), (1024,)), ((5, 3), (3, 1))][number % 4]
    check_drawn(device, task_of("a @ b", *shapes), number)
