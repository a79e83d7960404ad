"""Opens a model by its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from random import Random
from threading import BoundedSemaphore
from typing import Any

from cupilot.contracts import Model
from cupilot.errors import MissingExtra, MissingKey
from cupilot.llm.chat import ChatModel
from cupilot.llm.providers import parse_model_name
from cupilot.llm.retry import RetryingModel

CONCURRENT_CALLS = 8


def open_model(
    name: str,
    *,
    keys: Mapping[str, str],
    base_url: str | None = None,
    timeout_s: float = 600.0,
    retries: int = 5,
    semaphore: AbstractContextManager[object] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    rng: Random | None = None,
) -> Model:
    """The model called ``provider/name`` or ``provider/name@URL``; nothing is sent yet.

    ``keys`` are API keys by the name of their environment variable.  ``timeout_s`` is per attempt.  Without a
    ``semaphore`` this model has one of its own, for eight concurrent calls.
    """
    choice = parse_model_name(name, base_url)
    key = keys.get(choice.provider.key, "").strip()
    if choice.provider.needs_key and not key:
        raise MissingKey(f"{choice.name} needs a key: the environment variable {choice.provider.key} is not set")
    if not key.isascii() or not key.isprintable():
        raise MissingKey(f"{choice.name}: what is in {choice.provider.key} cannot be a key")
    sdk = _sdk(choice.provider.sdk, choice.name)
    dialect = import_module(f"cupilot.llm.dialects.{choice.provider.sdk}").connect(sdk, choice, key, timeout_s)
    chat = ChatModel(choice, dialect, key, timeout_s, clock)
    return RetryingModel(chat, retries, semaphore or BoundedSemaphore(CONCURRENT_CALLS), sleep, rng or Random())


def _sdk(package: str, name: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(f"{name} needs the Python package {package!r}: install cupilot[llm]") from error
