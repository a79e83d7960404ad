"""Replace byte-identical files below kernels/ by links to the first of them, so that each kernel is stored once.

``python benchmarks/link_kernels.py`` after ``cupilot bench level1`` has written into kernels/.
"""

from __future__ import annotations

import os
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "kernels"


def identical(folder: Path) -> list[tuple[Path, Path]]:
    """Pairs of a regular file and an earlier one with the same content; shorter folder names come first."""
    first: dict[bytes, Path] = {}
    pairs = []
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    for path in sorted(files, key=lambda path: (len(path.parent.parts), str(path.parent), path.name)):
        original = first.setdefault(path.read_bytes(), path)
        if original != path:
            pairs.append((path, original))
    return pairs


def main() -> None:
    pairs = identical(KERNELS)
    for path, original in pairs:
        path.unlink()
        path.symlink_to(os.path.relpath(original, path.parent))
    print(f"{len(pairs)} files are links now")


if __name__ == "__main__":
    main()
