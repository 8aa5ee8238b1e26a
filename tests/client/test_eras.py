"""How a client remembers the era of a server, and detects it again if it changed (spec: §2.4, §2.5)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from wharfinger.client import Change, Client, Retry
from wharfinger.errors import ConnectionFailed, RemoteError, UnsupportedRevision
from wharfinger.protocol.sse import Pulse

NEWEST, HANDSHAKE = "2026-07-28", "2025-11-25"
Reply = tuple[int, Any]
"""A status, and the members of a response or a text that is not a message."""


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


class FakeServer:
    """A server on a port that answers with what `reply_to` returns, and records the methods of its messages."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.reply_to: Callable[[Any], Reply] = stateless
        self.silent = False
        self.comments = 0
        self.streams = False
        """Whether a GET opens a stream without events."""

    async def __aenter__(self) -> FakeServer:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if head.startswith("get") and self.streams:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    continue
                if head.startswith(("get", "delete")):
                    writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
                    continue
                size = int(head.partition("content-length:")[2].split("\r\n")[0])
                message = json.loads(await reader.readexactly(size))
                self.methods.append(message["method"].removeprefix("notifications/"))
                if message["method"] == "subscriptions/listen":
                    tag = {"io.modelcontextprotocol/subscriptionId": message["id"]}
                    params = {"notifications": message["params"]["notifications"], "_meta": tag}
                    event = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                    writer.write(f"data: {json.dumps(event)}\n\n".encode())
                    for _ in range(self.comments):
                        await writer.drain()
                        await asyncio.sleep(0.005)
                        writer.write(b":\n\n")
                    continue
                if self.silent:
                    continue
                status, content = self.reply_to(message) if "id" in message else (202, "")
                kind = "text/html" if isinstance(content, str) else "application/json"
                body = (
                    content
                    if isinstance(content, str)
                    else json.dumps({"jsonrpc": "2.0", "id": message["id"], **content})
                )
                writer.write(
                    f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def new_methods(self) -> list[str]:
        """Return the methods of the messages since the last call."""
        methods, self.methods = self.methods, []
        return methods


def result(**members: Any) -> Reply:
    return 200, {"result": {"resultType": "complete", **members}}


def refused(*supported: str) -> Reply:
    data = {"supported": list(supported), "requested": "?"}
    return 400, {"error": {"code": -32022, "message": "no", "data": data}}


def stateless(message: Any) -> Reply:
    if "io.modelcontextprotocol/protocolVersion" not in message.get("params", {}).get("_meta", {}):
        return refused(NEWEST)
    if message["method"] == "server/discover":
        return result(supportedVersions=[NEWEST], capabilities={"tools": {}})
    return result(tools=[])


def handshake(message: Any) -> Reply:
    if message["method"] == "initialize":
        info = {"name": "old", "version": "1"}
        return 200, {"result": {"protocolVersion": HANDSHAKE, "capabilities": {"tools": {}}, "serverInfo": info}}
    if message["method"] == "tools/list" and "_meta" not in message.get("params", {}):
        return 200, {"result": {"tools": []}}
    return 400, "<html>what?"


def test_a_known_handshake_server_is_not_probed_again() -> None:
    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to = handshake
            async with Client(fake.url):
                assert fake.new_methods() == ["server/discover", "initialize"]
            fake.new_methods()
            async with Client(fake.url + "?again") as client:
                await client.list_tools()
                assert fake.new_methods() == ["initialize", "initialized", "tools/list"]
            async with Client(fake.url + "/other"):
                assert fake.new_methods()[0] == "server/discover"

    run(test())


@pytest.mark.parametrize("how", ["refused", "no message"])
def test_the_era_is_detected_again_if_the_remembered_one_fails(how: str) -> None:
    def stateless_without_hint(message: Any) -> Reply:
        return (404, "<html>") if message["method"] == "initialize" else stateless(message)

    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to = handshake
            async with Client(fake.url):
                pass
            fake.reply_to = stateless if how == "refused" else stateless_without_hint
            fake.new_methods()
            async with Client(fake.url) as client:
                assert client.revision == NEWEST
            assert fake.new_methods() == ["initialize", "server/discover"]
            async with Client(fake.url):
                assert fake.new_methods() == ["server/discover"]

    run(test())


def test_a_pinned_client_keeps_its_revision_if_the_remembered_era_fails() -> None:
    """Regression: it sent `server/discover`, and reported that the server has none."""

    def handshake_of_another_revision(message: Any) -> Reply:
        status, body = handshake(message)
        return status, json.loads(json.dumps(body).replace(HANDSHAKE, "2025-03-26"))

    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to = handshake
            async with Client(fake.url):
                pass
            fake.reply_to = handshake_of_another_revision
            fake.new_methods()
            with pytest.raises(UnsupportedRevision, match="chose revision '2025-03-26'"):
                await Client(fake.url, revision="2025-06-18").open()
            assert set(fake.new_methods()) == {"initialize"}

    run(test())


@pytest.mark.parametrize(("before", "after"), [(stateless, handshake), (handshake, stateless)])
def test_a_client_follows_a_server_that_changes_its_era(before: Any, after: Any) -> None:
    """The call that detects the change was refused without effect, so it is repeated."""

    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to = before
            async with Client(fake.url, retry=Retry(initial_delay=0.001)) as client:
                first = client.revision
                await client.list_tools()
                states: list[str] = []
                client.observe_connection(lambda error: states.append("made" if error is None else "lost"))
                fake.reply_to = after
                await client.list_tools()
                assert {first, client.revision} == {NEWEST, HANDSHAKE}
                assert states == ["lost", "made"]
                await client.list_tools()

    run(test())


def test_a_new_era_is_negotiated_in_the_context_of_the_client() -> None:
    """Regression: later requests of the server were handled with the variables of the call that noticed the change."""
    place: ContextVar[str] = ContextVar("place", default="client")
    seen: list[str] = []

    class Auth:
        async def headers(self, url: str) -> dict[str, str]:
            seen.append(place.get())
            return {}

        async def refused(self, *_: Any) -> bool:
            return False

    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url, auth=Auth(), retry=Retry(initial_delay=0.001)) as client:
            fake.reply_to = handshake
            place.set("call")
            seen.clear()
            fake.new_methods()
            await client.list_tools()
            assert fake.new_methods() == ["tools/list", "server/discover", "initialize", "initialized", "tools/list"]
            assert seen == ["call", "client", "client", "client", "call"]

    run(test())


def test_the_era_is_not_detected_again_after_each_failure() -> None:
    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url) as client:
            fake.new_methods()
            fake.reply_to = lambda message: (
                stateless(message) if message["method"] == "server/discover" else (404, "<html>")
            )
            for _ in range(3):
                with pytest.raises(ConnectionFailed, match="404"):
                    await client.list_tools()
            assert fake.new_methods() == ["tools/list", "server/discover", "tools/list", "tools/list"]
            assert client.revision == NEWEST

    run(test())


def test_a_call_with_a_refused_but_offered_revision_is_repeated_once() -> None:
    """Spec §2.4."""

    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url, retry=Retry(initial_delay=0.001)) as client:
            answers = iter([refused(NEWEST), result(tools=[]), refused(NEWEST), refused(NEWEST)])
            fake.reply_to = lambda message: next(answers)
            await client.list_tools()
            with pytest.raises(RemoteError, match="-32022"):
                await client.list_tools()

    run(test())


def test_the_stream_of_an_unresponsive_server_is_reopened() -> None:
    """The stream is half-open: neither side closes it."""

    async def test() -> None:
        retry = Retry(initial_delay=0.001, heartbeat=0.01)
        async with FakeServer() as fake, Client(fake.url, timeout=0.05, retry=retry) as client:
            async with client.watch("a:b") as changes:
                fake.silent = True
                assert await anext(changes) == Change("resource", "a:b", missed=True)
                fake.silent = False
                assert fake.methods.count("subscriptions/listen") >= 2
            await client.list_tools()
            fake.new_methods()
            await asyncio.sleep(0.05)
            assert fake.new_methods() == []  # no ping is sent without a watch

    run(test())


def test_a_stream_without_its_heartbeat_is_reopened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pulse, "MIN_SECONDS", 0.05)

    async def test() -> None:
        async with FakeServer() as fake, Client(fake.url, retry=Retry(initial_delay=0.001)) as client:
            fake.comments = 2
            async with client.watch("a:b") as changes:
                assert await anext(changes) == Change("resource", "a:b", missed=True)
            assert fake.methods.count("subscriptions/listen") >= 2
            fake.comments = 0
            async with client.watch("a:b") as changes:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(changes), 0.2)

    run(test())
