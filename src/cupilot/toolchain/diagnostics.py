"""A compiler's log, read into the failure of a candidate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from cupilot.records import Failure, Finding

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
# what a source asks for by its path, and the sandbox does not show: headers, and files of the assembler's
_OUTSIDE = re.compile(
    r"error: (?P<header>(?:[/~]|\.\.)\S*): (?:No such file|Permission denied|Is a directory)"
    r"|(?:Error: file not found|Error: can't open|can't open|cannot open)[: ]+(?P<data>\S+)"
)
# as: {standard input}:12: Error: ... or a.s: Fatal error: ...
_ASSEMBLER = re.compile(r"^\S[^:\n]*:(?:\d+:)? (?:Fatal e|E)rror: (.*)$", re.MULTILINE)
_AMBIGUOUS = re.compile(r"error: .*(?:more than one .* (?:matches|applies)|ambiguous)")
_NO_OPERATOR = re.compile(r"no operator .* matches.*\n\s*operand types are: (?P<operands>.*\bat::Tensor\b.*)")


MOST_ERRORS = 8
"""Errors of a log that are read; the others mostly follow from the first."""


def compile_errors(log: str, main_file: str = "") -> tuple[Finding, ...]:
    """The first errors; one inside a header is placed at the line of ``main_file`` that led there, if any."""
    return tuple(_finding(log, found, main_file) for found in list(_ERROR.finditer(log))[:MOST_ERRORS])


def _finding(log: str, found: re.Match[str], main_file: str) -> Finding:
    file, line, text = found["file"], int(found["line"] or found["gcc_line"]), found["text"].strip()
    assertion = _STATIC_ASSERTION.match(text)
    if assertion is not None:
        text = assertion.group(1)
    context = _context(log, found)
    origin = re.search(rf"at line (\d+) of {re.escape(main_file)}\b", context) if main_file else None
    if file != main_file and origin is not None:
        file, line = main_file, int(origin.group(1))
    return Finding("compile-error", text, file=file, line=line)


def _context(log: str, found: re.Match[str]) -> str:
    """An error with the lines of the log up to the next one."""
    after = _ERROR.search(log, found.end())
    return log[found.start() : after.start() if after is not None else len(log)]


def is_ambiguous(log: str) -> bool:
    """Whether the compiler found several conversions to choose from in code about 16-bit types."""
    return _AMBIGUOUS.search(log) is not None and re.search(r"half|bfloat16", log, re.IGNORECASE) is not None


def compile_failure(log: str, main_file: str) -> Failure:
    """Names a missing host call as such; everything else is the first error as the compiler words it."""
    errors, first = compile_errors(log, main_file), _ERROR.search(log)
    if outside := _OUTSIDE.search(log):
        path = outside["header"] or outside["data"]
        return Failure("build", "forbidden-include", f"a kernel must not include {path!r}", log)
    if first is None:
        assembler = _ASSEMBLER.search(log)
        text = f"assembler: {assembler[1].strip()}" if assembler is not None else first_line(log)
        return Failure.of("build", (Finding("compile-error", text),), log)
    context = _context(log, first)
    if header := _NO_HEADER.search(context):
        text = f"the header {header['edg'] or header['gcc']} is not available: CUDA's own are, with CUB and Thrust"
        return _failure("missing-header", f"{text}, and a stand-in for PyTorch's", errors, log)
    if library := _NO_LIBRARY.search(context):
        text = f"unsupported library: {library['name']}: there are only CUDA itself, CUB and Thrust"
        return _failure("unsupported-host-call", text, errors, log)
    if call := _missing_call(context):
        text = f"unsupported host call: {call}: a candidate must compute with its own kernels"
        return _failure("unsupported-host-call", text, errors, log)
    return Failure.of("build", errors, log)


def _failure(kind: str, text: str, errors: Sequence[Finding], log: str) -> Failure:
    """A failure whose first error is worded by us."""
    return Failure.of("build", (replace(errors[0], kind=kind, text=text), *errors[1:]), log)


def first_line(log: str) -> str:
    """For logs without an error that could be read."""
    return next((line for line in log.splitlines() if line.strip()), "the compiler failed without a word")


def _missing_call(context: str) -> str | None:
    if member := _NO_MEMBER.search(context):
        return f"{member['scope'].replace('at::Tensor', 'torch::Tensor')}::{member['name']}"
    if nested := _NO_NAMESPACE.search(context):
        return nested["name"]
    if operator := _NO_OPERATOR.search(context):
        return operator["operands"].replace("at::Tensor", "torch::Tensor").strip()
    return None
