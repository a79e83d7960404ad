"""PTX text to records.

Covers what nvcc writes and what people write in inline assembly: nested scopes with registers of
their own, several statements on a line, vector and pair operands.  Not covered: `.branchtargets`,
`.alias`, textures.  Anything unknown is a `PtxError` that names the line.
"""

from __future__ import annotations

import re
import struct

from cupilot.errors import CupilotError
from cupilot.vgpu.ptx.syntax import (
    TYPE_BYTES,
    Address,
    Function,
    Imm,
    Instruction,
    Module,
    Not,
    Operand,
    Pair,
    Param,
    Reg,
    Symbol,
    Variable,
    Vector,
)


class PtxError(CupilotError):
    """PTX that cannot be read or executed; the text names opcode, kernel and line."""


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_LABEL = re.compile(r"\s*([$%\w]+)\s*:(?!:)")
_LOC = re.compile(r"^[ \t]*\.loc[ \t]+(\d+)[ \t]+(\d+)[ \t]+\d+([^\n]*)$", re.M)
_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+"([^"]*)"[^\n]*$', re.M)
_INLINED = re.compile(r"inlined_at[ \t]+(\d+)[ \t]+(\d+)")
_HEADER = re.compile(r"\.(entry|func)\b\s*(\([^)]*\))?\s*([$\w.]+)\s*(\((.*?)\))?", re.S)
_DECLARATION = re.compile(
    r"\.(shared|const|global|local|param)\b((?:\s+\.(?:align\s+\d+|v[24]|\w+))*)\s+([$\w%.]+)((?:\s*\[\s*\d*\s*\])*)\s*(?:=\s*(.*))?$",
    re.S,
)
_DIRECTIVES = (".version", ".target", ".address_size", ".pragma", ".maxntid", ".minnctapersm", ".reqntid", ".maxnreg")


def parse_module(text: str) -> Module:
    """Read a whole PTX file."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.result = Module()
        for number, name in _FILE.findall(text):
            self.result.files[int(number)] = name
        text = _FILE.sub("", _COMMENT.sub("", text))
        # sections (DWARF) carry no code
        text = re.sub(r"^[ \t]*\.section\b[^\n]*\n?[ \t]*\{[^}]*\}", "", text, flags=re.M)
        # .loc has no semicolon: turn it into a statement of its own
        text = _LOC.sub(lambda m: f".loc {m[1]} {m[2]} {self._inlined(m[3])};", text)
        text = re.sub(r"^[ \t]*(\.(?:version|target|address_size)[^\n;]*)$", r"\1;", text, flags=re.M)
        self.text = text
        self.scopes: list[dict[str, str]] = []
        self.scope_numbers: list[int] = []
        self.scope_count = 0
        self.line = 0

    @staticmethod
    def _inlined(rest: str) -> str:
        places = _INLINED.findall(rest)
        return f"{places[-1][0]} {places[-1][1]}" if places else ""

    # --- statements ------------------------------------------------------------------------

    def module(self) -> Module:
        function: Function | None = None
        depth = 0
        for statement, end in self._statements():
            if function is None:
                header = _HEADER.search(statement)
                if header and end in "{;":
                    if end == ";":
                        continue  # a declaration only
                    function = self._function(statement, header)
                    depth, self.scopes, self.scope_numbers, self.scope_count = 1, [{}], [0], 0
                elif statement:
                    self._module_statement(statement)
                continue
            if statement:
                self._body(function, statement)
            if end == "{":
                depth += 1
                self.scopes.append({})
                self.scope_count += 1
                self.scope_numbers.append(self.scope_count)
            elif end == "}":
                depth -= 1
                self.scopes.pop()
                self.scope_numbers.pop()
                if depth == 0:
                    self.result.functions[function.name] = function
                    function = None
        return self.result

    def _statements(self) -> list[tuple[str, str]]:
        """Split at ``;`` and at braces that are scopes, not vector operands or initialisers."""
        found: list[tuple[str, str]] = []
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
                found.append((text[start:position].strip(), mark))
                start = match.end()
        return found

    @staticmethod
    def _opens_vector(before: str) -> bool:
        stripped = before.strip()
        if not stripped or _HEADER.search(stripped) or stripped.endswith(":"):
            return False
        return not stripped.startswith(".loc")

    def _module_statement(self, statement: str) -> None:
        if statement.startswith(".version"):
            self.result.version = statement.split()[1]
        elif statement.startswith(".target"):
            self.result.target = statement.split()[1].rstrip(",")
        elif (variable := self._variable(statement)) is not None:
            self.result.variables[variable.name] = variable

    # --- declarations ----------------------------------------------------------------------

    def _function(self, statement: str, header: re.Match[str]) -> Function:
        function = Function(name=header[3], is_kernel=header[1] == "entry")
        offset = 0
        params = []
        for part in filter(None, (p.strip() for p in (header[5] or "").split(","))):
            variable = self._variable(part)
            if variable is None:
                raise PtxError(f"cannot read parameter {part!r} of {function.name}")
            offset = -(-offset // variable.align) * variable.align
            params.append(Param(variable.name, offset, variable.bytes))
            offset += variable.bytes
        function.params, function.param_bytes = tuple(params), offset
        limit = re.search(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", statement)
        if limit:
            function.max_threads = int(limit[1]) * int(limit[2] or 1) * int(limit[3] or 1)
        return function

    def _variable(self, statement: str) -> Variable | None:
        text = re.sub(r"^(?:\s*\.(?:visible|extern|weak|common|managed)\b)+", "", statement).strip()
        match = _DECLARATION.match(text)
        if not match:
            return None
        space, attributes, name, dims, initial = match.groups()
        kinds = [word for word in re.findall(r"\.(\w+)", attributes) if word in TYPE_BYTES]
        if not kinds:
            return None
        align_match = re.search(r"\.align\s+(\d+)", attributes)
        item = TYPE_BYTES[kinds[0]]
        align = int(align_match[1]) if align_match else item
        sizes = [int(n) if n else 0 for n in re.findall(r"\[\s*(\d*)\s*\]", dims)]
        count = 1
        for size in sizes:
            count *= size
        data = self._initial(initial, kinds[0]) if initial else b""
        return Variable(name, space, align, item * count, data)

    @staticmethod
    def _initial(text: str, kind: str) -> bytes:
        width = TYPE_BYTES[kind]
        data = b""
        for word in re.findall(r"[-+\w.]+", text):
            if word[:2] in ("0f", "0F", "0d", "0D"):
                data += int(word[2:], 16).to_bytes(width, "little")
            elif re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)U?", word):
                data += (int(word.rstrip("U"), 0) & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
            else:
                raise PtxError(f"an initial value that is an address ({word}) is not supported")
        return data

    # --- function bodies -------------------------------------------------------------------

    def _body(self, function: Function, statement: str) -> None:
        while label := _LABEL.match(statement):
            function.body.append(label[1])
            statement = statement[label.end() :].strip()
        if not statement:
            return
        if statement.startswith("."):
            self._directive(function, statement)
        else:
            function.body.append(self._instruction(statement))

    def _directive(self, function: Function, statement: str) -> None:
        if statement.startswith(".loc"):
            words = statement.split()
            # code inlined from a header counts for the line that called it
            line = int(words[4]) if len(words) > 4 else int(words[2])
            self.line = line or self.line
        elif statement.startswith(".reg"):
            self._registers(function, statement)
        elif (variable := self._variable(statement)) is not None:
            function.variables.append(variable)
        elif not statement.startswith(_DIRECTIVES):
            raise PtxError(f"the directive {statement.split(maxsplit=1)[0]} in {function.name} is not supported")

    def _registers(self, function: Function, statement: str) -> None:
        words = statement.replace(",", " ").split()
        kind, names = words[1].lstrip("."), words[2:]
        for name in names:
            family = re.fullmatch(r"([%$\w]+)<(\d+)>", name)
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
        head, _, rest = statement.partition(" ") if " " in statement else statement.partition("\t")
        if "\t" in head:
            head, _, more = head.partition("\t")
            rest = f"{more} {rest}"
        opcode, *mods = head.split(".")
        rest = rest.strip()
        if opcode in ("bra", "brx"):
            target = rest.split(",")[0].strip()
            return Instruction(opcode, tuple(mods), (), guard, negated, self.line, target)
        operands = tuple(self._operand(part) for part in self._split(rest)) if rest else ()
        return Instruction(opcode, tuple(mods), operands, guard, negated, self.line)

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
            return self._address(text[1:-1].strip())
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
            return Symbol(match[1], int(match[2] + match[3]))
        return Symbol(text)

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
