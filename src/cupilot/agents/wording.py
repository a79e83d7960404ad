"""From prompt files to text: `prompts/<role>_<purpose>.j2`, sections in `prompts/parts`, entries in `items.j2`.

A prompt file has two blocks, ``system`` and ``user``; an undefined name in any of them is an error.
Nothing here decides what is shown.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from cupilot.agents.budget import LINE_CHARACTERS, Part, shortened
from cupilot.agents.counters import quantity
from cupilot.languages import find_language, language_names

FOLDER = Path(__file__).parent / "prompts"


def block(prompt: str, name: str, **values: Any) -> str:
    """One block of a prompt file."""
    template = _environment().get_template(f"{prompt}.j2")
    return "".join(template.blocks[name](template.new_context(values))).strip()


def section(part: Part) -> str:
    """A section of a prompt, with its heading."""
    return _environment().get_template(f"parts/{part.name}.j2").render(body=part.body, **part.values).strip()


def item(kind: str, *values: Any) -> str:
    """One entry of a section."""
    macro = getattr(_environment().get_template("items.j2").module, kind)
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


def fenced(text: str, name: str = "") -> str:
    """A block of data between fences that nothing inside can close."""
    text = printable(text).strip("\n")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{name}\n{text}\n{fence}"


def one_line(text: str, characters: int = LINE_CHARACTERS) -> str:
    """A text of others as part of a line."""
    return shortened(" ".join(printable(text).split()), characters)


def printable(text: str) -> str:
    """Control and direction characters, with which text can be hidden, become visible."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
