"""The page about the command line, written from the argument parsers: docs/make_cli.py."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from cupilot.cli.program import make_parser

TITLE = "# The command line"
INTRODUCTION = """Written by `python docs/make_cli.py` from the argument parsers; a test sees to it that it is current.

| Exit status | |
|---|---|
| 0 | done; of `evaluate`, `verify`, `optimize`, `resume` and `bench`: with a verdict, and it is good |
| 1 | a kernel failed, a search found none that is right, or the machine lacks something (a compiler, memory) |
| 2 | your mistake: options, files that cannot be used, a task that does not load, a missing key or extra |
| 3 | a bug in cupilot; the sentence says how to report it |
| 130, 143 | Ctrl-C, SIGTERM, before there was anything to keep |

`cupilot run` ends with the program's own status. SIGTERM does what Ctrl-C does: a search keeps its best and says how
to go on. Errors are one sentence on stderr; `CUPILOT_DEBUG=1` adds the traceback. Results go to stdout.

`--json FILE` writes one JSON object in every case: the result, whose `failure` (`stage`, `kind`, `message`, `findings`)
says why a kernel was rejected, or `{"error": {"kind": ..., "message": ...}}` when there is no result. With
`--json -` the object is all that stdout gets, and everything else goes to stderr, also when an option is mistaken.
Kinds of errors are `usage`, `task`, `device`, `data`, `cache`, `store`, `unmatched-task`, `missing-key`,
`missing-extra` (status 2), `machine`, `toolchain`, `disk-full`, `no-kernel`, `model`, `failed`, `altered`,
`not-confirmed` (1), `internal` (3), `interrupted` (130) and `terminated` (143).

On a terminal long steps show how far they are; in a pipe there are plain
lines. `NO_COLOR=1` leaves colours out, `CUPILOT_CACHE` is the folder of builds and of the pool
(`$XDG_CACHE_HOME/cupilot`, else `~/.cache/cupilot`),
`CUPILOT_SANDBOX` is how candidates are confined ([honesty.md](honesty.md))."""


def page() -> str:
    """All commands, each with its arguments."""
    parts = [TITLE, INTRODUCTION]
    for name, command in _commands(make_parser()):
        parts += _section(name, command, "##")
    return "\n\n".join(parts) + "\n"


def _section(name: str, command: argparse.ArgumentParser, level: str) -> Iterator[str]:
    inner = list(_commands(command))
    yield f"{level} {name}"
    if command.description:
        yield command.description.strip()
    arguments = [action for action in command._actions if not isinstance(action, _SKIPPED)]
    if arguments:
        yield f"`{_usage(name, arguments)}`"
        yield "\n".join(["| | |", "|---|---|", *(_row(action) for action in arguments)])
    if command.epilog:
        yield command.epilog
    for each, parser in inner:
        yield from _section(f"{name} {each}", parser, level + "#")


_SKIPPED = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _usage(name: str, arguments: list[argparse.Action]) -> str:
    """What has to be given; options that may be left out are one word."""
    words = ["cupilot", name]
    words += [_shown(action) for action in arguments if action.required and action.option_strings]
    words += [_shown(action) for action in arguments if not action.option_strings]
    if any(action.option_strings and not action.required for action in arguments):
        words.append("[options]")
    return " ".join(words)


def _row(action: argparse.Action) -> str:
    text = (action.help or "").replace("|", "\\|")
    if action.choices is not None and not action.metavar:
        text = f"{text}: " if text else ""
        text += " or ".join(f"`{choice}`" for choice in action.choices)
    shown = _shown(action).replace("|", "\\|")
    return f"| `{shown}` | {text} |"


def _shown(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return f"{value}..." if action.nargs in ("+", "*") else f"[{value}]" if action.nargs == "?" else value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"
