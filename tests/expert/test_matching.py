from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from expert_tasks import RELU, elementwise_task, matmul_task, softmax_task

from cupilot.errors import DataError, UnmatchedTask
from cupilot.expert.matching import match
from cupilot.expert.pointwise import chain, literal
from cupilot.expert.recipe import FOLDER, load_recipes, read_recipe
from cupilot.records import Argument, Op, Task, TensorSpec

RECIPES = load_recipes()
SPEC = TensorSpec((8, 8))
X = Argument("x", "input", SPEC)
SUM = Op("s", "aten.add.Tensor", ("x", "y"), (), SPEC)


def family(task: Task) -> str:
    return match(task, RECIPES).recipe.name


def test_recipes_are_found_by_looking_through_the_folder() -> None:
    assert {recipe.name for recipe in RECIPES} == {file.parent.name for file in FOLDER.glob("*/recipe.toml")}


@pytest.mark.parametrize("target", ["aten.mm.default", "aten.matmul.default", "aten.mm"])
def test_products_match_under_their_names(target: str) -> None:
    task = matmul_task()
    assert family(replace(task, graph=(replace(task.graph[0], target=target),))) == "matmul"


@pytest.mark.parametrize("target", ["aten.softmax.int", "aten._softmax.default", "aten.softmax"])
def test_softmax_matches_over_the_last_dimension(target: str) -> None:
    assert family(softmax_task(4, 5, 6, dim=2, target=target)) == "softmax"
    assert family(softmax_task(4, 5, 6, dim=-1, target=target)) == "softmax"


def test_chains_match_and_products_take_what_follows() -> None:
    assert family(elementwise_task(RELU, ("aten.mul.Tensor", (("other", 2.0),)))) == "elementwise"
    problem = match(matmul_task(8, 8, 8, RELU), RECIPES)
    assert problem.recipe.name == "matmul"
    assert problem.form.code["pointwise"].formula == "relu"


def test_tensors_come_in_the_order_of_the_operator() -> None:
    task = matmul_task(2, 3, 4)
    swapped = replace(task, arguments=tuple(reversed(task.arguments)))
    problem = match(swapped, RECIPES)
    assert problem.form.names == {"A": "a", "B": "b"}
    assert [problem.facts[name] for name in ("m", "k", "n")] == [2, 3, 4]


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Task("conv", "", (X,), (SPEC,), (Op("c", "aten.cdist.default", ("x",), (), SPEC),)), "aten.cdist.default"),
        (Task("none", "", (X,), (SPEC,), ()), "could not be exported"),
        (replace(elementwise_task(shape=(8, 8)), arguments=(X, Argument("s", "input", value=2.0))), "the number s"),
        (
            Task("half", "", (Argument("x", "input", TensorSpec((8,), "float16")),), (SPEC,), elementwise_task().graph),
            "float32",
        ),
        (
            replace(
                elementwise_task(), arguments=(X, Argument("y", "input", TensorSpec((8, 8), "int64"))), graph=(SUM,)
            ),
            "not arranged as it knows",
        ),
    ],
)
def test_an_unmatched_task_is_told_why_and_what_to_do(task: Task, says: str) -> None:
    with pytest.raises(UnmatchedTask) as caught:
        match(task, RECIPES)
    assert says in str(caught.value)
    assert task.name in str(caught.value)
    assert "give an LLM key, or write a recipe" in str(caught.value)


def test_a_result_may_be_used_twice() -> None:
    # x * sigmoid(x), the way people write swish
    graph = (Op("s", "aten.sigmoid.default", ("x",), (), SPEC), Op("p", "aten.mul.Tensor", ("x", "s"), (), SPEC))
    problem = match(Task("swish", "", (X,), (SPEC,), graph), RECIPES)
    assert problem.form.code["pointwise"].lines[1] == "const float v2 = x * v1;"


def test_attributes_reach_the_expression() -> None:
    tanh = chain((Op("g", "aten.gelu.default", ("x",), (("approximate", "tanh"),), SPEC),), {"x": "x"})
    exact = chain((Op("g", "aten.gelu.default", ("x",), (("approximate", "none"),), SPEC),), {"x": "x"})
    slope = chain((Op("l", "aten.leaky_relu.default", ("x",), (("negative_slope", 0.2),), SPEC),), {"x": "x"})
    assert "tanhf" in tanh.lines[0]
    assert "erff" in exact.lines[0]
    assert "0.2f" in slope.lines[0]


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1.0f"), (0.01, "0.01f"), (1e-8, "1e-08f"), (float("-inf"), "-INFINITY")]
)
def test_numbers_become_float_literals(value: float, text: str) -> None:
    assert literal(value) == text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[match]", "colour = 1\n[match]", "unknown key 'colour'"),
        ("[match]", 'name = "other"\n[match]', "that of its folder"),
        ('form = "pointwise"', 'form = "pointless"', "there is no form 'pointless'"),
        ('card = "grid-stride"', 'card = "grid-strides"', "did you mean grid-stride"),
        ("values = { threads = [256,", "values = { threads = [257,", "not among the card's choices"),
        ("width * factor <= 16", "width * faktor <= 16", "nothing is named 'faktor'"),
        ("width * factor <= 16", "width * <= 16", "invalid syntax"),
        ('card = "vector-load"\nwhen', 'card = "coalesce"\nwhen', "does not realise coalesce"),
        ('["streaming-store"]', '["coalesce"]', "a start names 'coalesce'"),
    ],
)
def test_a_recipe_is_checked_when_it_is_read(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = (FOLDER / "elementwise" / "recipe.toml").read_text()
    assert old in text
    file = tmp_path / "mine" / "recipe.toml"
    file.parent.mkdir()
    file.write_text(text)
    assert read_recipe(file).name == "mine"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        read_recipe(file)
