"""The routes.  Every route that changes something goes through `form_action`, which checks the form's secret."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from cupilot.errors import CupilotError, UserError
from cupilot.ui.comparison import compare
from cupilot.ui.dashboard import Dashboard, RunRow, SuiteRow
from cupilot.ui.events import MEDIA_TYPE, Polling, event_stream
from cupilot.ui.new_run_form import read_new_run
from cupilot.ui.pages import STATIC, Pages, as_json, static
from cupilot.ui.runs import RUNNING
from cupilot.ui.security import (
    LARGEST_BODY_BYTES,
    POLICY_HEADER,
    REPORT_POLICY,
    TOKEN_FIELD,
    Access,
    AccessMiddleware,
    read_form,
)
from cupilot.ui.suites import SuiteSummary

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


@dataclass(frozen=True)
class App:
    """The routes' dependencies; `starlette` builds the application."""

    dashboard: Dashboard
    access: Access
    pages: Pages
    polling: Polling

    def starlette(self) -> Starlette:
        """The application; the processes that it started end with it."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await run_in_threadpool(self.dashboard.processes.close)

        routes = [
            Route("/", self.list_runs),
            Route("/events", self.list_events),
            Route("/run/{name:path}", self.show_run),
            Route("/run-events/{name:path}", self.run_events),
            Route("/report/{name:path}", self.report),
            Route("/suite/{name:path}", self.show_suite),
            Route("/suite-events/{name:path}", self.suite_events),
            Route("/suite-report/{name:path}", self.suite_report),
            Route("/log/{name:path}", self.log),
            Route("/compare", self.compare),
            Route("/new", self.new),
            Route("/new", self.form_action(self.start), methods=["POST"]),
            Route("/stop/{name:path}", self.form_action(self.stop), methods=["POST"]),
            Route("/resume/{name:path}", self.form_action(self.resume), methods=["POST"]),
            Route("/login", self.login_page),
            Route("/login", self.login, methods=["POST"]),
            Route("/static/{name}", self.static),
            Route("/favicon.ico", self.icon),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(AccessMiddleware, access=self.access)],
            exception_handlers={404: self.not_found, HTTPException: self.rejected},
            lifespan=lifespan,
        )

    # --- pages -----------------------------------------------------------------------------

    async def list_runs(self, request: Request) -> Response:
        rows, suites = await self.all_rows()
        return self.page("runs.html.j2", rows=rows, suites=suites, root=str(self.dashboard.runs.root))

    async def show_run(self, request: Request) -> Response:
        row = await self.row(request)
        return self.problem(404, "There is no such run.") if row is None else self.run_page(row)

    def run_page(self, row: RunRow, problem: str = "", status: int = 200) -> Response:
        return self.page("run.html.j2", status, row=row, problem=problem)

    async def show_suite(self, request: Request) -> Response:
        row = await self.suite(request)
        return self.problem(404, "There is no such benchmark.") if row is None else self.page("suite.html.j2", row=row)

    async def report(self, request: Request) -> Response:
        return await self.sandboxed(self.dashboard.report, request)

    async def suite_report(self, request: Request) -> Response:
        return await self.sandboxed(self.dashboard.suite_report, request)

    async def sandboxed(self, make: Callable[[str], str | None], request: Request) -> Response:
        """A report by itself; the policy keeps it in a sandbox, in a frame and in a tab of its own."""
        headers = {POLICY_HEADER: REPORT_POLICY}
        try:
            text = await run_in_threadpool(make, request.path_params["name"])
        except CupilotError as error:
            return HTMLResponse(self.pages.render("no_report.html.j2", why=str(error)), headers=headers)
        if text is None:
            return HTMLResponse(self.pages.render("no_report.html.j2", why=""), 404, headers)
        return HTMLResponse(text, headers=headers)

    async def log(self, request: Request) -> Response:
        text = await run_in_threadpool(self.dashboard.log_tail, request.path_params["name"])
        return self.problem(404, "There is no log of this run.") if text is None else PlainTextResponse(text)

    async def compare(self, request: Request) -> Response:
        rows = await run_in_threadpool(self.dashboard.rows)
        names = request.query_params.getlist("run")
        known = {row.run.name: row for row in rows}
        if any(name not in known for name in names):
            return self.problem(404, "There is no such run.")
        found = compare(known[names[0]], known[names[1]]) if len(names) == 2 else None
        return self.page("compare.html.j2", rows=rows, names=names, found=found)

    async def new(self, request: Request) -> Response:
        return await self.form({}, "", 200)

    async def form(self, given: dict[str, str], problem: str, status: int) -> Response:
        files = await run_in_threadpool(self.dashboard.task_files)
        return self.page(
            "new.html.j2", status, choices=self.dashboard.choices, files=files, given=given, problem=problem,
            largest_kib=LARGEST_BODY_BYTES // 1024,
        )  # fmt: skip

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        text = static(name)
        if text is None:
            return self.problem(404, "There is no such page.")
        return Response(text, media_type=STATIC[name], headers={"cache-control": "no-cache"})

    async def icon(self, request: Request) -> Response:
        """Browsers request this for pages without an icon, such as a report."""
        return RedirectResponse("/static/icon.svg", 301)

    # --- actions ---------------------------------------------------------------------------

    def form_action(self, act: Callable[[Request, dict[str, str]], Awaitable[Response]]) -> Handler:
        async def handler(request: Request) -> Response:
            return await act(request, await read_form(request, self.access, self.access.form_secret))

        return handler

    async def start(self, request: Request, fields: dict[str, str]) -> Response:
        try:
            new_run = read_new_run(fields, self.dashboard.choices)
            name = await run_in_threadpool(self.dashboard.start, new_run)
        except CupilotError as error:
            return await self.form(fields, str(error), 400 if isinstance(error, UserError) else 500)
        return _to_run(name)

    async def stop(self, request: Request, fields: dict[str, str]) -> Response:
        return await self.act(request, self.dashboard.stop)

    async def resume(self, request: Request, fields: dict[str, str]) -> Response:
        return await self.act(request, self.dashboard.resume)

    async def act(self, request: Request, action: Callable[[str], None]) -> Response:
        row = await self.row(request)
        if row is None:
            return self.problem(404, "There is no such run.")
        try:
            await run_in_threadpool(action, row.run.name)
        except CupilotError as error:
            return self.run_page(row, str(error), 409)
        return _to_run(row.run.name)

    # --- events ----------------------------------------------------------------------------

    async def list_events(self, request: Request) -> Response:
        def render(found: tuple[tuple[RunRow, ...], tuple[SuiteSummary, ...]]) -> str:
            rows, suites = found
            return as_json(
                html=self.pages.render("rows.html.j2", rows=rows),
                suites=self.pages.render("suites.html.j2", suites=suites),
            )

        return _stream(event_stream("runs", self.all_rows, render, self.polling))

    async def run_events(self, request: Request) -> Response:
        def render(row: RunRow) -> str:
            html = self.pages.render("header.html.j2", row=row, form_secret=self.access.form_secret)
            say = self.pages.render("announcement.txt.j2", row=row)
            return as_json(html=html, say=say, count=row.run.individuals, running=row.run.state == RUNNING)

        return self.header_events(partial(self.row, request), render)

    async def suite_events(self, request: Request) -> Response:
        def render(row: SuiteRow) -> str:
            html = self.pages.render("suite_header.html.j2", row=row)
            say = f"{row.suite.correct} of {row.suite.problems} problems have a kernel"
            return as_json(html=html, say=say, count=row.suite.problems, running=row.running)

        return self.header_events(partial(self.suite, request), render)

    def header_events(self, read: Callable[[], Awaitable[T | None]], render: Callable[[T], str]) -> Response:
        def render_any(row: T | None) -> str:
            return as_json(html="", say="", count=0, running=False) if row is None else render(row)

        return _stream(event_stream("run", read, render_any, self.polling))

    # --- the token -------------------------------------------------------------------------

    async def login_page(self, request: Request) -> Response:
        given = request.query_params.get(TOKEN_FIELD)
        if given is not None and self.access.is_token(given):
            return self.log_in()
        problem = "" if given is None else "This is not the token."
        return self.page("login.html.j2", 200 if given is None else 401, problem=problem)

    async def login(self, request: Request) -> Response:
        fields = await read_form(request, self.access, self.access.login_secret)
        if not self.access.is_token(fields.get(TOKEN_FIELD, "")):
            return self.page("login.html.j2", 401, problem="This is not the token.")
        return self.log_in()

    def log_in(self) -> Response:
        response = RedirectResponse("/", 303)
        response.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict", path="/")
        return response

    # --- shared ----------------------------------------------------------------------------

    async def row(self, request: Request) -> RunRow | None:
        return await run_in_threadpool(self.dashboard.row, request.path_params["name"])

    async def all_rows(self) -> tuple[tuple[RunRow, ...], tuple[SuiteSummary, ...]]:
        return await run_in_threadpool(lambda: (self.dashboard.rows(), self.dashboard.suites.summaries()))

    async def suite(self, request: Request) -> SuiteRow | None:
        return await run_in_threadpool(self.dashboard.suite, request.path_params["name"])

    def page(self, template: str, status: int = 200, **values: object) -> Response:
        # the login page is public, so it must not contain the secret of the other forms
        secret = self.access.login_secret if template == "login.html.j2" else self.access.form_secret
        return HTMLResponse(self.pages.render(template, form_secret=secret, **values), status)

    def problem(self, status: int, text: str) -> Response:
        return HTMLResponse(self.pages.render("problem.html.j2", text=text), status)

    async def not_found(self, request: Request, error: Exception) -> Response:
        return self.problem(404, "There is no such page.")

    async def rejected(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self.problem(error.status_code, error.detail)


def _to_run(name: str) -> Response:
    return RedirectResponse(f"/run/{quote(name)}", 303)


def _stream(text: AsyncIterator[str]) -> Response:
    return StreamingResponse(text, media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
