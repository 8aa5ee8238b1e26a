"""Every answer to a GET has a safe Content-Type, and forbids the browser to guess another one."""

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
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, "-m", "wharfinger", "run", "server.py", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield address(process).removesuffix("/mcp")
        finally:
            process.terminate()


def get(url: str) -> tuple[int, Any, bytes]:
    """Return the status, headers and body of a page. The body of an event stream is not read."""
    request = urllib.request.Request(url, headers={"Sec-Fetch-Site": "same-origin", "Accept": "*/*"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            is_stream = answer.headers["content-type"] == "text/event-stream"
            return answer.status, answer.headers, b"" if is_stream else answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


@pytest.mark.parametrize(
    "path", ["/", "/mcp", "/sse", "/healthz", "/none", "/read", "/read?uri=evil://none", "/.well-known/x", f"/{HTML}"]
)
def test_every_answer_forbids_sniffing(base_url: str, path: str) -> None:
    _, headers, body = get(base_url + urllib.request.quote(path, safe="/?=:"))  # type: ignore[attr-defined]
    assert headers["x-content-type-options"] == "nosniff"
    assert path == "/" or not headers["content-type"].startswith("text/html")
    assert b"<script>" not in body


@pytest.mark.parametrize(
    ("name", "media_type"),
    [("svg", "image/png"), ("html", "text/plain; charset=utf-8"), ("blob", "application/octet-stream")],
)
def test_hostile_content_is_sent_as_an_inert_type(base_url: str, name: str, media_type: str) -> None:
    status, headers, _ = get(f"{base_url}/read?uri=evil%3A%2F%2F{name}")
    assert (status, headers["content-type"]) == (200, media_type)
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
