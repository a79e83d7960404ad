"""From a model's name to a model that can be asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from random import Random
from threading import BoundedSemaphore
from typing import Any

from cupilot.contracts import Model
from cupilot.errors import ModelError
from cupilot.llm.answer import Refused
from cupilot.llm.chat import Chat
from cupilot.llm.patience import Patient
from cupilot.llm.providers import choose

CALLS_AT_ONCE = 8


def open_model(
    name: str,
    *,
    keys: Mapping[str, str],
    base_url: str | None = None,
    timeout_s: float = 600.0,
    retries: int = 5,
    gate: AbstractContextManager[object] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    rng: Random | None = None,
) -> Model:
    """The model called ``provider/name`` or ``provider/name@URL``; nothing is sent yet.

    ``keys`` are the key variables that are set, by name.  ``timeout_s`` is per attempt.  Without a
    ``gate`` this model has one of its own, for eight calls at once.
    """
    choice = choose(name, base_url)
    key = keys.get(choice.provider.key, "").strip()
    if choice.provider.needs_key and not key:
        raise Refused(f"{choice.name} needs a key: the environment variable {choice.provider.key} is not set")
    if not key.isascii() or not key.isprintable():
        raise Refused(f"{choice.name}: what is in {choice.provider.key} cannot be a key")
    sdk = _sdk(choice.provider.sdk, choice.name)
    dialect = import_module(f"cupilot.llm.dialects.{choice.provider.sdk}").connect(sdk, choice, key, timeout_s)
    chat = Chat(choice, dialect, key, timeout_s, clock)
    return Patient(chat, retries, gate or BoundedSemaphore(CALLS_AT_ONCE), sleep, rng or Random())


def _sdk(package: str, name: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ModelError(f"{name} needs the Python package {package!r}: install cupilot[llm]") from error
