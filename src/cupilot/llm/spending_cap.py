"""A cap on what models may spend."""

from __future__ import annotations

from typing import cast

from cupilot.contracts import AgentModel, Model, Reply, Request, Tools, works_alone
from cupilot.llm.cost import Usage
from cupilot.llm.errors import OverBudget


class CappedModel:
    """Raises `OverBudget` instead of asking the model once a cap is reached; calls in flight may still exceed it.

    ``usage`` is the total of all models that share the caps; it is updated elsewhere.  A model of unknown price counts
    as free.
    """

    def __init__(self, model: Model, usage: Usage, tokens: int | None, usd: float | None) -> None:
        self._model = model
        self._usage = usage
        self._tokens = tokens
        self._usd = usd

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def works_alone(self) -> bool:
        return works_alone(self._model)

    def complete(self, request: Request) -> Reply:
        self._check()
        return self._model.complete(request)

    def work(self, request: Request, tools: Tools) -> Reply:
        self._check()
        return cast(AgentModel, self._model).work(request, tools)

    def _check(self) -> None:
        spent = self._usage.spent
        if self._tokens is not None and spent.tokens >= self._tokens:
            raise OverBudget(f"{self._tokens} tokens are spent")
        if self._usd is not None and spent.price_usd >= self._usd:
            raise OverBudget(f"{self._usd:.2f} USD are spent")
