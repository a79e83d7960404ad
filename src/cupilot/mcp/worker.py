"""The worker process: reads requests from its input, one per line, and writes progress and answers to its output.

An interrupt stops it and everything it has started.  ``python -m cupilot.mcp.worker CACHE SANDBOX``.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cupilot.errors import error_report
from cupilot.mcp.request import ToolRequest
from cupilot.records import from_plain, to_plain

if TYPE_CHECKING:
    from cupilot.mcp.tools import Tools

PROGRESS, ANSWER, ERROR = "progress", "answer", "error"


def main(cache: Path, sandbox: str) -> int:
    from cupilot.devices import open_device
    from cupilot.mcp.tools import Tools

    # output of tasks and libraries must not mix with the answers
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        tools = Tools(lambda name: open_device(name, cache, sandbox), cache, secrets.randbits(32))
        for line in sys.stdin:
            handle(tools, line, out)
    return 0


def handle(tools: Tools, line: str, out: TextIO) -> None:
    """Answer one request; every error is sent as one sentence."""
    try:
        request = from_plain(ToolRequest, json.loads(line))
        found = tools.answer(request, lambda text: send(out, PROGRESS, text))
        send(out, ANSWER, to_plain(found))
    except Exception as error:
        send(out, ERROR, error_report(error).message)


def send(out: TextIO, kind: str, value: object) -> None:
    out.write(json.dumps([kind, value]) + "\n")
    out.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
    except KeyboardInterrupt:
        os._exit(130)
