"""The house rules that tools can check: style, types, layers, and what must not be in the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("ruff", "check", "."), id="ruff check"),
        pytest.param(("ruff", "format", "--check", "."), id="ruff format"),
        pytest.param(("mypy",), id="mypy"),
        pytest.param(("importlinter.cli", "lint_imports_command"), id="import-linter"),
    ],
)
def test_tools_are_content(command: tuple[str, ...]) -> None:
    line = (sys.executable, "-m", *command)
    if command[0].startswith("importlinter"):
        line = (sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def sources() -> list[Path]:
    return sorted(path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def test_nothing_has_a_name_that_says_nothing() -> None:
    forbidden = re.compile(r"(utils?|helpers?|manager|common|misc)s?$")
    assert [str(path) for path in sources() if forbidden.fullmatch(path.stem)] == []


def test_modules_have_one_subject() -> None:
    long = {str(p): n for p in sources() if (n := len(p.read_text().splitlines())) > 450}
    assert long == {}, "split these"


def test_only_the_command_line_reads_the_environment() -> None:
    reading = re.compile(r"os\.environ|os\.getenv")
    package = ROOT / "src" / "cupilot"
    found = [str(p.relative_to(package)) for p in package.rglob("*.py") if reading.search(p.read_text())]
    # a worker gets a few variables of its parent's, and none that could hold a secret
    assert sorted(found) == ["cli/environment.py", "devices/virtual.py"]
