"""Errors of language models.

::

    CupilotError
    ├── ModelError
    │   ├── Unavailable       busy, down, too slow or garbled: a retry may help
    │   └── RequestRejected   a wrong key, an unknown model, a bad request: a retry will not help
    └── OverBudget            a spending cap is reached, so nothing was sent
"""

from __future__ import annotations

from cupilot.errors import CupilotError, ModelError


class Unavailable(ModelError):
    """The server cannot answer now; ``retry_after_s`` is how long it asks clients to wait."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class RequestRejected(ModelError):
    """The server does not accept this request.

    ``status`` is the HTTP status (0 when nothing was sent), ``complaint`` the server's message.
    """

    def __init__(self, text: str, status: int = 0, complaint: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.complaint = complaint


class OverBudget(CupilotError):
    """A spending cap is reached; the text says which."""
