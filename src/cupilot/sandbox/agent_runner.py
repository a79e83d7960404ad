"""The process that `cupilot.sandbox.agent_process` starts: gives up its rights, then becomes the agent's command."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from cupilot.sandbox.confine import confine_agent

NOT_CONFINED, NOT_STARTED = 125, 127
LARGEST_DESCRIPTOR = 4096


def main(plan: Path) -> int:
    asked = json.loads(plan.read_text(encoding="utf-8"))
    plan.unlink()
    # what is ours: the pipes of the process that watches this one
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.closerange(3, LARGEST_DESCRIPTOR)
    try:
        confine_agent(map(Path, asked["readable"]), map(Path, asked["writable"]), network=asked["network"])
    except OSError as error:
        print(f"the agent cannot be confined: {error.strerror}")
        return NOT_CONFINED
    try:
        os.execvpe(asked["command"][0], asked["command"], asked["environment"])
    except OSError as error:
        print(f"{asked['command'][0]} does not start: {error.strerror}")
        return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
