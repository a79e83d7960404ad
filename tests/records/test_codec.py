from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupilot.errors import DataError
from cupilot.records import (
    Argument,
    Check,
    Counter,
    Evaluation,
    Failure,
    Kernel,
    Launch,
    LineCost,
    MemoryOperation,
    Move,
    Op,
    Profile,
    Resources,
    Strategy,
    Task,
    TensorSpec,
    Timing,
    from_plain,
    to_plain,
)

names = st.text(min_size=1, max_size=8)
counts = st.integers(min_value=0, max_value=2**53)
numbers = st.floats(allow_nan=False)
scalars = st.one_of(st.booleans(), st.integers(), numbers, names)
sizes = st.tuples(counts, counts, counts)

tensors = st.builds(TensorSpec, st.lists(counts, max_size=4).map(tuple), st.sampled_from(["float32", "int64"]))
arguments = st.builds(Argument, names, names, st.none() | tensors, st.none() | scalars)
attributes = st.tuples(names, st.one_of(st.none(), scalars, st.lists(st.integers(), max_size=3).map(tuple)))
ops = st.builds(
    Op, names, names, st.lists(names, max_size=3).map(tuple), st.lists(attributes, max_size=3).map(tuple), tensors
)
tasks = st.builds(
    Task,
    names,
    st.text(),
    st.lists(arguments, max_size=3).map(tuple),
    st.lists(tensors, max_size=2).map(tuple),
    st.lists(ops, max_size=3).map(tuple),
)
moves = st.builds(Move, names, st.lists(st.tuples(names, scalars), max_size=3).map(tuple), names)
strategies = st.builds(Strategy, st.lists(moves, max_size=4, unique_by=lambda move: move.card).map(tuple), st.text())
timings = st.builds(
    Timing,
    st.floats(min_value=1e-12, max_value=1e3),
    st.sampled_from(["modelled", "measured", "recorded"]),
    names,
    names,
    st.lists(st.tuples(names, numbers), max_size=3).map(tuple),
    names,
)
launches = st.builds(
    Launch,
    names,
    sizes,
    sizes,
    counts,
    st.builds(Resources, counts, counts, counts, counts),
    counts,
    st.lists(st.builds(Counter, names, numbers, names), max_size=3).map(tuple),
    st.lists(st.builds(LineCost, counts, numbers, numbers), max_size=3).map(tuple),
)
profiles = st.builds(
    Profile,
    names,
    st.lists(launches, max_size=2).map(tuple),
    st.lists(st.builds(MemoryOperation, names, counts), max_size=2).map(tuple),
    st.booleans(),
)
evaluations = st.builds(
    Evaluation,
    names,
    names,
    names,
    st.none() | st.builds(Failure, names, names, names, st.text()),
    st.none() | timings,
    st.none() | timings,
    st.none() | profiles,
    st.lists(st.builds(Check, names, names, numbers, numbers, names), max_size=2).map(tuple),
)
kernels = st.builds(Kernel, st.text(), names)


@settings(deadline=None, derandomize=True)
@given(st.one_of(tasks, strategies, evaluations, kernels))
def test_every_record_survives_json(record: Any) -> None:
    text = json.dumps(to_plain(record))
    copy = from_plain(type(record), json.loads(text))
    assert copy == record
    assert hash(copy) == hash(record)
    # equality alone would let True become 1
    assert json.dumps(to_plain(copy)) == text


@settings(deadline=None, derandomize=True)
@given(scalars)
def test_the_type_of_a_value_is_kept(value: Any) -> None:
    copy = from_plain(Move, json.loads(json.dumps(to_plain(Move("card", (("p", value),))))))
    assert type(copy.parameters[0][1]) is type(value)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (
            Kernel,
            {"source": "x", "entry": "f", "extra": 1},
            "Kernel: unknown key 'extra'; known keys are source, entry",
        ),
        (Kernel, {"entry": "f"}, "Kernel: the key 'source' is missing"),
        (Kernel, {"source": 1}, "Kernel.source: expected str, found 1"),
        (Kernel, "text", "Kernel: expected a table, found 'text'"),
        (TensorSpec, {"shape": [1, "2"]}, "TensorSpec.shape[1]: expected int, found '2'"),
        (TensorSpec, {"shape": [True]}, "TensorSpec.shape[0]: expected int, found True"),
        (TensorSpec, {"shape": 3}, "TensorSpec.shape: expected a list, found 3"),
        (Counter, {"name": "n", "value": True, "source": "PTX"}, "Counter.value: expected float, found True"),
        (Move, {"card": "c", "parameters": [["p"]]}, "Move.parameters[0]: expected 2 entries, found 1"),
        (Argument, {"name": "a", "origin": "input", "tensor": {"shap": []}}, "Argument.tensor: unknown key 'shap'"),
        (Argument, {"name": "a", "origin": "constant", "value": []}, "Argument.value: [] is none of"),
        (Strategy, {"moves": [{"card": "c"}, {"card": "d", "parameters": {"a": 1}}]}, "Strategy.moves[1].parameters"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(kind: type, data: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        from_plain(kind, data)
    assert str(caught.value).startswith(message)


def test_the_place_can_be_named() -> None:
    with pytest.raises(DataError, match=r"^cards/tile\.toml: the key 'source' is missing$"):
        from_plain(Kernel, {}, "cards/tile.toml")


def test_defaults_may_be_left_out() -> None:
    assert from_plain(Kernel, {"source": "x"}) == Kernel("x")


def test_whole_numbers_are_numbers() -> None:
    value = from_plain(Counter, {"name": "n", "value": 3, "source": "PTX"}).value
    assert type(value) is float


def test_records_check_themselves() -> None:
    with pytest.raises(ValueError, match="not one of"):
        Timing(1.0, "guessed", "sample")
    with pytest.raises(ValueError, match="must be positive"):
        Timing(0.0, "modelled", "sample")
    with pytest.raises(ValueError, match="at most once"):
        Strategy((Move("tile"), Move("tile")))
