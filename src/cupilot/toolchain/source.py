"""What can be known of a candidate's source without compiling it, and the file that is compiled for it."""

from __future__ import annotations

import re

from cupilot.records import Failure, Kernel

# PyTorch's own header brings these along, so wrappers use them without asking; including all of them always
# would double the compile time, so each is included only where its names occur.
BROUGHT_ALONG = (
    ("algorithm", r"std::(sort|stable_sort|fill|fill_n|copy|copy_n|find|reverse|any_of|all_of|none_of|count|transform"
                  r"|min_element|max_element|clamp|equal|for_each|rotate|unique)\b"),
    ("array", r"std::array\b"),
    ("cassert", r"\bassert\s*\("),
    ("cfloat", r"\b(FLT|DBL)_[A-Z]+\b"),
    ("climits", r"\b(U?INT|U?LL?ONG|S?CHAR|SHRT)_(MAX|MIN)\b"),
    ("functional", r"std::(function|multiplies|plus|minus|hash|less|greater|bind)\b"),
    ("iostream", r"std::(cout|cerr|endl)\b"),
    ("map", r"std::map\b"),
    ("memory", r"std::(unique_ptr|shared_ptr|make_unique|make_shared)\b"),
    ("mutex", r"std::(mutex|call_once|once_flag|lock_guard|unique_lock)\b"),
    ("numeric", r"std::(accumulate|iota|gcd|lcm|inner_product|partial_sum|reduce)\b"),
    ("set", r"std::set\b"),
    ("sstream", r"std::[io]?stringstream\b"),
    ("stdexcept", r"std::(runtime_error|logic_error|invalid_argument|out_of_range|domain_error|length_error)\b"),
    ("unordered_map", r"std::unordered_map\b"),
    ("unordered_set", r"std::unordered_set\b"),
)  # fmt: skip

# Parts of our header that a source without these names cannot use.
OPTIONAL_PARTS = (
    ("CUPILOT_WITHOUT_HALF", r"half|bfloat|fp16|bf16|float16|reduced|\bf16"),
    ("CUPILOT_WITHOUT_STRING", r"string|iostream"),
)

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_FUNCTION = re.compile(
    r"\b((?:(?:torch|at)::)?Tensor|void|auto|std::(?:vector|tuple|pair|array)\s*<[^;{}()]*>)\s+(\w+)\s*\("
)
_DEFINED = re.compile(r'\.def\s*\(\s*"([^"]+)"')


def without_comments(source: str) -> str:
    """The source with every comment replaced by a space; strings stay."""
    return _COMMENT_OR_STRING.sub(lambda found: found.group() if found.group()[0] == '"' else " ", source)


def defined_names(code: str) -> tuple[str, ...]:
    """Names that a PYBIND11_MODULE in the code gives to its functions."""
    return tuple(dict.fromkeys(_DEFINED.findall(code))) if "PYBIND11_MODULE" in code else ()


def host_functions(code: str) -> tuple[str, ...]:
    """Functions that could be wrappers: they run on the host and return tensors or nothing."""
    names: dict[str, None] = {}
    for found in _FUNCTION.finditer(code):
        before = code[: found.start()]
        specifiers = before[max(before.rfind(mark) for mark in ";{}") + 1 :]
        if "__global__" not in specifiers and "__device__" not in specifiers:
            names[found.group(2)] = None
    return tuple(names)


def no_such_entry(kernel: Kernel, log: str = "") -> Failure:
    """The failure of a kernel whose entry is not a function on the host."""
    code = without_comments(kernel.source)
    names = dict.fromkeys(defined_names(code) + host_functions(code))
    offered = ", ".join(names) if names else "none"
    message = f"there is no host function {kernel.entry}; host functions in the source: {offered}"
    return Failure("build", "no-such-entry", message, log)


def translation_unit(kernel: Kernel, file_name: str) -> str | Failure:
    """The file to compile: it includes the kernel's file, so that errors refer to that file's lines.

    The entry is registered here unless the source's own module does it.
    """
    code = without_comments(kernel.source)
    registered = kernel.entry in defined_names(code)
    is_kernel = re.search(rf"__global__[^;{{}}]*\b{re.escape(kernel.entry)}\s*\(", code) is not None
    if not registered and (is_kernel or not re.search(rf"\b{re.escape(kernel.entry)}\b", code)):
        return no_such_entry(kernel)
    lines = [f"#define {part}" for part, names in OPTIONAL_PARTS if not re.search(names, code, re.IGNORECASE)]
    lines += [f"#include <{header}>" for header, names in BROUGHT_ALONG if re.search(names, code)]
    lines += [f'#include "{file_name}"', "#include <torch/extension.h>"]
    if not registered:
        lines.append(f"CUPILOT_ENTRY({kernel.entry})")
    return "\n".join(lines) + "\n"
