"""Read a kernel file."""

from __future__ import annotations

from pathlib import Path

from cupilot.errors import UserError
from cupilot.records import Kernel


def read_kernel(path: Path, entry: str, arguments: str = "", allow_torch_ops: bool = False) -> Kernel:
    form = ("modelnew+torch" if allow_torch_ops else "modelnew") if path.suffix == ".py" else "extension"
    try:
        return Kernel(path.read_text(encoding="utf-8"), entry, arguments, form)
    except OSError as error:
        raise UserError(f"the kernel file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"the kernel file {path} is not text in UTF-8") from error
