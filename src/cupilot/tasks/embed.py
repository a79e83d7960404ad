"""Write the modules that a task file imports from its own folder into its text.

A task then is one text, which can be stored with a run, proven, and evaluated on another machine.  An importer for
them is installed on the line of the file's first import, so that line numbers stay as they are.  Not covered: data
files, modules of compiled code, and names that are computed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from cupilot.errors import TaskError

# written into the task's text, so it needs nothing but the standard library
IMPORTER = """
import importlib.abc, importlib.util, sys
class EmbeddedModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        package, text = files.get(name, (False, None))
        return None if text is None else importlib.util.spec_from_loader(name, self, is_package=package)
    def exec_module(self, module):
        exec(compile(files[module.__name__][1], module.__name__, "exec"), module.__dict__)
sys.meta_path[:] = [each for each in sys.meta_path if type(each).__name__ != "EmbeddedModules"]
sys.meta_path.insert(0, EmbeddedModules())
for name in files:
    sys.modules.pop(name, None)
"""


def embed_imports(source: str, folder: Path) -> str:
    """The source with the modules of ``folder`` that it imports, directly or through others; unchanged without any."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source  # whoever runs it says what is wrong
    files: dict[str, tuple[bool, str]] = {}
    _collect(tree, "", folder, files)
    # imports inside functions run later than the first one of the file itself
    first = next((node for node in tree.body if _is_import(node) and getattr(node, "module", "") != "__future__"), None)
    if not files or first is None:
        return source
    lines = source.split("\n")
    install = f"exec({IMPORTER!r}, {{'files': {files!r}}}); "
    lines[first.lineno - 1] = install + lines[first.lineno - 1]
    return "\n".join(lines)


def _is_import(node: ast.AST) -> TypeGuard[ast.Import | ast.ImportFrom]:
    return isinstance(node, (ast.Import, ast.ImportFrom))


def _collect(tree: ast.Module, package: str, folder: Path, files: dict[str, tuple[bool, str]]) -> None:
    """Add the modules that a module of ``package`` imports, and what those import."""
    for name in (name for node in ast.walk(tree) if _is_import(node) for name in _imported(node, package)):
        path = folder.joinpath(*name.split("."))
        module = next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)
        if module is None or name in files:
            continue
        try:
            text = module.read_text(encoding="utf-8")
            inner = ast.parse(text)
        except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise TaskError(f"{module}: the module that the task imports cannot be read ({error})") from None
        is_package = module.name == "__init__.py"
        files[name] = (is_package, text)
        _collect(inner, name if is_package else name.rpartition(".")[0], folder, files)


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Names that may be modules, packages before what is in them."""
    if isinstance(node, ast.Import):
        wanted = [alias.name for alias in node.names]
    else:
        parents = package.split(".") if package else []
        base = parents[: len(parents) - node.level + 1] if node.level else []
        base += [node.module] if node.module else []
        wanted = [".".join([*base, alias.name]) for alias in node.names]
    for name in wanted:
        parts = name.split(".")
        yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))
