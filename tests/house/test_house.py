"""The house rules that tools can check: style, types, layers, and what must not be in the tree."""

from __future__ import annotations

import ast
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
    assert sorted(found) == ["cli/environment.py", "sandbox/process.py"]


def _patterns(path: Path) -> list[str]:
    """The literal parts of what a module gives to functions of `re` as patterns, without escapes such as ``\\b``."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and node.args]
    given = [
        call.args[0] for call in calls
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "re"
    ]  # fmt: skip
    literals = [node for pattern in given for node in ast.walk(pattern) if isinstance(node, ast.Constant)]
    return [re.sub(r"\\.", " ", node.value) for node in literals if isinstance(node.value, str)]


def test_places_are_not_read_out_of_text() -> None:
    """Findings have fields; only tools' own output and PTX are parsed."""
    place = re.compile(r"\b(line|block|thread)s?[ (]")
    package = ROOT / "src" / "cupilot"
    parsers = (package / "toolchain", package / "vgpu" / "ptx")
    modules = [p for p in package.rglob("*.py") if not any(p.is_relative_to(folder) for folder in parsers)]
    found = {str(p.relative_to(package)): text for p in modules for text in _patterns(p) if place.search(text)}
    assert found == {}
    assert any(place.search(text) for text in _patterns(package / "toolchain" / "diagnostics.py"))
