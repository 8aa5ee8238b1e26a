"""No answer to a GET can be taken by a browser for another type than the one that it is sent with."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.commands.test_serve import address

HTML = "<!doctype html><script>alert(1)</script>"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
SERVER = f"""
from wharfinger import Server

server = Server("hostile")
server.resources.add("evil://svg", lambda: {SVG!r}, mime_type="image/png")
server.resources.add("evil://html", lambda: {HTML!r}, mime_type="text/html")
server.resources.add("evil://blob", lambda: {HTML.encode() + bytes([255])!r}, mime_type="text/html")
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, "-m", "wharfinger", "run", "server.py", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield address(process).removesuffix("/mcp")
        finally:
            process.terminate()


def get(url: str) -> tuple[int, Any, bytes]:
    request = urllib.request.Request(url, headers={"Sec-Fetch-Site": "same-origin", "Accept": "*/*"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            endless = answer.headers["content-type"] == "text/event-stream"
            return answer.status, answer.headers, b"" if endless else answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


@pytest.mark.parametrize(
    "path", ["/", "/mcp", "/sse", "/healthz", "/none", "/read", "/read?uri=evil://none", "/.well-known/x", f"/{HTML}"]
)
def test_no_answer_is_sniffed(base: str, path: str) -> None:
    _, headers, body = get(base + urllib.request.quote(path, safe="/?=:"))  # type: ignore[attr-defined]
    assert headers["x-content-type-options"] == "nosniff"
    assert path == "/" or not headers["content-type"].startswith("text/html")
    assert b"<script>" not in body


@pytest.mark.parametrize(
    ("name", "kind"),
    [("svg", "image/png"), ("html", "text/plain; charset=utf-8"), ("blob", "application/octet-stream")],
)
def test_hostile_content_is_sent_as_an_inert_type(base: str, name: str, kind: str) -> None:
    status, headers, _ = get(f"{base}/read?uri=evil%3A%2F%2F{name}")
    assert (status, headers["content-type"]) == (200, kind)
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
