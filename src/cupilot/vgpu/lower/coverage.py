"""The coverage page: every opcode with its section of the PTX ISA, the forms that are translated and some that are not.

All of it comes from the opcode table and from the docstrings of the families.  A form is written as in a shell:
``{a,b}`` for one of several.  A form with a colon describes matrix shapes and is not an instruction by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cupilot.vgpu.lower.table import Opcode, families, opcodes

TITLE = "# What of PTX the virtual GPU executes"
INTRODUCTION = """Written by `python docs/make_ptx_coverage.py` from the opcode table; a test translates every form.
`{a,b}` stands for one of several, `{,a}` for a part that may be missing; operands are shown where they matter. Anything
else is refused with an error that names opcode, kernel and line. Opcodes without any support:"""
# opcodes of PTX by subject; the page lists those that no family has
OTHERS = {
    "textures and surfaces": ("tex", "tld4", "txq", "suld", "sust", "sured", "suq"),
    "copies through a tensor map": ("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"),
    "matrix products of a warp group": ("wgmma",),
    "tensor cores of sm_100": ("tcgen05",),
    "shared memory of other blocks of a cluster": ("mapa", "getctarank"),
    "memory of several devices": ("multimem",),
    "scalar video instructions": ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset"),
    "stack": ("alloca", "stacksave", "stackrestore"),
}
# braces of a vector operand hold a space; those of a choice do not
CHOICE = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}|\{([.\w]+)\}")


def instructions(forms: Iterable[str], operands: str) -> Iterator[str]:
    """Each form spelled out, with operands."""
    for form in forms:
        for text in spelled_out(form) if ":" not in form.replace("::", "") else ():
            yield text if " " in text or not operands else f"{text} {operands}"


def spelled_out(form: str) -> Iterator[str]:
    """All that a form with choices stands for."""
    match = CHOICE.search(form)
    if match is None:
        yield form
        return
    for choice in (match[1] or match[2]).split(","):
        yield from spelled_out(form[: match.start()] + choice + form[match.end() :])


def unsupported() -> dict[str, list[str]]:
    """Opcodes of PTX that no family has, by subject."""
    known = tuple(f"{name}." for name in opcodes())
    absent = {
        what: [n for n in names if not any(k.startswith(f"{n}.") for k in known)] for what, names in OTHERS.items()
    }
    return {what: names for what, names in absent.items() if names}


def page() -> str:
    """The whole page, in Markdown."""
    absent = [f"* {what}: {', '.join(map(_code, names))}" for what, names in unsupported().items()]
    parts = [TITLE, "", INTRODUCTION, "", *absent, ""]
    for family in families():
        parts += [f"## {family.__name__.rpartition('.')[2].capitalize()}", "", _prose(family.__doc__ or ""), ""]
        parts += ["| Opcode | Section of the PTX ISA | Forms | Not supported, remarks |", "|---|---|---|---|"]
        parts += [_row(opcode, entry) for opcode, entry in family.OPCODES.items()]
        parts.append("")
    return "\n".join(parts)


def _prose(docstring: str) -> str:
    """A module's text as Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", docstring.strip())


def _row(name: str, entry: Opcode) -> str:
    remarks = [f"not {_code(form)}" for form in entry.missing]
    if entry.notes:
        remarks.append(entry.notes)
    forms = ", ".join(map(_code, entry.forms))
    return f"| `{name}` | {entry.section or name} | {forms} | {'; '.join(remarks)} |"


def _code(form: str) -> str:
    return "`" + form.replace("|", "\\|") + "`"
