"""The server's side of the worker process, which is started on demand and stopped when its caller is cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from cupilot.errors import MachineError, UserError
from cupilot.mcp.request import ToolRequest
from cupilot.records import to_plain

PROGRESS_INTERVAL_S = 2.0
STOP_TIMEOUT_S = 3.0
LARGEST_ANSWER_BYTES = 1 << 24

Progress = Callable[[float, str], Awaitable[None]]


@dataclass
class WorkerClient:
    """One worker process, one request at a time; ``command`` starts it."""

    command: Sequence[str]
    _process: Process | None = None
    _lines: BufferedByteReceiveStream | None = None
    _lock: anyio.Lock = field(default_factory=anyio.Lock)

    async def ask(self, request: ToolRequest, progress: Progress) -> Any:
        """The answer as plain data; cancelling the caller stops the worker."""
        begin = anyio.current_time()
        step = "waiting for another call to finish"
        async with self._lock:
            try:
                lines = await self._send(json.dumps(to_plain(request)) + "\n")
                while True:
                    received = None
                    with anyio.move_on_after(PROGRESS_INTERVAL_S):
                        received = await lines.receive_until(b"\n", LARGEST_ANSWER_BYTES)
                    if received is not None:
                        kind, value = json.loads(received)
                        if kind == "answer":
                            return value
                        if kind == "error":
                            raise UserError(value)
                        step = value
                    await progress(anyio.current_time() - begin, step)
            except UserError:
                raise
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
                await self.close()
                raise MachineError("the worker process has ended unexpectedly: try again") from error
            except BaseException:
                await self.close()
                raise

    async def _send(self, text: str) -> BufferedByteReceiveStream:
        if self._process is None or self._process.returncode is not None:
            # pipes of its own: standard input and output belong to the protocol
            self._process = await anyio.open_process(
                list(self.command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True
            )
            assert self._process.stdout is not None
            self._lines = BufferedByteReceiveStream(self._process.stdout)
        assert self._process.stdin is not None
        assert self._lines is not None
        await self._process.stdin.send(text.encode())
        return self._lines

    async def close(self) -> None:
        """Interrupt the worker, which then stops what it has started; kill it if it does not end in time."""
        process, self._process, self._lines = self._process, None, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
                with anyio.move_on_after(STOP_TIMEOUT_S):
                    await process.wait()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()
