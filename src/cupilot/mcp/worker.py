"""The process that works for the server: questions on its input, one a line, and what comes of them on its output.

An interrupt ends it, with everything it has started.  ``python -m cupilot.mcp.worker CACHE SANDBOX``.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path
from typing import TextIO

from cupilot.errors import CupilotError
from cupilot.records import from_plain, to_plain

PROGRESS, ANSWER, ERROR = "progress", "answer", "error"


def main(cache: Path, sandbox: str) -> int:
    from cupilot.devices import open_device
    from cupilot.mcp.work import Workplace

    # what tasks and libraries print must not get between the answers
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        place = Workplace(lambda name: open_device(name, cache, sandbox), cache, secrets.randbits(32))
        for line in sys.stdin:
            work(place, line, out)
    return 0


def work(place: object, line: str, out: TextIO) -> None:
    """Answer one question; whatever goes wrong is one sentence."""
    from cupilot.mcp.question import Question
    from cupilot.mcp.work import Workplace

    assert isinstance(place, Workplace)
    try:
        question = from_plain(Question, json.loads(line))
        found = place.answer(question, lambda text: send(out, PROGRESS, text))
        send(out, ANSWER, to_plain(found))
    except CupilotError as error:
        send(out, ERROR, " ".join(str(error).split()))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        send(out, ERROR, f"internal error, {text}")


def send(out: TextIO, kind: str, what: object) -> None:
    out.write(json.dumps([kind, what]) + "\n")
    out.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
    except KeyboardInterrupt:
        os._exit(130)
