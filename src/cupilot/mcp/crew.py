"""The worker as the server sees it: started when there is something to do, ended when nobody waits for it."""

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
from cupilot.mcp.question import Question
from cupilot.records import to_plain

BEAT_S = 2.0
ENDING_S = 3.0
LONGEST_BYTES = 1 << 24

Progress = Callable[[float, str], Awaitable[None]]


@dataclass
class Crew:
    """One worker, one question at a time; ``command`` starts it."""

    command: Sequence[str]
    _process: Process | None = None
    _lines: BufferedByteReceiveStream | None = None
    _alone: anyio.Lock = field(default_factory=anyio.Lock)

    async def ask(self, question: Question, progress: Progress) -> Any:
        """The answer as plain data; when the caller is cancelled, so is the work."""
        begin = anyio.current_time()
        step = "waiting for another call to end"
        async with self._alone:
            try:
                lines = await self._tell(json.dumps(to_plain(question)) + "\n")
                while True:
                    received = None
                    with anyio.move_on_after(BEAT_S):
                        received = await lines.receive_until(b"\n", LONGEST_BYTES)
                    if received is not None:
                        kind, what = json.loads(received)
                        if kind == "answer":
                            return what
                        if kind == "error":
                            raise UserError(what)
                        step = what
                    await progress(anyio.current_time() - begin, step)
            except UserError:
                raise
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
                await self.end()
                raise MachineError("the process that does the work has ended: ask again") from error
            except BaseException:
                await self.end()
                raise

    async def _tell(self, text: str) -> BufferedByteReceiveStream:
        if self._process is None or self._process.returncode is not None:
            # nothing of the protocol's own channel is passed on
            self._process = await anyio.open_process(
                list(self.command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None, start_new_session=True
            )
            assert self._process.stdout is not None
            self._lines = BufferedByteReceiveStream(self._process.stdout)
        assert self._process.stdin is not None
        assert self._lines is not None
        await self._process.stdin.send(text.encode())
        return self._lines

    async def end(self) -> None:
        """Interrupt the worker, which then ends what it has started; kill it if it does not."""
        process, self._process, self._lines = self._process, None, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
                with anyio.move_on_after(ENDING_S):
                    await process.wait()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.aclose()
