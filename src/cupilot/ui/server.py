"""The server: binds its socket before it prints an address, and shuts down cleanly."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from cupilot.errors import UserError
from cupilot.report import run_report, suite_report
from cupilot.ui.app import App
from cupilot.ui.dashboard import Dashboard, Report
from cupilot.ui.events import POLL_INTERVAL_S, Polling
from cupilot.ui.new_run_form import FormChoices
from cupilot.ui.pages import Pages
from cupilot.ui.process_manager import ProcessManager, Start
from cupilot.ui.runs import RunsFolder
from cupilot.ui.security import LEAST_TOKEN_CHARACTERS, LOOPBACK_NAMES, Access

TOKEN_BYTES = 32
GRACE_S = 3
"""How long open connections may take at shutdown; event streams end by themselves before."""


@dataclass(frozen=True)
class Settings:
    """The options of ``cupilot ui``; ``names`` are other names of this machine."""

    root: Path
    host: str
    port: int
    token: str | None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < LEAST_TOKEN_CHARACTERS or not self.token.isascii()):
            raise UserError(f"a token needs at least {LEAST_TOKEN_CHARACTERS} characters, all of them ASCII")
        if not 0 <= self.port <= 65535:
            raise UserError(f"there is no port {self.port}")


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class LiveServer:
    """Binds its socket at construction; `run` serves until it is stopped, in the main thread or, in tests, in any."""

    def __init__(
        self,
        settings: Settings,
        choices: FormChoices,
        start: Start,
        clock: Callable[[], float],
        report: Report = run_report,
        suite_report: Report = suite_report,
        interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        self._socket = _bind(settings.host, settings.port)
        self.port: int = self._socket.getsockname()[1]
        self.access = make_access(settings, self.port)
        self._host = settings.host
        self._processes = ProcessManager(start, clock)
        dashboard = Dashboard(RunsFolder(settings.root), self._processes, choices, report, suite_report)
        polling = Polling(asyncio.sleep, lambda: self._server.should_exit, interval_s)
        app = App(dashboard, self.access, Pages(clock), polling)
        config = uvicorn.Config(
            app.starlette(), log_level="error", access_log=False, server_header=False, proxy_headers=False, ws="none",
            timeout_graceful_shutdown=GRACE_S, lifespan="on",
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        host = self._host if is_loopback(self._host) or not _is_any(self._host) else socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    @property
    def is_ready(self) -> bool:
        return self._server.started

    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM or SIGHUP; then stop the processes that were started."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, self._server.handle_exit)
        try:
            with suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._socket])
        finally:
            self._processes.close()  # again, in case the application did not get to it
            self._socket.close()

    def stop(self) -> None:
        """Ask the server to stop, from another thread."""
        self._server.should_exit = True


def make_access(settings: Settings, port: int) -> Access:
    """Access to the server: without a token on loopback, unless one is given; elsewhere only with a token."""
    local = is_loopback(settings.host)
    token = settings.token
    if token is None and not local:
        token = secrets.token_urlsafe(TOKEN_BYTES)
    names = frozenset(name.lower() for name in (settings.host, *(() if local else settings.names)))
    return Access(secrets.token_hex(TOKEN_BYTES), LOOPBACK_NAMES | names, not local, token, f"cupilot-{port}")


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host}: {error}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)
    except OSError as error:
        bound.close()
        raise UserError(f"{host}, port {port}, cannot be used: {error.strerror}; --port 0 picks a free port") from error
    return bound
