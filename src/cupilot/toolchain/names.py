"""Names of kernels as their authors wrote them."""

from __future__ import annotations

import ctypes
import re

# what the compiler calls the unnamed namespace of a file
_UNNAMED = re.compile(r"(?:_GLOBAL__N__\w+|\(anonymous namespace\))::")


def readable(name: str) -> str:
    """A C++ symbol in words; as it is where it is none, or where the C++ runtime cannot be asked."""
    if not name.startswith("_Z"):
        return name
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
        demangle, free = runtime.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return name
    demangle.restype, free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
    text = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int()))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode()
    finally:
        free(text)


def short_name(name: str) -> str:
    """A kernel's name without its arguments, its result and unnamed namespaces; template arguments stay."""
    text, depth, start = _UNNAMED.sub("", readable(name)), 0, 0
    for place, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">":
            depth -= 1
        elif depth == 0 and letter == " ":
            start = place + 1
        elif depth == 0 and letter == "(":
            return text[start:place]
    return text[start:]
