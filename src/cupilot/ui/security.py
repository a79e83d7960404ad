"""Access control, checked on every request before any route is reached.

- The Host header must name this server, which defeats DNS rebinding.
- If a token is set, every page but the login page and the static files needs it, as a bearer token or as a cookie that
  other sites' requests do not carry.
- Requests that change something must come from our own pages: checked by Origin, Sec-Fetch-Site and a secret in the
  form.
- Bodies are limited in size.

Secrets are compared in constant time.
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
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
LARGEST_BODY_BYTES = 262_144
FORM = "application/x-www-form-urlencoded"
SECRET_FIELD = "form_secret"
TOKEN_FIELD = "token"
PUBLIC_PATHS = frozenset({"/login", "/favicon.ico"})
PUBLIC_FOLDER = "/static/"
LEAST_TOKEN_CHARACTERS = 16

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# a report contains inline scripts; the sandbox gives it an origin of its own, without access to our pages
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
    """What a request must have.  ``secret`` is the server's own, new at every start.

    ``hosts`` are the host names that the server accepts; with ``any_address`` it also accepts IP addresses, which
    cannot be rebound.  Without a ``token`` everyone who reaches the server is authorized.
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
        """The secret of the login form, which is public."""
        return self._derived("login")

    @property
    def session(self) -> str:
        """The cookie's value: it expires with the server, and does not reveal the token."""
        return self._derived("session")

    def _derived(self, use: str) -> str:
        return hmac.new(self.secret.encode(), f"{use}:{self.token or ''}".encode(), hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        return self.token is not None and equal_secrets(given, self.token)

    def is_allowed_host(self, headers: Mapping[str, str]) -> bool:
        name = host_name(headers.get("host", ""))
        return name in self.hosts or (self.any_address and is_address(name))

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        if self.token is None or self.has_bearer(headers):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return cookie is not None and equal_secrets(cookie.value, self.session)

    def has_bearer(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given.strip())

    def is_own_page(self, headers: Mapping[str, str]) -> bool:
        """Whether the browser's headers say that the request comes from our pages; missing headers do not."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return False
        if site is not None and site != "same-origin":
            return False
        host = headers.get("host", "").lower()
        return origin is None or origin.lower() in (f"http://{host}", f"https://{host}")


def equal_secrets(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def host_name(host: str) -> str:
    """The host name in a Host header, without the port; empty if the header is malformed."""
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


class AccessMiddleware:
    """ASGI middleware: rejects what `Access` does not allow, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None  # WebSockets are not supported

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in present]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        rejection = self._rejection(scope)
        answer: ASGIApp = self.app if rejection is None else rejection
        return await answer(scope, receive, send_with_headers)

    def _rejection(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        access = self.access
        if not access.is_allowed_host(headers):
            return PlainTextResponse("this server does not have that name\n", 403)
        if not path.isprintable():  # routes ignore a trailing line break
            return PlainTextResponse("there is no such page\n", 404)
        changing = scope["method"] not in SAFE_METHODS
        if changing and not access.has_bearer(headers) and not access.is_own_page(headers):
            return PlainTextResponse("requests from other sites are not allowed\n", 403)
        if access.is_authorized(headers) or path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDER):
            return None
        if not changing and path == "/":
            return Response(status_code=303, headers={"location": _login(scope)})
        return PlainTextResponse("a token is needed; open /login\n", 401, {"www-authenticate": "Bearer"})


def _login(scope: Scope) -> str:
    """The address of the login page, with the token from the request's query if there is one."""
    query = scope["query_string"].decode("ascii", "replace")
    return f"/login?{query}" if query.startswith(f"{TOKEN_FIELD}=") else "/login"


async def read_form(request: Request, access: Access, secret: str) -> dict[str, str]:
    """The fields of a form, without its secret, which is checked; a repeated field is an error."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, f"forms are sent as {FORM}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > LARGEST_BODY_BYTES:
            raise HTTPException(413, f"forms are limited to {LARGEST_BODY_BYTES // 1024} KiB")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict")
    except UnicodeError as error:
        raise HTTPException(400, "the form's text is not UTF-8") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise HTTPException(400, "a field of the form is repeated")
    given = fields.pop(SECRET_FIELD, "")
    if not access.has_bearer(request.headers) and not equal_secrets(given, secret):
        raise HTTPException(403, "the server was restarted after this form was loaded; load the page again")
    return fields
