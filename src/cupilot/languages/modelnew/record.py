"""What a worker is given of a ModelNew file: a record in a JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cupilot.records import from_plain


@dataclass(frozen=True)
class Assembly:
    """The file's text, the library for PyTorch's own copies, and the extensions built so far: keys and libraries.

    ``torch_ops``: PyTorch may compute in it.
    """

    source: str
    glue: str
    libraries: tuple[tuple[str, str], ...] = ()
    torch_ops: bool = False

    def files(self) -> tuple[Path, ...]:
        """All libraries."""
        return (Path(self.glue), *(Path(path) for _, path in self.libraries))


def read_assembly(path: Path) -> Assembly:
    return from_plain(Assembly, json.loads(path.read_text(encoding="utf-8")))
