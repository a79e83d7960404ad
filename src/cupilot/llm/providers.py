"""The providers of `providers.toml`, and the names of models.

A name is ``provider/model`` or ``provider/model@URL``; the model's part may contain slashes.  The URL is the address
of the server and not part of the model's name, so recordings do not contain it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from cupilot.errors import UserError
from cupilot.records import from_plain

RESPONSE_FORMATS = ("json_schema", "json_object", "none")

# only before a URL: some providers have names such as model@date
_ADDRESS = re.compile(r"@(?=https?://)")


@dataclass(frozen=True)
class Provider:
    """One table of `providers.toml`, where the keys are explained."""

    title: str
    sdk: str
    base_url: str
    key: str
    needs_key: bool
    response_format: str
    max_tokens_name: str
    thinking_tokens: int
    temperature: bool
    seed: bool
    prices: str
    tools: bool = True


@dataclass(frozen=True)
class ModelChoice:
    """A parsed model name: the provider, the model's name there, and the server's address."""

    provider_name: str
    provider: Provider
    model: str
    base_url: str

    @property
    def name(self) -> str:
        return f"{self.provider_name}/{self.model}"


@cache
def providers() -> Mapping[str, Provider]:
    """All providers by name."""
    tables = tomllib.loads(resources.files("cupilot.llm").joinpath("providers.toml").read_text(encoding="utf-8"))
    return MappingProxyType({name: from_plain(Provider, table, f"providers.{name}") for name, table in tables.items()})


def parse_model_name(name: str, base_url: str | None = None) -> ModelChoice:
    """The provider, model and address in a name; ``base_url`` overrides the address."""
    provider_name, slash, rest = name.partition("/")
    known = providers()
    if provider_name not in known:
        raise UserError(f"unknown provider {provider_name!r} in {name!r}; known are {', '.join(known)}")
    model, *urls = _ADDRESS.split(rest, maxsplit=1)
    if not slash or not model:
        raise UserError(f"{name!r} names no model; write {provider_name}/NAME")
    provider = known[provider_name]
    url = base_url or (urls[0] if urls else provider.base_url)
    if not re.match(r"https?://[^/]", url):
        hint = f"write {provider_name}/{model}@http://HOST:PORT/v1" if not url else f"{url!r} is not a web address"
        raise UserError(f"{name!r} needs the address of a server: {hint}")
    return ModelChoice(provider_name, provider, model, url)


def without_address(name: str) -> str:
    """The name as recordings have it."""
    return _ADDRESS.split(name, maxsplit=1)[0]


def key_names() -> tuple[str, ...]:
    """The environment variables that may hold API keys."""
    return tuple(dict.fromkeys(provider.key for provider in providers().values()))
