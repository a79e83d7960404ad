"""Appended to another answer: tries what it has no right to."""

import os
import socket
import subprocess
import threading
from pathlib import Path


def succeeds(attempt):
    try:
        attempt()
    except (OSError, RuntimeError):
        return False
    return True


ATTEMPTS = {
    "the job's description": lambda: Path("../job.json").read_text(),
    "the worker's memory": lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR),
    "the worker's environment": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "a file beside its folder": lambda: Path("../found").write_text("here"),
    "users": lambda: Path("/etc/passwd").read_text(),
    "another process": lambda: subprocess.run(["true"], check=True),
    "a thread": lambda: threading.Thread(target=print).start(),
    "a socket": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "a signal to the worker": lambda: os.kill(os.getppid(), 9),
}
FOUND = [name for name, attempt in ATTEMPTS.items() if succeeds(attempt)]
if FOUND:
    raise SystemError(f"reached: {FOUND}")
