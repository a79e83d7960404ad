"""SIGTERM during a search that a terminal shows.

The program runs at a terminal of its own, with the layers below replaced; evaluations of one kernel wait at a gate, so
that the signal comes while one is under way.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60.0
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
PROGRAM = """
import sys
from pathlib import Path
import cupilot.evaluation, pytest
from conftest import FakeEvaluator, replace_layers
from cupilot.cli import main
folder, waiting = Path(sys.argv[1]), sys.argv[2]
replace_layers(pytest.MonkeyPatch(), folder)
class Gated(FakeEvaluator):
    def __call__(self, request):
        if request.kernel.source.split()[-1] == waiting:
            (folder / "gate").read_bytes()
        return super().__call__(request)
cupilot.evaluation.Evaluator = Gated
sys.exit(main(["optimize", "relu.py", "--jobs", "1"]))
"""


class Screen:
    """A program and all that it has written to its terminal."""

    def __init__(self, program: subprocess.Popen[bytes], terminal: int) -> None:
        self.program, self.text = program, ""
        self._terminal = terminal
        self._decoder = getincrementaldecoder("utf-8")()

    def until(self, words: str) -> None:
        while words not in self.text:
            assert self._read(), f"it ended without {words!r}:\n{self.text}"

    def end(self) -> int:
        while self._read():
            pass
        return self.program.wait(PATIENCE_S)

    def _read(self) -> bool:
        assert select.select([self._terminal], [], [], PATIENCE_S)[0], f"nothing more came:\n{self.text}"
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # nobody has the other end any more
            return False
        self.text += self._decoder.decode(data)
        return bool(data)


@contextmanager
def search(folder: Path, waiting: str) -> Iterator[Screen]:
    os.mkfifo(folder / "gate")
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    environment["PYTHONPATH"] = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), waiting], env=environment, stdin=theirs, stdout=theirs,
        stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Screen(program, ours)
    finally:
        program.kill()
        program.wait()
        os.close(ours)


@contextmanager
def closed_gate(folder: Path) -> Iterator[None]:
    """Waits until an evaluation stands at the gate; opens it in the end."""
    gate = os.open(folder / "gate", os.O_WRONLY)
    try:
        yield
    finally:
        os.close(gate)


def test_a_search_keeps_its_best_and_shows_the_cursor_again(tmp_path: Path) -> None:
    with search(tmp_path, waiting="1") as screen:
        screen.until("plain kernel: ")
        with closed_gate(tmp_path):
            screen.program.send_signal(signal.SIGTERM)
            screen.until("stopping: waits for what is under way")
        assert screen.end() == 0, screen.text
    assert screen.text.rindex(HIDDEN) < screen.text.rindex(SHOWN)
    assert "stopped: interrupted by the user" in screen.text
    assert "resume: cupilot resume runs/relu-1" in screen.text
    assert (tmp_path / "runs" / "relu-1" / "best.cu").exists()


def test_before_there_is_anything_to_keep(tmp_path: Path) -> None:
    with search(tmp_path, waiting="0") as screen:
        screen.until(HIDDEN)
        with closed_gate(tmp_path):
            screen.program.send_signal(signal.SIGTERM)
            screen.until(SHOWN)
        assert screen.end() == 143
    assert screen.text.endswith("cupilot: terminated\r\n")
