"""Prompt templates: `prompts/<role>_<purpose>.j2`, their sections in `prompts/sections`, list entries in `items.j2`.

A prompt file has two blocks, ``system`` and ``user``.  An undefined name is an error.  What a prompt shows is decided
in `cupilot.agents.prompt_sections`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from cupilot.agents.token_budget import LINE_CHARACTERS, Section, shortened
from cupilot.languages import find_language, language_names
from cupilot.numbers import quantity

FOLDER = Path(__file__).parent / "prompts"


def render_block(prompt: str, name: str, **values: Any) -> str:
    """One block of a prompt file."""
    template = _environment().get_template(f"{prompt}.j2")
    return "".join(template.blocks[name](template.new_context(values))).strip()


def render_section(section: Section) -> str:
    """A section of a prompt, with its heading."""
    template = _environment().get_template(f"sections/{section.name}.j2")
    return template.render(body=section.body, **section.values).strip()


def render_item(kind: str, *values: Any) -> str:
    """One entry of a section."""
    return render_macro("items", kind, *values)


def render_macro(file: str, name: str, *values: Any) -> str:
    """A macro of ``file``."""
    macro = getattr(_environment().get_template(f"{file}.j2").module, name)
    return str(macro(*values)).strip()


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(FOLDER), jinja2.FunctionLoader(_of_language)]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters |= {"fenced": fenced, "one_line": one_line, "quantity": quantity}
    return environment


def _of_language(name: str) -> str | None:
    """A language's own file, such as ``cuda/rules.j2``."""
    language, _, file = name.partition("/")
    path = find_language(language).prompts / file if language in language_names() else None
    return path.read_text(encoding="utf-8") if path is not None and path.is_file() else None


def render_file(name: str, **values: Any) -> str:
    """A whole file of `prompts`."""
    return _environment().get_template(f"{name}.j2").render(**values).strip()


def fenced(text: str, name: str = "") -> str:
    """A fenced block that no text inside can close."""
    text = printable(text).strip("\n")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{name}\n{text}\n{fence}"


def one_line(text: str, characters: int = LINE_CHARACTERS) -> str:
    """Untrusted text on one line, shortened."""
    return shortened(" ".join(printable(text).split()), characters)


def printable(text: str) -> str:
    """Replaces control and direction characters, which could hide text, by a visible character."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
