"""Extensions that a Python file makes with PyTorch's ``load_inline`` or ``load``, built by our own toolchain.

PyTorch compiles host sources and CUDA sources separately and links them.  Here they are one file: host sources first,
then CUDA sources, then the module that binds the functions.  Not covered: two sources that define the same name, and
sources in other languages.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cupilot.contracts import Built
from cupilot.records import Failure, Kernel, to_plain
from cupilot.sandbox.bubblewrap import AUTO
from cupilot.toolchain.cache import digest
from cupilot.toolchain.cuda import Cuda
from cupilot.toolchain.nvcc import build_kernel
from cupilot.toolchain.source import defined_names, without_comments

FILE = "solution.py"
"""What messages call the Python file."""
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""Raised for a text that is not Python."""
# load_inline puts these before the sources it is given
HEADERS = "#include <torch/extension.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


@dataclass(frozen=True)
class Source:
    """A text to compile; ``line`` is where it begins in the Python file, 0 where the file does not contain it."""

    name: str
    text: str
    line: int = 0


@dataclass(frozen=True)
class Extension:
    """One call of ``load_inline`` or ``load``; without ``functions`` the sources have a module of their own."""

    name: str
    host: tuple[Source, ...]
    cuda: tuple[Source, ...]
    functions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Content address."""
        return digest((json.dumps(to_plain(self)),))


def build_extension(extension: Extension, arch: str, out_dir: Path, cuda: Cuda, sandbox: str = AUTO) -> Built | Failure:
    """One library with all functions as entries; failures are those of `build_kernel`, with the extension's name."""
    host, device = (without_comments("\n".join(s.text for s in part)) for part in (extension.host, extension.cuda))
    for name in extension.functions:
        if not re.search(rf"\b{re.escape(name)}\b", host):
            message = f"{extension.name}: functions has {name}, which cpp_sources do not declare"
            return Failure("build", "compile-error", message)
    entries = extension.functions or defined_names(f"{host}\n{device}")
    if not entries:
        message = f"{extension.name}: no function is bound, by the list of functions or by a module"
        return Failure("build", "no-such-entry", message)
    kernel = Kernel(joined_source(extension), entries[0])
    flags = kept_flags(extension.flags)
    built = build_kernel(kernel, arch, out_dir, cuda, flags=flags, file=FILE, sandbox=sandbox)
    if isinstance(built, Failure):
        return replace(built, message=f"{extension.name}: {built.message}")
    return built


def joined_source(extension: Extension) -> str:
    """All sources as one file, whose lines are those of the Python file where they are written there."""
    pieces = [HEADERS]
    for source in extension.host:
        pieces.append(_numbered(replace(source, text=without_defaults(source.text)), f"{extension.name}.cpp"))
    pieces += [_numbered(source, f"{extension.name}.cu") for source in extension.cuda]
    pieces.append(f'#line 1 "{_file_name(extension.name)} (module)"')
    if extension.functions:
        bound = "".join(f'  m.def("{n}", torch::wrap_pybind_function({n}), "{n}");\n' for n in extension.functions)
        pieces.append(f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{bound}}}")
    return "\n".join(pieces) + "\n"


def _numbered(source: Source, name: str) -> str:
    return f'#line {source.line or 1} "{FILE if source.line else _file_name(source.name or name)}"\n{source.text}'


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def literals(source: str) -> Iterator[tuple[str, range]]:
    """The string literals of a Python file with the lines they are on; none where the text is not Python."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except UNREADABLE:
        return
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, range(node.lineno, (node.end_lineno or node.lineno) + 1)


# --- default arguments ------------------------------------------------------------------------

_MARK = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:[^\n\\]|\\.)*|[<>=!]=|[(){},=]',
    re.DOTALL | re.MULTILINE,
)


def without_defaults(text: str) -> str:
    """Host sources without default arguments, which no binding uses and which the definition may repeat."""
    kept, last = [], 0
    for begin, end in _defaults(text):
        kept += [text[last:begin], "\n" * text.count("\n", begin, end)]
        last = end
    return "".join(kept) + text[last:]


def _defaults(text: str) -> Iterator[tuple[int, int]]:
    """Where default arguments stand: from ``=`` to the comma or bracket, in parameters outside of all bodies."""
    opened: list[str] = []
    begin = -1
    for token in _MARK.finditer(text):
        mark = token.group()
        if begin >= 0 and len(opened) == 1 and mark in ",)":
            yield begin, token.start()
            begin = -1
        if mark in ("(", "{"):
            opened.append(mark)
        elif mark in (")", "}") and opened:
            opened.pop()
        elif mark == "=" and opened == ["("]:
            begin = token.start()


# --- flags ------------------------------------------------------------------------------------

_KEPT = re.compile(
    r"-[DU]\w+(?:=.*)?|-std=c\+\+2\d|--use_fast_math|--(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false)"
    r"|--maxrregcount=\d+",
    re.DOTALL,
)
_TAKES_NEXT = ("-D", "-U", "-std", "--std", "-maxrregcount", "--maxrregcount")


def kept_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """Flags that change what the source means or how it is optimised; the others are dropped."""
    joined: list[str] = []
    rest = iter(flags)
    for flag in rest:
        if flag in _TAKES_NEXT:
            joined.append(flag + ("" if flag in ("-D", "-U") else "=") + next(rest, ""))
        else:
            joined.append(flag)
    spelled = (_spelled(flag) for flag in joined)
    return tuple(dict.fromkeys(flag for flag in spelled if _KEPT.fullmatch(flag)))


def _spelled(flag: str) -> str:
    """nvcc takes one dash or two for most flags."""
    if re.match(r"-(?:use_fast_math|fmad|ftz|prec-|maxrregcount)", flag):
        return f"-{flag}"
    return flag.replace("--std", "-std", 1)
