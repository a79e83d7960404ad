"""The coverage page: every opcode with its section of the PTX ISA, the forms that are translated and some that are not.

Opcodes and sections come from the opcode table, forms from coverage.toml, what else there is to say from the families'
own texts.  A form is written as in a shell: ``{a,b}`` for one of several.  A form with a colon describes matrix
shapes and is not an instruction by itself.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files

from cupilot.vgpu.lower.table import FAMILIES, Opcode

TITLE = "# What of PTX the virtual GPU executes"
INTRODUCTION = """Written by `python docs/make_ptx_coverage.py` from the opcode table; a test translates every form.
`{a,b}` stands for one of several, `{,a}` for a part that may be missing; operands are shown where they matter. Anything
else is refused with an error that names opcode, kernel and line. Refused as a whole: textures and surfaces
(`tex`, `tld4`, `txq`, `suld`, `sust`, `sured`, `suq`), `wgmma`, `tcgen05`, the shared memory of other
blocks of a cluster (`mapa`, `getctarank`), `multimem`, the scalar video instructions, `alloca` and the
stack instructions."""
# braces of a vector operand hold a space; those of a choice do not
CHOICE = re.compile(r"\{([^{}\s]*,[^{}\s]*)\}|\{([.\w]+)\}")


@dataclass(frozen=True)
class Coverage:
    """What is said of one opcode."""

    forms: tuple[str, ...]
    operands: str = ""
    before: str = ""  # code that the forms need in front of them
    missing: tuple[str, ...] = ()
    notes: str = ""

    def instructions(self, forms: tuple[str, ...]) -> Iterator[str]:
        """Each form spelled out, with operands."""
        for form in forms:
            for text in spelled_out(form) if ":" not in form.replace("::", "") else ():
                yield text if " " in text or not self.operands else f"{text} {self.operands}"


def spelled_out(form: str) -> Iterator[str]:
    """All that a form with choices stands for."""
    match = CHOICE.search(form)
    if match is None:
        yield form
        return
    for choice in (match[1] or match[2]).split(","):
        yield from spelled_out(form[: match.start()] + choice + form[match.end() :])


def coverage() -> dict[str, Coverage]:
    """All of coverage.toml."""
    text = (files("cupilot.vgpu.lower") / "coverage.toml").read_text()
    return {name: _entry(**entry) for name, entry in tomllib.loads(text).items()}


def _entry(
    forms: list[str], operands: str = "", before: str = "", missing: tuple[str, ...] | list[str] = (), notes: str = ""
) -> Coverage:
    return Coverage(tuple(forms), operands, before, tuple(missing), notes)


def page() -> str:
    """The whole page, in Markdown."""
    known = coverage()
    parts = [TITLE, "", INTRODUCTION, ""]
    for name in FAMILIES:
        family = import_module(f"cupilot.vgpu.lower.{name}")
        opcodes: dict[str, Opcode] = family.OPCODES
        if opcodes:
            parts += [f"## {name.capitalize()}", "", _prose(family.__doc__ or ""), ""]
            parts += ["| Opcode | Section of the PTX ISA | Forms | Not supported, remarks |", "|---|---|---|---|"]
            parts += [_row(opcode, entry, known[opcode]) for opcode, entry in opcodes.items()]
            parts.append("")
    return "\n".join(parts)


def _prose(docstring: str) -> str:
    """A module's text as Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", docstring.strip())


def _row(name: str, entry: Opcode, known: Coverage) -> str:
    remarks = [f"not {_code(form)}" for form in known.missing]
    if known.notes:
        remarks.append(known.notes)
    return f"| `{name}` | {entry.section} | {', '.join(map(_code, known.forms))} | {'; '.join(remarks)} |"


def _code(form: str) -> str:
    return "`" + form.replace("|", "\\|") + "`"
