"""Pool records as JSON lines, one record each; strict on the way in.

A line that is not a record, or that holds what no run of ours would write, is a `DataError` that names
file and line.  Whether the numbers are true cannot be seen from a line: import from people you trust.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from cupilot.errors import DataError, unwritable
from cupilot.files import MOST_JSON_BYTES, read_text
from cupilot.records import PRECISIONS, from_plain, to_plain
from cupilot.records.pool import PoolRecord
from cupilot.strategies.deck import CARD_NAME, LIMITS, PARAMETER_NAME, ZONES
from cupilot.strategies.renamed import current_strategy

LONGEST_LINE = 64 * 1024
LONGEST_TEXT = 4000
LARGEST_SIZE = 1 << 60
_TAG = "an operator tag is lower-case letters, digits and underscores"


def line_of(record: PoolRecord) -> str:
    """One line, without the line break; the same for equal records."""
    return json.dumps(to_plain(record), ensure_ascii=False, allow_nan=False)


def record_of(line: str, where: str) -> PoolRecord:
    """The record in a line."""
    if len(line) > LONGEST_LINE:
        raise DataError(f"{where}: the line has {len(line)} characters; a record has at most {LONGEST_LINE}")
    try:
        record = from_plain(PoolRecord, json.loads(line, parse_constant=_refuse), where="record")
        check(record)
    except (ValueError, RecursionError, DataError) as error:
        raise DataError(f"{where}: {error}") from error
    return replace(record, strategy=current_strategy(record.strategy))


def read_lines(path: Path) -> Iterator[PoolRecord]:
    """All records of a file in order; empty lines are skipped."""
    text = read_text(path, "the file", MOST_JSON_BYTES)
    # not splitlines(): JSON strings may hold U+2028 and the like
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield record_of(line, f"{path.name}, line {number}")


def write_lines(path: Path, records: Iterable[PoolRecord]) -> int:
    """Replace the file as a whole; returns how many records it has."""
    lines = [line_of(record) + "\n" for record in records]
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text("".join(lines), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise unwritable(path, error) from error
    return len(lines)


def check(record: PoolRecord) -> None:
    """A `DataError` when a record says something that the rest of the program has no word for."""
    for field, value, known in (
        ("zone", record.zone, ("", *ZONES)),
        ("limit", record.limit, ("", *LIMITS)),
        ("precision", record.precision, PRECISIONS),
    ):
        if value not in known:
            raise DataError(f"{field}: {value!r} is none of {', '.join(filter(None, known))}")
    for tag in record.operators:
        if not PARAMETER_NAME.fullmatch(tag):
            raise DataError(f"operators: {tag!r} is not a tag; {_TAG}")
    if not record.strategy.moves:
        raise DataError("strategy: there are no moves in it")
    for move in record.strategy.moves:
        names = [name for name, _ in move.parameters]
        if not CARD_NAME.fullmatch(move.card):
            raise DataError(f"strategy: {move.card!r} is not a card's name")
        if any(not PARAMETER_NAME.fullmatch(name) for name in names) or len(set(names)) != len(names):
            raise DataError(f"strategy: {move.card} has parameters without a proper name, or twice: {names}")
    sizes = record.sizes
    if max(sizes.elements, sizes.row or 0, *(sizes.product or ())) > LARGEST_SIZE:
        raise DataError(f"sizes: nothing is larger than {LARGEST_SIZE}")
    texts = (record.text, record.strategy.text, *(move.reason for move in record.strategy.moves))
    if max(map(len, texts)) > LONGEST_TEXT:
        raise DataError(f"a text has more than {LONGEST_TEXT} characters")
    try:
        line_of(record).encode()
    except ValueError as error:  # an infinite parameter, or half of a surrogate pair
        raise DataError(f"it cannot be written as JSON in UTF-8: {error}") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")
