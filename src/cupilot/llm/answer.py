"""What an attempt to ask a model may come to: an answer, or one of three kinds of error.

::

    CupilotError
    ├── ModelError
    │   ├── Unavailable   busy, down, too slow or garbled: asking again later may help
    │   └── Refused       a wrong key, an unknown model, a bad request: asking again will not help
    └── OverBudget        nothing was sent, because a cap is reached: no fault of the model
"""

from __future__ import annotations

from dataclasses import dataclass

from cupilot.contracts import Reply
from cupilot.errors import CupilotError, ModelError


@dataclass(frozen=True)
class Answer(Reply):
    """A reply that also says whether it ended early, and whether its tokens are our own estimate."""

    cut: bool = False
    estimated: bool = False


class Unavailable(ModelError):
    """The server could not answer now; ``retry_after_s`` is how long it asked us to wait."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


class Refused(ModelError):
    """The server will not answer this request, however often it is asked.

    ``status`` is HTTP's (0 when the request was not sent), ``complaint`` what the server said.
    """

    def __init__(self, text: str, status: int = 0, complaint: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.complaint = complaint


class OverBudget(CupilotError):
    """A cap is reached; the text says which."""


def count_tokens(text: str) -> int:
    """An estimate: four characters to a token, never none."""
    return max(1, len(text) // 4)
