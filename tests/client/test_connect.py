"""How a client detects the era of a server: probes, fallbacks and errors with advice (spec: §2.4, §2.5)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until_async
from wharfinger.client import Client
from wharfinger.client.connect import Target
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    NotAuthorized,
    NotMCP,
    RemoteError,
    UnsupportedRevision,
    WharfingerError,
)
from wharfinger.transports.stdio_client import StdioLink

NEWEST, HANDSHAKE = "2026-07-28", "2025-11-25"

PRELUDE = """
import json, os, sys, time
def read():
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)
def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def send(**members):
    raw(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\\n")
def answer(message, **result):
    send(id=message["id"], result=result)
def refuse(message, code, data=None):
    send(id=message["id"], error={"code": code, "message": "refused", "data": data})
def discovered(message, *supported):
    info = {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "7"}}
    rest = {"instructions": "Hi.", "resultType": "complete", "_meta": info}
    answer(message, supportedVersions=supported, capabilities={"tools": {}}, **rest)
def initialized(message, version=None):
    version = version or message["params"]["protocolVersion"]
    answer(message, protocolVersion=version, capabilities={"resources": {}}, serverInfo={"name": "old", "version": "1"})
def log(*what):
    print(*what, file=sys.stderr, flush=True)
"""
LISTS = """
    elif m["method"] == "tools/list":
        answer(m, tools=[{"name": json.dumps(m["params"]), "inputSchema": {"type": "object"}}])
    elif "id" in m: refuse(m, -32601)
"""
STATELESS = "while True:\n    m = read()\n    if m['method'] == 'server/discover': discovered(m, '2026-07-28')" + LISTS
OLD = "while True:\n    m = read()\n    if m['method'] == 'initialize': initialized(m)" + LISTS


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def client(code: str, **settings: Any) -> Client:
    return Client([sys.executable, "-I", "-S", "-c", PRELUDE + code], **settings)


def open_client(code: str, **settings: Any) -> list[Any]:
    """Return the revision, the server's name and instructions, and the `_meta` of a call."""

    async def test() -> None:
        async with client(code, **settings) as it:
            info = it.server_info
            found.extend([it.revision, info and info.name, it.instructions])
            (tool,) = await it.list_tools()
            found.append(json.loads(tool.name).get("_meta"))

    found: list[Any] = []
    run(test())
    return found


def open_error(code: str, error: type[WharfingerError], words: str, **settings: Any) -> str:
    async def test() -> None:
        with pytest.raises(error, match=words) as caught:
            await client(code, **settings).open()
        assert type(caught.value) is error
        expected.append(str(caught.value))

    expected: list[str] = []
    run(test())
    return expected[0]


def test_a_stateless_server_gets_stateless_requests() -> None:
    revision, name, instructions, meta = open_client(STATELESS)
    assert (revision, name, instructions) == (NEWEST, "fake", "Hi.")
    assert meta["io.modelcontextprotocol/protocolVersion"] == NEWEST
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "wharfinger"


@pytest.mark.parametrize(
    "reply", ["refuse(m, -32601)", "refuse(m, -32602)", "refuse(m, -32002)", "answer(m)", "answer(m, a=1)"]
)
def test_a_handshake_server_is_detected_by_any_other_answer(reply: str) -> None:
    """Spec §2.5: no single error code decides. A server that answers `{}` to everything is a handshake server."""
    revision, name, _, meta = open_client("m = read()\n" + reply + "\n" + OLD)
    assert (revision, name, meta) == (HANDSHAKE, "old", None)


def test_a_silent_server_gets_initialize_after_the_probe_timeout() -> None:
    assert open_client("read()\n" + OLD, probe_timeout=0.05)[:2] == [HANDSHAKE, "old"]


def test_a_late_answer_to_the_probe_selects_the_stateless_era() -> None:
    """Both requests are pending: the answer to the first is used, and the refusal of the second is ignored."""
    code = "m = read(); i = read(); discovered(m, '2026-07-28')\n" + STATELESS
    assert open_client(code, probe_timeout=0.05)[:2] == [NEWEST, "fake"]


def test_a_server_that_exits_on_the_probe_is_restarted_without_it() -> None:
    """Some handshake servers exit on an unknown request. The second process only gets `initialize`."""
    code = "m = read()\nif m['method'] != 'initialize': sys.exit(1)\ninitialized(m)\n" + OLD
    assert open_client(code)[:2] == [HANDSHAKE, "old"]
    assert open_client("time.sleep(0.2)\n" + code, probe_timeout=0.05)[:2] == [HANDSHAKE, "old"]


def test_discovery_is_repeated_once_after_a_refused_revision() -> None:
    """Spec §2.4."""
    refused = "refuse(read(), -32022, {'supported': ['2026-07-28'], 'requested': '2026-07-28'})\n"
    assert open_client(refused + STATELESS)[0] == NEWEST
    open_error(refused * 2 + "read()", UnsupportedRevision, "No revision in common: the server offers 2026-07-28")


def test_a_stateless_server_that_refuses_initialize_with_its_revisions_is_detected() -> None:
    refused = "refuse(read(), -32022, {'supported': ['2026-07-28'], 'requested': '2025-11-25'})\n"
    assert open_client("answer(read())\n" + refused + STATELESS)[0] == NEWEST


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_handshake_revision_can_be_pinned(revision: str) -> None:
    assert (
        open_client("m = read(); assert m['method'] == 'initialize'; initialized(m)\n" + OLD, revision=revision)[0]
        == revision
    )
    other = "2025-03-26" if revision != "2025-03-26" else "2024-11-05"
    code = f"initialized(read(), {other!r}); read()"
    open_error(code, UnsupportedRevision, f"this client requires {revision}", revision=revision)


def test_a_server_may_choose_an_older_revision() -> None:
    assert open_client("answer(read()); initialized(read(), '2024-11-05')\n" + OLD)[0] == "2024-11-05"


def test_a_pinned_stateless_revision_does_not_fall_back() -> None:
    open_error("refuse(read(), -32601); read()", UnsupportedRevision, "pinned revision 2026-07-28", revision=NEWEST)


def test_a_pinned_revision_waits_for_open_timeout() -> None:
    open_error("read(); read()", ConnectionFailed, "gave no answer within 0.3 s", revision=NEWEST, open_timeout=0.3)


def test_an_unknown_revision_is_refused() -> None:
    open_error("", UnsupportedRevision, "Unknown revision '1900-01-01'", revision="1900-01-01")


def test_an_unknown_revision_of_a_server_is_refused() -> None:
    """Security C22."""
    open_error(
        "answer(read()); initialized(read(), '1900-01-01'); read()", UnsupportedRevision, "chose revision '1900-01-01'"
    )


BRIDGE = """
own = None
while True:
    m = read()
    log(m["method"])
    if m["method"] == "initialize" and own is None: initialized(m); own = False
    elif m["method"] == "initialize": FAIL
    elif own is None: own = True; refuse(m, -32601)
    elif m["method"] == "tools/list":
        answer(m, tools=[{"name": json.dumps(m["params"]), "inputSchema": {"type": "object"}}])
"""
"""A bridge that opens its own session for a first message other than `initialize`, and then opens no other."""


@pytest.mark.parametrize("fail", ["refuse(m, -32600)", "answer(m)", "sys.exit(1)"])
def test_a_bridge_that_opened_its_own_session_is_restarted_without_the_probe(fail: str) -> None:
    assert open_client(BRIDGE.replace("FAIL", fail))[0] == HANDSHAKE


def test_a_bridge_is_not_probed_again() -> None:
    """The client remembers the detected era after a lost connection."""
    code = "log(os.getpid())\n" + BRIDGE.replace("FAIL", "refuse(m, -32600)")

    async def test() -> None:
        async with client(code) as it:
            link: Any = it._session.connections.link
            assert "server/discover" not in link.stderr
            os.kill(link.pid, 9)
            await wait_until_async(lambda: link.is_lost, "the client sees the end of the server")
            assert await it.list_tools()
            link = it._session.connections.link
            assert link.stderr.split("\n")[1:] == ["initialize", "notifications/initialized", "tools/list"]

    run(test())


REFUSING = """
while True:
    m = read()
    if m["method"] == "initialize": refuse(m, CODE)
    else: CODE = -32600; answer(m)
"""


def test_a_refused_initialize_is_reported_with_the_message_of_the_server() -> None:
    """At most two children are started. If both refuse for the same reason, it is given once."""

    async def test() -> None:
        with pytest.raises(RemoteError, match="refused") as caught:
            await client(REFUSING.replace("CODE = -32600; ", "").replace("CODE", "-32603")).open()
        assert (caught.value.code, caught.value.message) == (-32603, "refused")

    run(test())


def test_an_initialize_that_is_refused_in_two_ways_is_reported_with_both_reasons() -> None:
    async def test() -> None:
        with pytest.raises(RemoteError, match="refused") as caught:
            await client("CODE = -32603\n" + REFUSING).open()
        assert caught.value.code == -32603
        first = "server/discover and then initialize (refused (error -32600))"
        assert caught.value.message == f"refused. Tried over two connections: {first}, and initialize alone."

    run(test())


def test_an_invalid_result_of_initialize_raises_not_mcp() -> None:
    expected = open_error("while True: answer(read(), hello=1)", NotMCP, "an invalid InitializeResult")
    assert "Tried" not in expected


def test_a_server_that_exits_at_once_is_reported_with_its_last_lines() -> None:
    expected = open_error(
        "log('first'); log('no such disk'); sys.exit(4)",
        ConnectionFailed,
        "ended with exit code 4, before it had answered",
    )
    assert expected.endswith("first\nno such disk")
    assert "-I -S -c" in expected


def test_a_silent_server_is_reported_with_its_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Security C01, C02: no process is left."""
    monkeypatch.setattr("wharfinger.transports.stdio_client.GRACE_SECONDS", 0.1)
    code = "log('waiting for a lock', os.getpid()); read(); time.sleep(60)"
    expected = open_error(code, ConnectionFailed, "gave no answer within 2 s", open_timeout=2, probe_timeout=0.1)
    head, _, pid = expected.rpartition(" ")
    assert head.endswith("waiting for a lock")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.parametrize("end", ["", "; sys.exit(1)"])
def test_a_program_that_is_not_mcp_is_reported_with_its_first_bytes(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.transports.stdio_client.GRACE_SECONDS", 0.1)
    code = f"raw(b'Usage: server [OPTIONS]\\nmore\\n'); log('oops'){end or '; time.sleep(60)'}"
    expected = open_error(code, NotMCP, "first bytes were b'Usage: server", open_timeout=2, probe_timeout=0.1)
    assert expected.endswith("\noops")


def test_64_mib_of_garbage_are_skipped_quickly() -> None:
    """Security C05: memory is bounded and time is linear."""
    code = "read()\nfor _ in range(64): raw(b'x' * (1 << 20))\nraw(b'\\n'); m = read(); initialized(m)\n" + OLD
    from wharfinger.protocol.limits import Limits

    start = time.monotonic()
    assert open_client(code, limits=Limits(message=4 << 20))[0] == HANDSHAKE
    assert time.monotonic() - start < 15


def test_a_cancelled_open_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wharfinger.transports.stdio_client.GRACE_SECONDS", 0.1)
    pids: list[int] = []
    open_child = StdioLink.open

    async def record_pid(self: StdioLink, *given: Any) -> None:
        await open_child(self, *given)
        assert self.pid is not None
        pids.append(self.pid)

    monkeypatch.setattr(StdioLink, "open", record_pid)

    async def test() -> None:
        it = client("read(); time.sleep(60)")
        opening = asyncio.ensure_future(it.open())
        await wait_until_async(lambda: pids, "the server is started")
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        with pytest.raises(ProcessLookupError):
            os.kill(pids[0], 0)
        with pytest.raises(ConnectionLost, match="not open"):
            await it.ping()

    run(test())


@pytest.mark.parametrize(
    "target", ["server", "python server.py", "localhost:8000/mcp", "", [], [""][:0], ["x", 3], 7, None, object()]
)
def test_an_invalid_target_is_refused(target: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        Client(target)


def test_a_path_of_a_python_file_is_run(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(PRELUDE + STATELESS, encoding="utf-8")

    async def test() -> None:
        targets: list[Target] = [file, str(file), [sys.executable, file]]
        for target in targets:
            async with Client(target) as it:
                assert it.revision == NEWEST

    run(test())


def test_the_path_of_a_python_file_is_relative_to_the_current_folder_and_not_to_cwd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the file was looked for in the current folder, and run in `cwd`, where there was none."""
    (tmp_path / "server.py").write_text(PRELUDE + STATELESS, encoding="utf-8")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with Client("server.py", cwd="data") as it:
            assert it.revision == NEWEST

    run(test())


# HTTP


def open_with_responses(*replies: tuple[str, str, bytes], path: str = "/mcp", **settings: Any) -> tuple[Any, list[Any]]:
    """Open a client with these (status, content type, body) responses. Return its revision or error, and requests."""
    asked: list[Any] = []
    outcome: list[Any] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = int(head.partition("content-length:")[2].split("\r\n")[0])
                message = json.loads(await reader.readexactly(size))
                asked.append(message["method"])
                status, kind, body = replies[min(len(asked), len(replies)) - 1]
                body = body.replace(b"ID", str(message.get("id")).encode())
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def test() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        it = Client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}", **settings)
        try:
            await it.open()
            outcome.append(it.revision)
        except WharfingerError as error:
            outcome.append(error)
        await it.close()
        server.close()

    run(test())
    return outcome[0], asked


JSON, HTML = "application/json", "text/html"
DISCOVERED = (
    b'{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2026-07-28"],"capabilities":{},"resultType":"complete"}}'
)
INITIALIZED = (
    b'{"jsonrpc":"2.0","id":ID,"result":'
    b'{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}'
)
ACCEPTED = ("202 Accepted", JSON, b"")


def refusal(code: int, data: bytes = b"null", id: bytes = b"ID") -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"error":{"code":%d,"message":"no","data":%b}}' % (id, code, data)


def test_an_http_stateless_server_is_detected_with_one_request() -> None:
    assert open_with_responses(("200 OK", JSON, DISCOVERED)) == (NEWEST, ["server/discover"])


@pytest.mark.parametrize(
    "first",
    [
        ("400 Bad Request", JSON, refusal(-32000, id=b"null")),
        ("400 Bad Request", JSON, refusal(-32600)),
        ("400 Bad Request", "text/plain", b""),
        ("404 Not Found", JSON, refusal(-32601)),
        ("405 Method Not Allowed", HTML, b"<html>"),
        ("406 Not Acceptable", JSON, b'{"detail":"x"}'),
        ("500 Oops", "text/plain", b"Traceback"),
        ("200 OK", JSON, refusal(-32601)),
        ("200 OK", JSON, b'{"jsonrpc":"2.0","id":ID,"result":{}}'),
    ],
)
def test_an_http_handshake_server_is_detected_by_any_other_answer(first: tuple[str, str, bytes]) -> None:
    """Spec §2.5, HTTP: the body of a 4xx is read first. Any body of another era leads to the handshake."""
    assert open_with_responses(first, ("200 OK", JSON, INITIALIZED), ACCEPTED) == (
        "2025-06-18",
        ["server/discover", "initialize", "notifications/initialized"],
    )


def test_an_http_stateless_error_does_not_lead_to_the_handshake() -> None:
    again = ("400 Bad Request", JSON, refusal(-32022, b'{"supported":["2026-07-28"],"requested":"2026-07-28"}'))
    assert open_with_responses(again, ("200 OK", JSON, DISCOVERED)) == (NEWEST, ["server/discover"] * 2)
    error, asked = open_with_responses(("400 Bad Request", JSON, refusal(-32020)))
    assert (type(error), error.code, asked) == (RemoteError, -32020, ["server/discover"])


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (
            ("404 Not Found", HTML, b"<html>"),
            ConnectionFailed,
            r"^No MCP server here: .*404 Not Found.* Try http://.*/x/mcp or http://.*/x/sse \(HTTP\+SSE",
        ),
        (("405 Method Not Allowed", "text/plain", b""), ConnectionFailed, r"HTTP\+SSE of 2024-11-05"),
        (("401 Unauthorized", "text/plain", b"token?"), NotAuthorized, "401 Unauthorized: token?"),
        (("200 OK", HTML, b"<html>Welcome"), NotMCP, "first bytes were b'<html>Welcome'"),
        (("503 Busy", "text/plain", b"later"), ConnectionFailed, "503 Busy: later"),
    ],
)
def test_a_url_without_an_mcp_server_is_reported_with_advice(
    reply: tuple[str, str, bytes], kind: type[Exception], words: str
) -> None:
    error, _ = open_with_responses(reply, path="/x")
    assert type(error) is kind or (kind is ConnectionFailed and isinstance(error, kind))
    with pytest.raises(kind, match=words):
        raise error
