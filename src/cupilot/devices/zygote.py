"""A warm Python process that forks a worker for each job, so that a job does not wait for imports.

The process (``python -m cupilot.devices.zygote DESCRIPTOR RUNTIME``) imports what workers need, has one thread and
never holds a candidate.  A request is one message with descriptors: the worker's input, output, its answers, and a
socket for its end.  The worker says hello on that socket, by which the kernel tells its number in our namespace; the
process writes the status there when the worker has ended.  It ends when nobody holds the other end of its own socket
any more, and the workers end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from cupilot.errors import MachineError
from cupilot.sandbox.bubblewrap import command_line
from cupilot.sandbox.confine import end_with_parent

REQUEST_BYTES = 1 << 16
ANSWERS = 250
"""The descriptor that a worker's answers go to."""
START_S = 60.0
CREDENTIALS = struct.Struct("3i")
PASS_CREDENTIALS, SENT_CREDENTIALS = 16, 2  # SO_PASSCRED and SCM_CREDENTIALS of Linux


class Forked:
    """A worker, with what `cupilot.sandbox.process` wants of a process."""

    def __init__(self, pid: int, ending: socket.socket, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None
        self._ending = ending

    def poll(self) -> int | None:
        return self._look(0.0)

    def wait(self) -> int:
        self._look(None)
        assert self.returncode is not None
        return self.returncode

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._ending.settimeout(seconds)
            with contextlib.suppress(BlockingIOError, TimeoutError):
                told = self._ending.recv(4)
                # without a word: the process that watched over it is gone, and took it along
                self.returncode = struct.unpack("i", told)[0] if len(told) == 4 else -signal.SIGKILL
                self._ending.close()
        return self.returncode


class Zygote:
    """The process and our end of its socket.  Thread-safe."""

    def __init__(
        self, runtime: Path, folder: Path, environment: Mapping[str, str], bubblewrap: str, writable: Sequence[Path]
    ) -> None:
        """Workers may write in ``folder`` and in ``writable``, which exist; through bubblewrap where it is named."""
        self.environment = dict(environment)
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command: Sequence[str] = (
            sys.executable, "-P", "-m", "cupilot.devices.zygote", str(theirs.fileno()), str(runtime)
        )  # fmt: skip
        if bubblewrap:
            places = [path.resolve() for path in (folder, *writable)]
            # it must not end with the thread that happens to start it
            line = command_line(bubblewrap, command, places[0], places[1:])
            command = tuple(word for word in line if word != "--die-with-parent")
        self._process = subprocess.Popen(
            command, cwd=folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True, pass_fds=(theirs.fileno(),),
        )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._owner = os.getpid()
        weakref.finalize(self, _stop, self._process, ours, self._owner)

    def start(self, folder: Path, answers: int) -> Forked:
        """Fork a worker for the job in a folder; it inherits the descriptor as `ANSWERS`."""
        ending, far_ending = socket.socketpair()
        ending.setsockopt(socket.SOL_SOCKET, PASS_CREDENTIALS, 1)
        (far_in, near_in), (near_out, far_out) = os.pipe(), os.pipe()
        stdin, stdout = os.fdopen(near_in, "wb", 0), os.fdopen(near_out, "rb", 0)
        try:
            with self._lock:
                descriptors = [far_in, far_out, answers, far_ending.fileno()]
                socket.send_fds(self._socket, [json.dumps(str(folder)).encode()], descriptors)
        except OSError:
            raise self._problem() from None
        finally:
            for number in (far_in, far_out):
                os.close(number)
            far_ending.close()
        ending.settimeout(START_S)
        try:
            _, ancillary, _, _ = ending.recvmsg(1, socket.CMSG_SPACE(CREDENTIALS.size))
        except TimeoutError:
            ancillary = []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, SENT_CREDENTIALS):
                return Forked(CREDENTIALS.unpack(data[: CREDENTIALS.size])[0], ending, stdin, stdout)
        raise self._problem()

    def alive(self) -> bool:
        return self._process.poll() is None

    def _problem(self) -> MachineError:
        _stop(self._process, self._socket, self._owner)
        assert self._process.stderr is not None
        last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        return MachineError(f"no worker process can be started: {last or 'the one that starts them has ended'}")


def _stop(process: subprocess.Popen[bytes], connection: socket.socket, owner: int) -> None:
    if os.getpid() != owner:  # a process that was forked has copies only
        connection.close()
        return
    with contextlib.suppress(OSError):  # the other side sees the end whoever else may hold a copy
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- in the process -----------------------------------------------------------------------------------


def serve(connection: socket.socket) -> None:
    """Fork workers until the other end is closed, and take all of them along then."""
    running: set[int] = set()
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    while True:
        for ready, _ in selector.select():
            if ready.data is not None:
                selector.unregister(ready.fd)
                os.close(ready.fd)
                running.discard(ready.data[0])
                _report(*ready.data)
                continue
            request, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
            if not request:
                for pid in running:
                    _kill_session(pid)
                return
            pid = os.fork()
            if pid == 0:
                selector.close()
                connection.close()
                _become(Path(json.loads(request)), *descriptors)
            for number in descriptors[:3]:
                os.close(number)
            running.add(pid)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[3]))


def _kill_session(leader: int) -> None:
    """A worker and the process of its host code, which does not end by itself when the worker does: Landlock keeps
    signals from leaving the worker, and that its child gets at its death is one."""
    for kill in (os.killpg, os.kill):  # it may not have come to a session of its own yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)


def _report(pid: int, ending: int) -> None:
    _kill_session(pid)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError), socket.socket(fileno=ending) as connection:
        connection.send(struct.pack("i", os.waitstatus_to_exitcode(status)), socket.MSG_NOSIGNAL)


def _become(folder: Path, source: int, output: int, answers: int, ending: int) -> None:
    """The forked process is a worker from now on; does not return."""
    status = 1
    try:
        end_with_parent()
        os.setsid()
        with socket.socket(fileno=ending) as connection:
            connection.send(b"!")
        for number, place in ((source, 0), (output, 1), (output, 2), (answers, ANSWERS)):
            os.dup2(number, place)
        for number in {source, output, answers}:
            os.close(number)
        os.chdir(folder)
        # what a crash in native code printed before must not be lost in a buffer
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        from cupilot.devices.worker import main

        status = main(folder)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)
        os._exit(status)


def _warm_up(runtime: str) -> None:
    """What every worker would otherwise do first."""
    import llvmlite.binding as llvm

    import cupilot.devices.worker
    import cupilot.languages.cuda.program
    import cupilot.vgpu.translate

    ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cupilot.vgpu.translate.engine_digest()


if __name__ == "__main__":
    _warm_up(sys.argv[2])
    serve(socket.socket(fileno=int(sys.argv[1])))
