"""The contracts, applied to everything of ours that claims to keep them (see also tests/devices, tests/executors)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cupilot.contracts import Agents, Model, Store
from cupilot.evolution.store import create_store, open_store
from cupilot.expert import Expert
from cupilot.llm import Scripted
from cupilot.records import Argument, Card, Guidance, Op, Parameter, TaskSource, TensorSpec
from cupilot.testing import (
    AgentsContract,
    ModelContract,
    RecordContract,
    StoreContract,
    samples,
)


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return create_store(tmp_path)

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Store]:
        return lambda: open_store(tmp_path)


class TestScripted(ModelContract):
    @pytest.fixture
    def model(self) -> Model:
        return Scripted(["Hello."])

    @pytest.fixture
    def failing_model(self) -> Model:
        return Scripted([])


class TestExpert(AgentsContract):
    @pytest.fixture
    def agents(self) -> Agents:
        return Expert()


CARD = Card(
    name="vector-access",
    title="Vector access",
    text="Several neighbouring elements per load.",
    zones=("memory-bound",),
    relieves=("lsu", "dram"),
    needs=("coalesce",),
    excludes=("scalar",),
    precisions=("fp32",),
    min_capability=7.0,
    parameters=(Parameter("width", (4, 2), "elements"), Parameter("mode", ("safe", True, 0.5, 1))),
)

RECORDS = [
    samples.TASK,
    Op("max", "aten.max.dim", ("x",), (("dim", (1, 2)), ("keepdim", True), ("p", 0.5), ("n", None)), TensorSpec((4,))),
    Argument("slope", "constant", value=0.01),
    samples.KERNEL,
    samples.STRATEGY,
    samples.STRATEGY.moves[0],
    CARD,
    Guidance("memory-bound", "dram", 1.5, "aim for fewer bytes"),
    samples.EVALUATION,
    samples.FAILED,
    samples.FAILURE,
    samples.TIMING,
    samples.PROFILE,
    samples.INDIVIDUAL,
    replace(samples.INFO, kernel=replace(samples.KERNEL, language="modelnew", options=("torch-ops",))),
    samples.RESULT,
    samples.REQUEST,
    TaskSource.of(samples.TASK),
]


class TestRecords(RecordContract):
    @pytest.fixture(params=RECORDS, ids=lambda record: type(record).__name__)
    def record(self, request: pytest.FixtureRequest) -> Any:
        return request.param
