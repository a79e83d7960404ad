"""Functions that a candidate's source defines for the host, found without compiling it.

Looks at braces and words, not at the language: functions that macros make are not found, and neither are functions
whose result is not a tensor, a list or tuple of them, or nothing.
"""

from __future__ import annotations

import re

# what ends a declaration, opens or closes a scope, or is skipped: strings, characters and preprocessor lines
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:[^\n\\]|\\.)*|[{};]', re.DOTALL | re.MULTILINE
)
_SPACE = re.compile(r'\b(?:inline\s+)?namespace\s*((?:\w+(?:::\w+)*)?)\s*$|\bextern\s*"C"\s*$')
_FUNCTION = re.compile(
    r"(?:\b(?:(?:torch|at)::)?Tensor|\bvoid|\bauto|\b(?:std|c10|torch|at)::(?:vector|tuple|pair|array|optional|List)\s*<.*>)"
    r"\s+(\w+)\s*\(",
    re.DOTALL,
)
_NOT_CALLABLE = re.compile(r"\b(?:__global__|__device__|template|operator)\b")


def host_functions(code: str) -> dict[str, str]:
    """Names of functions defined outside of classes, with their full names; ``code`` is without comments."""
    found: dict[str, str] = {}
    scopes: list[str | None] = []  # names of namespaces; None for everything else
    begin = 0
    for token in _TOKEN.finditer(code):
        mark = token.group()
        if mark not in "{};":
            if mark.lstrip().startswith("#"):
                begin = token.end()
            continue
        if mark == "{":
            head = code[begin : token.start()]
            space = _SPACE.search(head)
            if space is None and None not in scopes:
                _note(head, [scope for scope in scopes if scope], found)
            scopes.append(None if space is None else space.group(1) or "")
        elif mark == "}" and scopes:
            scopes.pop()
        begin = token.end()
    return found


def _note(head: str, scopes: list[str], found: dict[str, str]) -> None:
    function = _FUNCTION.search(head)
    if function is not None and not _NOT_CALLABLE.search(head):
        found.setdefault(function.group(1), "::".join((*scopes, function.group(1))))
