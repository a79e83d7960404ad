"""Who may ask: checked before any route is reached, on every request.

- The Host must be one of ours: a foreign name that was made to point here (DNS rebinding) is refused.
- With a token, everything but the stylesheet and the page that asks for the token needs it: as a bearer token, or as
  a cookie that other sites' requests do not carry.
- What changes something must come from our own pages: by Origin, by Sec-Fetch-Site, and by a secret in the form.
- Bodies are read up to a size and no further.

All comparisons of secrets take the same time whatever they find.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
LARGEST_BODY_BYTES = 262_144
FORM = "application/x-www-form-urlencoded"
SECRET_FIELD = "form_secret"
TOKEN_FIELD = "token"
OPEN_PATHS = frozenset({"/login", "/favicon.ico"})
OPEN_FOLDER = "/static/"
LEAST_TOKEN = 16

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# the report carries its scripts in itself; the sandbox takes away our origin, and with it every right
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data: blob:; font-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
POLICY_HEADER = "content-security-policy"
HEADERS = {
    POLICY_HEADER: PAGE_POLICY,
    "x-content-type-options": "nosniff",
    # `no-referrer` would make browsers send "Origin: null" with our own forms
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """What is asked of a request.  ``secret`` is the server's own, new at every start.

    ``hosts`` are the names that the server answers to, ``any_address``: it also answers to its addresses, which
    nobody can rebind.  ``token`` None: whoever reaches the server may ask.
    """

    secret: str
    hosts: frozenset[str] = LOOPBACK_NAMES
    any_address: bool = False
    token: str | None = None
    cookie: str = field(default="cupilot")

    @property
    def form_secret(self) -> str:
        return self._derived("form")

    @property
    def login_secret(self) -> str:
        """For the form that everybody may see."""
        return self._derived("login")

    @property
    def session(self) -> str:
        """What the cookie holds: it ends with the server, and the token cannot be read from it."""
        return self._derived("session")

    def _derived(self, use: str) -> str:
        return hmac.new(self.secret.encode(), f"{use}:{self.token or ''}".encode(), hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return self.token is not None and same(given, self.token)

    def has_host(self, headers: Mapping[str, str]) -> bool:
        name = host_name(headers.get("host", ""))
        return name in self.hosts or (self.any_address and is_address(name))

    def may_ask(self, headers: Mapping[str, str]) -> bool:
        if self.token is None or self.has_bearer(headers):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value, self.session)

    def has_bearer(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given.strip())

    def is_own_page(self, headers: Mapping[str, str]) -> bool:
        """Whether a browser says that the request comes from our pages; saying nothing is not enough."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return False
        if site is not None and site != "same-origin":
            return False
        host = headers.get("host", "").lower()
        return origin is None or origin.lower() in (f"http://{host}", f"https://{host}")


def same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def host_name(host: str) -> str:
    """The name in a Host header, without the port; empty for what is none."""
    try:
        parts = urlsplit(f"//{host}")
        valid = parts.netloc == host and not parts.username and (parts.port is None or parts.port > 0)
    except ValueError:
        return ""
    return (parts.hostname or "") if valid else ""


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Gate:
    """ASGI middleware: refuses what `Access` does not allow, and adds the headers that bind browsers."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None  # no WebSockets here

        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        refusal = self._refusal(scope)
        answer: ASGIApp = self.app if refusal is None else refusal
        return await answer(scope, receive, send_bound)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        access = self.access
        if not access.has_host(headers):
            return PlainTextResponse("this server does not go by that name\n", 403)
        if not path.isprintable():  # routes would not see a line break at the end
            return PlainTextResponse("there is no such page\n", 404)
        changing = scope["method"] not in SAFE_METHODS
        if changing and not access.has_bearer(headers) and not access.is_own_page(headers):
            return PlainTextResponse("requests from other sites are refused\n", 403)
        if access.may_ask(headers) or path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return None
        if not changing and path == "/":
            return Response(status_code=303, headers={"location": _login(scope)})
        return PlainTextResponse("a token is needed; open /login\n", 401, {"www-authenticate": "Bearer"})


def _login(scope: Scope) -> str:
    """The way to the page that asks for the token, with the token that the address may have carried."""
    query = scope["query_string"].decode("ascii", "replace")
    return f"/login?{query}" if query.startswith(f"{TOKEN_FIELD}=") else "/login"


class Refused(Exception):
    """A form that is not taken: an HTTP status and one sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def read_form(request: Request, access: Access, secret: str) -> dict[str, str]:
    """The fields of a form of ours, without its secret, which is checked; a field that comes twice is refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Refused(415, f"forms are sent as {FORM}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY_BYTES:
            raise Refused(413, f"more than {LARGEST_BODY_BYTES // 1024} KiB are not taken")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict")
    except UnicodeError as error:
        raise Refused(400, "the form's text is not UTF-8") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refused(400, "a field of the form comes twice")
    given = fields.pop(SECRET_FIELD, "")
    if not access.has_bearer(request.headers) and not same(given, secret):
        raise Refused(403, "this form is from another start of the server; load the page again")
    return fields
