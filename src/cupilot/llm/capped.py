"""A model that may be asked only while there is something left to spend."""

from __future__ import annotations

from cupilot.contracts import Model, Reply, Request
from cupilot.llm.answer import OverBudget
from cupilot.llm.cost import Usage


class Capped:
    """Looks at what is spent before each call; calls under way at that moment may still go over the cap.

    ``usage`` is the total of all models that share the caps, and added to by others.  A model whose price is not
    known costs nothing here.
    """

    def __init__(self, model: Model, usage: Usage, tokens: int | None, usd: float | None) -> None:
        self._model = model
        self._usage = usage
        self._tokens = tokens
        self._usd = usd

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: Request) -> Reply:
        spent = self._usage.spent
        if self._tokens is not None and spent.tokens >= self._tokens:
            raise OverBudget(f"{self._tokens} tokens are spent")
        if self._usd is not None and spent.price_usd >= self._usd:
            raise OverBudget(f"{self._usd:.2f} USD are spent")
        return self._model.complete(request)
