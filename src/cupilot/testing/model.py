"""The contract of a language model."""

from __future__ import annotations

import pytest

from cupilot.contracts import Message, Model, Request
from cupilot.errors import ModelError


class ModelContract:
    """Offer ``model``, which answers at least one request, and ``failing_model``, which cannot answer."""

    request_made = Request((Message("system", "Be brief."), Message("user", "Say hello.")))

    def test_has_a_name(self, model: Model) -> None:
        assert model.name

    def test_answers_with_text_and_its_cost(self, model: Model) -> None:
        reply = model.complete(self.request_made)
        assert reply.text
        assert reply.model
        assert reply.input_tokens > 0
        assert reply.output_tokens > 0

    def test_a_model_that_cannot_answer_raises_a_model_error(self, failing_model: Model) -> None:
        with pytest.raises(ModelError) as caught:
            failing_model.complete(self.request_made)
        assert str(caught.value), "the error says what went wrong"
