"""A compiler's log, read into the failure of a candidate."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cupilot.records import Failure

# nvcc: kernel.cu(12): error: ...    gcc: kernel.cu:12:34: error: ... or fatal error: ...
_ERROR = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*?)(?:\((?P<line>\d+)\)|:(?P<gcc_line>\d+)(?::\d+)?): (?:fatal |catastrophic )?error"
    r"(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)
_STATIC_ASSERTION = re.compile(r'static assertion failed with "(.*)"')

# How nvcc words a use of something that our header does not have, with the log that follows the error.
_NO_MEMBER = re.compile(
    r'(?:namespace|class|struct) "(?P<scope>(?:torch|at|c10|pybind11)\b[^"]*)"'
    r'(?: \(.*?\))? has no member "(?P<name>\w+)"'
)
_NO_NAMESPACE = re.compile(r'name followed by "::".*\n.*?(?P<name>\b(?:torch|at|c10)(?:::\w+)+)')
_NO_LIBRARY = re.compile(
    r'identifier "(?P<name>(?:cu(?:blas|dnn|rand|sparse|solver|fft)|CU(?:BLAS|DNN|RAND|SPARSE|SOLVER|FFT)_)\w*)"'
    r" is undefined"
)
_NO_HEADER = re.compile(r'(?:cannot open source file "(?P<edg>[^"]+)"|error: (?P<gcc>\S+): No such file or directory)')
_AMBIGUOUS = re.compile(r"error: .*(?:more than one .* (?:matches|applies)|ambiguous)")
_NO_OPERATOR = re.compile(r"no operator .* matches.*\n\s*operand types are: (?P<operands>.*\bat::Tensor\b.*)")


@dataclass(frozen=True)
class Diagnostic:
    """One error: where, what, and the lines of the log up to the next error."""

    file: str
    line: int
    text: str
    context: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def first_error(log: str, main_file: str = "") -> Diagnostic | None:
    """The first error; one inside a header is placed at the line of ``main_file`` that led there, if any."""
    errors = list(_ERROR.finditer(log))
    if not errors:
        return None
    first = errors[0]
    context = log[first.start() : errors[1].start() if len(errors) > 1 else len(log)]
    file, line, text = first["file"], int(first["line"] or first["gcc_line"]), first["text"].strip()
    assertion = _STATIC_ASSERTION.match(text)
    if assertion is not None:
        text = assertion.group(1)
    origin = re.search(rf"at line (\d+) of {re.escape(main_file)}\b", context) if main_file else None
    if file != main_file and origin is not None:
        file, line = main_file, int(origin.group(1))
    return Diagnostic(file, line, text, context)


def is_ambiguous(log: str) -> bool:
    """Whether the compiler found several conversions to choose from in code about 16-bit types."""
    return _AMBIGUOUS.search(log) is not None and re.search(r"half|bfloat16", log, re.IGNORECASE) is not None


def compile_failure(log: str, main_file: str) -> Failure:
    """Names a missing host call as such; everything else is the first error as the compiler words it."""
    error = first_error(log, main_file)
    if error is None:
        lines = [line for line in log.splitlines() if line.strip()]
        return Failure("build", "compile-error", lines[0] if lines else "the compiler failed without a word", log)
    if header := _NO_HEADER.search(error.context):
        message = f"the header {header['edg'] or header['gcc']} (line {error.line}) is not available: CUDA's own are"
        return Failure("build", "missing-header", f"{message}, with CUB and Thrust, and a stand-in for PyTorch's", log)
    if library := _NO_LIBRARY.search(error.context):
        message = (
            f"unsupported library: {library['name']} (line {error.line}): there are only CUDA itself, CUB and Thrust"
        )
        return Failure("build", "unsupported-host-call", message, log)
    call = _missing_call(error.context)
    if call is None:
        return Failure("build", "compile-error", str(error), log)
    message = f"unsupported host call: {call} (line {error.line}): a candidate must compute with its own kernels"
    return Failure("build", "unsupported-host-call", message, log)


def _missing_call(context: str) -> str | None:
    if member := _NO_MEMBER.search(context):
        return f"{member['scope'].replace('at::Tensor', 'torch::Tensor')}::{member['name']}"
    if nested := _NO_NAMESPACE.search(context):
        return nested["name"]
    if operator := _NO_OPERATOR.search(context):
        return operator["operands"].replace("at::Tensor", "torch::Tensor").strip()
    return None
