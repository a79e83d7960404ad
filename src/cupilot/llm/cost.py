"""What calls cost, in tokens and in US dollars.

Prices come from the table in `genai-prices`, which is read offline; without that package, or for a model that it does
not know, a price is None and never guessed.  Reduced prices (cached input, batches) are not covered: where a provider
offers them, a total is an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from threading import Lock

from cupilot.contracts import Reply
from cupilot.llm.providers import providers


def estimate_tokens(text: str) -> int:
    """Four characters to a token, rounded up: rather too many than too few."""
    return -(-len(text) // 4)


def price_usd(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """The price of one call of ``provider/name``; 0 for a local server, None when unknown."""
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
    """A total.  ``price_usd`` leaves out ``unpriced_calls``, whose price is unknown.

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
    """A running total; thread-safe."""

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
                estimated_calls=spent.estimated_calls + reply.estimated,
            )

    @property
    def spent(self) -> Spent:
        with self._lock:
            return self._spent
