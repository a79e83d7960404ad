"""The parameters of a candidate's host function, read from its text.

The compiled library knows the types too (`Library.entries`), but neither names nor defaults, and those say what a
parameter is for.  Looks at brackets and words, not at the language: functions that macros make are not found, nor
are types that hide behind more than an alias.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from cupilot.toolchain.source import without_comments


@dataclass(frozen=True)
class Parameter:
    """One parameter of a host function.

    ``type`` is Tensor, Tensor?, int, float, bool, string, ints, floats, tensors or other.  ``default`` is Python
    (``1e-05``, ``None``, ``[2, 3]``) where it is a literal, else the C++ text; an optional that is no tensor has None.
    """

    type: str
    name: str
    default: str | None = None

    def __str__(self) -> str:
        text = f"{self.type} {self.name}".rstrip()
        return text if self.default is None else f"{text}={self.default}"


@dataclass(frozen=True)
class _Function:
    parameters: tuple[Parameter, ...]
    void: bool


def signature_of(source: str, entry: str) -> tuple[Parameter, ...] | None:
    """The parameters of the function that a module calls ``entry`` or that has this name; None when not found."""
    found = _entry(without_comments(source), entry)
    return None if found is None else found.parameters


def fills_outputs(source: str, entry: str) -> bool:
    """Whether the function returns nothing, so that its last parameters are the outputs."""
    found = _entry(without_comments(source), entry)
    return found is not None and found.void


def _entry(code: str, entry: str) -> _Function | None:
    known = _Types(code)
    schemas = []
    for name, schema, function, extras in _registrations(code):
        if name != entry:
            continue
        declared = _schema_parameters(schema)
        if function is None:
            schemas.append(declared)
            continue
        found = _called(code, function, known)
        if found is None:
            return _Function(declared, void=schema.rstrip().endswith("()")) if declared else None
        for each in (*schemas, declared):
            found = replace(found, parameters=_with_schema(found.parameters, each))
        return replace(found, parameters=_with_arguments(found.parameters, extras))
    return _find(code, entry, None, known)


# --- text ------------------------------------------------------------------------------------

_MARK = re.compile(
    r'R"(\w*)\(.{0,999}?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#(?:[^\n\\]|\\.)*'
    r"|->|<<|[][(){}<>;,=]",
    re.DOTALL | re.MULTILINE,
)
_TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"')


def _pieces(text: str, separator: str = ",") -> list[str]:
    """The text divided where the separator stands outside of all brackets."""
    depth = angle = begin = 0
    found = []
    for token in _MARK.finditer(text):
        mark = token.group()
        if mark in ("(", "[", "{"):
            depth += 1
        elif mark in (")", "]", "}"):
            depth -= 1
        elif depth:  # below braces and parentheses < may well be a comparison
            continue
        elif mark in ("<", ">"):
            angle = max(angle + (1 if mark == "<" else -1), 0)
        elif mark == separator and not angle:
            found.append(text[begin : token.start()].strip())
            begin = token.end()
    last = text[begin:].strip()
    return [*found, last] if last or found else []


def _closing(text: str, begin: int) -> int:
    """Where the bracket that opens at ``begin`` closes; the end of the text when it does not."""
    opening, closing = ("(", ")") if text[begin] == "(" else ("<", ">")
    depth = 0
    for token in _MARK.finditer(text, begin):
        depth += (token.group() == opening) - (token.group() == closing)
        if depth == 0:
            return token.start()
    return len(text)


# --- modules ---------------------------------------------------------------------------------

_MODULE = re.compile(r"\b(PYBIND11_MODULE|TORCH_LIBRARY\w*)\s*\(([^)]{0,200})\)")
_REGISTRATION = re.compile(r"\.\s*(?:def|impl)\s*(?=\()")
_NAMED = re.compile(r'(?:(?:py|pybind11)::)?arg(?:_v)?\s*\(\s*"(\w+)"\s*(?:,(.*))?\)|"(\w+)"\s*_a\b', re.DOTALL)
_LAMBDA = re.compile(r"\[[^]]*\]\s*(?=\()")
_CAST = re.compile(r"overload_cast\s*(?=<)|\(\s*\*\s*\)\s*(?=\()")
_PLACE = re.compile(r"(?:\w+::){0,3}(?:k[A-Z]\w*|DeviceType::\w+|DispatchKey::\w+)")
_ON_CPU = re.compile(r"^(?:torch::dispatch\s*\(\s*)?(?:\w+::){0,3}k?CPU\b")
_CALLEE = re.compile(r"((?:\w+\s*::\s*)*\w+)\s*(?:<[^()]*>)?[\s)]*$")
_MOST = 200
"""Registrations that are looked at, and characters of what should be short: a source may be made to waste time."""


def _registrations(code: str) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """Name, schema or name as written, function (None: a schema alone) and what else the call is given."""
    modules = [(found.end(), found.group(1), found.group(2)) for found in _MODULE.finditer(code)]
    for call in islice(_REGISTRATION.finditer(code), _MOST):
        above = [(kind, inside) for end, kind, inside in modules if end <= call.start()]
        inside = code[call.end() : call.end() + 100 * _MOST]
        pieces = _pieces(inside[1 : _closing(inside, 0)])
        if not above or not pieces or not pieces[0].startswith('"') or _elsewhere(*above[-1]):
            continue
        schema = "".join(_TEXT.findall(pieces[0]))
        name = re.split(r"[(\s]", schema, maxsplit=1)[0].rpartition("::")[2]
        if len(pieces) > 1 and _ON_CPU.search(pieces[1]):
            continue
        functions = [piece for piece in pieces[1:] if not _PLACE.fullmatch(piece)]
        yield name, schema, functions[0] if functions else None, functions[1:]


def _elsewhere(kind: str, inside: str) -> bool:
    """Whether a module is for another device, as our header decides it too."""
    key = inside.split(",")[1].strip() if inside.count(",") > 1 else ""
    return kind == "TORCH_LIBRARY_IMPL" and (key == "CPU" or key.startswith("M"))


def _called(code: str, function: str, known: _Types) -> _Function | None:
    """What a module registers: a lambda, or a function's name with casts and wrappers around it."""
    found = _LAMBDA.match(function)
    if found is not None:
        end = _closing(function, found.end())
        result = re.match(r"[^{]*->\s*(\w+)", function[end:])
        void = result.group(1) == "void" if result else not re.search(r"\breturn\s*[^;\s]", function[end:])
        return _Function(known.parameters(function[found.end() + 1 : end]), void)
    callee = _CALLEE.search(function[-_MOST:])
    cast = _CAST.search(function)
    types = None
    if cast is not None:
        end = _closing(function, cast.end())
        types = [each.type for each in known.parameters(function[cast.end() + 1 : end])]
    return _find(code, re.sub(r"\s", "", callee.group(1)), types, known) if callee else None


def _with_arguments(parameters: tuple[Parameter, ...], extras: list[str]) -> tuple[Parameter, ...]:
    """Names and defaults of ``py::arg``, when there is one for each parameter."""
    given: list[tuple[str, str | None]] = []
    for extra in extras:
        left, *right = _pieces(extra, "=") or [""]
        named = _NAMED.match(left)
        if named is not None:
            given.append((named.group(1) or named.group(3), "=".join(right) or named.group(2)))
    if len(given) != len(parameters):
        return parameters
    return tuple(
        Parameter(own.type, name, own.default if text is None else _python(text, own.type))
        for own, (name, text) in zip(parameters, given, strict=True)
    )


# --- schemas ---------------------------------------------------------------------------------

_SCHEMA_TYPES = {
    "Tensor": "Tensor", "int": "int", "SymInt": "int", "float": "float", "Scalar": "float", "number": "float",
    "bool": "bool", "str": "string",
}  # fmt: skip
_SCHEMA = re.compile(r"(\w+)(?:\([^)]*\))?(\??)(\[\d*\])?(\??)\s+(\w+)\s*(?:=(.*))?", re.DOTALL)


def _schema_parameters(schema: str) -> tuple[Parameter, ...]:
    """Those of ``op(Tensor x, int stride=1) -> Tensor``; none for a name alone."""
    begin = schema.find("(")
    if begin < 0:
        return ()
    found = []
    for piece in _pieces(schema[begin + 1 : _closing(schema, begin)]):
        parts = _SCHEMA.fullmatch(piece)
        if parts is None:
            continue  # the star before arguments that have names
        word, item_optional, listed, optional, name, default = parts.groups()
        kind = _SCHEMA_TYPES.get(word, "other")
        if listed:
            kind = _LISTED.get(kind, "other")
        elif item_optional:
            kind, optional = ("Tensor?" if kind == "Tensor" else kind), "?"
        absent = "None" if optional and kind != "Tensor?" else None
        found.append(Parameter(kind, name, absent if default is None else default.strip()))
    return tuple(found)


def _with_schema(parameters: tuple[Parameter, ...], declared: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """A schema's defaults, and its names where C++ gives none."""
    if len(parameters) != len(declared):
        return parameters
    return tuple(
        replace(own, name=own.name or other.name, default=other.default if own.default is None else own.default)
        for own, other in zip(parameters, declared, strict=True)
    )


# --- functions -------------------------------------------------------------------------------

_SCOPE = re.compile(
    r"(?:.*\W)?(?:namespace\s*((?:\w+(?:::\w+)*)?)|extern\s*\"C\"|(?:struct|class)\s+(\w+)[^()=]*)\s*", re.DOTALL
)
_SPACES_BEFORE = re.compile(r"(?<!\w)(?:\w+\s*::\s*)+$")


def _heads(code: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Text before every body or semicolon outside of functions, with the namespaces and classes around it."""
    scopes: list[str | None] = []
    begin = depth = 0
    for token in _MARK.finditer(code):
        mark = token.group()
        if mark.lstrip().startswith("#") and not depth:
            begin = token.end()
        elif mark in ("(", ")"):
            depth = max(depth + (1 if mark == "(" else -1), 0)
        elif depth or mark not in ("{", "}", ";"):
            continue  # braces in parentheses are defaults and lambdas
        else:
            head, begin = code[begin : token.start()], token.end()
            scope = _SCOPE.fullmatch(head[-_MOST:]) if mark == "{" else None
            if mark != "}" and scope is None and None not in scopes:
                yield tuple(name for name in scopes if name), head
            if mark == "{":
                scopes.append(None if scope is None else scope.group(1) or scope.group(2) or "")
            elif mark == "}" and scopes:
                scopes.pop()


def _find(code: str, path: str, types: list[str] | None, known: _Types) -> _Function | None:
    """The function of this name; with types, the one among several that has them.

    A default may stand in a declaration, so declarations of the same types lend theirs.
    """
    wanted = path.split("::")
    pattern = re.compile(rf"\b{re.escape(wanted[-1])}\s*(?=\()")
    found: list[_Function] = []
    for scopes, head in _heads(code):
        name = pattern.search(_TEXT.sub(lambda text: " " * len(text.group()), head))
        if name is None:
            continue
        spaces = _SPACES_BEFORE.search(head[max(name.start() - _MOST, 0) : name.start()])
        inside = spaces.group() if spaces else ""
        before = head[: name.start() - len(inside)].rstrip()
        if not re.fullmatch(r"[\w>&*]", before[-1:]):
            continue  # no type before it: a call
        full = [*"::".join(scopes).split("::"), *re.findall(r"\w+", inside), wanted[-1]]
        on_device = "__global__" in before or ("__device__" in before and "__host__" not in before)
        if on_device or full[-len(wanted) :] != wanted:
            continue
        end = _closing(head, name.end())
        parameters = known.parameters(head[name.end() + 1 : end])
        if types is None or [each.type for each in parameters] == types:
            void = before.split()[-1] == "void" and "->" not in head[end:]
            found.append(_Function(parameters, void))
    if not found:
        return None
    first = found[0]
    for other in found[1:]:
        if [each.type for each in other.parameters] == [each.type for each in first.parameters]:
            first = replace(first, parameters=_with_schema(first.parameters, other.parameters))
    return first


# --- types and defaults ------------------------------------------------------------------------

_ALIAS = re.compile(r"\busing\s+(\w+)\s*=([^;]{1,200});|\btypedef\s([^;{}]{1,200})\b(\w+)\s*;")
_QUALIFIER = re.compile(r"\[\[.{0,200}?\]\]|\b(?:const|volatile|struct|typename|register)\b|__restrict__|&", re.DOTALL)
_SPACES = re.compile(r"\b(?:std|at|torch|c10|pybind11|py)\s*::\s*|^\s*::")
_TEMPLATE = re.compile(r"(\w+) ?<(.+)>", re.DOTALL)
_DEEPEST = 8
_NAME = re.compile(r"(.*[\s&*>\]])(\w+)", re.DOTALL)

_INTEGERS = frozenset((
    "int", "long", "short", "unsigned", "signed", "char", "size_t", "ssize_t", "ptrdiff_t", "SymInt",
    *(f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)),
))  # fmt: skip
_WORDS = {
    "bool": "bool", "float": "float", "double": "float", "Scalar": "float", "string": "string", "string_view": "string",
    "Tensor": "Tensor", "Variable": "Tensor", "IntArrayRef": "ints", "IntList": "ints", "SymIntArrayRef": "ints",
    "TensorList": "tensors", "ITensorListRef": "tensors", "OptionalTensorRef": "Tensor?",
    "OptionalIntArrayRef": "ints", "OptionalSymIntArrayRef": "ints",
}  # fmt: skip
_LISTS = frozenset(("vector", "ArrayRef", "List", "array", "IListRef", "SmallVector"))
_LISTED = {"int": "ints", "bool": "ints", "float": "floats", "Tensor": "tensors", "Tensor?": "tensors"}


class _Types:
    """Types as a source names them: its aliases stand for what they mean."""

    def __init__(self, code: str) -> None:
        self._aliases = {
            found.group(1) or found.group(4): found.group(2) or found.group(3) for found in _ALIAS.finditer(code)
        }

    def parameters(self, text: str) -> tuple[Parameter, ...]:
        """Those of a list between parentheses."""
        return tuple(self.parameter(piece) for piece in _pieces(text) if piece not in ("", "void"))

    def parameter(self, text: str) -> Parameter:
        declared, *default = _pieces(text, "=")
        declared = re.sub(r"\[\[.{0,200}?\]\]|__restrict__", " ", declared).strip()
        named = _NAME.fullmatch(declared)
        name = named.group(2) if named else ""
        if named is None or name in _INTEGERS or name in _WORDS or not named.group(1).replace("const", "").strip():
            named, name = None, ""
        kind, optional = self._kind(named.group(1) if named else declared)
        if default and not (optional and default == ["{}"]):
            return Parameter(kind, name, _python("=".join(default), kind))
        return Parameter(kind, name, "None" if default or (optional and kind != "Tensor?") else None)

    def _kind(self, text: str, depth: int = 0) -> tuple[str, bool]:
        """The type, and whether it may be absent."""
        plain = _SPACES.sub("", " ".join(_QUALIFIER.sub(" ", text).split()))
        if plain in self._aliases and depth < _DEEPEST:
            return self._kind(self._aliases[plain], depth + 1)
        template = _TEMPLATE.fullmatch(plain)
        if template is None or depth == _DEEPEST:
            return _simple(plain), plain.startswith("Optional")
        inner, *others = (self._kind(piece, depth + 1)[0] for piece in _pieces(template.group(2)) or ("",))
        if template.group(1) == "optional":
            return ("Tensor?" if inner == "Tensor" else inner), True
        alike = template.group(1) in ("tuple", "pair") and {inner} == {inner, *others}
        return (_LISTED.get(inner, "other") if alike or template.group(1) in _LISTS else "other"), False


def _simple(plain: str) -> str:
    """A type without template arguments, qualifiers and the namespaces of PyTorch."""
    words = plain.split()
    if words and all(word in _INTEGERS for word in words):
        return "int"
    return {"char *": "string", "char*": "string", "long double": "float"}.get(plain) or _WORDS.get(plain, "other")


_NUMBER = re.compile(r"[-+]?(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_AROUND = re.compile(
    r"(?:\w+::)*(?:static_cast|optional|make_optional|vector|array|List|ArrayRef|IntArrayRef|Tensor|Scalar|string|float"
    r"|double|bool|long|size_t|u?int\w*)(?:\s*<[^(){}]*>)?\s*([({])(.*)[)}]",
    re.DOTALL,
)


def _python(text: str, kind: str) -> str:
    """A default as a Python literal, or as it stands."""
    value = text.strip()
    plain = re.sub(r"(?<=[\d.])[fFlLuU]+$", "", value).replace("'", "")
    if _NUMBER.fullmatch(plain):
        return repr(float(plain)) if kind in ("float", "floats") else plain
    if re.fullmatch(r"true|false|None|(?:\w+::)*(?:nullopt|none)(?:\(\))?", value):
        return value.capitalize() if value in ("true", "false") else "None"
    made = value if _TEXT.fullmatch(value) or len(value) > _MOST else _made(value, kind)
    return repr(literal_eval(made)) if _is_literal(made) else value


def _made(value: str, kind: str) -> str:
    """What a constructor, a cast or braces make: ``std::vector<int64_t>{1, 2}``, ``float(1)``, ``at::Tensor()``."""
    around = _AROUND.fullmatch(value) or re.fullmatch(r"(\{)(.*)\}", value, re.DOTALL)
    if around is None:
        return value
    bracket, inside = around.groups()
    items = [_python(item, kind) for item in _pieces(inside)]
    if kind in ("ints", "floats", "tensors") and "optional" not in value:
        return f"[{', '.join(items)}]" if bracket == "{" or not items else value  # (3) means three zeros
    return items[0] if len(items) == 1 else value if items else "None"


def _is_literal(text: str) -> bool:
    try:
        literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True
