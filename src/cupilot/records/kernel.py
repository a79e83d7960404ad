"""A candidate: one source file, as people write it for PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

CUDA = "cuda"


@dataclass(frozen=True)
class Kernel:
    """Source text, the language it is in, the function to call, and the arguments to call it with.

    ``arguments`` are expressions over ``inputs`` and ``model``, separated by commas; empty: they are bound by name and
    order.  ``language`` is the name of a `cupilot.contracts.Language`, and ``options`` are some of its options.
    """

    source: str
    entry: str = "forward"
    arguments: str = ""
    language: str = CUDA
    options: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Content address: equal kernels have the same digest in every process and every version."""
        parts = (self.arguments, "" if self.language == CUDA else self.language, *self.options)
        more = "".join(f"\0{part}" for part in parts if part)
        return sha256(f"{self.entry}\0{self.source}{more}".encode()).hexdigest()[:16]
