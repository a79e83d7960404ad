"""The server: a socket that is bound before anything is said, and an orderly end."""

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
from cupilot.ui.asking import Choices
from cupilot.ui.desk import Desk, Report
from cupilot.ui.events import REST_S, Watch
from cupilot.ui.pages import Pages
from cupilot.ui.processes import Jobs, Start
from cupilot.ui.runs import RunsFolder
from cupilot.ui.security import LEAST_TOKEN, LOOPBACK_NAMES, Access

TOKEN_BYTES = 32
GRACE_S = 3
"""What open connections are given at the end; streams of events end by themselves before."""


@dataclass(frozen=True)
class Settings:
    """What ``cupilot ui`` was asked for; ``names`` are other names of this machine."""

    root: Path
    host: str
    port: int
    token: str | None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < LEAST_TOKEN or not self.token.isascii()):
            raise UserError(f"a token has at least {LEAST_TOKEN} characters, all of them ASCII")
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
    """Bound when it is made; `run` serves until it is told to end.  For the main thread, or for any in tests."""

    def __init__(
        self,
        settings: Settings,
        choices: Choices,
        start: Start,
        clock: Callable[[], float],
        report: Report = run_report,
        suite_report: Report = suite_report,
        rest_s: float = REST_S,
    ) -> None:
        self._socket = _bind(settings.host, settings.port)
        self.port: int = self._socket.getsockname()[1]
        self.access = make_access(settings, self.port)
        self._host = settings.host
        self._jobs = Jobs(start, clock)
        desk = Desk(RunsFolder(settings.root), self._jobs, choices, report, suite_report, clock)
        watch = Watch(asyncio.sleep, lambda: self._server.should_exit, rest_s)
        app = App(desk, self.access, Pages(clock), watch)
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
        """Serve until Ctrl-C, SIGTERM or the end of the terminal; everything that was started is stopped then."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGHUP, self._server.handle_exit)
        try:
            with suppress(KeyboardInterrupt):
                self._server.run(sockets=[self._socket])
        finally:
            self._jobs.close()  # again, should the application not have come to it
            self._socket.close()

    def end(self) -> None:
        """From another thread: end soon."""
        self._server.should_exit = True


def make_access(settings: Settings, port: int) -> Access:
    """Who may ask: on loopback everybody who gets there, unless a token was given; elsewhere only with one."""
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
        raise UserError(
            f"{host}, port {port}, cannot be used: {error.strerror}; --port 0 takes any that is free"
        ) from error
    return bound
