"""The operator catalogue: its file, and that every part of the program learns an operator from it alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from made_tasks import make_task

from cupilot.errors import DataError
from cupilot.evaluation.baseline import baseline
from cupilot.evaluation.trials import Trials
from cupilot.expert.form import CONVERSIONS
from cupilot.expert.pointwise import _table
from cupilot.gpu import load_spec
from cupilot.strategies import pool_tags
from cupilot.strategies.pool_tags import operator_tags, with_families
from cupilot.tasks import operators
from cupilot.tasks.flop import needed_flop, task_flop
from cupilot.tasks.operators import base_name, load_catalogue, operator, parse_catalogue
from cupilot.tasks.second_read import second_read_bytes

A100 = load_spec("a100-80gb")
NOT_ATEN = {"getitem"}


def made_of(name: str, elements: int = 1000):
    return make_task([(elements,)], (f"aten.{name}.default", ("x0",), (elements,)))


def clear() -> None:
    load_catalogue.cache_clear()
    pool_tags._weight.cache_clear()


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the catalogue that the whole program reads."""
    file = tmp_path / "operators.toml"
    file.write_text(operators.DATA.read_text())
    monkeypatch.setattr(operators, "DATA", file)
    clear()
    yield file
    clear()


def test_an_operator_is_added_in_the_catalogue_alone(catalogue: Path):
    def facts() -> tuple[object, ...]:
        task = made_of("glow")
        trials = Trials(task, 0)
        trials._structures = ()  # the task has no source to draw inputs from
        note = baseline(task, A100, "device").note
        return (
            task_flop(task), trials._excused("nan"), with_families(operator_tags(task)), operator("glow").kind,
            "from bytes alone" in note,
        )  # fmt: skip

    assert facts() == (1000.0, (), ("glow",), "other", True)
    with catalogue.open("a") as file:
        file.write('glow = { kind = "pointwise", flop = 7, compares = true, tag = "shine" }\n')
    clear()
    assert facts() == (7000.0, ("dropped",), ("shine",), "pointwise", False)
    with catalogue.open("a") as file:
        file.write('shine = { kind = "pointwise" }\n')
    clear()
    assert with_families(operator_tags(made_of("glow"))) == ("shine", "family:pointwise")


def test_a_product_and_a_normalization_are_added_in_the_catalogue_alone(catalogue: Path):
    square = (64, 64)
    product = make_task([square, square], ("aten.mymm", ("x0", "x1"), square))
    large = (1 << 14, 1 << 14)
    divided = make_task([large], ("aten.mynorm", ("x0",), ()), ("aten.div.Tensor", ("x0", "op0"), large))
    assert (needed_flop(product), second_read_bytes(divided, A100)) == (0, 0)
    with catalogue.open("a") as file:
        file.write('mymm = { kind = "product" }\nmynorm = { kind = "norm" }\n')
    clear()
    assert needed_flop(product) == 2 * 64**3
    assert second_read_bytes(divided, A100) == pytest.approx(4 * 2**28 - A100.on_chip_bytes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('glow = { kind = "pointwise", speed = 1 }', r"operators\.glow: unknown key 'speed'"),
        ('glow = { kind = "bright" }', "there is no kind 'bright'"),
        ("glow = { compares = true }", "there is no kind None"),
        ('glow = { kind = "pointwise", flop = "many" }', r"glow\.flop: 'many' is none of product"),
        ('glow = { kind = "pointwise", family = "lamps" }', r"glow\.family: 'lamps' is none of product"),
        ('glow = { kind = "softmax", normalizes_over = "sky" }', r"glow\.normalizes_over: 'sky' is none of dim"),
        ('glow = { kind = "pointwise", compares = 1 }', r"glow\.compares: expected bool"),
        ('_glow = { kind = "pointwise" }', "listed by their base name, 'glow'"),
        ("[lamps]", "unknown table 'lamps'"),
    ],
)
def test_a_mistake_in_the_catalogue_is_an_error_that_names_its_place(line: str, message: str):
    with pytest.raises(DataError, match=message):
        parse_catalogue(f"{operators.DATA.read_text()}\n{line}\n")


@pytest.mark.parametrize(("line", "name"), [('glow = "gleam"', "glow"), ('relu = "abs"', "relu")])
def test_a_synonym_is_a_new_name_for_a_listed_operator(line: str, name: str):
    text = operators.DATA.read_text().replace("[synonyms]\n", f"[synonyms]\n{line}\n")
    with pytest.raises(DataError, match=rf"synonyms\.{name} must be a new name"):
        parse_catalogue(text)


def test_every_operator_of_the_catalogue_is_in_pytorch():
    names = set(load_catalogue().operators) - NOT_ATEN
    assert [name for name in names if not any(hasattr(torch.ops.aten, f"{dash}{name}") for dash in ("", "_"))] == []


def test_every_operator_with_a_tag_of_another_has_that_one_s_family():
    """The pool keeps tags, so a tag must lead to the same family as the operator."""
    listed = load_catalogue().operators.values()
    assert [
        each.name for each in listed if each.tag not in ("", "attention") and each.family != operator(each.tag).family
    ] == []


def test_what_the_recipes_can_write_as_an_expression_is_pointwise_or_a_loss():
    """Or a conversion."""
    kinds = {name: operator(name).kind for name in _table()}
    assert {name for name, kind in kinds.items() if kind not in ("pointwise", "loss")} == set(CONVERSIONS)
    assert {kinds[name] for name in CONVERSIONS} == {"copy"}


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("aten.mm", "mm"), ("aten.softmax.int", "softmax"), ("aten._softmax", "softmax"), ("aten.relu_", "relu"),
        ("aten._unsafe_view.default", "unsafe_view"), ("getitem", "getitem"), ("", ""),
    ],
)  # fmt: skip
def test_base_name(target: str, name: str):
    assert base_name(target) == name


def test_a_synonym_has_all_the_facts_of_the_operator():
    assert operator("aten.clip.default") == operator("aten.clamp.default")
    assert operator("aten.multiply.Tensor").name == "mul"


def test_an_unknown_operator_has_its_own_name_as_its_tag():
    assert operator("mylib.glow.default") == operators.Operator("glow", tag="glow")
