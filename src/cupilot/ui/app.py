"""The routes.  What changes something goes through `changing`, which no route can forget parts of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from cupilot.errors import CupilotError, UserError
from cupilot.ui.asking import read_new_run
from cupilot.ui.comparing import compare
from cupilot.ui.desk import Desk, Row, SuiteRow
from cupilot.ui.events import MEDIA_TYPE, Watch, changes
from cupilot.ui.pages import STATIC, Pages, as_json, static
from cupilot.ui.runs import RUNNING
from cupilot.ui.security import (
    LARGEST_BODY_BYTES,
    POLICY_HEADER,
    REPORT_POLICY,
    TOKEN_FIELD,
    Access,
    Gate,
    Refused,
    read_form,
)
from cupilot.ui.suites import SuiteSummary

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class App:
    """The routes' surroundings; `starlette` makes the application."""

    desk: Desk
    access: Access
    pages: Pages
    watch: Watch

    def starlette(self) -> Starlette:
        """The desk's programs end with the application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await run_in_threadpool(self.desk.jobs.close)

        routes = [
            Route("/", self.list_runs),
            Route("/events", self.list_events),
            Route("/run/{name:path}", self.show_run),
            Route("/run-events/{name:path}", self.run_events),
            Route("/report/{name:path}", self.report),
            Route("/suite/{name:path}", self.show_suite),
            Route("/suite-events/{name:path}", self.suite_events),
            Route("/suite-report/{name:path}", self.suite_report),
            Route("/said/{name:path}", self.said),
            Route("/compare", self.compare),
            Route("/new", self.new),
            Route("/new", self.changing(self.start), methods=["POST"]),
            Route("/stop/{name:path}", self.changing(self.stop), methods=["POST"]),
            Route("/resume/{name:path}", self.changing(self.resume), methods=["POST"]),
            Route("/login", self.ask_token),
            Route("/login", self.login, methods=["POST"]),
            Route("/static/{name}", self.static),
            Route("/favicon.ico", self.icon),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(Gate, access=self.access)],
            exception_handlers={404: self.not_found, Refused: self.refused},
            lifespan=lifespan,
        )

    # --- pages -----------------------------------------------------------------------------

    async def list_runs(self, request: Request) -> Response:
        rows, suites = await self.all_rows()
        return self.page("runs.html.j2", rows=rows, suites=suites, root=str(self.desk.runs.root))

    async def show_run(self, request: Request) -> Response:
        row = await self.row(request)
        return self.problem(404, "There is no such run.") if row is None else self.run_page(row)

    def run_page(self, row: Row, problem: str = "", status: int = 200) -> Response:
        return self.page("run.html.j2", status, row=row, problem=problem)

    async def show_suite(self, request: Request) -> Response:
        row = await self.suite(request)
        return self.problem(404, "There is no such benchmark.") if row is None else self.page("suite.html.j2", row=row)

    async def report(self, request: Request) -> Response:
        return await self.sandboxed(self.desk.report, request)

    async def suite_report(self, request: Request) -> Response:
        return await self.sandboxed(self.desk.suite_report, request)

    async def sandboxed(self, make: Callable[[str], str | None], request: Request) -> Response:
        """A report alone, in a sandbox whoever opens it."""
        headers = {POLICY_HEADER: REPORT_POLICY}
        try:
            text = await run_in_threadpool(make, request.path_params["name"])
        except CupilotError as error:
            return HTMLResponse(self.pages.render("no_report.html.j2", why=str(error)), headers=headers)
        if text is None:
            return HTMLResponse(self.pages.render("no_report.html.j2", why=""), 404, headers)
        return HTMLResponse(text, headers=headers)

    async def said(self, request: Request) -> Response:
        text = await run_in_threadpool(self.desk.said, request.path_params["name"])
        return self.problem(404, "Nothing was kept of this.") if text is None else PlainTextResponse(text)

    async def compare(self, request: Request) -> Response:
        rows = await run_in_threadpool(self.desk.rows)
        names = request.query_params.getlist("run")
        known = {row.run.name: row for row in rows}
        if any(name not in known for name in names):
            return self.problem(404, "There is no such run.")
        found = compare(known[names[0]], known[names[1]]) if len(names) == 2 else None
        return self.page("compare.html.j2", rows=rows, names=names, found=found)

    async def new(self, request: Request) -> Response:
        return await self.form({}, "", 200)

    async def form(self, given: dict[str, str], problem: str, status: int) -> Response:
        files = await run_in_threadpool(self.desk.task_files)
        return self.page(
            "new.html.j2", status, choices=self.desk.choices, files=files, given=given, problem=problem,
            largest_kib=LARGEST_BODY_BYTES // 1024,
        )  # fmt: skip

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        text = static(name)
        if text is None:
            return self.problem(404, "There is no such page.")
        return Response(text, media_type=STATIC[name], headers={"cache-control": "no-cache"})

    async def icon(self, request: Request) -> Response:
        """What browsers ask for beside pages that name no icon, such as a report."""
        return RedirectResponse("/static/icon.svg", 301)

    # --- what changes something ------------------------------------------------------------

    def changing(self, act: Callable[[Request, dict[str, str]], Awaitable[Response]]) -> Handler:
        async def handler(request: Request) -> Response:
            return await act(request, await read_form(request, self.access, self.access.form_secret))

        return handler

    async def start(self, request: Request, fields: dict[str, str]) -> Response:
        try:
            asked = read_new_run(fields, self.desk.choices)
            name = await run_in_threadpool(self.desk.start, asked)
        except CupilotError as error:
            return await self.form(fields, str(error), 400 if isinstance(error, UserError) else 500)
        return _to_run(name)

    async def stop(self, request: Request, fields: dict[str, str]) -> Response:
        return await self.act(request, self.desk.stop)

    async def resume(self, request: Request, fields: dict[str, str]) -> Response:
        return await self.act(request, self.desk.resume)

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
        def show(found: tuple[tuple[Row, ...], tuple[SuiteSummary, ...]]) -> str:
            rows, suites = found
            return as_json(
                html=self.pages.render("rows.html.j2", rows=rows),
                suites=self.pages.render("suites.html.j2", suites=suites),
            )

        return _stream(changes("runs", self.all_rows, show, self.watch))

    async def run_events(self, request: Request) -> Response:
        async def look() -> Row | None:
            return await self.row(request)

        def show(row: Row | None) -> str:
            if row is None:
                return as_json(html="", say="", count=0, running=False)
            html = self.pages.render("header.html.j2", row=row, form_secret=self.access.form_secret)
            say = self.pages.render("say.txt.j2", row=row)
            return as_json(html=html, say=say, count=row.run.individuals, running=row.run.state == RUNNING)

        return _stream(changes("run", look, show, self.watch))

    async def suite_events(self, request: Request) -> Response:
        async def look() -> SuiteRow | None:
            return await self.suite(request)

        def show(row: SuiteRow | None) -> str:
            if row is None:
                return as_json(html="", say="", count=0, running=False)
            html = self.pages.render("suite_header.html.j2", row=row)
            say = f"{row.suite.correct} of {row.suite.problems} problems have a kernel"
            return as_json(html=html, say=say, count=row.suite.problems, running=row.running)

        return _stream(changes("run", look, show, self.watch))

    # --- the token -------------------------------------------------------------------------

    async def ask_token(self, request: Request) -> Response:
        given = request.query_params.get(TOKEN_FIELD)
        if given is not None and self.access.is_token(given):
            return self.admit()
        problem = "" if given is None else "This is not the token."
        return self.page("login.html.j2", 200 if given is None else 401, problem=problem)

    async def login(self, request: Request) -> Response:
        fields = await read_form(request, self.access, self.access.login_secret)
        if not self.access.is_token(fields.get(TOKEN_FIELD, "")):
            return self.page("login.html.j2", 401, problem="This is not the token.")
        return self.admit()

    def admit(self) -> Response:
        response = RedirectResponse("/", 303)
        response.set_cookie(self.access.cookie, self.access.session, httponly=True, samesite="strict", path="/")
        return response

    # --- shared ----------------------------------------------------------------------------

    async def row(self, request: Request) -> Row | None:
        return await run_in_threadpool(self.desk.row, request.path_params["name"])

    async def all_rows(self) -> tuple[tuple[Row, ...], tuple[SuiteSummary, ...]]:
        return await run_in_threadpool(lambda: (self.desk.rows(), self.desk.suites.summaries()))

    async def suite(self, request: Request) -> SuiteRow | None:
        return await run_in_threadpool(self.desk.suite, request.path_params["name"])

    def page(self, template: str, status: int = 200, **values: object) -> Response:
        # what everybody may see must not carry the secret of the other forms
        secret = self.access.login_secret if template == "login.html.j2" else self.access.form_secret
        return HTMLResponse(self.pages.render(template, form_secret=secret, **values), status)

    def problem(self, status: int, text: str) -> Response:
        return HTMLResponse(self.pages.render("problem.html.j2", text=text), status)

    async def not_found(self, request: Request, error: Exception) -> Response:
        return self.problem(404, "There is no such page.")

    async def refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return self.problem(error.status, str(error))


def _to_run(name: str) -> Response:
    return RedirectResponse(f"/run/{quote(name)}", 303)


def _stream(text: AsyncIterator[str]) -> Response:
    return StreamingResponse(text, media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
