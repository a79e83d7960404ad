"""Who may ask: each rule on the real server, with requests that a page, a foreign page or a program would send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from ui_site import TOKEN, Site, make_run, make_suite, row, site

from cupilot.errors import UserError
from cupilot.evolution.bench_results import RESULTS_JSON
from cupilot.evolution.store import FILE
from cupilot.ui.security import LARGEST_BODY_BYTES, Access, equal_secrets, host_name
from cupilot.ui.server import Settings, is_loopback, make_access

PLAIN_TASK = {"source": "text", "name": "relu", "text": "class Model: ..."}


def never(arguments: object, log: object) -> None:
    raise AssertionError(f"something was started: {arguments}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    make_run(folder / "runs" / "run-1")
    make_run(folder / "secret" / "run-2")
    (folder / "secret" / "task.py").write_text("secret = 1\n")
    (folder / "runs" / "link").symlink_to(folder / "secret" / "run-2")
    (folder / "runs" / "hollow").mkdir()
    (folder / "runs" / "hollow" / FILE).symlink_to(folder / "secret" / "run-2" / FILE)
    (folder / "runs" / "hollow" / "ui.log").symlink_to(folder / "secret" / "task.py")
    (folder / "runs" / "linked.py").symlink_to(folder / "secret" / "task.py")
    make_suite(folder / "secret" / "suite", row(1))
    (folder / "runs" / "suite-link").symlink_to(folder / "secret" / "suite")
    (folder / "runs" / "hollow" / RESULTS_JSON).symlink_to(folder / "secret" / "suite" / RESULTS_JSON)
    return folder / "runs"


@pytest.fixture(scope="module")
def open_site(root: Path) -> Iterator[Site]:
    """On loopback, without a token; nothing may be started."""
    with site(root, never) as found:  # type: ignore[arg-type]
        yield found


@pytest.fixture(scope="module")
def closed_site(root: Path) -> Iterator[Site]:
    with site(root, never, token=TOKEN) as found:  # type: ignore[arg-type]
        yield found


# --- Host: against DNS rebinding -----------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:80", "[::1]:8717", "LOCALHOST"])
def test_our_own_names(open_site: Site, host: str) -> None:
    assert open_site.get("/", host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", "127.0.0.1@evil.example", "x:y", "[::1"],
)
@pytest.mark.parametrize("path", ["/", "/events", "/static/page.css", "/login"])
def test_foreign_names_are_refused(open_site: Site, host: str, path: str) -> None:
    assert open_site.get(path, host=host).status in (400, 403)


def test_no_host_at_all_is_refused(open_site: Site) -> None:
    assert open_site.get("/", host="").status in (400, 403)


def test_the_name_in_a_host_header() -> None:
    assert [host_name(each) for each in ("a:1", "[::1]:2", "a@b", "a/b", "a:b", "")] == ["a", "::1", "", "", "", ""]


# --- other sites' requests -----------------------------------------------------------------------

FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "", "sec_fetch_site": "cross-site"},
    {"origin": "", "sec_fetch_site": "same-site"},
    {"origin": "", "sec_fetch_site": "none"},
    {"sec_fetch_site": "cross-site"},
    {"origin": ""},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@pytest.mark.parametrize("path", ["/new", "/stop/run-1", "/resume/run-1", "/login"])
def test_what_does_not_come_from_our_pages_changes_nothing(open_site: Site, path: str, headers: dict[str, str]) -> None:
    answer = open_site.post(path, PLAIN_TASK, **headers)
    assert answer.status == 403
    assert "other sites" in answer.text


@pytest.mark.parametrize("secret", ["", "0" * 64])
@pytest.mark.parametrize("path", ["/new", "/stop/run-1", "/resume/run-1"])
def test_a_form_without_its_secret_changes_nothing(open_site: Site, path: str, secret: str) -> None:
    answer = open_site.post(path, PLAIN_TASK | {"form_secret": secret})
    assert answer.status == 403
    assert "server was restarted" in answer.text


def test_our_own_form_arrives(open_site: Site) -> None:
    for headers in ({}, {"sec_fetch_site": "same-origin"}, {"origin": "", "sec_fetch_site": "same-origin"}):
        answer = open_site.post("/stop/run-1", **headers)
        assert answer.status == 409
        assert "is not running" in answer.text


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data; boundary=x", "application/json"])
def test_only_forms_are_taken(open_site: Site, kind: str) -> None:
    assert open_site.post("/stop/run-1", content_type=kind).status == 415


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/stop/run-1", "/resume/run-1"])
def test_other_methods_do_nothing(open_site: Site, method: str, path: str) -> None:
    assert open_site.ask(method, path, origin=open_site.address).status == 405


def test_nobody_else_may_read_along(open_site: Site) -> None:
    headers = open_site.get("/", origin="https://evil.example").headers
    assert not [name for name in headers if name.startswith("access-control")]
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_pages_run_our_own_scripts_only(open_site: Site) -> None:
    for path in ("/", "/run/run-1", "/compare", "/new", "/login", "/missing"):
        policy = open_site.get(path).headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


def test_reports_have_no_rights_however_they_are_opened(open_site: Site) -> None:
    policy = open_site.get("/report/run-1").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy
    assert "default-src 'none'" in policy
    assert 'sandbox="allow-scripts' in open_site.get("/run/run-1").text
    assert "allow-same-origin" not in open_site.get("/run/run-1").text


# --- the token -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/events", "/run/run-1", "/report/run-1", "/new", "/compare", "/log/run-1"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"cookie": f"cupilot={TOKEN}"}],
    ids=["none", "wrong", "no kind", "as a cookie"],
)
def test_nothing_is_shown_without_the_token(closed_site: Site, path: str, headers: dict[str, str]) -> None:
    answer = closed_site.get(path, **headers)
    assert answer.status == 401
    assert "run-1" not in answer.text


def test_nothing_is_changed_without_the_token(closed_site: Site) -> None:
    assert closed_site.post("/stop/run-1").status == 401
    assert closed_site.post("/new", PLAIN_TASK).status == 401


def test_the_way_to_the_page_that_asks(closed_site: Site) -> None:
    assert closed_site.get("/").headers["location"] == "/login"
    assert closed_site.get(f"/?token={TOKEN.replace(' ', '+')}").headers["location"].startswith("/login?token=")
    page = closed_site.get("/login")
    assert page.status == 200
    assert closed_site.server.access.form_secret not in page.text, "everybody may see this page"
    assert closed_site.get("/static/page.css").status == 200


def test_programs_show_the_token_as_a_bearer(closed_site: Site) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert closed_site.get("/run/run-1", **bearer).status == 200
    answer = closed_site.post("/stop/run-1", {"form_secret": ""}, origin="", **bearer)
    assert answer.status == 409, "it arrives"


def test_the_link_that_is_printed_sets_a_cookie(closed_site: Site) -> None:
    answer = closed_site.get(f"/login?token={quote(TOKEN)}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    value = cookie.partition(";")[0]
    assert closed_site.get("/", cookie=value).status == 200
    assert closed_site.get("/", cookie=value + "0").status == 303
    assert closed_site.post("/stop/run-1", cookie=value).status == 409
    foreign = closed_site.post("/stop/run-1", cookie=value, origin="https://evil.example")
    assert foreign.status == 403


def test_a_token_can_be_typed(closed_site: Site) -> None:
    secret = closed_site.server.access.login_secret
    wrong = closed_site.post("/login", {"token": "x" * 20, "form_secret": secret})
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    right = closed_site.post("/login", {"token": TOKEN, "form_secret": secret})
    assert (right.status, "set-cookie" in right.headers) == (303, True)
    assert closed_site.post("/login", {"token": TOKEN, "form_secret": ""}).status == 403


def test_a_wrong_token_in_the_address(closed_site: Site) -> None:
    answer = closed_site.get("/login?token=wrong")
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare_digest(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("cupilot.ui.security.hmac.compare_digest", compare_digest)
    access = Access("secret", token=TOKEN)
    assert access.is_authorized({"authorization": f"Bearer {TOKEN}"})
    assert access.is_authorized({"cookie": f"cupilot={access.session}"})
    assert not access.is_authorized({"authorization": "Bearer wrong"})
    assert not equal_secrets("a", "b")
    assert len(compared) == 4


def test_another_start_has_other_secrets() -> None:
    one, other = Access("a", token=TOKEN), Access("b", token=TOKEN)
    secrets = {one.form_secret, one.login_secret, one.session, other.form_secret, other.login_secret, other.session}
    assert len(secrets) == 6


# --- where it listens ----------------------------------------------------------------------------


def settings(host: str, token: str | None = None) -> Settings:
    return Settings(Path("runs"), host, 0, token, ("sample-machine",))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "localhost", "::1"])
def test_on_loopback_no_token_is_made(host: str) -> None:
    access = make_access(settings(host), 1)
    assert access.token is None
    assert not access.is_allowed_host({"host": "sample-machine"})
    assert not access.is_allowed_host({"host": "10.0.0.1"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "sample-machine"])
def test_elsewhere_a_token_is_made(host: str) -> None:
    assert not is_loopback(host)
    one, other = make_access(settings(host), 1), make_access(settings(host), 1)
    assert one.token is not None
    assert len(one.token) >= 32
    assert one.token != other.token
    assert make_access(settings(host, TOKEN), 1).token == TOKEN
    assert one.is_allowed_host({"host": "sample-machine:8717"})
    assert one.is_allowed_host({"host": "10.0.0.1"}), "an address cannot be rebound"
    assert not one.is_allowed_host({"host": "evil.example"})


@pytest.mark.parametrize("token", ["", "short", "ünicode is not for headers"])
def test_a_token_must_be_hard_to_guess(token: str) -> None:
    with pytest.raises(UserError, match="at least 16"):
        settings("127.0.0.1", token)


# --- files ---------------------------------------------------------------------------------------

ODD = ["..", "../secret/run-2", "run-1/..", "run-1/../../secret/run-2", "%2e%2e/secret/run-2", "..%2fsecret%2frun-2",
       "%2fetc", "//etc", "link", "hollow", "suite-link", "missing", ".", "run-1%00", "run-1%0a", "..%5c..",
       "run-1/"]  # fmt: skip


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("page", ["run", "report", "log", "suite", "suite-report"])
def test_nothing_above_or_outside_of_the_folder_is_shown(open_site: Site, page: str, name: str) -> None:
    answer = open_site.get(f"/{page}/{name}")
    assert answer.status == 404
    assert "secret" not in answer.text


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("page", ["stop", "resume"])
def test_nothing_is_done_there_either(open_site: Site, page: str, name: str) -> None:
    assert open_site.post(f"/{page}/{name}").status == 404


@pytest.mark.parametrize("name", ["link", "hollow", "../secret/run-2", "missing"])
def test_nothing_is_compared_there(open_site: Site, name: str) -> None:
    assert open_site.get(f"/compare?{urlencode([('run', 'run-1'), ('run', name)])}").status == 404


@pytest.mark.parametrize("name", ["../secret/task.py", "linked.py", "/etc/passwd", "run-1", f"run-1/{FILE}", "no.py"])
def test_no_task_is_taken_from_there(open_site: Site, name: str) -> None:
    answer = open_site.post("/new", {"source": "file", "file": name})
    assert answer.status == 400
    assert "there is no task file" in answer.text


@pytest.mark.parametrize("name", ["../x", "x/y", ".x", "x.py", "x y", "", "-x", "x" * 61])
def test_no_task_is_saved_there(open_site: Site, name: str, root: Path) -> None:
    answer = open_site.post("/new", PLAIN_TASK | {"name": name})
    assert answer.status == 400
    assert not (root / "tasks").exists()


@pytest.mark.parametrize("name", ["other.css", "..%2fapp.py", "page.css%00", "%2e%2e/app.py", "base.html.j2"])
def test_only_our_own_files_are_static(open_site: Site, name: str) -> None:
    assert open_site.get(f"/static/{name}").status == 404


# --- sizes ---------------------------------------------------------------------------------------


def test_a_large_body_is_not_taken(open_site: Site, root: Path) -> None:
    answer = open_site.post("/new", PLAIN_TASK | {"text": "x" * LARGEST_BODY_BYTES})
    assert answer.status == 413
    assert "256 KiB" in answer.text
    assert not (root / "tasks").exists()


def test_a_body_of_unknown_size_is_read_up_to_the_limit(open_site: Site) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", open_site.server.port, timeout=20)
    headers = {"Origin": open_site.address, "Content-Type": "application/x-www-form-urlencoded"}
    parts = iter([b"x" * 100_000] * 4)
    connection.request("POST", "/new", parts, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_a_field_that_comes_twice(open_site: Site) -> None:
    body = urlencode([("form_secret", open_site.server.access.form_secret), ("name", "a"), ("name", "b")]).encode()
    headers = {"origin": open_site.address, "content_type": "application/x-www-form-urlencoded"}
    assert open_site.ask("POST", "/new", body, **headers).status == 400


def test_what_is_shown_is_escaped(tmp_path: Path) -> None:
    make_run(tmp_path / "<b>&x")
    make_suite(tmp_path / "<b>&y", row(1))
    with site(tmp_path, never) as found:  # type: ignore[arg-type]
        for path in ("/", f"/run/{quote('<b>&x')}", f"/suite/{quote('<b>&y')}", "/compare"):
            page = found.get(path)
            assert page.status == 200
            assert "<b>" not in page.text
