"""The audit log of a real server: what it contains, what it never contains, and failures to write it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import RecordingChannel, ask
from tests.waiting import wait_until_async
from wharfinger import Client, Context, Server
from wharfinger.policy import Policy
from wharfinger.protocol.http.rules import HttpRefusal
from wharfinger.protocol.principal import Principal
from wharfinger.record import AuditLog, audit_file
from wharfinger.record.audit_file import UnusableAuditFile
from wharfinger.record.audit_line import AuditLine
from wharfinger.transports.http_server.app import HttpApp

POLICY = """
[[allow]]
who = "anyone"
what = ["notes://*", "tool:*"]
[[deny]]
who = "anyone"
what = ["notes://private"]
"""


def harbour(audit: Any = None, policy: str = "") -> Server:
    server = Server("harbour", audit=audit, policy=Policy.from_toml(policy) if policy else None)

    @server.resource("notes://today")
    async def today() -> str:
        return "calm"

    @server.resource("notes://private")
    async def private() -> str:
        return "secret"

    @server.tool
    async def repeat(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri)).contents[0].text or ""

    @server.tool
    async def find(words: str, ctx: Context) -> int:
        return len(await ctx.search(words))

    return server


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def lines_of(path: Path, action: str) -> list[dict[str, Any]]:
    return [line for line in lines(path) if line["action"] == action]


async def read(server: Server, *uris: str) -> list[str]:
    """Return the text of each URI, or the name of its error."""
    found: list[str] = []
    async with Client(server) as client:
        for uri in uris:
            try:
                found.append((await client.read_resource(uri)).contents[0].text or "")
            except Exception as error:
                found.append(type(error).__name__)
    return found


def test_a_read_has_one_line_with_caller_uri_and_outcome(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    before = time.time()
    asyncio.run(read(harbour(path, POLICY), "notes://today", "notes://private", "notes://none"))
    first, second, third = lines_of(path, "read")
    assert first["target"] == "notes://today"
    assert first["outcome"] == "allowed"
    assert first["method"] == "resources/read"
    assert first["subject"] == "local"
    assert first["app"].startswith("wharfinger ")
    assert first["bytes"] > 20
    assert 0 < first["ms"] < 10_000
    assert "calm" not in path.read_text()
    stamp = first["time"]
    assert stamp.endswith("Z")
    assert before - 1 < time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone < time.time() + 1
    assert (second["target"], second["outcome"]) == ("notes://private", "refused")
    assert first["rule"] != second["rule"]
    assert "1" in first["rule"] + second["rule"]
    assert (third["outcome"], third["error"]) == ("failed", second["error"])


def test_reads_by_a_tool_are_recorded_and_its_arguments_are_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def call_with_unknown_argument() -> None:
        async with Client(harbour(path, POLICY)) as client:
            await client.call_tool("repeat", {"uri": "notes://today", "unused": "tulip"})
            await client.call_tool("repeat", {"uri": "notes://private"})
            await client.call_tool("find", {"words": "today"})
            await client.call_tool("find", {"words": "tulip"})

    with pytest.raises(Exception, match="unused"):
        asyncio.run(call_with_unknown_argument())
    path.unlink()

    async def call_with_valid_arguments() -> None:
        async with Client(harbour(path, POLICY)) as client:
            await client.call_tool("repeat", {"uri": "notes://today"})
            with contextlib.suppress(Exception):
                await client.call_tool("repeat", {"uri": "notes://private"})
            await client.call_tool("find", {"words": "today"})
            await client.call_tool("find", {"words": "tulip"})

    asyncio.run(call_with_valid_arguments())
    reads = lines_of(path, "read")
    assert [(line["target"], line["outcome"], line["via"]) for line in reads] == [
        ("notes://today", "allowed", "tools/call"),
        ("notes://private", "refused", "tools/call"),
    ]
    assert reads[0]["bytes"] == len("calm")
    assert [line["target"] for line in lines_of(path, "call")] == ["repeat", "repeat", "find", "find"]
    assert [line["hits"] for line in lines_of(path, "search")] == [1, 0]
    assert "tulip" not in path.read_text()


def test_search_words_are_recorded_on_request_only(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def search() -> None:
        async with Client(harbour(AuditLog(path, queries=True))) as client:
            await client.call_tool("find", {"words": "tulip\nfields"})

    asyncio.run(search())
    assert [(line["query"], line["hits"]) for line in lines_of(path, "search")] == [("tulip\nfields", 0)]


def test_a_watch_has_lines_for_its_beginning_and_its_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def watch() -> None:
        async with Client(harbour(path, POLICY)) as client, client.watch("notes://today"):
            pass

    asyncio.run(watch())
    assert [(line["target"], line["outcome"]) for line in lines_of(path, "watch")] == [("notes://today", "allowed")]
    assert [line["method"] for line in lines_of(path, "unwatch")] == ["subscriptions/listen"]
    assert lines_of(path, "watch")[0]["rule"]


async def test_a_listen_that_is_refused_has_no_line_for_a_watch(tmp_path: Path) -> None:
    """Bug: it was recorded as allowed before its limits were checked."""
    path = tmp_path / "audit.jsonl"
    server = harbour(path, POLICY)
    await server.start()
    full = RecordingChannel(full=True)
    given = {"notifications": {"resourceSubscriptions": ["notes://today"]}}
    assert "error" in await ask(server, "subscriptions/listen", given, channel=full)
    await server.close()
    assert lines_of(path, "watch") == []


def test_an_http_server_records_messages_that_authentication_refuses(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = harbour(path)

    def verify(headers: Any) -> Principal:
        token = headers.get(b"authorization", b"")
        if token == b"Bearer good-token":
            return Principal(subject="ann", issuer="https://id.test", client="desk")
        raise HttpRefusal({b"": 401, b"Bearer bad-token": 403}.get(token, 429), "no")

    async def run() -> None:
        app = HttpApp(server, verify=verify)
        for token in (b"", b"Bearer bad-token", b"Bearer other-token", b"Bearer good-token"):
            await post(app, token)
        await app.aclose(0)

    asyncio.run(run())
    found = lines(path)
    assert [(line.get("status"), line["outcome"], line.get("subject"), line["address"]) for line in found] == [
        (401, "refused", None, "10.1.2.3"),
        (403, "refused", None, "10.1.2.3"),
        (429, "limited", None, "10.1.2.3"),
        (None, "allowed", "ann", "10.1.2.3"),
    ]
    assert (found[3]["issuer"], found[3]["client"]) == ("https://id.test", "desk")
    assert found[3]["trace"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert [line["target"] for line in found] == ["notes://today"] * 4
    assert "token" not in path.read_text()


async def post(app: HttpApp, authorization: bytes) -> tuple[int, bytes]:
    """Read notes://today over HTTP. Returns the status and the body."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "notes://today", "_meta": meta}}
    body = json.dumps(message).encode()
    events: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        events.append(event)

    fields = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-length", b"%d" % len(body)),
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"resources/read"),
        (b"mcp-name", b"notes://today"),
        (b"authorization", authorization),
    ]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": fields,
             "client": ("10.1.2.3", 1), "scheme": "http", "http_version": "1.1"}  # fmt: skip
    await app(scope, receive, send)
    return events[0]["status"], events[1]["body"]


# -- a log that cannot be written


@pytest.fixture
def breakable_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a log that cannot be written while it is a directory."""
    monkeypatch.setattr(audit_file, "RETRY_SECONDS", 0.02)
    return tmp_path / "audit.jsonl"


def break_log(path: Path) -> None:
    path.rename(path.with_name("before.jsonl"))
    path.mkdir()


async def wait_until_failing(audit: AuditLog, failing: bool) -> None:
    expected = "writing the log fails" if failing else "writing the log succeeds again"
    await wait_until_async(lambda: bool(audit.file.failure) is failing, expected)


def test_requests_are_refused_while_the_log_cannot_be_written_and_served_again_after(breakable_path: Path) -> None:
    audit = AuditLog(breakable_path)
    server = harbour(audit)

    async def run() -> list[str]:
        answers: list[str] = []
        async with Client(server) as client:

            async def read_today() -> None:
                try:
                    answers.append((await client.read_resource("notes://today")).contents[0].text or "")
                except Exception as error:
                    answers.append(str(error))

            await read_today()
            assert audit.file.flush()
            break_log(breakable_path)
            await read_today()  # the writer has not failed yet, so the line is queued
            await wait_until_failing(audit, True)
            await read_today()
            await read_today()
            breakable_path.rmdir()
            await wait_until_failing(audit, False)
            await read_today()
        return answers

    answers = asyncio.run(run())
    assert answers[0] == answers[1] == answers[4] == "calm"
    assert all("cannot be written" in answer for answer in answers[2:4])
    found = lines(breakable_path.with_name("before.jsonl")) + lines(breakable_path)
    assert [line["outcome"] for line in found if line["action"] == "read"] == ["allowed"] * 3
    (gap,) = [line for line in found if line["action"] == "record"]
    assert gap["unrecorded"] == 2
    assert gap["reason"].startswith("since 20")
    assert found.index(gap) < max(n for n, line in enumerate(found) if line["action"] == "read")


def test_with_on_error_continue_requests_are_served_and_dropped_lines_counted(
    breakable_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "QUEUE_BYTES", 2000)
    audit = AuditLog(breakable_path, on_error="continue")
    server = harbour(audit)

    async def run() -> int:
        async with Client(server) as client:
            await client.read_resource("notes://today")
            assert audit.file.flush()
            break_log(breakable_path)
            await client.read_resource("notes://today")
            await wait_until_failing(audit, True)
            for _ in range(30):
                assert (await client.read_resource("notes://today")).contents[0].text == "calm"
            dropped = audit.file.dropped
            breakable_path.rmdir()
            await wait_until_failing(audit, False)
            await client.read_resource("notes://today")
        return dropped

    dropped = asyncio.run(run())
    assert dropped > 10
    found = lines(breakable_path)
    assert sum(line.get("unrecorded", 0) for line in found) == dropped
    assert len([line for line in found if line["action"] == "read"]) == 32 - dropped
    assert "cannot be written: is a directory" in caplog.text


def test_a_gap_names_the_full_queue_and_no_earlier_outage_without_a_gap(
    breakable_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the reason of the gap was an outage that was long over, in which no line was lost."""
    audit = AuditLog(breakable_path, on_error="continue")
    line = AuditLine(time="2026-11-22T15:36:01.123Z", action="read", outcome="allowed")

    async def run() -> None:
        await audit.start()
        break_log(breakable_path)
        audit.add(line)
        await wait_until_failing(audit, True)
        breakable_path.rmdir()
        await wait_until_failing(audit, False)
        with monkeypatch.context() as patch:
            patch.setattr(audit_file, "QUEUE_BYTES", 10)
            audit.add(line)
        audit.add(line)
        await audit.close()

    asyncio.run(run())
    assert [found["action"] for found in lines(breakable_path)] == ["read", "record", "read"]
    (gap,) = lines_of(breakable_path, "record")
    assert (gap["unrecorded"], gap["reason"]) == (1, "the queue was full")


@pytest.mark.parametrize("on_error", ["refuse", "continue"])
def test_a_log_that_cannot_be_opened_prevents_the_start_unless_on_error_is_continue(
    tmp_path: Path, on_error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = harbour(AuditLog(tmp_path, on_error=on_error))

    async def start() -> None:
        await server.start()
        await server.close()

    caplog.set_level(logging.WARNING)
    if on_error == "refuse":
        with pytest.raises(UnusableAuditFile, match="is a directory"):
            asyncio.run(start())
    else:
        asyncio.run(start())
        assert "continues without a record" in caplog.text


@pytest.mark.parametrize("options", [{"max_bytes": 65535}, {"keep": -1}, {"on_error": "panic"}])
def test_options_out_of_range_are_errors(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="write"):
        AuditLog(tmp_path / "log", **options)


def test_sigterm_leaves_a_complete_log(tmp_path: Path) -> None:
    path, script = tmp_path / "audit.jsonl", tmp_path / "server.py"
    script.write_text(
        "from wharfinger import Server\n"
        f"server = Server('s', audit={str(path)!r})\n"
        "@server.resource('notes://today')\n"
        "async def today() -> str: return 'calm'\n"
        "server.run()"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    for id in range(50):
        params = {"uri": "notes://today", "_meta": meta}
        message = {"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()
    for _ in range(50):
        assert b"calm" in process.stdout.readline()
    os.kill(process.pid, signal.SIGTERM)
    process.wait(20)
    process.stdin.close()
    process.stdout.close()
    assert len(lines(path)) == 50


def test_requests_over_a_limit_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = harbour(path, '[[limit]]\nwho = "anyone"\ndo = "read"\ncalls = "1/min"\n')
    answers = asyncio.run(read(server, "notes://today", "notes://private"))
    assert answers[0] == "calm"
    assert [(line["target"], line["outcome"]) for line in lines_of(path, "read")] == [
        ("notes://today", "allowed"),
        ("notes://private", "limited"),
    ]


def test_a_refused_completion_is_recorded_as_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = harbour(path, POLICY)

    @server.resource("plans://{name}")
    def plan(name: str) -> str:
        return name

    @server.prompt
    def brief(topic: str) -> str:
        return topic

    async def complete() -> None:
        async with Client(server) as client:
            for ref in ("plans://{name}", "brief"):
                with contextlib.suppress(Exception):
                    await client.complete(ref, "name" if "{" in ref else "topic", "x")

    asyncio.run(complete())
    assert [(line["target"], line["outcome"]) for line in lines_of(path, "complete")] == [
        ("plans://{name}", "refused"),
        ("brief", "refused"),
    ]
