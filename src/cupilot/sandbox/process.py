"""Runs untrusted code in a process of its own, watches it, kills it with all its children, and takes its answers.

The parent watches memory, threads, output and time, and kills a process that exceeds its `Limits`.  The rights that
the process gives up before it loads a candidate are in `cupilot.sandbox.confine`.

Answers come over a pipe that only the trusted part of the process knows.  Each carries its number and a code made with
a key that was sent to the process before the candidate was loaded.  So nothing that a candidate writes into the pipe or
into a file passes for an answer, and a process that ends early has given none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import secrets
import selectors
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import IO, Protocol

from cupilot.errors import MachineError

FILE_LIMIT_BYTES = 16 << 30
KEPT_OUTPUT_BYTES = 1 << 20
WATCH_S = 0.02
ENDING_S = 10.0
ENDED_S = 0.001
READ_BYTES = 1 << 20
KEY_BYTES = CODE_BYTES = 32
MAX_PARTS = 1 << 16
KEPT_ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR", "VIRTUAL_ENV")
# every process that a candidate might start inherits it
MARK = "CUPILOT_JOB"


def _most_memory() -> int:
    return min(12 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4)


@dataclass(frozen=True)
class Limits:
    """What a process and its children may use together; memory is resident memory, not mapped."""

    memory_bytes: int = _most_memory()
    tasks: int = 64 + (os.cpu_count() or 1)
    output_bytes: int = 64 << 20
    answer_bytes: int = 4 << 30


USUAL = Limits()


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status (negative: the signal), a time-out, or the limit that it exceeded.

    ``answers`` are the authentic ones, in order, each a tuple of parts.  ``disturbed``: the answer channel held
    something else as well, written by the candidate or cut off by the end.
    """

    status: int
    timed_out: bool
    output: str
    excess: str = ""
    answers: tuple[tuple[memoryview, ...], ...] = ()
    disturbed: bool = False


def bare_environment(folder: Path, *more: str) -> dict[str, str]:
    """The little of our environment that a worker gets, whose working folder is another; ``more`` names are kept."""
    environment = {key: os.environ[key] for key in (*KEPT_ENVIRONMENT, *more) if key in os.environ}
    folders = map(os.path.abspath, filter(None, environment.pop("PYTHONPATH", "").split(os.pathsep)))
    environment["PYTHONPATH"] = os.pathsep.join(folders)
    # restrictions on files bind the thread that asks for them, so there must be one only
    return environment | {"HOME": str(folder), "OPENBLAS_NUM_THREADS": "1"}


def run_limited(
    command: Sequence[str],
    folder: Path,
    timeout_s: float,
    environment: Mapping[str, str],
    limits: Limits = USUAL,
    descriptors: Sequence[int] = (),
) -> Ended:
    """Run a command in ``folder`` and wait; all processes that it started are gone afterwards.

    It inherits the descriptors.
    """
    mark = secrets.token_hex(16)
    marked = {**environment, MARK: mark}
    return supervise(
        lambda answers: (_start(command, folder, marked, answers, descriptors), answers), timeout_s, limits, mark
    )


class Running(Protocol):
    """A process that is to be watched, as `subprocess.Popen` has it; the leader of its session."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...


def supervise(
    start: Callable[[int], tuple[Running, int]], timeout_s: float, limits: Limits = USUAL, mark: str = ""
) -> Ended:
    """Watch a process to its end; all processes of its session are gone afterwards.

    ``start`` gets a descriptor for answers, and gives the process and the number that this descriptor has there.
    Processes with the ``mark`` in their environment are killed as well.
    """
    key = secrets.token_bytes(KEY_BYTES)
    answers, far_end = os.pipe()
    with os.fdopen(answers, "rb", 0):
        with contextlib.suppress(OSError):  # a larger pipe is only faster
            fcntl.fcntl(far_end, fcntl.F_SETPIPE_SZ, READ_BYTES)
        try:
            process, number = start(far_end)
        finally:
            os.close(far_end)
        watched = _Watched(process, answers, limits)
        try:
            _tell(process, key + str(number).encode())
            timed_out, excess = watched.wait(time.monotonic() + timeout_s)
        finally:
            # also when we are interrupted ourselves
            _kill_all(process, mark)
        watched.take_the_rest()
    received, disturbed = _authentic(memoryview(watched.answers.kept).toreadonly(), key)
    assert process.returncode is not None
    return Ended(process.returncode, timed_out, watched.output.text(), excess, received, disturbed)


def _start(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], far_end: int, descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=(far_end, *descriptors),
    )


def _tell(process: Running, text: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(text)


def limit_self(timeout_s: float) -> None:
    """Limits that a worker sets on itself before it loads a candidate; they cannot be raised again."""
    # not 0: to a program that collects cores, Linux then still hands all of the memory
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))
    # processor time of several threads adds up, so this is only a net below the wall-clock limit
    seconds = int(timeout_s * 8) + 60
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


# --- watching -------------------------------------------------------------------------------------


class _Stream:
    """One pipe from the process; with a bound on what is kept, the middle is left out."""

    def __init__(self, descriptor: int, bound: int | None = None) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.total = 0
        self.kept = bytearray()
        self._bound = bound
        self._first = bytearray()

    def take(self) -> bool:
        """Take what is there; False at the end of the stream."""
        try:
            data = os.read(self.descriptor, READ_BYTES)
        except BlockingIOError:
            return True
        self.total += len(data)
        self.kept += data
        if self._bound is not None and len(self.kept) > self._bound:
            if not self._first:
                self._first = self.kept[: self._bound // 2]
            del self.kept[: -self._bound // 2]
        return bool(data)

    def text(self) -> str:
        left_out = self.total - len(self._first) - len(self.kept)
        middle = f"\n... {left_out} bytes ...\n".encode() if self._first else b""
        return (self._first + middle + self.kept).decode(errors="replace")


class _Watched:
    """A running process and its two streams."""

    def __init__(self, process: Running, answers: int, limits: Limits) -> None:
        assert process.stdout is not None
        self._process = process
        self._limits = limits
        self.output = _Stream(process.stdout.fileno(), KEPT_OUTPUT_BYTES)
        self.answers = _Stream(answers)

    def wait(self, deadline_s: float) -> tuple[bool, str]:
        """Until the process ends by itself, its time is up (True) or it exceeds a limit (which one, in words)."""
        looked_s = 0.0
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
            for stream in (self.output, self.answers):
                selector.register(stream.descriptor, selectors.EVENT_READ, stream)
            with contextlib.suppress(OSError):  # without it, the end is noticed at the next look
                ending = os.pidfd_open(self._process.pid)
                opened.callback(os.close, ending)
                selector.register(ending, selectors.EVENT_READ)
            while self._process.poll() is None:
                for ready, _ in selector.select(WATCH_S):
                    if ready.data is not None and not ready.data.take():
                        selector.unregister(ready.fd)
                now_s = time.monotonic()
                excess = self._too_much_said()
                if not excess and now_s - looked_s >= WATCH_S:
                    looked_s, excess = now_s, self._too_much_used()
                if excess or now_s >= deadline_s:
                    return not excess, excess
        return False, ""

    def take_the_rest(self) -> None:
        """What is left in the pipes when nobody writes any more."""
        for stream in (self.output, self.answers):
            before = -1
            while stream.total != before and not self._too_much_said():
                before = stream.total
                stream.take()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _too_much_said(self) -> str:
        if self.output.total > self._limits.output_bytes:
            return f"printed more than {size_text(self._limits.output_bytes)}"
        if self.answers.total > self._limits.answer_bytes:
            return f"returned more than {size_text(self._limits.answer_bytes)}"
        return ""

    def _too_much_used(self) -> str:
        memory_bytes, tasks = usage(self._process.pid, self._limits.tasks)
        if tasks > self._limits.tasks:
            return f"started more than {self._limits.tasks} threads and processes"
        if memory_bytes > self._limits.memory_bytes:
            return f"used more than {size_text(self._limits.memory_bytes)} of memory"
        return ""


def size_text(count: int) -> str:
    return f"{count / (1 << 30):.3g} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MiB"


def usage(leader: int, most_tasks: int) -> tuple[int, int]:
    """Memory that only this process and its descendants hold (not mapped files), and their threads."""
    memory_bytes, tasks, waiting = 0, 0, [leader]
    while waiting and tasks <= most_tasks:
        number = waiting.pop()
        fields = _status(number)
        memory_bytes += sum(
            int(fields.get(name, "0 kB").split()[0]) << 10 for name in ("RssAnon", "RssShmem", "VmSwap")
        )
        tasks += int(fields.get("Threads", 0))
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{number}/task"):
                waiting += map(int, Path(f"/proc/{number}/task/{task}/children").read_text().split())
    return memory_bytes, tasks


def _status(number: int) -> dict[str, str]:
    """What the kernel says of a process; nothing when it has ended."""
    try:
        lines = Path(f"/proc/{number}/status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


# --- ending ---------------------------------------------------------------------------------------


def _kill_all(process: Running, mark: str) -> None:
    """The process, its session and, where there is a mark, whoever left the session but carries it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kill_marked(f"{MARK}={mark}" if mark else "", process.pid, process.pid)


def kill_marked(mark: str, oldest: int, session: int = 0) -> None:
    """Kill the processes, younger than the given one, that have this text in the environment they were started with.

    They and those of the session, which have been killed already, are gone afterwards: a process that is being ended
    has lost its memory, and its environment with it, before it gives up its files and its folder.
    """
    killed: set[tuple[int, str]] = set()
    deadline_s = time.monotonic() + ENDING_S
    while time.monotonic() < deadline_s:
        left = [living for living in _younger(oldest) if living.key in killed or living.session == session > 0]
        # a process that was just being forked is found in the next round
        marked = _marked(mark.encode(), oldest) if mark else []
        for living in marked:
            killed.add(living.key)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(living.number, signal.SIGKILL)
        if not left and not marked:
            return
        time.sleep(ENDED_S)


@dataclass(frozen=True)
class _Living:
    """A process that has not ended; its start tells it from a later one with its number."""

    number: int
    session: int
    start: str

    @property
    def key(self) -> tuple[int, str]:
        return self.number, self.start


def _younger(oldest: int) -> Iterator[_Living]:
    """Living processes, younger than the given one."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    # numbers are given in turn; looking only at the later ones spares the wait for all others' memory
    newest = int(Path("/proc/loadavg").read_text().rpartition(" ")[2])
    for number in numbers:
        if oldest < number <= newest if newest >= oldest else number > oldest or number <= newest:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()
                state, session, threads, start = fields[0], int(fields[3]), int(fields[17]), fields[19]
                if state not in "ZX" or threads > 1:
                    yield _Living(number, session, start)


def _marked(mark: bytes, oldest: int) -> list[_Living]:
    """Those with this entry in the environment they were started with."""
    found = []
    for living in _younger(oldest):
        with contextlib.suppress(OSError), open(f"/proc/{living.number}/environ", "rb") as environment:
            if mark in environment.read():
                found.append(living)
    return found


# --- answers --------------------------------------------------------------------------------------


class Channel:
    """The worker's end of the pipe for answers."""

    def __init__(self, descriptor: int, key: bytes) -> None:
        self._descriptor = descriptor
        self._key = key
        self._number = 0

    def send(self, *parts: bytes | memoryview) -> None:
        """One answer; parts are contiguous, of any shape and type."""
        flat = [_flat(part) for part in parts]
        head = struct.pack(f"<I{len(flat)}Q", len(flat), *map(len, flat))
        code = _code(self._key, self._number, head, flat)
        self._number += 1
        for part in (memoryview(head), *flat, memoryview(code)):
            sent = 0
            while sent < len(part):
                sent += os.write(self._descriptor, part[sent:])


def open_channel() -> Channel:
    """Take over the channel that `run_limited` opened; call it once, before anything untrusted is loaded."""
    with os.fdopen(0, "rb", closefd=False) as source:
        told = source.read()
    key, number = told[:KEY_BYTES], told[KEY_BYTES:]
    if not number.isdigit():
        raise MachineError("this process must be started by run_limited")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # somewhere else than where the process was told
    descriptor = fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 16 + secrets.randbelow(100))
    os.close(int(number))
    return Channel(descriptor, key)


def _flat(part: bytes | memoryview) -> memoryview:
    view = memoryview(part)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _code(key: bytes, number: int, head: bytes | memoryview, parts: Sequence[bytes | memoryview]) -> bytes:
    total = blake2b(struct.pack("<Q", number), key=key, digest_size=CODE_BYTES)
    for part in (head, *parts):
        total.update(part)
    return total.digest()


def _authentic(data: memoryview, key: bytes) -> tuple[tuple[tuple[memoryview, ...], ...], bool]:
    """The answers at the beginning of the data, and whether anything else follows them."""
    answers: list[tuple[memoryview, ...]] = []
    while len(data) >= 4:
        (count,) = struct.unpack_from("<I", data)
        start = 4 + 8 * count
        if count > MAX_PARTS or len(data) < start:
            break
        sizes = struct.unpack_from(f"<{count}Q", data, 4)
        end = start + sum(sizes)
        if len(data) < end + CODE_BYTES:
            break
        parts, place = [], start
        for size in sizes:
            parts.append(data[place : place + size])
            place += size
        if not compare_digest(_code(key, len(answers), data[:start], parts), bytes(data[end : end + CODE_BYTES])):
            break
        answers.append(tuple(parts))
        data = data[end + CODE_BYTES :]
    return tuple(answers), len(data) > 0
