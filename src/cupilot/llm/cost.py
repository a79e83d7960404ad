"""Tokens and money: what calls cost, what they may come to, and totals of both.

Prices come from the table of `genai-prices`, read offline; without that package, or for a model it does not
know, a price is None and never guessed.  Not covered: reduced prices (cached input, batches), so
that a total is an upper bound where a provider gives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from threading import Lock

from cupilot.contracts import Reply, Request
from cupilot.llm.answer import Answer, count_tokens
from cupilot.llm.providers import choose, providers


def price_usd(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """The price of one call of ``provider/name``; 0 for a server of one's own, None when unknown."""
    provider_name, _, name = model.partition("/")
    provider = providers().get(provider_name)
    if provider is None or not provider.prices:
        return None
    if provider.prices == "free":
        return 0.0
    try:
        table = import_module("genai_prices")
        usage = table.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return float(table.calc_price(usage, name, provider_id=provider.prices).total_price)
    except (ImportError, LookupError, ValueError):
        return None


@dataclass(frozen=True)
class Spent:
    """A total.  ``price_usd`` is that of the priced calls only: see ``unpriced_calls``.

    ``estimated_calls`` are those whose tokens the server did not count.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    price_usd: float = 0.0
    unpriced_calls: int = 0
    estimated_calls: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class Usage:
    """A running total that threads may add to."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._spent = Spent()

    def add(self, reply: Reply, price_usd: float | None) -> None:
        with self._lock:
            spent = self._spent
            self._spent = replace(
                spent,
                calls=spent.calls + 1,
                input_tokens=spent.input_tokens + reply.input_tokens,
                output_tokens=spent.output_tokens + reply.output_tokens,
                price_usd=spent.price_usd + (price_usd or 0.0),
                unpriced_calls=spent.unpriced_calls + (price_usd is None),
                estimated_calls=spent.estimated_calls + (isinstance(reply, Answer) and reply.estimated),
            )

    @property
    def spent(self) -> Spent:
        with self._lock:
            return self._spent


@dataclass(frozen=True)
class Estimate:
    """What requests come to: their input by length, and replies that use all they are allowed."""

    calls: int
    input_tokens: int
    output_tokens_at_most: int
    price_usd_at_most: float | None


def estimate(requests: Iterable[Request], model: str) -> Estimate:
    """The cost of asking ``model`` (its name), before anything is asked; repeated asks not included."""
    asked = tuple(requests)
    thinking_tokens = choose(model).provider.thinking_tokens
    sent = [sum(count_tokens(message.text) for message in request.messages) for request in asked]
    made = [request.max_tokens + thinking_tokens for request in asked]
    prices = [price_usd(model, *tokens) for tokens in zip(sent, made, strict=True)]
    known = [price for price in prices if price is not None]
    total = sum(known) if len(known) == len(prices) else None
    return Estimate(len(asked), sum(sent), sum(made), total)
