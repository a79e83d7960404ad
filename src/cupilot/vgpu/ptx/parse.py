"""PTX text to records.

Covers what nvcc writes and what people write in inline assembly: nested scopes with registers of
their own, several statements on a line, vector and pair operands.  Not covered: `.alias`, textures.
Anything unknown is a `PtxError` that names the line.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace

from cupilot.vgpu.ptx.declare import PtxError, params_of, prototype_of, variable_of
from cupilot.vgpu.ptx.syntax import (
    Address,
    Function,
    Imm,
    Instruction,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Symbol,
    Vector,
)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_LABEL = re.compile(r"\s*([$%\w]+)\s*:(?!:)")
_LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[ \t]+\d+([^\n]*)$", re.M)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"[^\n]*$', re.M)
_INLINED = re.compile(r"inlined_at[ \t]+(\d+)[ \t]+(\d+)")
_HEADER = re.compile(r"\.(entry|func)\b\s*(\([^)]*\))?\s*([$\w.]+)\s*(\((.*?)\))?", re.S)
_DIRECTIVES = (
    ".version", ".target", ".address_size", ".pragma", ".maxntid", ".minnctapersm", ".reqntid", ".maxnreg", ".noreturn",
    ".explicitcluster", ".reqnctapercluster", ".maxclusterrank", ".blocksareclusters", ".abi_preserve", ".unified",
)  # fmt: skip
MOST_REGISTERS = 1_000_000
TEXTURES = ("tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep")
__all__ = ["PtxError", "parse_module"]


def parse_module(text: str) -> Module:
    """Read a whole PTX file."""
    parser = _Parser(text)
    try:
        return parser.module()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise PtxError(f"cannot read the PTX statement {parser.statement[:80]!r} ({error})") from error


def _blank(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


class _Parser:
    def __init__(self, text: str) -> None:
        self.result = Module()
        for number, name in _FILE.findall(text):
            self.result.files[int(number)] = name
        # lines keep their numbers
        text = _FILE.sub("", _COMMENT.sub(_blank, text))
        # sections (DWARF) carry no code
        text = re.sub(r"^[ \t]*\.section\b[^\n]*\n?[ \t]*\{[^}]*\}", _blank, text, flags=re.M)
        # .loc has no semicolon: turn it into a statement of its own
        text = _LOC.sub(lambda m: f".loc {m[1]} {m[2]} {self._inlined(m[3])};", text)
        text = re.sub(r"^[ \t]*(\.(?:version|target|address_size)[^\n;]*)$", r"\1;", text, flags=re.M)
        self.text = text
        self.scopes: list[dict[str, str]] = []
        self.variables: list[dict[str, str]] = []
        self.scope_numbers: list[int] = []
        self.scope_count = 0
        self.line = self.ptx_line = 0
        self.statement = ""  # for messages

    @staticmethod
    def _inlined(rest: str) -> str:
        places = _INLINED.findall(rest)
        return f"{places[-1][0]} {places[-1][1]}" if places else ""

    # --- statements ------------------------------------------------------------------------

    def module(self) -> Module:
        function: Function | None = None
        depth = 0
        for statement, end, line in self._statements():
            self.statement, self.ptx_line = statement, line
            if function is None:
                header = _HEADER.search(statement)
                if header and end in "{;":
                    if end == ";":
                        continue  # a declaration only
                    function = self._function(statement, header)
                    depth, self.scopes, self.scope_numbers, self.scope_count = 1, [{}], [0], 0
                    self.variables = [{}]
                elif statement:
                    self._module_statement(statement)
                continue
            if statement:
                self._body(function, statement)
            if end == "{":
                depth += 1
                self.scopes.append({})
                self.variables.append({})
                self.scope_count += 1
                self.scope_numbers.append(self.scope_count)
            elif end == "}":
                depth -= 1
                self.scopes.pop()
                self.variables.pop()
                self.scope_numbers.pop()
                if depth == 0:
                    self.result.functions[function.name] = function
                    function = None
        return self.result

    def _statements(self) -> list[tuple[str, str, int]]:
        """Split at ``;`` and at braces that are scopes, not vector operands or initialisers; each with its line."""
        found: list[tuple[str, str, int]] = []
        line, counted = 1, 0
        start = position = paren = 0
        text, vector = self.text, 0
        for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[;{}()]', text):
            mark = match.group()
            if mark[0] == '"':
                continue
            position = match.start()
            if mark == "(":
                paren += 1
            elif mark == ")":
                paren -= 1
            elif mark == "{" and (vector or self._opens_vector(text[start:position])):
                vector += 1
            elif mark == "}" and vector:
                vector -= 1
            elif not vector and not paren:
                line, counted = line + text.count("\n", counted, position), position
                found.append((text[start:position].strip(), mark, line))
                start = match.end()
        return found

    @staticmethod
    def _opens_vector(before: str) -> bool:
        stripped = before.strip()
        if not stripped or _HEADER.search(stripped) or stripped.endswith(":"):
            return False
        return not stripped.startswith(".loc ")

    def _module_statement(self, statement: str) -> None:
        if statement.startswith(".version"):
            self.result.version = statement.split()[1]
        elif statement.startswith(".target"):
            self.result.target = statement.split()[1].rstrip(",")
        elif (variable := variable_of(statement)) is not None:
            self.result.variables[variable.name] = variable

    # --- declarations ----------------------------------------------------------------------

    def _function(self, statement: str, header: re.Match[str]) -> Function:
        function = Function(name=header[3], is_kernel=header[1] == "entry")
        function.params, function.param_bytes = params_of(header[5] or "", function.name)
        function.results, _ = params_of((header[2] or "").strip("() \n\t"), function.name)
        limit = re.search(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", statement)
        if limit:
            function.max_threads = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
        return function

    # --- function bodies -------------------------------------------------------------------

    def _body(self, function: Function, statement: str) -> None:
        while label := _LABEL.match(statement):
            rest = statement[label.end() :].strip()
            if rest.startswith(".callprototype"):
                function.prototypes[label[1]] = prototype_of(rest)
                return
            if rest.startswith(".branchtargets"):
                names = rest.removeprefix(".branchtargets").split(",")
                function.branch_targets[label[1]] = tuple(name.strip() for name in names)
                return
            if rest.startswith(".calltargets"):
                return
            function.body.append(label[1])
            statement = statement[label.end() :].strip()
        if not statement:
            return
        if statement.startswith("."):
            self._directive(function, statement)
        else:
            function.body.append(self._instruction(statement))

    def _directive(self, function: Function, statement: str) -> None:
        if statement.startswith(".loc "):
            words = statement.split()
            # code inlined from a header counts for the line that called it
            file, line = (int(word) for word in (words[3:5] if len(words) > 4 else words[1:3]))
            self.line = line or self.line
            if line:
                function.files[line] = file if function.files.get(line, file) == file else 0
        elif statement.startswith(".reg"):
            self._registers(function, statement)
        elif (variable := variable_of(statement)) is not None:
            # variables of an inner scope may hide others, as registers do
            unique = variable.name if len(self.scopes) == 1 else f"{variable.name}@{self.scope_numbers[-1]}"
            self.variables[-1][variable.name] = unique
            function.variables.append(replace(variable, name=unique))
        elif not statement.startswith(_DIRECTIVES):
            raise PtxError(f"the directive {statement.split(maxsplit=1)[0]} in {function.name} is not supported")

    def _registers(self, function: Function, statement: str) -> None:
        words = re.sub(r"^\.reg\s*\.", ".reg .", statement).replace(",", " ").split()
        kind, names = words[1].lstrip("."), words[2:]
        for name in names:
            family = re.fullmatch(r"([%$\w]+)<(\d+)>", name)
            if family and int(family[2]) > MOST_REGISTERS:
                raise PtxError(f"{name} in {function.name} declares more than {MOST_REGISTERS} registers")
            plain = [f"{family[1]}{i}" for i in range(int(family[2]))] if family else [name]
            for register in plain:
                # registers of an inner scope may hide outer ones, so they get a name of their own
                unique = register if len(self.scopes) == 1 else f"{register}@{self.scope_numbers[-1]}"
                self.scopes[-1][register] = unique
                function.registers[unique] = kind

    def _instruction(self, statement: str) -> Instruction:
        guard, negated = "", False
        if match := re.match(r"@(!?)([%$\w]+)\s+", statement):
            negated, guard = bool(match[1]), self._name(match[2])
            statement = statement[match.end() :]
        head, rest = (*statement.split(maxsplit=1), "")[:2]
        opcode, *mods = head.split(".")
        if opcode == "brx":
            index, target = (part.strip() for part in rest.split(","))
            return Instruction(
                opcode, tuple(mods), (self._operand(index),), guard, negated, self.line, target, self.ptx_line
            )
        if opcode == "bra":
            target = rest.split(",")[0].strip()
            return self._made(opcode, mods, (), guard, negated, target)
        if opcode in TEXTURES:
            rest = ""  # not executed, so their operands need not be understood
        operands = tuple(self._operand(part) for part in self._split(rest)) if rest else ()
        return self._made(opcode, mods, operands, guard, negated)

    def _made(
        self, opcode: str, mods: list[str], operands: tuple[Operand, ...], guard: str, negated: bool, target: str = ""
    ) -> Instruction:
        return Instruction(opcode, tuple(mods), operands, guard, negated, self.line, target, self.ptx_line)

    @staticmethod
    def _split(text: str) -> list[str]:
        parts, depth, start = [], 0, 0
        for i, char in enumerate(text):
            if char in "{[(":
                depth += 1
            elif char in "}])":
                depth -= 1
            elif char == "," and depth == 0:
                parts.append(text[start:i].strip())
                start = i + 1
        parts.append(text[start:].strip())
        return [part for part in parts if part]

    def _name(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def _operand(self, text: str) -> Operand:
        if text[0] == "{":
            return Vector(tuple(self._operand(item) for item in self._split(text[1:-1])))
        if text[0] == "(":
            return Vector(tuple(self._operand(item) for item in self._split(text[1:-1])))
        if text[0] == "[":
            parts = self._split(text[1:-1])
            # a tensor's address has coordinates behind the descriptor
            return self._address(parts[0]) if len(parts) == 1 else Vector(tuple(self._operand(part) for part in parts))
        if "|" in text:
            first, second = text.split("|")
            return Pair(self._operand(first.strip()), self._operand(second.strip()))
        if text[0] == "!":
            return Not(Reg(self._name(text[1:].strip())))
        return self._atom(text)

    def _atom(self, text: str) -> Reg | Imm | Symbol:
        if (literal := _literal(text)) is not None:
            return literal
        name = self._name(text)
        known = any(name in scope.values() for scope in self.scopes)
        if known or text[0] == "%" or text in ("_", "WARP_SZ"):
            return Reg(name)
        if match := re.fullmatch(r"([$\w]+)\s*([-+])\s*(\d+)", text):
            return Symbol(self._variable_name(match[1]), int(match[2] + match[3]))
        return Symbol(self._variable_name(text))

    def _variable_name(self, name: str) -> str:
        for scope in reversed(self.variables):
            if name in scope:
                return scope[name]
        return name

    def _address(self, text: str) -> Address:
        match = re.fullmatch(r"([%$\w.@]+)\s*(?:\+\s*(-?\w+)|-\s*(\w+))?", text)
        if not match:
            raise PtxError(f"cannot read the address [{text}]")
        offset = _integer(match[2]) if match[2] else -_integer(match[3]) if match[3] else 0
        base = self._atom(match[1])
        if isinstance(base, Imm):
            return Address(None, base.value + offset)
        return Address(base, offset)


def _literal(text: str) -> Imm | None:
    """Integers, hexadecimal floats (0f..., 0d...) and decimal floats, which are double precision."""
    if text[:2] in ("0f", "0F") and len(text) == 10:
        return Imm(int(text[2:], 16), 32)
    if text[:2] in ("0d", "0D") and len(text) == 18:
        return Imm(int(text[2:], 16), 64)
    if re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?", text):
        return Imm(_integer(text))
    if re.fullmatch(r"[-+]?\d*\.\d*([eE][-+]?\d+)?", text):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 64)
    return None


def _integer(text: str) -> int:
    text = text.rstrip("U")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if re.fullmatch(r"0[0-7]+", digits):
        return sign * int(digits, 8)
    return sign * int(digits, 0)
