"""What the form for a new run asks for: checked, and turned into the arguments of ``cupilot optimize``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cupilot.errors import UserError
from cupilot.evolution.result import replace_file
from cupilot.evolution.store import FILE, next_folder
from cupilot.ui.paths import below, is_plain

TASKS = "tasks"
"""The folder below the runs folder that pasted tasks are saved in."""
LARGEST = 1000
SEEDS = 2**31
TASK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")


@dataclass(frozen=True)
class Choices:
    """What can be chosen, and what is chosen unless somebody says otherwise (as ``cupilot optimize`` has it)."""

    devices: tuple[str, ...]
    device: str
    population: int
    generations: int
    epochs: int
    seed: int


@dataclass(frozen=True)
class NewRun:
    """A run as the form asks for it: ``file`` names a task below the runs folder, else ``text`` is saved as one."""

    file: str
    name: str
    text: str
    device: str
    population: int
    generations: int
    epochs: int
    seed: int


def read_new_run(form: Mapping[str, str], choices: Choices) -> NewRun:
    """A `UserError` says in one sentence what is wrong; fields that nobody knows are wrong as well."""
    known = {"source", "file", "name", "text", "device", "population", "generations", "epochs", "seed"}
    if unknown := sorted(set(form) - known):
        raise UserError(f"the form has no field {unknown[0]!r}")
    pasted = form.get("source", "file") == "text"
    device = form.get("device", choices.device)
    if device not in choices.devices:
        raise UserError(f"there is no device {device!r} here")
    asked = NewRun(
        "" if pasted else form.get("file", "").strip(),
        form.get("name", "").strip() if pasted else "",
        form.get("text", "").replace("\r\n", "\n") if pasted else "",
        device,
        _whole(form, "population", choices.population, 1, LARGEST),
        _whole(form, "generations", choices.generations, 1, LARGEST),
        _whole(form, "epochs", choices.epochs, 1, LARGEST),
        _whole(form, "seed", choices.seed, 0, SEEDS),
    )
    if not pasted and not asked.file:
        raise UserError("choose a task file, or paste the text of one")
    if pasted and not asked.text.strip():
        raise UserError("the text of the task is empty")
    if pasted and not TASK_NAME.fullmatch(asked.name):
        raise UserError("a task's name has letters, digits, - and _, begins with a letter, and is at most 60 long")
    return asked


def _whole(form: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = form.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise UserError(f"{name} must be a whole number from {least} to {most}, not {text[:20]!r}")
    return int(text)


def prepare(root: Path, asked: NewRun) -> tuple[Path, tuple[str, ...]]:
    """The new run's folder, and the arguments to start it with; a pasted task is saved first."""
    task = _saved(root, asked) if asked.text else _found(root, asked.file)
    folder = next_folder(root.resolve(), re.sub(r"[^A-Za-z0-9_-]", "-", task.stem).strip("-_") or "task")
    options = (
        ("--device", asked.device),
        ("--population", str(asked.population)),
        ("--generations", str(asked.generations)),
        ("--epochs", str(asked.epochs)),
        ("--seed", str(asked.seed)),
        ("--out", str(folder)),
    )
    return folder, ("optimize", str(task), *(word for option in options for word in option))


def _found(root: Path, name: str) -> Path:
    path = below(root, name)
    if path is None or path.suffix != ".py" or not path.is_file():
        raise UserError(f"there is no task file {name!r} below the runs folder")
    return path


def _saved(root: Path, asked: NewRun) -> Path:
    """The file that holds the text; one of another text is never replaced."""
    (root / TASKS).mkdir(parents=True, exist_ok=True)
    folder = below(root, TASKS)
    if folder is None or not folder.is_dir():
        raise UserError(f"{TASKS} in the runs folder is not a folder in it, so the task cannot be saved")
    number = 1
    while True:
        path = folder / (f"{asked.name}.py" if number == 1 else f"{asked.name}-{number}.py")
        if not path.exists() and not path.is_symlink():
            replace_file(path, asked.text)
            return path
        if path.is_file() and not path.is_symlink() and path.read_bytes() == asked.text.encode():
            return path
        number += 1


def task_files(root: Path) -> Iterator[str]:
    """Files that a run can be started from: in the runs folder, in its folders, not in those of runs."""
    for path in sorted((*root.glob("*.py"), *root.glob("*/*.py"))):
        name = path.relative_to(root).as_posix()
        beside_run = path.parent != root and (path.parent / FILE).exists()
        if is_plain(name) and not beside_run and below(root, name) is not None:
            yield name
