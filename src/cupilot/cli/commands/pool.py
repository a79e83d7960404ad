"""Look into the pool of strategies that worked, and carry it from machine to machine."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from cupilot.cli.choices import add_json
from cupilot.cli.environment import cache_folder
from cupilot.cli.terminal import Terminal
from cupilot.errors import UserError
from cupilot.numbers import duration, ratio
from cupilot.runs.pool import POOL_FILE

if TYPE_CHECKING:
    from cupilot.records.pool import PoolRecord
    from cupilot.strategies.pool import Pool

HELP = "the pool of strategies that worked"
LONGEST_CELL = 20


def configure(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")

    def action(name: str, text: str, function: Callable[[Namespace, Pool, Terminal], int]) -> ArgumentParser:
        found = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        found.add_argument("--pool", metavar="FILE", help=f"the pool's file ({POOL_FILE} in the cache folder)")
        found.set_defaults(act=function)
        return found

    listing = action("list", "list the records", list_records)
    listing.add_argument("--operator", metavar="TAG", help="only tasks with this operator, such as softmax")
    listing.add_argument("--own", action="store_true", help="without the records that come with cupilot")
    add_json(listing)
    showing = action("show", "show one record with its strategy and its proof", show_record)
    showing.add_argument("record", metavar="ID", help="the record's id or the beginning of it, or its kernel's digest")
    add_json(showing)
    importing = action("import", "add the records of a file; none when one of its lines is bad", import_records)
    importing.add_argument("file", metavar="FILE.jsonl", help="JSON lines, as export writes them")
    exporting = action("export", "write your own records as JSON lines", export_records)
    exporting.add_argument("file", metavar="FILE.jsonl", help="is replaced when it exists")
    exporting.add_argument("--all", action="store_true", help="with the records that come with cupilot")
    forgetting = action("forget", "remove records; those that come with cupilot are hidden", forget_records)
    forgetting.add_argument("records", metavar="ID", nargs="+", help="ids, or digests of kernels")


def run(options: Namespace, terminal: Terminal) -> int:
    from cupilot.strategies.pool import open_pool

    path = cache_folder() / POOL_FILE if options.pool is None else Path(options.pool)
    # a mistyped name should not become an empty pool
    if options.pool is not None and options.action != "import" and not path.exists():
        raise UserError(f"there is no pool {path}")
    with open_pool(path) as pool:
        return int(options.act(options, pool, terminal))


def list_records(options: Namespace, pool: Pool, terminal: Terminal) -> int:
    tag = options.operator
    listed = [r for r in pool.records(shipped=not options.own) if tag is None or tag in r.operators]
    shipped = pool.shipped() & {record.id for record in listed}
    rows = [
        (
            record.id,
            cell(record.task),
            cell(inputs(record)),
            record.limit,
            duration(record.time_s),
            ratio(record.gain),
            ratio(record.speedup),
            f"{record.source}, {cell(record.device.removeprefix('virtual:').upper())}",
        )
        for record in listed
    ]
    columns = ("record", "task", "inputs", "limit", "time", "vs plain", "vs PyTorch", "source")
    if rows:
        terminal.table(columns, rows)
    terminal.line(f"{len(rows)} records, {len(shipped)} of them come with cupilot")
    terminal.report({"records": [report(record, record.id in shipped) for record in listed]})
    return 0


def show_record(options: Namespace, pool: Pool, terminal: Terminal) -> int:
    from cupilot.strategies import canonical

    record = pool.find(options.record)
    shipped = record.id in pool.shipped()
    proof = record.proof
    lines = [
        f"record {record.id}{', comes with cupilot' if shipped else ''}",
        f"task: {record.task} ({', '.join(record.operators)}), {record.shapes}, {record.precision}",
        f"first kernel: {record.zone or 'zone not known'}, limit {record.limit or 'not known'}",
        f"time: {duration(record.time_s)} ({record.source}, {record.device}), {ratio(record.gain)} vs plain"
        + (f", {ratio(record.speedup)} vs PyTorch" if record.speedup is not None else ""),
        f"proof: {proof.checks} comparisons, largest error {proof.worst:.2g} of what was allowed, seed {proof.seed}",
        f"made with: cupilot {record.version}, " + ", ".join(f"{name} {version}" for name, version in proof.tools),
        f"kernel: {record.kernel}, SHA-256 {proof.source}",
        f"task text: SHA-256 {proof.task}",
        "strategy:",
        *(f"  {line}" for line in canonical(record.strategy).split("\n")),
    ]
    for line in lines:
        terminal.line(printable(line))
    terminal.report(report(record, shipped))
    return 0


def import_records(options: Namespace, pool: Pool, terminal: Terminal) -> int:
    added = pool.import_lines(Path(options.file))
    terminal.line(f"{added} records were new or better; the pool has {len(pool)}")
    return 0


def export_records(options: Namespace, pool: Pool, terminal: Terminal) -> int:
    path = Path(options.file)
    if not path.absolute().parent.is_dir():
        raise UserError(f"there is no folder {path.absolute().parent}")
    if path.is_dir():
        raise UserError(f"{path} is a folder")
    terminal.line(f"{pool.export_lines(path, shipped=options.all)} records written to {path}")
    return 0


def forget_records(options: Namespace, pool: Pool, terminal: Terminal) -> int:
    for name in options.records:
        for id_ in pool.forget(name):
            terminal.line(f"{id_} is forgotten")
    return 0


def report(record: PoolRecord, shipped: bool) -> dict[str, Any]:
    """One record for ``--json``."""
    from cupilot.records import to_plain

    return {"id": record.id, "shipped": shipped, **to_plain(record)}


def inputs(record: PoolRecord) -> str:
    """The shapes that go in, without types."""
    return record.shapes.partition(" ->")[0].replace(f":{record.dtype}", "")


def cell(text: str) -> str:
    """Text of somebody else's for a table: one line, short, no markup."""
    text = printable(text)
    return escape(text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…")


def printable(text: str) -> str:
    """Without control characters: records may have been written by others."""
    return "".join(character if character.isprintable() else "�" for character in text)
