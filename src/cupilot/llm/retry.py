"""Retries with exponential backoff, and the limit on concurrent calls.

The SDKs' own retries are switched off: they do not cover a body that breaks off while it is read, and they would hold
the semaphore while they wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

from cupilot.contracts import Model, Reply, Request
from cupilot.llm.errors import Unavailable

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
LONGEST_RETRY_AFTER_S = 300.0


class RetryingModel:
    """Retries while the model is unavailable; the nominal wait doubles each time.

    The actual wait is drawn between half and all of the nominal one, so that callers that failed together do not retry
    together, and is at least the server's Retry-After.  A server that asks for more than five minutes is given up.
    ``semaphore`` is held during a call but not while waiting; several models may share one.
    """

    def __init__(
        self,
        model: Model,
        retries: int,
        semaphore: AbstractContextManager[object],
        sleep: Callable[[float], None],
        rng: Random,
    ) -> None:
        self._model = model
        self._retries = retries
        self._semaphore = semaphore
        self._sleep = sleep
        self._rng = rng

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, request: Request) -> Reply:
        tries = 0
        while True:
            tries += 1
            try:
                with self._semaphore:
                    return self._model.complete(request)
            except Unavailable as error:
                asked_s = error.retry_after_s or 0.0
                if asked_s > LONGEST_RETRY_AFTER_S:
                    raise Unavailable(f"{error}; it asks to wait {asked_s:.0f} s", asked_s) from None
                if tries > self._retries:
                    raise Unavailable(f"{error}; asked {tries} times", error.retry_after_s) from None
                nominal_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (tries - 1))
            self._sleep(max(asked_s, nominal_s * (0.5 + 0.5 * self._rng.random())))
