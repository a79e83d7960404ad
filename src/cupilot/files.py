"""Reading files that a user named: whatever is wrong with one is a `UserError` in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cupilot.errors import DataError, UserError

MOST_BYTES = 16 << 20
MOST_JSON_BYTES = 1 << 30


def read_text(path: Path, what: str, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file; ``what`` is what to call it, such as "the kernel file"."""
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{what} {path} cannot be read: it is not an ordinary file")
        if path.stat().st_size > most_bytes:
            raise UserError(f"{what} {path} has more than {most_bytes >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{what} {path} is not text in UTF-8") from error
    except ValueError as error:  # a name with a null character
        raise UserError(f"{what} {path} cannot be read: {error}") from error


def read_json(path: Path, what: str) -> Any:
    """The data of a JSON file."""
    text = read_text(path, what, MOST_JSON_BYTES)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not {what.removeprefix('the ')}: it is not JSON") from error
