"""Access to the page over plain HTTP, as a hostile page or program would try it."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.waiting import wait_until
from tests.web.conftest import RunningPage, run_page

SOCKET_IO_PATH = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningPage]:
    root = tmp_path_factory.mktemp("gate")
    (root / "docs").mkdir()
    (root / "docs" / "a.txt").write_text("a")
    with run_page("browse", "--no-open", "--port", "0", "docs", cwd=root) as running_page:
        yield running_page


def ask(
    page: RunningPage,
    path: str,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    body: bytes | Iterator[bytes] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Send one request, and return the status, the headers and the body of the answer. A body of pieces is chunked."""
    connection = http.client.HTTPConnection(str(urlsplit(page.base).netloc), timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def cookie(page: RunningPage) -> dict[str, str]:
    """Sign in with the token of the URL, and return the header with the cookie. A HEAD does not use up the token."""
    assert ask(page, "/?" + urlsplit(page.url).query, method="HEAD")[0] == 401
    status, headers, _ = ask(page, "/?" + urlsplit(page.url).query)
    assert status == 200
    value = headers["set-cookie"]
    assert re.search(r"HttpOnly; SameSite=Strict", value)
    assert f"wharfinger_{urlsplit(page.base).port}=" in value
    return {"cookie": value.partition(";")[0]}


def test_the_token_of_the_url_works_once(page: RunningPage, cookie: dict[str, str]) -> None:
    status, headers, body = ask(page, "/?" + urlsplit(page.url).query)
    assert (status, "set-cookie" in headers) == (401, False)
    assert b"was used already" in body
    assert ask(page, "/", {**cookie, **SAME_ORIGIN})[0] == 200


@pytest.mark.parametrize(
    "path", ["/", SOCKET_IO_PATH, "/_nicegui/3/static/nicegui.js", "/content/x", "/docs", "/sign-in"]
)
def test_nothing_is_served_without_a_cookie(page: RunningPage, path: str) -> None:
    status, _, body = ask(page, path)
    assert status == 401
    assert b"nicegui" not in body.lower()


def test_a_wrong_token_or_cookie_is_refused(page: RunningPage, cookie: dict[str, str]) -> None:
    name = cookie["cookie"].partition("=")[0]
    assert ask(page, "/?token=x")[0] == 401
    assert ask(page, "/?token=%C3%A9")[0] == 401
    for value in ("x", "", '"', "a;b=c", "é"):
        assert ask(page, "/", {"cookie": f"{name}={value}"})[0] == 401


@pytest.mark.parametrize("other", ['a={"b": 1}', "user@host=1", "a=[1, 2]", "é=1", "nothing", ""])
def test_cookies_of_other_applications_on_the_same_host_sign_nobody_out(
    page: RunningPage, cookie: dict[str, str], other: str
) -> None:
    """A bug: a cookie that `http.cookies` does not parse hid that of the page."""
    assert ask(page, "/", {"cookie": f"{other}; {cookie['cookie']}; {other}", **SAME_ORIGIN})[0] == 200


def test_socket_io_refuses_a_foreign_origin(page: RunningPage, cookie: dict[str, str]) -> None:
    assert ask(page, SOCKET_IO_PATH, {**cookie, **SAME_ORIGIN})[0] != 403
    for origin in ("http://evil.test", "null", "http://127.0.0.1:1", "http://localhost.evil.test", "https://x"):
        status, headers, _ = ask(page, SOCKET_IO_PATH, {**cookie, "origin": origin})
        assert (status, "access-control-allow-origin" in headers) == (403, False), origin
        upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        key = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
        assert (
            ask(page, SOCKET_IO_PATH.replace("polling", "websocket"), {**cookie, **upgrade, **key, "origin": origin})[0]
            == 403
        )
        assert ask(page, SOCKET_IO_PATH, {**cookie, "origin": origin}, "POST", b"40")[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_request_caused_by_another_site_is_refused(page: RunningPage, cookie: dict[str, str], site: str) -> None:
    for path in (SOCKET_IO_PATH, "/content/x", "/_nicegui/3/static/nicegui.js"):
        assert ask(page, path, {**cookie, "sec-fetch-site": site})[0] == 403
    # A link to the page is harmless: the browser sends no Strict cookie with it.
    assert ask(page, "/", {"sec-fetch-site": site, "sec-fetch-mode": "navigate"})[0] == 401


def test_a_post_without_origin_headers_is_refused(page: RunningPage, cookie: dict[str, str]) -> None:
    assert ask(page, SOCKET_IO_PATH, cookie, "POST", b"40")[0] == 403


@pytest.mark.parametrize("host", ["evil.test", "evil.test:8400", "127.0.0.1.evil.test", "[::2]"])
def test_a_foreign_host_is_refused(page: RunningPage, cookie: dict[str, str], host: str) -> None:
    for path in ("/", SOCKET_IO_PATH, "/?" + urlsplit(page.url).query):
        assert ask(page, path, {**cookie, "host": host})[0] == 403


def test_only_the_paths_of_the_page_exist(page: RunningPage, cookie: dict[str, str]) -> None:
    for path in ("/docs", "/openapi.json", "/metrics", "/content/unknown", "/_nicegu", "//", "/read?uri=x"):
        assert ask(page, path, {**cookie, **SAME_ORIGIN})[0] == 404, path


@pytest.mark.parametrize(
    "path",
    ["../" * 12 + "etc/passwd", "..%2f" * 12 + "etc/passwd", "%2e%2e/nicegui.py", "/etc/passwd", "nicegui.js%00.css"],
)
def test_files_outside_the_static_folder_are_not_found(page: RunningPage, cookie: dict[str, str], path: str) -> None:
    home = ask(page, "/", {**cookie, **SAME_ORIGIN})[2].decode()
    static = re.search(r"/_nicegui/[^/]+/static/", home)
    assert static is not None
    assert ask(page, static[0] + "nicegui.js", {**cookie, **SAME_ORIGIN})[0] == 200
    assert ask(page, static[0] + path, {**cookie, **SAME_ORIGIN})[0] == 404


def test_a_script_in_the_url_is_not_reflected(page: RunningPage, cookie: dict[str, str]) -> None:
    _, _, body = ask(page, "/_nicegui/%3Cscript%3Ealert(1)%3C/script%3E?%3Cscript%3E", {**cookie, **SAME_ORIGIN})
    assert b"alert(1)</script>" not in body


def test_bodies_are_limited_to_one_mebibyte(page: RunningPage, cookie: dict[str, str]) -> None:
    headers = {**cookie, **SAME_ORIGIN}
    assert ask(page, SOCKET_IO_PATH, headers, "POST", b"x" * (1024 * 1024))[0] != 413
    assert ask(page, SOCKET_IO_PATH, headers, "POST", b"x" * (1024 * 1024 + 1))[0] == 413
    assert ask(page, "/", headers, "POST", b"x" * (1024 * 1024 + 1))[0] == 413


def test_a_chunked_body_over_the_limit_is_refused(page: RunningPage, cookie: dict[str, str]) -> None:
    """A bug: in a session of socket.io, the answer was 200, because engine.io caught the refusal."""
    headers = {**cookie, **SAME_ORIGIN}
    _, _, opening = ask(page, SOCKET_IO_PATH, headers)
    path = f"{SOCKET_IO_PATH}&sid={json.loads(opening[1:])['sid']}"
    assert ask(page, path, headers, "POST", iter([b"x" * 65_536] * 16))[0] == 200
    assert ask(page, path, headers, "POST", iter([b"x" * 65_536] * 16 + [b"x"]))[0] == 413


def test_scripts_run_only_from_this_server_or_with_the_nonce_of_the_answer(
    page: RunningPage, cookie: dict[str, str]
) -> None:
    request_headers = {**cookie, **SAME_ORIGIN, "x-forwarded-prefix": "/evil"}
    answers = [ask(page, "/", request_headers) for _ in range(2)]
    nonces = set()
    for _, headers, body in answers:
        policy = headers["content-security-policy"]
        script = next(part for part in policy.split("; ") if part.startswith("script-src"))
        match = re.fullmatch(r"script-src 'self' 'nonce-([\w-]{22})'", script)
        assert match
        assert "unsafe-eval" not in policy and "frame-ancestors 'none'" in policy
        nonces.add(match[1])
        scripts = re.findall(rb"<script[^>]*>", body)
        assert len(scripts) > 5
        assert all(f'nonce="{match[1]}"'.encode() in script for script in scripts)
        assert b"/evil" not in body
        assert headers["x-content-type-options"] == "nosniff"
    assert len(nonces) == 2


def test_the_initial_html_contains_no_data_of_servers(page: RunningPage, cookie: dict[str, str]) -> None:
    assert b"a.txt" not in ask(page, "/", {**cookie, **SAME_ORIGIN})[2]


# --- behind the sign-in of a server


def test_serve_browse_requires_a_token_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    arguments = ("serve", "--http", "127.0.0.1:0", "--browse", "--token-env", "THE_TOKEN", "docs")
    token = "a-token-of-at-least-32-characters-for-this-test"
    with run_page(*arguments, cwd=tmp_path, env={"THE_TOKEN": token}) as running_page:
        assert "token=" not in running_page.url
        status, _, form = ask(running_page, "/")
        assert status == 401 and b"Token for this server" in form
        form_headers = {"origin": running_page.base.rstrip("/"), "content-type": "application/x-www-form-urlencoded"}
        assert ask(running_page, "/sign-in", form_headers, "POST", b"token=wrong")[0] == 401
        assert (
            ask(
                running_page,
                "/sign-in",
                {**form_headers, "origin": "http://evil.test"},
                "POST",
                f"token={token}".encode(),
            )[0]
            == 403
        )
        assert ask(running_page, "/sign-in", form_headers, "POST", b"token=" + b"x" * 1024 * 1024)[0] == 413
        status, headers, _ = ask(running_page, "/sign-in", form_headers, "POST", f"token={token}".encode())
        assert status == 200
        cookie = {"cookie": headers["set-cookie"].partition(";")[0], **SAME_ORIGIN}
        assert b"nicegui" in ask(running_page, "/", cookie)[2]
        # The cookie gives no access to MCP.
        assert ask(running_page, "/mcp", {**cookie, "accept": "application/json"})[0] == 401
        assert ask(running_page, "/healthz")[0] == 200
        assert ask(running_page, "/sign-out", {**cookie, **form_headers}, "POST", b"")[0] == 200
        assert ask(running_page, SOCKET_IO_PATH, cookie)[0] == 401


def test_revoking_a_token_ends_its_access_to_the_page(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    token = run_command(tmp_path, "token", "create", "-q", "tokens.json", "--sub", "ann").strip()
    arguments = ("serve", "--http", "127.0.0.1:0", "--browse", "--tokens", "tokens.json", "docs")
    with run_page(*arguments, cwd=tmp_path) as running_page:
        form_headers = {"origin": running_page.base.rstrip("/"), "content-type": "application/x-www-form-urlencoded"}
        status, headers, _ = ask(running_page, "/sign-in", form_headers, "POST", f"token={token}".encode())
        assert status == 200
        cookie = {"cookie": headers["set-cookie"].partition(";")[0], **SAME_ORIGIN}
        assert ask(running_page, "/", cookie)[0] == 200
        (line,) = (
            line for line in run_command(tmp_path, "token", "list", "tokens.json").splitlines() if " ann" in line
        )
        run_command(tmp_path, "token", "revoke", "tokens.json", line.split()[0])
        wait_until(lambda: ask(running_page, "/", cookie)[0] == 401, "the page is closed after the token is revoked")


def run_command(folder: Path, *arguments: str) -> str:
    """Run `wharfinger ARGUMENTS`, and return what it prints."""
    completed = subprocess.run(
        [sys.executable, "-m", "wharfinger", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return completed.stdout
