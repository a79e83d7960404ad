"""Declarations in PTX text: variables with their initial values, parameters, call prototypes."""

from __future__ import annotations

import re

from cupilot.errors import CupilotError
from cupilot.vgpu.ptx.syntax import TYPE_BYTES, Param, Prototype, Relocation, Variable


class PtxError(CupilotError):
    """PTX that cannot be read or executed; ``line`` is that of the source, 0 where it is not known."""

    def __init__(self, text: str, kernel: str = "", line: int = 0) -> None:
        super().__init__(f"{text}, kernel {kernel}, line {line}" if kernel else text)
        self.text, self.line = text, line


MOST_ALIGN = 1 << 16
MOST_BYTES = 1 << 40
_DECLARATION = re.compile(
    r"\.(shared|const|global|local|param)\b((?:\s+\.(?:align\s+\d+|ptr(?:\s+\.\w+)?|v[24]|\w+))*)"
    r"\s+([$\w%.]+)((?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
_ADDRESS = re.compile(
    r"(?:(generic)\s*\(\s*([$\w.]+)\s*(?:([-+])\s*(\d+))?\s*\)|([$A-Za-z_][$\w.]*)\s*(?:([-+])\s*(\d+))?)$"
)


def variable_of(statement: str) -> Variable | None:
    """A variable or parameter; None when the statement declares something else."""
    # an attribute may stand before or after the state space
    plain = re.sub(r"\.attribute\s*\([^)]*\)", "", statement)
    text = re.sub(r"^(?:\s*\.(?:visible|extern|weak|common|managed)\b)+", "", plain).strip()
    match = _DECLARATION.match(text)
    if not match:
        return None
    space, attributes, name, dims, initial = match.groups()
    kinds = [word for word in re.findall(r"\.(\w+)", attributes) if word in TYPE_BYTES]
    if not kinds:
        return None
    align_match = re.search(r"\.align\s+(\d+)", attributes)
    vector = re.search(r"\.v([24])\b", attributes)
    item = TYPE_BYTES[kinds[0]] * (int(vector[1]) if vector else 1)
    align = int(align_match[1]) if align_match and ".ptr" not in attributes else item
    if align < 1 or align & (align - 1) or align > MOST_ALIGN:
        raise PtxError(f"the alignment {align} of {name} is not a power of two up to {MOST_ALIGN}")
    count = 1
    for size in re.findall(r"\[\s*(\d*)\s*\]", dims):
        count *= int(size) if size else 0
    data, relocations = _initial(initial, TYPE_BYTES[kinds[0]]) if initial else (b"", ())
    # an array without a size is as long as its initial value
    total = item * count or len(data)
    if total > MOST_BYTES or len(data) > total:
        raise PtxError(f"the variable {name} has {total} bytes, and an initial value of {len(data)}")
    return Variable(name, space, align, total, data, relocations)


def _initial(text: str, width: int) -> tuple[bytes, tuple[Relocation, ...]]:
    """The bytes, and the places where an address goes once it is known."""
    data = b""
    relocations = []
    for word in (part.strip() for part in re.split(r"[,{}]", text)):
        if not word:
            continue
        if word[:2] in ("0f", "0F", "0d", "0D") and re.fullmatch(r"[0-9a-fA-F]+", word[2:]):
            if len(word) - 2 > 2 * width:
                raise PtxError(f"the initial value {word} does not fit into {width} bytes")
            data += int(word[2:], 16).to_bytes(width, "little")
        elif re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)U?", word):
            data += (int(word.rstrip("U"), 0) & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
        elif match := _ADDRESS.match(word):
            if width != 8:
                raise PtxError(f"an address in {width} bytes, the initial value {word!r}")
            name = match[2] or match[5]
            sign, amount = (match[3], match[4]) if match[2] else (match[6], match[7])
            relocations.append(Relocation(len(data), name, int(sign + amount) if amount else 0, bool(match[1])))
            data += bytes(width)
        else:
            raise PtxError(f"cannot read the initial value {word!r}")
    return data, tuple(relocations)


def params_of(text: str, owner: str) -> tuple[tuple[Param, ...], int]:
    """A parameter list with the place of each in the parameter buffer, and the buffer's size."""
    offset, params = 0, []
    for part in filter(None, (p.strip() for p in text.split(","))):
        variable = variable_of(part)
        if variable is None:
            raise PtxError(f"cannot read parameter {part!r} of {owner}")
        offset = -(-offset // variable.align) * variable.align
        params.append(Param(variable.name, offset, variable.bytes, variable.align))
        offset += variable.bytes
    return tuple(params), offset


def prototype_of(text: str) -> Prototype:
    """``.callprototype (results) _ (parameters)``."""
    match = re.match(r"\.callprototype\s*(?:\(([^)]*)\))?\s*_\s*(?:\(([^)]*)\))?", text)
    if not match:
        raise PtxError(f"cannot read the prototype {text!r}")
    results, _ = params_of(match[1] or "", "a prototype")
    params, _ = params_of(match[2] or "", "a prototype")
    return Prototype(results, params)
