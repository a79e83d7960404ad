"""The contract of the tools that a role may use."""

from __future__ import annotations

import json

import pytest

from cupilot.contracts import Tools
from cupilot.records import Turn


class ToolsContract:
    """Offer ``tools``, fresh ones, and ``code``, a kernel's source that they accept."""

    @pytest.fixture
    def code(self) -> str:
        return "__global__ void k() {}\ntorch::Tensor forward(torch::Tensor x) { return x; }\n"

    def test_every_tool_has_a_name_a_description_and_a_schema(self, tools: Tools) -> None:
        names = [spec.name for spec in tools.specs]
        assert "submit" in names
        assert len(set(names)) == len(names)
        for spec in tools.specs:
            assert spec.description
            assert json.loads(spec.parameters)["type"] == "object"

    def test_an_unknown_tool_and_wrong_arguments_are_answers(self, tools: Tools) -> None:
        for name, arguments in (("no-such-tool", {}), ("submit", {"no-such-argument": "x"}), ("submit", {"code": 3})):
            answer = tools.call(name, arguments)
            assert answer.text
            assert answer.submitted is None

    def test_a_submission_is_the_kernel_that_was_given(self, tools: Tools, code: str) -> None:
        answer = tools.call("submit", {"code": code})
        assert answer.submitted is not None
        assert answer.submitted.source == code
        assert answer.use.tool == "submit"

    def test_the_best_is_something_that_was_given(self, tools: Tools, code: str) -> None:
        assert tools.best() is None
        tools.call("submit", {"code": code})
        best = tools.best()
        assert best is not None
        assert best.source == code

    def test_turns_are_kept_in_order(self, tools: Tools) -> None:
        turns = tuple(Turn("translator", note=str(number)) for number in range(3))
        for turn in turns:
            tools.record(turn)
        assert tools.turns == turns
