"""The sentences that this package adds to a conversation; they are files in `prompts`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    # imported late: choosing and replaying models does not need it
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(loader=PackageLoader("cupilot.llm", "prompts"), undefined=StrictUndefined, autoescape=False)


def render(template: str, **values: object) -> str:
    """A template of `prompts`, filled in."""
    return _environment().get_template(f"{template}.j2").render(**values)
