"""Waiting and asking again, and the one place that limits how many calls run at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

from cupilot.contracts import Model, Reply, Request
from cupilot.llm.answer import Unavailable

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
LONGEST_ASKED_WAIT_S = 300.0


class Patient:
    """A model that is asked again when it is unavailable, each time after about twice the wait.

    A wait is drawn evenly between half and the whole of its nominal length, so that callers that failed
    together do not come back together; what the server asks for is waited at least.  A server that asks for
    more than five minutes is not waited for.  ``gate`` (a semaphore) is held while a call is under
    way and not while waiting; give several models the same one to limit them together.
    """

    def __init__(
        self,
        model: Model,
        retries: int,
        gate: AbstractContextManager[object],
        sleep: Callable[[float], None],
        rng: Random,
    ) -> None:
        self._model = model
        self._retries = retries
        self._gate = gate
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
                with self._gate:
                    return self._model.complete(request)
            except Unavailable as error:
                asked_s = error.retry_after_s or 0.0
                if asked_s > LONGEST_ASKED_WAIT_S:
                    raise Unavailable(f"{error}; it asks to wait {asked_s:.0f} s", asked_s) from None
                if tries > self._retries:
                    raise Unavailable(f"{error}; asked {tries} times", error.retry_after_s) from None
                nominal_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (tries - 1))
            self._sleep(max(asked_s, nominal_s * (0.5 + 0.5 * self._rng.random())))
