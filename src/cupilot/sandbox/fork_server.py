"""A process that imports slow libraries once, and forks a confined child for each piece of untrusted code.

The server itself runs trusted code only: ``python -m cupilot.sandbox.fork_server DESCRIPTOR MODULE FOLDER ...`` imports
the module, lets it warm up, and forks when its parent asks for a child.  A child gives up its rights (`confine`), has a
session and folders of its own, and serves its end of a socket with the module's ``serve``.  The server watches the
children's memory, files and threads, kills those that exceed their `Limits`, and tells how a child ended.

Where bubblewrap works, the server and so all children have its namespaces as well.  When the parent is gone, however it
ended, the server kills the children, removes the folders and ends.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import importlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, cast

from cupilot.errors import MachineError
from cupilot.sandbox.bubblewrap import command_line
from cupilot.sandbox.confine import confine
from cupilot.sandbox.frames import LOOK_S
from cupilot.sandbox.process import Limits, limit_self, size_text, usage
from cupilot.text import harmless

READY_S = 300.0
"""How long importing the libraries may take on a busy machine."""
ENDING_S = 30.0
WATCH_S = 0.05
PROCESSOR_S = 24 * 3600.0
MESSAGE_BYTES = 64 << 10
FAILED = 70
KEPT = "-kept"
LAST_WORDS_S = 1.0
"""To pass on what a child has printed, once it has ended."""
PRINTED_BYTES = 64 << 10
BEGIN, END, READY = "begin", "end", "ready"


class Served(Protocol):
    """What the module must have."""

    def warm_up(self) -> None:
        """Import what children need, and start no threads."""

    def serve(self, connection: socket.socket, folders: Sequence[Path]) -> None:
        """Answer requests until the connection ends; runs in a confined child."""


@dataclass(frozen=True)
class Ending:
    """How a child ended: its status (negative: the signal), the limit that it exceeded in words, or by our hand."""

    status: int
    excess: str = ""
    is_ours: bool = False


# --- the parent's side ----------------------------------------------------------------------------


@dataclass(eq=False)
class Child:
    """A child and the parent's end of its socket.

    ``folders`` are the child's own, fastest first.  Beside each is one that the child cannot reach, for what it hands
    over (`keep`); all of them go with the child.
    """

    number: int
    connection: socket.socket
    folders: tuple[Path, ...]
    printing: threading.Thread
    ending: Ending | None = None

    def keep(self, file: str) -> Path:
        """Where a file of the child's is, out of its reach; moved there the first time.

        Raises a `ValueError` for any other file, and an `OSError` when it is gone.
        """
        path = Path(file)
        if path.parent not in self.folders or not path.name:
            raise ValueError(f"{file} is none of its files")
        kept = path.parent.with_name(path.parent.name + KEPT) / path.name
        if not kept.exists():
            path.rename(kept)
        return kept


class ForkServer:
    """Starts at once and does not wait for the libraries; safe to use from several threads.

    ``folders`` exist and belong to the server from here on; ``program`` is bubblewrap, or empty.
    """

    def __init__(self, program: str, module: str, folders: Sequence[Path], environment: Mapping[str, str]) -> None:
        self._folders = tuple(folder.resolve() for folder in folders)
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command: Sequence[str] = (
            sys.executable, "-P", "-m", __name__, str(far.fileno()), module, *map(str, self._folders),
        )  # fmt: skip
        if program:
            command = command_line(program, command, self._folders[0], self._folders[1:], ends_with_starter=False)
            # the server's folders are mounts, which it can empty but not remove
            command = ("sh", "-c", f'"$@"; rm -rf -- {shlex.join(map(str, self._folders))}', "sh", *command)
        with far:
            self._process = subprocess.Popen(
                command, cwd=self._folders[0], env=dict(environment), stdin=subprocess.DEVNULL, stdout=_stderr(),
                pass_fds=(far.fileno(),), start_new_session=True,
            )  # fmt: skip
        self._lock = threading.Lock()
        self._is_ready = False
        self._begun = 0
        self._printing: list[threading.Thread] = []
        self._abandoned: deque[Child] = deque()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, readable: Iterable[Path], limits: Limits) -> Child:
        """A new child, which starts when the libraries are there."""
        near, far = socket.socketpair()
        printed, printer = os.pipe()
        printing = threading.Thread(target=_pass_on, args=(printed,), daemon=True)
        printing.start()
        with far, self._lock, os.fdopen(printer, "wb"):
            self._printing = [*(each for each in self._printing if each.is_alive()), printing]
            self._end_abandoned()
            number = self._begun
            self._begun += 1
            folders = tuple(folder / str(number) for folder in self._folders)
            for folder in _all(folders):
                folder.mkdir()
            message = {"do": BEGIN, "number": number, "readable": list(map(str, readable)), "limits": asdict(limits)}
            try:
                socket.send_fds(self._control, [json.dumps(message).encode()], [far.fileno(), printer])
            except OSError:
                raise self._problem() from None
        return Child(number, near, folders, printing)

    def wait_until_ready(self) -> None:
        """Until the libraries are imported."""
        with self._lock:
            if not self._is_ready:
                self._receive(READY_S)
                self._is_ready = True

    def end(self, child: Child, patience_s: float = 0.0) -> Ending:
        """Kill a child that does not end by itself within the time, and remove its folders."""
        child.connection.close()
        self.wait_until_ready()
        with self._lock:
            return self._end(child, patience_s)

    def abandon(self, child: Child) -> None:
        """End a child soon; takes no lock, so that it can be called at any moment."""
        child.connection.close()  # a child that still listens ends by itself
        self._abandoned.append(child)

    def close(self) -> None:
        """End the server and all children; its folders are gone afterwards."""
        self._control.close()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for printing in self._printing:
            printing.join(LAST_WORDS_S)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _end_abandoned(self) -> None:
        while self._abandoned and self._is_ready:
            self._end(self._abandoned.popleft())

    def _end(self, child: Child, patience_s: float = 0.0) -> Ending:
        if child.ending is not None:
            return child.ending
        try:
            self._control.send(json.dumps({"do": END, "number": child.number, "patience_s": patience_s}).encode())
        except OSError:
            raise self._problem() from None
        child.ending = Ending(**json.loads(self._receive(ENDING_S)))
        child.printing.join(LAST_WORDS_S)
        return child.ending

    def _receive(self, timeout_s: float) -> bytes:
        deadline_s = time.monotonic() + timeout_s
        self._control.settimeout(LOOK_S)
        while time.monotonic() < deadline_s:
            with contextlib.suppress(TimeoutError):
                if message := self._control.recv(MESSAGE_BYTES):
                    return message
                break
        raise self._problem()

    def _problem(self) -> MachineError:
        status = self._process.poll()
        how = "does not answer" if status is None else f"ended with status {status}"
        return MachineError(f"the process that starts others {how}")


def _all(folders: Sequence[Path]) -> tuple[Path, ...]:
    """A child's own folders and those beside them."""
    return (*folders, *(folder.with_name(folder.name + KEPT) for folder in folders))


def _pass_on(printed: int) -> None:
    """What a child prints is for the user to see: never part of a command's result, nor able to steer a terminal."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    with os.fdopen(printed, "rb", 0) as source:
        while data := source.read(PRINTED_BYTES):
            text = decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
            with contextlib.suppress(OSError):
                os.write(2, harmless(text).encode())


def _stderr() -> int:
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


# --- the server's side ----------------------------------------------------------------------------


@dataclass
class _Running:
    """A child as the server sees it."""

    process: int
    limits: Limits
    folders: tuple[Path, ...]
    ending: Ending | None = None

    def look(self) -> None:
        """Has it ended, or used too much?"""
        if self.ending is not None:
            return
        found, status = os.waitpid(self.process, os.WNOHANG)
        if found:
            self.ending = Ending(os.waitstatus_to_exitcode(status))
        elif excess := self._excess():
            self.end(excess)

    def wait(self, timeout_s: float) -> None:
        """Until it ends by itself, for a while."""
        if self.ending is None:
            watched = os.pidfd_open(self.process)
            select.select([watched], [], [], timeout_s)
            os.close(watched)
            self.look()

    def end(self, excess: str = "") -> Ending:
        if self.ending is None:
            for kill in (os.killpg, os.kill):  # it may not have come to a group of its own yet
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.process, signal.SIGKILL)
            _, status = os.waitpid(self.process, 0)
            self.ending = Ending(os.waitstatus_to_exitcode(status), excess, is_ours=not excess)
        return self.ending

    def _excess(self) -> str:
        memory_bytes, tasks = usage(self.process, self.limits.tasks)
        if tasks > self.limits.tasks:
            return f"started more than {self.limits.tasks} threads"
        if memory_bytes + _stored_bytes(_all(self.folders)) > self.limits.memory_bytes:
            return f"used more than {size_text(self.limits.memory_bytes)} of memory"
        return ""


def _stored_bytes(folders: Iterable[Path]) -> int:
    """What a child has written; in shared memory it is memory like any other."""
    total = 0
    for folder in folders:
        for path, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(path, name), follow_symlinks=False).st_blocks * 512
    return total


@dataclass
class _Server:
    control: socket.socket
    module: Served
    folders: tuple[Path, ...]
    children: dict[int, _Running] = field(default_factory=dict)

    def run(self) -> None:
        while True:
            alive = any(child.ending is None for child in self.children.values())
            ready, _, _ = select.select([self.control], [], [], WATCH_S if alive else None)
            for child in self.children.values():
                child.look()
            if ready and not self._handle():
                return

    def _handle(self) -> bool:
        """One message of the parent's; False at the end."""
        try:
            text, descriptors, _, _ = socket.recv_fds(self.control, MESSAGE_BYTES, 2)
        except ConnectionResetError:
            return False
        if not text:
            return False
        message = json.loads(text)
        if message["do"] == BEGIN:
            with socket.socket(fileno=descriptors[0]) as connection, os.fdopen(descriptors[1], "wb") as printer:
                self._begin(message, connection, printer.fileno())
        else:
            child = self.children.pop(message["number"])
            child.wait(message["patience_s"])
            ending = child.end()
            for folder in _all(child.folders):
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(BrokenPipeError):
                self.control.send(json.dumps(asdict(ending)).encode())
        return True

    def _begin(self, message: Mapping[str, object], connection: socket.socket, printer: int) -> None:
        limits = Limits(**cast(dict[str, int], message["limits"]))
        folders = tuple(folder / str(message["number"]) for folder in self.folders)
        process = os.fork()
        if process == 0:
            try:
                self.control.close()
                for stream in (1, 2):
                    os.dup2(printer, stream)
                readable = [Path(path) for path in cast(list[str], message["readable"])]
                _confined(readable, folders)
                self.module.serve(connection, folders)
                os._exit(0)
            finally:
                os._exit(FAILED)
        self.children[int(cast(int, message["number"]))] = _Running(process, limits, folders)

    def close(self) -> None:
        for child in self.children.values():
            child.end()
        for folder in self.folders:
            # where it is a mount of its own, only what is in it can go
            shutil.rmtree(folder, ignore_errors=True)


def _confined(readable: Sequence[Path], folders: Sequence[Path]) -> None:
    os.setsid()
    os.chdir(folders[0])
    limit_self(PROCESSOR_S / 8)
    confine(readable, folders, threads=True)


class _Orphaned:
    """Until the libraries are imported: ends this process when its parent does."""

    def __init__(self, control: socket.socket, folders: Sequence[Path]) -> None:
        self._over, self._tell = os.pipe()
        self._control, self._folders = control, folders
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLRDHUP)
        poll.register(self._over, select.POLLIN)
        found = dict(poll.poll())
        if self._over not in found:
            for folder in self._folders:
                shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

    def stop(self) -> None:
        """There is one thread again: what forks and what gives up rights must be alone."""
        os.write(self._tell, b"x")
        self._thread.join()
        os.close(self._over)
        os.close(self._tell)


def main(descriptor: int, name: str, folders: tuple[Path, ...]) -> None:
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    watch = _Orphaned(control, folders)
    gc.disable()  # libraries make many objects and hardly any garbage
    module = cast(Served, importlib.import_module(name))
    module.warm_up()
    watch.stop()
    gc.freeze()  # what children never touch stays shared
    gc.enable()
    server = _Server(control, module, folders)
    try:
        with contextlib.suppress(BrokenPipeError):
            control.send(READY.encode())
            server.run()
    finally:
        server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], tuple(map(Path, sys.argv[3:])))
