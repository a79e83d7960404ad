"""PyTorch's compiler makes a cache folder as soon as it is imported, and leaves it; here it goes again."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def passing_cache() -> Iterator[None]:
    """The folder is made, if at all, under a name of ours, and removed; one that the user has chosen stays."""
    if VARIABLE in os.environ:
        yield
        return
    folder = os.path.join(tempfile.gettempdir(), f"cupilot-compiler-{secrets.token_hex(8)}")
    os.environ[VARIABLE] = folder
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)
