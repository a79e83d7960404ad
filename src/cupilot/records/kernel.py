"""A candidate: one file, as people write it for PyTorch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

FORMS = ("extension", "modelnew", "modelnew+torch")
MODELNEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    """Source text, the function to call, and what to call it with.

    ``form`` is ``extension`` (a ``.cu`` file with ``__global__`` kernels and a host function ``entry`` that launches
    them) or ``modelnew`` (a Python file with a class ``ModelNew`` that builds such sources itself; with ``+torch`` it
    may also compute with PyTorch).  ``arguments`` are expressions over ``inputs`` and ``model``, separated by commas;
    empty: bound by their names and order.
    """

    source: str
    entry: str = "forward"
    arguments: str = ""
    form: str = "extension"

    @property
    def digest(self) -> str:
        """Content address: the same source, entry and arguments always have the same digest."""
        more = "".join(f"\0{part}" for part in (self.arguments, "" if self.form == FORMS[0] else self.form) if part)
        return sha256(f"{self.entry}\0{self.source}{more}".encode()).hexdigest()[:16]


def form_of(source: str) -> str:
    """What a text is, when there is no file whose name says it."""
    return "modelnew" if MODELNEW.search(source) else "extension"
