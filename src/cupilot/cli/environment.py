"""What is read from the environment, all of it; keys are looked for, never read out."""

from __future__ import annotations

import os
from pathlib import Path

from cupilot.errors import UserError

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "DEEPSEEK_API_KEY", "OPENROUTER_API_KEY")


def debugging() -> bool:
    return os.environ.get("CUPILOT_DEBUG", "") not in ("", "0")


def cache_folder() -> Path:
    """Where builds are kept between runs: ``$CUPILOT_CACHE``, else ``cupilot`` in the user's folder of caches.

    That is ``$XDG_CACHE_HOME`` if it is an absolute path (XDG Base Directory Specification), else ``~/.cache``.
    """
    if chosen := os.environ.get("CUPILOT_CACHE"):
        return Path(chosen)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():
        return shared / "cupilot"
    try:
        return Path.home() / ".cache" / "cupilot"
    except RuntimeError:
        raise UserError("there is no home folder for the cache: set CUPILOT_CACHE to a folder") from None


def sandbox_choice() -> str:
    """How candidates are confined: ``$CUPILOT_SANDBOX``, which is auto (the default), bubblewrap or landlock."""
    return os.environ.get("CUPILOT_SANDBOX") or "auto"


def llm_keys() -> dict[str, str]:
    """The keys that are set, for the models that need them; they go nowhere else."""
    from cupilot.llm import agent_keys, key_names

    return {name: os.environ[name] for name in (*key_names(), *agent_keys()) if os.environ.get(name)}


def llm_key() -> str | None:
    """The name of the first provider's key that is set."""
    return next((name for name in KEYS if os.environ.get(name)), None)


def ui_token() -> str | None:
    """The token of the live page, for those who do not want it among the arguments that everybody can list."""
    return os.environ.get("CUPILOT_UI_TOKEN") or None
