"""The form for a new run: checked, and turned into the arguments of ``cupilot optimize``."""

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
"""The folder for pasted tasks, in the runs folder."""
LARGEST_NUMBER = 1000
SEEDS = 2**31
TASK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")


@dataclass(frozen=True)
class FormChoices:
    """The devices to choose from, and the defaults, which are those of ``cupilot optimize``."""

    devices: tuple[str, ...]
    device: str
    population: int
    generations: int
    epochs: int
    seed: int


@dataclass(frozen=True)
class NewRun:
    """The contents of the form: ``file`` names a task below the runs folder; without it, ``text`` is saved as one."""

    file: str
    name: str
    text: str
    device: str
    population: int
    generations: int
    epochs: int
    seed: int


def read_new_run(form: Mapping[str, str], choices: FormChoices) -> NewRun:
    """The checked form; a `UserError` says what is wrong.  Unknown fields are errors too."""
    known = {"source", "file", "name", "text", "device", "population", "generations", "epochs", "seed"}
    if unknown := sorted(set(form) - known):
        raise UserError(f"the form has no field {unknown[0]!r}")
    pasted = form.get("source", "file") == "text"
    device = form.get("device", choices.device)
    if device not in choices.devices:
        raise UserError(f"there is no device {device!r} here")
    new_run = NewRun(
        "" if pasted else form.get("file", "").strip(),
        form.get("name", "").strip() if pasted else "",
        form.get("text", "").replace("\r\n", "\n") if pasted else "",
        device,
        _integer(form, "population", choices.population, 1, LARGEST_NUMBER),
        _integer(form, "generations", choices.generations, 1, LARGEST_NUMBER),
        _integer(form, "epochs", choices.epochs, 1, LARGEST_NUMBER),
        _integer(form, "seed", choices.seed, 0, SEEDS),
    )
    if not pasted and not new_run.file:
        raise UserError("choose a task file, or paste the text of one")
    if pasted and not new_run.text.strip():
        raise UserError("the text of the task is empty")
    if pasted and not TASK_NAME.fullmatch(new_run.name):
        raise UserError("a task's name has letters, digits, - and _, begins with a letter, and is at most 60 long")
    return new_run


def _integer(form: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = form.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise UserError(f"{name} must be a whole number from {least} to {most}, not {text[:20]!r}")
    return int(text)


def prepare(root: Path, new_run: NewRun) -> tuple[Path, tuple[str, ...]]:
    """The new run's folder, and the arguments that start it; a pasted task is saved first."""
    task = _save_task(root, new_run) if new_run.text else _task_file(root, new_run.file)
    folder = next_folder(root.resolve(), re.sub(r"[^A-Za-z0-9_-]", "-", task.stem).strip("-_") or "task")
    options = (
        ("--device", new_run.device),
        ("--population", str(new_run.population)),
        ("--generations", str(new_run.generations)),
        ("--epochs", str(new_run.epochs)),
        ("--seed", str(new_run.seed)),
        ("--out", str(folder)),
    )
    return folder, ("optimize", str(task), *(word for option in options for word in option))


def _task_file(root: Path, name: str) -> Path:
    path = below(root, name)
    if path is None or path.suffix != ".py" or not path.is_file():
        raise UserError(f"there is no task file {name!r} below the runs folder")
    return path


def _save_task(root: Path, new_run: NewRun) -> Path:
    """The file with the pasted text; existing files with other contents are never replaced."""
    (root / TASKS).mkdir(parents=True, exist_ok=True)
    folder = below(root, TASKS)
    if folder is None or not folder.is_dir():
        raise UserError(f"{TASKS} in the runs folder is not a folder in it, so the task cannot be saved")
    number = 1
    while True:
        path = folder / (f"{new_run.name}.py" if number == 1 else f"{new_run.name}-{number}.py")
        if not path.exists() and not path.is_symlink():
            replace_file(path, new_run.text)
            return path
        if path.is_file() and not path.is_symlink() and path.read_bytes() == new_run.text.encode():
            return path
        number += 1


def task_files(root: Path) -> Iterator[str]:
    """Task files in the runs folder and in its direct subfolders, except those of runs."""
    for path in sorted((*root.glob("*.py"), *root.glob("*/*.py"))):
        name = path.relative_to(root).as_posix()
        beside_run = path.parent != root and (path.parent / FILE).exists()
        if is_plain(name) and not beside_run and below(root, name) is not None:
            yield name
