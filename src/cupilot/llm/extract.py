"""Finds the data in a reply's text: JSON, fenced blocks, or both.  Nothing of a reply is run.

Tried in this order: the whole text as JSON, ```json blocks, blocks without a name, a JSON object outside of blocks.  A
code field that is missing or empty there is filled from the longest block of C++ or CUDA.  A block that is never closed
does not count: the reply was cut off in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from cupilot.errors import DataError
from cupilot.languages import languages

OBJECTS_TRIED = 20

_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*([\w+#.-]*)")
# at the start of a line, so that the inner objects of a broken one are not taken for the reply
_OBJECT = re.compile(r"^\{\s*\"", re.MULTILINE)
_ANY_OBJECT = re.compile(r"\{\s*\"")


@dataclass(frozen=True)
class Block:
    """A fenced block; ``name`` is the word after the opening fence."""

    name: str
    text: str


def find_data(text: str, code: str | None) -> dict[str, Any]:
    """The fields in a reply, or a `DataError`; ``code`` names the field that may come as a block of its own."""
    blocks, outside = split_fences(text)
    data, reason = _first_object(text, blocks, outside)
    if code is not None:
        source = (data or {}).get(code)
        if isinstance(source, str) and source.strip():
            return {**(data or {}), code: unfenced(source)}
        if (source is None or isinstance(source, str)) and (found := _code(blocks)):
            return {**(data or {}), code: found}
    if data is None:
        raise DataError(reason + (" and no block of code" if code else ""))
    return data


def split_fences(text: str) -> tuple[tuple[Block, ...], str]:
    """The fenced blocks of a text, and the text outside of them."""
    blocks: list[Block] = []
    outside: list[str] = []
    opening: re.Match[str] | None = None
    inside: list[str] = []
    for line in text.splitlines(keepends=True):
        fence = _FENCE.match(line)
        if opening is None and fence is not None and "`" not in line[fence.end() :]:
            opening, inside = fence, []
        elif opening is None:
            outside.append(line)
        elif fence is not None and fence[1].startswith(opening[1]) and line.strip() == fence[1]:
            blocks.append(Block(opening[2].lower(), "".join(inside)))
            opening = None
        else:
            inside.append(line)
    return tuple(blocks), "".join(outside)


def _first_object(text: str, blocks: tuple[Block, ...], outside: str) -> tuple[dict[str, Any] | None, str]:
    """The first JSON object, or None and why the first candidate is not one."""
    reason = ""
    for candidate in _candidates(text, blocks, outside):
        try:
            return _object(candidate), ""
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            reason = reason or f"the JSON in it is broken: {why}"
    return None, reason or "there is no JSON object in it"


def _candidates(text: str, blocks: tuple[Block, ...], outside: str) -> Iterator[str]:
    if text.lstrip().startswith("{"):
        yield text
    yield from (block.text for block in blocks if block.name.startswith("json"))
    yield from (block.text for block in blocks if not block.name and block.text.lstrip().startswith("{"))
    if first := _ANY_OBJECT.search(outside):
        yield outside[first.start() :]
        starts = [match.start() for match in _OBJECT.finditer(outside, first.end())]
        yield from (outside[start:] for start in starts[:OBJECTS_TRIED])


def _object(text: str) -> dict[str, Any]:
    # not strict: models put line breaks into strings
    decoder = json.JSONDecoder(strict=False, parse_constant=_constant, parse_float=_finite)
    data, _ = decoder.raw_decode(text.lstrip())
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("it contains a lone surrogate") from None
    return data


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _code(blocks: tuple[Block, ...]) -> str:
    names = {name for language in languages().values() for name in language.fences}
    named = [block.text for block in blocks if block.name in names]
    nameless = [block.text for block in blocks if not block.name]
    return max(named or nameless, key=len, default="")


def unfenced(source: str) -> str:
    """The source without fences, which some models put into the JSON string."""
    blocks, outside = split_fences(source)
    return blocks[0].text if len(blocks) == 1 and not outside.strip() else source
