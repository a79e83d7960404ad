"""A candidate: one ``.cu`` file in torch-extension form."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class Kernel:
    """Source text with ``__global__`` kernels and a host function that launches them."""

    source: str
    entry: str = "forward"

    @property
    def digest(self) -> str:
        """Content address: the same source and entry always have the same digest."""
        return sha256(f"{self.entry}\0{self.source}".encode()).hexdigest()[:16]
