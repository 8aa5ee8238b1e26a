"""The audit log with hostile text, on a full disk, and without secrets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.record.test_audit_log import lines, post
from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger.auth import static_token
from wharfinger.errors import ResourceNotFound
from wharfinger.record import AuditLog
from wharfinger.transports.http_server.app import HttpApp
from wharfinger.transports.stream_server import StreamServer

HOSTILE = {
    "line ends": 'x\r\n{"outcome":"allowed"}\n',
    "ansi": "x\x1b[2J\x1b]0;title\x07\x9b31m",
    "reversed": "x\u202egpj.exe\u2066\u2028\u2029\u200b\ufeff\x7f",
    "mebibyte": "x" * 1024 * 1024,
    "nul": "x\x00\x85",
}


def make_server(audit: AuditLog) -> Server:
    server = Server("record", audit=audit)

    @server.read_resource("notes://{+path}")
    async def note(path: str) -> str:
        raise ResourceNotFound(path)

    @server.resource("notes://today")
    async def today() -> str:
        return "calm"

    @server.tool
    async def login(password: str) -> str:
        return password

    return server


def message(id: int, method: str, client: str = "c", **params: Any) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": client},
        "traceparent": client,
    }
    body = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}
    return json.dumps(body).encode() + b"\n"


def record_of(path: Path, *messages: bytes) -> list[dict[str, Any]]:
    """Serve messages on a stream. Return the lines of the audit log."""

    async def run() -> None:
        server = make_server(AuditLog(path, queries=True))
        await server.start()
        stream = StreamServer(server)
        for data in messages:
            stream.data_received(data)
        stream.eof_received()
        await stream.ended
        await server.close()

    asyncio.run(run())
    return lines(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_makes_one_bounded_escaped_line(tmp_path: Path, name: str) -> None:
    path, text = tmp_path / "audit.jsonl", HOSTILE[name]
    client = text[:100_000]
    found = record_of(
        path,
        message(1, "resources/read", client, uri=f"notes://{text}"),
        message(2, "tools/call", client, name=text, arguments={}),
        message(3, "prompts/get", client, name=text),
    )
    data = path.read_bytes()
    assert data.count(b"\n") == len(found) >= 2
    assert all(line.isprintable() and len(line) < 8192 for line in data.decode().split("\n")[:-1])
    assert {line["outcome"] for line in found} == {"failed"}
    for line in found:
        assert line["target"].removeprefix("notes://")[:1] == "x"
        if name != "mebibyte":
            assert text in line["target"]  # escaped and complete


@pytest.mark.parametrize("hostile", [bytes(range(0x80, 0x100)), b"x" * 60_000, b"notes://ann:hunter2@host/"])
def test_hostile_http_headers_make_one_bounded_escaped_line(tmp_path: Path, hostile: bytes) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)

    async def run() -> None:
        app = HttpApp(make_server(audit), verify=static_token("a-token-of-16-characters"))

        async def send(event: Any) -> None: ...
        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        headers = [(b"host", b"127.0.0.1"), (b"mcp-method", hostile), (b"mcp-name", hostile)]
        headers.append((b"authorization", b"Bearer " + hostile))
        scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": headers,
                 "client": ("10.1.2.3", 1), "scheme": "http", "http_version": "1.1"}  # fmt: skip
        await app(scope, receive, send)
        await app.aclose(0)

    asyncio.run(run())
    audit.file.close()
    (line,) = path.read_bytes().splitlines()
    assert line.decode().isprintable()
    assert len(line) < 8192
    assert b"hunter2@" not in line
    assert (json.loads(line)["outcome"], json.loads(line)["status"]) == ("refused", 401)


def test_requests_are_refused_when_the_disk_is_full() -> None:
    """By default a server refuses requests that it cannot record (fail closed)."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    audit = AuditLog("/dev/full")

    async def run() -> list[tuple[int, bytes]]:
        app = HttpApp(make_server(audit))
        answers = [await post(app, b"")]
        await wait_until_async(lambda: audit.file.failure, "writing fails")
        answers += [await post(app, b""), await post(app, b"")]
        audit.file._queue.clear()  # otherwise closing waits for the disk
        await app.aclose(0)
        return answers

    answers = asyncio.run(run())
    assert answers[0][0] == 200
    assert [status for status, _ in answers[1:]] == [503, 503]
    assert all(b"cannot be written" in body and b"calm" not in body for _, body in answers[1:])


def test_refused_attempts_are_recorded_without_tokens_and_arguments(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    token, wrong_token, password = "right-token-1234567", "wrong-token-1234567", "hunter2-hunter2"

    async def run() -> None:
        app = HttpApp(make_server(AuditLog(path, queries=True)), verify=static_token(token))
        assert (await post(app, f"Bearer {wrong_token}".encode()))[0] == 401
        assert (await post(app, f"Bearer {token}".encode()))[0] == 200
        await app.aclose(0)

    asyncio.run(run())
    found = record_of(
        path,
        message(1, "tools/call", name="login", arguments={"password": password}),
        message(2, "tools/call", name="login", arguments={"pass": password}),
        message(3, "completion/complete", ref={"type": "ref/resource", "uri": "notes://{+path}"},
                argument={"name": "path", "value": password}),
    )  # fmt: skip
    assert [line["outcome"] for line in found] == ["refused", "allowed", "allowed", "failed", "failed"]
    text = path.read_text()
    assert not any(secret in text for secret in (token, wrong_token, password))
