"""From a subject and the name of a target to files."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import jinja2

from cupilot.errors import UserError, unwritable
from cupilot.export import targets
from cupilot.export.subject import Subject

TEMPLATES = Path(__file__).parent / "templates"


class Target(Protocol):
    """What a module of `targets` offers."""

    HELP: str

    def files(self, subject: Subject) -> Mapping[str, str]: ...


def target_names() -> tuple[str, ...]:
    return tuple(found.name.replace("_", "-") for found in pkgutil.iter_modules(targets.__path__))


def load_target(name: str) -> Target:
    """The target of this name, or one sentence that has all names."""
    if name not in target_names():
        raise UserError(f"unknown target {name!r}: a kernel can be exported to {', '.join(target_names())}")
    return cast(Target, import_module(f"{targets.__name__}.{name.replace('-', '_')}"))


def export(subject: Subject, name: str, out: Path) -> tuple[Path, ...]:
    """Write all files of a target into a folder that is new or empty; gives their paths."""
    made = load_target(name).files(subject)
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UserError(f"{out} is there already and not an empty folder: choose another with --out")
        for path, text in made.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(out, error) from error
    return tuple(out / path for path in made)


def rendered(template: str, subject: Subject, **more: object) -> str:
    """A template of `templates` for a subject."""
    return _environment().get_template(f"{template}.j2").render(s=subject, **more)


def python_text(text: str) -> str:
    """A text as a Python literal that people can read; as one line where quotes or backslashes forbid it."""
    readable = "'''" not in text and not text.endswith(("'", "\\")) and "\r" not in text
    return f"r'''{text}'''" if readable else repr(text)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    environment.filters["python"] = python_text
    environment.filters["literal"] = repr
    return environment
