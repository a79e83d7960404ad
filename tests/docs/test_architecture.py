"""ARCHITECTURE.md names functions that exist, and layers as they are checked."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
HOPS = sorted(set(re.findall(r"`([\w/]+\.py):([\w.]+)`", TEXT)))


def defined(path: Path, name: str) -> bool:
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for part in name.split("."):
        found = [
            node
            for node in body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == part
        ]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize(("file", "name"), HOPS)
def test_every_hop_exists(file: str, name: str) -> None:
    assert defined(ROOT / "src" / "cupilot" / file, name), f"{file} has no {name}"


def test_the_path_has_all_its_hops() -> None:
    assert len(HOPS) > 40


def test_every_layer_is_in_the_tree() -> None:
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    packages = [name.strip() for layer in layers for name in layer.replace("cupilot.", "").split("|")]
    small = {"arrays", "database", "numbers", "threads"}
    missing = [name for name in packages if name not in small and not re.search(rf"\b{name}(/|\.py)", TEXT)]
    assert missing == []
