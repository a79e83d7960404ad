"""Widths of loads and stores in the machine code (SASS) of a build, beside the PTX it was made from.

ptxas merges neighbouring loads and stores; how wide they are in the end only the SASS tells.  ``nvdisasm -gp`` names,
for every instruction, the line of the PTX text it came from, so a merged access stands at one of the accesses that it
replaces.  Accesses of one basic block, source line and base register are looked at together: when all their machine
instructions have one width, that is the width of each; when widths are mixed and their bytes are a multiple of those in
the PTX (loops are unrolled), each is taken to have that mix.  Otherwise nothing is said.

Covered: ld, ldu and st in global, shared, local and generic memory.  Not covered: atomics and asynchronous copies (they
are never merged), matrix loads, constant memory.
"""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zlib import decompress

from cupilot.errors import CacheError, DataError
from cupilot.records import from_plain, to_plain
from cupilot.records.evaluation import SassAccess, SassFunction, SassLine
from cupilot.sandbox.bubblewrap import AUTO
from cupilot.sandbox.tools import Step as ToolStep
from cupilot.sandbox.tools import run_tools
from cupilot.toolchain import warp_path
from cupilot.toolchain.cache import digest, is_kept, publish, scratch_beside
from cupilot.toolchain.commands import readable_places
from cupilot.toolchain.cuda import Cuda, find_nvdisasm
from cupilot.toolchain.nvcc import CUBIN, LISTING, NVDISASM, NVDISASM_FLAGS, SASS_TEXT
from cupilot.toolchain.warp_path import PLAIN, Control, Step, line_costs

RESULT = "sass.json"
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
# space and kind of the machine instructions that PTX loads and stores become
ACCESSES = {
    "LDG": ("global", "load"), "STG": ("global", "store"), "LDS": ("shared", "load"), "STS": ("shared", "store"),
    "LDL": ("local", "load"), "STL": ("local", "store"), "LD": ("generic", "load"), "ST": ("generic", "store"),
}  # fmt: skip
TYPE_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "16x2": 4}

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
_NOTE = re.compile(r'\s*//## File "[^"]*", line (\d+)')
_CODE = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)\s*([^;]*)")
_ENCODED = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")
_LABEL = re.compile(r"(\.L_\w+):")
_ROUTINE = re.compile(r"(\$__internal\w*\S*):")
_TARGET = re.compile(r"`\((\.L_\w+)\)")
# routines for unusual operands, or for lanes that have parted; those of integer divisions are always called
_UNUSUAL = re.compile(r"`\(\$__internal_\d+_\$(?!__cuda_sm\d+_(?:div|rem)_[su]\d+\))")
_DIVISION = re.compile(r"`\((\$__internal_\d+_\$__cuda_sm\d+_(?:div|rem)_[su]\d+)\)")

_LOC = re.compile(r"[ \t]*\.loc[ \t]+\d+[ \t]+(\d+)[ \t]+\d+(.*)")
_INLINED = re.compile(r"inlined_at[ \t]+\d+[ \t]+(\d+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_LINE_DIRECTIVE = re.compile(r"[ \t]*\.(?:version|target|address_size|file|loc|section)\b")
_FUNCTION = re.compile(r"\.(entry|func)\b\s*(?:\([^)]*\))?\s*([$\w.]+)")
_PTX_LABEL = re.compile(r"\s*[$%\w]+:")
_DIRECTIVE = re.compile(r"[\s{}]*(?:[$%\w]+:[\s{}]*)*(?:\.|$)")
_PTX_ACCESS = re.compile(r"(?:^|[\s;{}])(ldu?|st)((?:\.[\w:]+)+)\s+([^;]*);")
_BASE = re.compile(r"\[\s*([%$\w.]+)")
_SPACE = re.compile(r"\.(global|shared|local|param|const)\b")
_ENDS = re.compile(r"\b(bra|brx|ret|exit|bar|barrier|call)\b")
_TYPE = re.compile(r"\.(?:bf|[bfsu])(16x2|\d+)$")


@dataclass(frozen=True)
class SassInstruction:
    """One machine instruction; ``ptx_line`` is the line of the PTX text it came from, from 1, or 0.

    ``back`` is where a branch at it goes back to, or negative.
    """

    function: str
    offset: int
    opcode: str
    modifiers: tuple[str, ...]
    ptx_line: int
    in_loop: bool
    operands: str = ""
    control: Control = PLAIN
    back: int = -1

    @property
    def bytes(self) -> int:
        """Of one lane, of a load or store."""
        return next((WIDTHS[mod] for mod in self.modifiers if mod in WIDTHS), 4)


@dataclass(frozen=True)
class _PtxAccess:
    """A load or store in the PTX text."""

    function: str
    is_kernel: bool
    block: int
    ptx_line: int
    line: int
    space: str
    kind: str
    bytes: int
    base: str


def kernel_sass(
    cubin: Path, ptx: str, cuda: Cuda, out_dir: Path, timeout_s: float = 20, sandbox: str = AUTO
) -> tuple[SassFunction, ...]:
    """The functions of a PTX text and the widths of its accesses in the cubin made from it; kept by content.

    Nothing when there is no nvdisasm beside the compiler, or when it fails or takes too long: counters then stay
    those of the PTX.
    """
    tool = find_nvdisasm(cuda)
    if tool is None or not cubin.is_file():
        return ()
    ours = (Path(__file__).read_bytes(), Path(warp_path.__file__).read_bytes())
    parts = (*ours, str(tool), str(tool.stat().st_size), ptx, cubin.read_bytes())
    final = out_dir / digest(parts)
    if is_kept(final):
        with suppress(OSError, ValueError, DataError):  # damaged in this very moment
            return from_plain(tuple[SassFunction, ...], json.loads((final / RESULT).read_text()), RESULT)
    listing = _listing(tool, cubin, cuda, timeout_s, sandbox)
    found = match(ptx, read_sass(listing)) if listing else ()
    if listing:
        with suppress(CacheError):  # what cannot be kept is made again
            _keep(found, final)
    return found


def _listing(tool: Path, cubin: Path, cuda: Cuda, timeout_s: float, sandbox: str) -> str:
    """What nvdisasm says: a build has kept it beside the cubin; nothing when it fails or takes too long."""
    kept = cubin.with_name(LISTING)
    if kept.is_file():
        return decompress(kept.read_bytes()).decode(errors="replace")
    with TemporaryDirectory(prefix="cupilot-") as name:
        step = ToolStep(NVDISASM, (str(tool), *NVDISASM_FLAGS, CUBIN), output=SASS_TEXT)
        shutil.copyfile(cubin, Path(name, CUBIN))
        ended = run_tools([step], Path(name), readable_places(cuda, tool.parent), timeout_s, sandbox=sandbox)
        if ended.failed is not None or not ended.steps:
            return ""
        return Path(name, SASS_TEXT).read_text(errors="replace")


def _keep(found: tuple[SassFunction, ...], final: Path) -> None:
    with scratch_beside(final) as scratch:
        (scratch / RESULT).write_text(json.dumps(to_plain(found)))
        publish(scratch, final)


# --- the two texts ------------------------------------------------------------------------------


def read_sass(text: str) -> tuple[SassInstruction, ...]:
    """Instructions in the output of ``nvdisasm -gp -c``; in a loop is what lies between a label and a branch back.

    Divisions of 64-bit integers are routines of ptxas' own, straight code that stands behind the kernel's: each call
    is followed by a copy of it, which has the line of the call.
    """
    found: list[SassInstruction] = []
    for body in re.split(r"(?m)^(?=\s*\.section\s+\.text\.)", text):
        section = _SECTION.match(body)
        if section is not None:
            found += _read_function(section.group(1), body)
    return tuple(found)


def _read_function(name: str, body: str) -> list[SassInstruction]:
    rows: list[SassInstruction] = []
    labels: dict[str, int] = {}
    fresh: list[str] = []
    # aside: code that is of no line, because warps hardly ever go there or because it is a routine of ptxas' own
    ptx_line, passed_over, aside, routine = 0, -1, False, ""
    routines: dict[str, list[int]] = {}
    for text in body.split("\n"):
        if note := _NOTE.match(text):
            ptx_line = int(note.group(1))
        elif label := _LABEL.match(text):
            fresh.append(label.group(1))
            passed_over, aside = -1, bool(routine)
        elif code := _CODE.match(text):
            offset = int(code.group(1), 16)
            labels.update(dict.fromkeys(fresh, offset))
            fresh = []
            opcode, operands = code.group(3), code.group(5).strip()
            line = 0 if aside else ptx_line
            if routine:
                routines.setdefault(routine, []).append(len(rows))
            rows.append(SassInstruction(name, offset, opcode, tuple(code.group(4).split(".")[1:]), line, False,
                                        operands))  # fmt: skip
            if opcode == "BRA":
                # a branch that may not be taken: what follows it, up to a label, it passes over
                passed_over = len(rows) if code.group(2) or "," in operands else -1
            elif opcode == "CALL" and passed_over >= 0 and _UNUSUAL.match(operands):
                rows[passed_over:] = [replace(row, ptx_line=0) for row in rows[passed_over:]]
                aside = True
        elif (encoded := _ENCODED.match(text)) and rows:
            rows[-1] = replace(rows[-1], control=Control.decode(int(encoded.group(1), 16)))
        elif header := _ROUTINE.match(text):
            routine, aside = header.group(1), True
    backs = {row.offset: _back(row, labels) for row in rows}
    loops = [(start, offset) for offset, start in backs.items() if start >= 0]
    rows = [
        replace(row, in_loop=any(start <= row.offset <= end for start, end in loops), back=backs[row.offset])
        for row in rows
    ]
    return [passed for row in rows for passed in (row, *_called(row, rows, routines))]


def _called(
    call: SassInstruction, rows: list[SassInstruction], routines: dict[str, list[int]]
) -> list[SassInstruction]:
    """The code of a division that is called, up to its return, as if it stood at the call."""
    division = _DIVISION.match(call.operands) if call.opcode == "CALL" and call.ptx_line else None
    if division is None:
        return []
    body = [rows[number] for number in routines.get(division.group(1), ())]
    end = next((number for number, row in enumerate(body, start=1) if row.opcode == "RET"), 0)
    return [replace(row, ptx_line=call.ptx_line, in_loop=call.in_loop, back=-1) for row in body[:end]]


def _back(row: SassInstruction, labels: dict[str, int]) -> int:
    target = _TARGET.search(row.operands) if row.opcode in ("BRA", "BRX", "JMP") else None
    start = labels.get(target.group(1), -1) if target is not None else -1
    return start if start <= row.offset else -1


def source_lines(ptx: str) -> list[int]:
    """The source line of every line of a PTX text, as the engine's parser counts them.

    Code inlined from elsewhere is that of the line which called it; line 0 is no line.
    """
    found, current = [], 0
    for text in ptx.split("\n"):
        if loc := _LOC.match(text):
            places = _INLINED.findall(loc.group(2))
            current = int(places[-1] if places else loc.group(1)) or current
        found.append(current)
    return found


def _ptx_accesses(ptx: str) -> list[_PtxAccess]:
    found: list[_PtxAccess] = []
    function, is_kernel, block = "", False, 0
    for number, (text, line) in enumerate(zip(ptx.split("\n"), source_lines(ptx), strict=True), start=1):
        if header := _FUNCTION.search(text):
            function, is_kernel, block = header.group(2), header.group(1) == "entry", block + 1
        code = text.partition("//")[0]
        if _PTX_LABEL.match(code):
            block += 1
        for opcode, mods, operands in _PTX_ACCESS.findall(code):
            space, size, base = _SPACE.search(mods), _TYPE.search(mods), _BASE.search(operands)
            place = space.group(1) if space is not None else "generic"
            if place in ("param", "const") or size is None or base is None or size.group(1) not in TYPE_BYTES:
                continue
            count = next((n for n in (2, 4, 8) if f".v{n}." in mods), 1)
            bytes_ = TYPE_BYTES[size.group(1)] * count
            kind = "store" if opcode == "st" else "load"
            found.append(
                _PtxAccess(function, is_kernel, block, number, line, place, kind, bytes_, base.group(1))
            )  # fmt: skip
        block += bool(_ENDS.search(code))
    return found


# --- matching -----------------------------------------------------------------------------------

# what is looked at together: the first that can be resolved counts
_TOGETHER: tuple[Callable[[_PtxAccess], Hashable], ...] = (
    lambda a: (a.function, a.block, a.line, a.space, a.kind, a.base),
    lambda a: (a.function, a.block, a.line, a.space, a.kind),
    lambda a: (a.function, a.line, a.space, a.kind),
)


def match(ptx: str, sass: Iterable[SassInstruction]) -> tuple[SassFunction, ...]:
    """The accesses of every function of the PTX, with their widths in the machine code where those are clear."""
    accesses, sass = _ptx_accesses(ptx), tuple(sass)
    lines = _lines(ptx, sass)
    at_line: dict[tuple[int, str, str], list[SassInstruction]] = {}
    for instruction in sass:
        if instruction.opcode in ACCESSES:
            at_line.setdefault((instruction.ptx_line, *ACCESSES[instruction.opcode]), []).append(instruction)
    widths: dict[_PtxAccess, tuple[tuple[int, int], ...]] = {}
    for together in _TOGETHER:
        groups: dict[Hashable, list[_PtxAccess]] = {}
        for access in accesses:
            groups.setdefault(together(access), []).append(access)
        for group in groups.values():
            if any(access not in widths for access in group):
                mix = _mix(group, at_line)
                widths.update((access, mix) for access in group if mix and access not in widths)
    # ptxas keeps small arrays in registers; then there is no local memory at all
    in_memory = any(space == "local" for _, space, _ in at_line)
    found: dict[tuple[str, bool], list[SassAccess]] = {(name, True): [] for name in lines}
    bases: dict[Hashable, int] = {}
    for number, a in enumerate(accesses):
        base = bases.setdefault((a.function, a.block, a.base), number)
        gone = a.space == "local" and not in_memory
        made = SassAccess(a.line, a.space, a.kind, a.bytes, base, widths.get(a, ()), gone)
        found.setdefault((a.function, a.is_kernel), []).append(made)
    return tuple(
        SassFunction(name, is_kernel, tuple(made), lines.get(name, ())) for (name, is_kernel), made in found.items()
    )


def _lines(ptx: str, sass: Iterable[SassInstruction]) -> dict[str, tuple[SassLine, ...]]:
    """What the lines of the PTX cost each kernel that has code of them."""
    text, ends = ptx.split("\n"), _ends(ptx)
    blocks, steps = _blocks(text), dict[str, list[Step]]()
    for i in sass:
        # one instruction may take several lines; what is of none, such as a bracket, belongs to the next
        line = ends[min(bisect_left(ends, i.ptx_line), len(ends) - 1)] if i.ptx_line and ends else 0
        steps.setdefault(i.function, []).append(Step(i.offset, i.opcode, i.operands, line, i.control, i.back, i.bytes))
    # the image that carries the PTX begins with its version, without the comments before
    before = next((number for number, line in enumerate(text) if line.startswith(".version")), 0)
    return {
        name: tuple(
            SassLine(line - before, tuple(costs.items())) for line, costs in line_costs(code, blocks, text).items()
        )
        for name, code in steps.items()
    }


def _ends(ptx: str) -> list[int]:
    """The lines of a PTX text on which its instructions end."""
    found, statement = [], ""
    text = _COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), ptx)
    for number, line in enumerate(text.split("\n"), start=1):
        if _LINE_DIRECTIVE.match(line):
            continue
        *done, rest = line.split(";")
        for part in done:
            statement += part
            code = statement.rpartition("{")[2] if _FUNCTION.search(statement) else statement
            if not _DIRECTIVE.match(code):
                found.append(number)
            statement = ""
        statement += rest + "\n"
    return list(dict.fromkeys(found))


def _blocks(text: list[str]) -> dict[int, int]:
    """The number of the basic block that each line of a PTX text is in."""
    found, block = {}, 0
    for number, line in enumerate(text, start=1):
        code = line.partition("//")[0]
        block += bool(_PTX_LABEL.match(code) or _FUNCTION.search(code))
        found[number] = block
        block += bool(_ENDS.search(code))
    return found


def _mix(
    group: list[_PtxAccess], at_line: dict[tuple[int, str, str], list[SassInstruction]]
) -> tuple[tuple[int, int], ...]:
    """Widths and numbers of the machine instructions that a group of accesses became; nothing when not clear."""
    narrow = group[0].bytes
    lines = dict.fromkeys(access.ptx_line for access in group)
    made = [i for line in lines for i in at_line.get((line, group[0].space, group[0].kind), ())]
    if not made or any(access.bytes != narrow for access in group) or any(i.bytes < narrow for i in made):
        return ()
    # what a loop executes counts, not what was peeled off it or is left over
    for part in (made, [instruction for instruction in made if instruction.in_loop]):
        counts = Counter(instruction.bytes for instruction in part)
        total = sum(width * count for width, count in counts.items())
        merged = len(counts) == 1 and max(counts) <= narrow * len(group)
        if merged or (len(counts) > 1 and total % (narrow * len(group)) == 0):
            return tuple(sorted(counts.items()))
    return ()
