"""What can be known of a candidate's source without compiling it, and the files that are compiled for it."""

from __future__ import annotations

import re
from dataclasses import replace

from cupilot.records import Failure, Kernel
from cupilot.toolchain.functions import host_functions

# PyTorch's own header brings these along, so wrappers use them without asking; including all of them always
# would double the compile time, so each is included only where its names occur.
BROUGHT_ALONG = (
    ("algorithm", r"std::(\w*sort\w*|fill|fill_n|copy\w*|find\w*|reverse|any_of|all_of|none_of|count\w*|transform"
                  r"|min_element|max_element|minmax\w*|clamp|equal|for_each\w*|rotate|unique|nth_element|\w+_bound"
                  r"|binary_search|generate\w*|replace\w*|remove\w*|partition\w*|shuffle|search\w*|merge"
                  r"|(min|max)\s*\(\s*\{)\b"),
    ("array", r"std::(array|min|max|swap_ranges|begin|end|size|data|next|prev|distance|advance)\b"),
    ("cassert", r"\bassert\s*\("),
    ("cfloat", r"\b(FLT|DBL)_[A-Z]+\b"),
    ("climits", r"\b(U?INT|U?LL?ONG|S?CHAR|SHRT)_(MAX|MIN)\b"),
    ("functional", r"std::(function|multiplies|plus|minus|divides|modulus|negate|hash|less\w*|greater\w*|bind|ref|cref"
                   r"|invoke|not_fn|mem_fn|reference_wrapper|bit_\w+|logical_\w+|equal_to|not_equal_to|placeholders)\b"),
    ("iostream", r"std::(cout|cerr|endl)\b"),
    ("limits", r"std::numeric_limits\b"),
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

# Parts of our headers that a source without these names cannot use.
_TUPLES = r"tuple|\bpair\b|make_pair|\btie\b|std::(?:get|apply|ignore)\b|array\b"
OPTIONAL_PARTS = (
    ("CUPILOT_WITHOUT_HALF", r"half|bfloat|fp16|bf16|float16|reduced|\bf16"),
    ("CUPILOT_WITHOUT_STRING", r"string|iostream"),
    ("CUPILOT_WITHOUT_OPTIONAL", r"optional|nullopt"),
    ("CUPILOT_WITHOUT_TUPLE", rf"{_TUPLES}"),
    (
        "CUPILOT_WITHOUT_VECTOR",
        rf"{_TUPLES}|\bvector\b|\wVector\b|c10::List\b|ArrayRef|TensorList|\.vec\s*\("
        r"|(?:\.|::)\s*(?:split\w*|chunk|unbind|arange)\s*\(",
    ),
    ("CUPILOT_WITHOUT_REORDERING", r"\b(contiguous|clone|copy_|reshape|reshape_as|flatten|to|toType|type_as)\s*\("),
    (
        "CUPILOT_WITHOUT_CONVERSION",
        r"\b(to|toType|type_as|copy_|fill_|zero_|scalar_tensor|\w*(ones|full)(_like)?)\s*\(",
    ),
)  # fmt: skip

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# m.def("name", function ...) of PYBIND11_MODULE, and the same or m.impl("name", ...) of TORCH_LIBRARY with a schema
_MODULE = re.compile(r"\b(?:PYBIND11_MODULE|TORCH_LIBRARY\w*)\s*\(")
_DEFINED = re.compile(r'\.(?:def|impl)\s*\(\s*"(\w+)[^"]*"(?:\s*"[^"]*")*\s*,')

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
# Headers of PyTorch are all one here; those of libraries are empty, so that only their use is an error.
_PYTORCH = re.compile(r"(?:torch|ATen|c10|caffe2|pybind11|THC)/[\w./-]+")
_DEVICE_FUNCTIONS = (
    "ATen/NumericUtils.h", "ATen/cuda/Atomic.cuh", "ATen/cuda/DeviceUtils.cuh", "ATen/cuda/NumericLimits.cuh",
    "ATen/cuda/detail/KernelUtils.h", "ATen/native/cuda/KernelUtils.cuh", "THC/THCAtomics.cuh",
    "THC/THCNumerics.cuh", "c10/cuda/CUDAMathCompat.h",
)  # fmt: skip
_LIBRARY = re.compile(r"(?:cu(?:blas|dnn|rand|sparse|solver|fft)|nvToolsExt)\w*\.h")


def without_comments(source: str) -> str:
    """The source with every comment replaced by a space; strings stay."""
    return _COMMENT_OR_STRING.sub(lambda found: found.group() if found.group()[0] == '"' else " ", source)


def defined_names(code: str) -> tuple[str, ...]:
    """Names that the modules in the code give to their functions."""
    return tuple(dict.fromkeys(_DEFINED.findall(code))) if _MODULE.search(code) else ()


def forwarded_headers(source: str) -> dict[str, str]:
    """Headers that a source asks for and that are made for it: their paths and what is in them."""
    made = {}
    for path in _INCLUDE.findall(source):
        if _PYTORCH.fullmatch(path) and ".." not in path:
            header = "cupilot/device_functions.h" if path in _DEVICE_FUNCTIONS else "torch/extension.h"
            made[path] = f"#pragma once\n#include <{header}>\n"
        elif _LIBRARY.fullmatch(path):
            made[path] = "#pragma once\n#include <cuda_runtime.h>\n"
    return made


def chosen_entry(kernel: Kernel) -> str | None:
    """The function to call: the one asked for; for the default also the only one that it can be.

    That is a module's only function, its only one with ``forward`` in its name, or, without a module, the only
    function on the host that no other function calls.
    """
    code = without_comments(kernel.source)
    names, functions = defined_names(code), host_functions(code)
    if kernel.entry in names or kernel.entry in functions:
        return kernel.entry
    if kernel.entry != Kernel("").entry:
        return None
    if not names:
        called = [name for name in functions if len(re.findall(rf"\b{name}\s*(?:<[^;(]*>)?\s*\(", code)) == 1]
        names = tuple(called) if len(functions) > 1 else tuple(functions)
    for candidates in (names, tuple(name for name in names if "forward" in name.lower())):
        if len(candidates) == 1:
            return candidates[0]
    return None


def no_such_entry(kernel: Kernel, log: str = "") -> Failure:
    """The failure of a kernel whose entry is not a function on the host."""
    code = without_comments(kernel.source)
    names = dict.fromkeys((*defined_names(code), *host_functions(code)))
    offered = ", ".join(names) if names else "none"
    message = f"there is no host function {kernel.entry}; host functions in the source: {offered}"
    return Failure("build", "no-such-entry", message, log)


# a lambda that is called on the device: [=] __device__ (float x) ..., or with the attribute after the parameters
_DEVICE_LAMBDA = re.compile(r"\]\s*(?:\((?:[^()]|\([^()]*\))*\)\s*)?(?:mutable\s*)?__(?:host|device)__")
_SPECIAL_FUNCTION = re.compile(
    r"std::(?:assoc_l|beta|comp_ellint|cyl_|ellint|expint|hermite|laguerre|legendre|riemann_zeta|sph_)"
)
# How compilers word that a name is missing which a source may have meant to get from a header.
_MISSING = re.compile(
    r'namespace "std\b[^"]*" has no member|identifier "[^"]*" is undefined|incomplete type|--extended-lambda'
    r"|no (?:suitable|instance)|not a (?:template|type name)|name followed by"
)


def uses_extended_lambdas(source: str) -> bool:
    return _DEVICE_LAMBDA.search(source) is not None


def uses_special_functions(source: str) -> bool:
    """Bessel functions and their like, which every source pays for that includes <cmath>."""
    return _SPECIAL_FUNCTION.search(source) is not None


def may_miss_headers(log: str) -> bool:
    """Whether a source that was compiled without some headers may need one of them."""
    return _MISSING.search(log) is not None


def translation_unit(kernel: Kernel, file_name: str, *, lean: bool = True) -> tuple[Kernel, str] | Failure:
    """The kernel with the entry that is called, and the file to compile.

    A ``lean`` one leaves out what the source does not seem to use.  The file includes the kernel's file, so that errors
    refer to that file's lines, and registers the entry unless the source's own module does it.
    """
    code = without_comments(kernel.source)
    entry = chosen_entry(kernel)
    registered = entry in defined_names(code)
    if entry is None:
        entry = kernel.entry  # perhaps the compiler finds what a look at the source did not: behind a macro
        is_kernel = re.search(rf"__global__[^;{{}}]*\b{re.escape(entry)}\s*\(", code) is not None
        if is_kernel or not re.search(rf"\b{re.escape(entry)}\b", code):
            return no_such_entry(kernel)
    unused = (part for part, names in OPTIONAL_PARTS if not re.search(names, code, re.IGNORECASE))
    lines = [f"#define {part}" for part in unused] if lean else []
    lines += [f"#include <{header}>" for header, names in BROUGHT_ALONG if not lean or re.search(names, code)]
    lines += [f'#include "{file_name}"', "#include <torch/extension.h>"]
    if not registered:
        lines.append(f"CUPILOT_ENTRY({entry}, {host_functions(code).get(entry, entry)})")
    return replace(kernel, entry=entry), "\n".join(lines) + "\n"
