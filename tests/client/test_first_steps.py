"""Opening a connection: the requests and their order, the number of connections, timeouts and failures."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted import HANDSHAKE, SILENCE, STATELESS, TASKS_ERA, Refusal, Script, now, run, settle
from tests.client.test_eras import FakeServer, handshake, stateless
from wharfinger.client import Client
from wharfinger.errors import (
    ConnectionFailed,
    InvalidResponse,
    NotMCP,
    RemoteError,
    UnsupportedRevision,
    WharfingerError,
)

INFO = "io.modelcontextprotocol/serverInfo"
DISCOVERED: dict[str, Any] = {"supportedVersions": [STATELESS], "capabilities": {}, "resultType": "complete"}


def probing_client(server: Script, **settings: Any) -> Client:
    """Return a client that detects the era of the server."""
    return Client(f"unix:{server.path}", **settings)


def methods(server: Script) -> list[str]:
    """Return the methods of the requests since the last call."""
    found = [message["method"] for message in server.received if "id" in message]
    server.received.clear()
    server.times.clear()
    return found


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        ({INFO: {"name": "quay", "version": "1"}}, "quay"),
        ({INFO: {"name": 3}}, None),
        ({INFO: None}, None),
        ({"other": 1}, None),
        (None, None),
    ],
)
def test_server_info_of_a_stateless_server_is_optional(meta: Any, name: str | None) -> None:
    async def test() -> None:
        for instructions in ("Mind the tide.", None):
            async with Script() as server:
                found = {**DISCOVERED, "capabilities": {"tools": {"listChanged": True}}}
                more = {} if instructions is None else {"instructions": instructions}
                server.answers["server/discover"] = {**found, **more} | ({} if meta is None else {"_meta": meta})
                async with probing_client(server) as client:
                    assert methods(server) == ["server/discover"]
                    info = client.server_info
                    assert (info and info.name, client.instructions) == (name, instructions)
                    assert client.capabilities.tools
                    assert client.revision == STATELESS

    run(test())


def test_a_handshake_server_has_a_name_and_optional_instructions() -> None:
    async def test() -> None:
        for instructions in ("Mind the tide.", None):
            async with Script(TASKS_ERA) as server:
                if instructions is not None:
                    server.answers["initialize"]["instructions"] = instructions
                async with probing_client(server) as client:
                    assert methods(server) == ["server/discover", "initialize"]
                    assert client.server_info is not None
                    assert (client.server_info.name, client.instructions) == ("script", instructions)
                    assert client.revision == TASKS_ERA
                    assert server.connections == 1

    run(test())


async def after(seconds: float, answer: Any) -> Any:
    await asyncio.sleep(seconds)
    return answer


def test_a_late_answer_to_the_probe_is_used_if_the_server_is_stateless() -> None:
    async def test() -> None:
        first = INFO, {"name": "x", "version": "1"}
        started = {"protocolVersion": HANDSHAKE, "capabilities": {}, "serverInfo": first[1]}
        for discovered, initialized, seconds, revision in (
            (after(5, DISCOVERED), after(3, started), 5, STATELESS),
            (after(5, Refusal(-32601)), after(3, started), 6, HANDSHAKE),
            (after(9, DISCOVERED), after(3, started), 6, HANDSHAKE),
            (SILENCE, after(3, started), 6, HANDSHAKE),
        ):
            async with Script(HANDSHAKE) as server:
                server.answers |= {
                    "server/discover": lambda _, answer=discovered: answer,
                    "initialize": lambda _, answer=initialized: answer,
                }
                begun = now()
                async with probing_client(server) as client:
                    assert client.revision == revision
                    assert now() - begun == pytest.approx(seconds)
                    await asyncio.sleep(20)
                    assert server.connections == 1

    run(test())


def test_the_probe_of_a_server_known_as_stateless_waits_five_times_longer() -> None:
    async def test() -> None:
        async with Script() as server, probing_client(server) as client:
            server.answers["server/discover"] = SILENCE
            methods(server)
            server.hang_up()
            await settle()
            begun = now()
            call = asyncio.ensure_future(client.call_tool("x"))
            while server.count("initialize") == 0:
                await asyncio.sleep(0.01)
            asked, initialize = server.when("server/discover")[0], server.when("initialize")[0]
            assert initialize - asked == pytest.approx(15)
            assert asked - begun < 0.2
            call.cancel()
            await asyncio.wait((call,))

    run(test())


def test_a_reconnection_tries_the_known_era_first() -> None:
    async def test() -> None:
        async with Script(TASKS_ERA) as server, probing_client(server) as client:
            methods(server)
            server.hang_up()
            await settle()
            await client.ping()
            assert methods(server) == ["initialize", "ping"]
            connections = server.connections
            new = Script()
            server.revision, server.answers = STATELESS, new.answers
            server.hang_up()
            await settle()
            with pytest.raises(RemoteError):
                await client.list_tools()
            assert methods(server) == ["initialize", "server/discover", "tools/list"]
            assert client.revision == STATELESS
            assert server.connections == connections + 2

    run(test())


def test_a_server_that_disconnects_on_the_probe_gets_a_new_connection_without_one() -> None:
    async def test() -> None:
        def ends(_: Any) -> Any:
            server.hang_up()
            return SILENCE

        async with Script(HANDSHAKE, server__discover=ends) as server:
            async with probing_client(server) as client:
                assert client.revision == HANDSHAKE
                assert methods(server) == ["server/discover", "initialize"]
                assert server.connections == 2
            server.answers["initialize"] = ends
            with pytest.raises(ConnectionFailed, match="before it had answered") as caught:
                await probing_client(server).open()
            assert "Tried" not in str(caught.value)
            assert methods(server) == ["server/discover", "initialize"]
            assert server.connections == 4
            with pytest.raises(ConnectionFailed, match="before it had answered"):
                await probing_client(server, revision=HANDSHAKE).open()
            assert server.connections == 5

    run(test())


def test_a_refused_handshake_after_a_probe_is_tried_again_and_the_error_reports_both() -> None:
    async def test() -> None:
        words = r"Tried over two connections: server/discover and then initialize"
        for answer, error in ((Refusal(-32600, "no"), RemoteError), ({"hello": 1}, NotMCP)):
            async with Script(HANDSHAKE, initialize=answer) as server:
                first = Refusal(-32600, "r" * 300)
                server.answers["initialize"] = lambda _, a=answer, f=first, s=server: f if s.connections == 1 else a
                with pytest.raises(error, match=words) as caught:
                    await probing_client(server).open()
                assert str(caught.value).removesuffix(" (error -32600)").endswith("and initialize alone.")
                reported = str(caught.value).partition("then initialize (")[2].partition("), and initialize alone")[0]
                assert len(reported) == 200
                if error is RemoteError:
                    assert getattr(caught.value, "code", None) == -32600
                assert methods(server) == ["server/discover", "initialize", "initialize"]
                assert server.connections == 2
                with pytest.raises(error) as caught:
                    await probing_client(server, revision=HANDSHAKE).open()
                assert "Tried" not in str(caught.value)
                assert methods(server) == ["initialize"]

    run(test())


def test_a_server_that_refuses_the_handshake_only_after_a_probe_is_connected() -> None:
    async def test() -> None:
        async with Script(HANDSHAKE) as server:
            fine = server.answers["initialize"]
            server.answers["initialize"] = lambda _: Refusal() if server.connections == 1 else fine
            async with probing_client(server) as client:
                assert client.revision == HANDSHAKE
            assert server.connections == 2

    run(test())


def test_revisions_without_a_common_one_are_reported() -> None:
    async def test() -> None:
        for answer in ({**DISCOVERED, "supportedVersions": ["1900-01-01"]}, {**DISCOVERED, "supportedVersions": []}):
            async with Script(server__discover=answer) as server:
                with pytest.raises(UnsupportedRevision, match="No revision in common"):
                    await probing_client(server).open()
                assert server.connections == 1
        async with Script(HANDSHAKE) as server:
            server.answers["initialize"]["protocolVersion"] = TASKS_ERA
            with pytest.raises(UnsupportedRevision, match=f"this client requires {HANDSHAKE}"):
                await server.client().open()

    run(test())


def test_a_failed_open_closes_its_connection() -> None:
    async def test() -> None:
        for answer, error in ((SILENCE, ConnectionFailed), (Refusal(), RemoteError), ({}, WharfingerError)):
            async with Script(HANDSHAKE, initialize=answer) as server:
                with pytest.raises(error):
                    await server.client().open()
                await settle()
                assert server.writer is not None
                assert server.writer.is_closing()

    run(test())


def test_a_server_that_is_not_mcp_is_reported_with_its_first_bytes_after_open_timeout() -> None:
    async def test() -> None:
        writers: list[asyncio.StreamWriter] = []  # from Python 3.13 on, an unreferenced one is closed

        async def send_greeting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            writer.write(b"220 mail.test ESMTP " + b"x" * 100 + b"\n")

        async with Script(HANDSHAKE) as script:
            server = await asyncio.start_unix_server(send_greeting, f"{script.path}2")
            with pytest.raises(NotMCP, match=r"no answer within 9 s; the first bytes were b'220 mail") as caught:
                await Client(f"unix:{script.path}2", open_timeout=9).open()
            assert str(caught.value).partition("ESMTP ")[2].count("x") == 60
            assert now() == 9
            for writer in writers:
                writer.close()
            server.close()

    run(test())


class LinkFactory:
    """A custom link factory that waits before it opens a link."""

    def __init__(self, seconds: float, path: str = "") -> None:
        self.seconds, self.path = seconds, path

    async def open_link(self, limits: Any, events: Any) -> Any:
        from wharfinger.transports.unix_client import UnixLink

        await asyncio.sleep(self.seconds)
        link = UnixLink(self.path, limits, events)
        await link.open()
        return link


def test_a_server_that_does_not_start_fails_after_open_timeout() -> None:
    async def test() -> None:
        with pytest.raises(ConnectionFailed, match="The server did not start within 7 s"):
            await Client(LinkFactory(8), open_timeout=7).open()
        assert now() == 7
        async with Script() as server, Client(LinkFactory(6, server.path), open_timeout=7) as client:
            assert client.revision == STATELESS

    run(test())


def test_a_unix_socket_may_be_given_with_and_without_a_scheme() -> None:
    async def test() -> None:
        async with Script() as server:
            for target in (f"unix:{server.path}", f"unix://{server.path}", server.path, Path(server.path)):
                async with Client(target) as client:
                    assert client.transport == "unix socket"

    run(test())


@pytest.mark.parametrize(
    ("target", "error", "words"),
    [
        ("unix:", ValueError, "'unix:' is not a target of a known kind"),
        ("unix://", ValueError, "is not a target of a known kind"),
        ("/nowhere.py", ValueError, "is not a target of a known kind"),
        (__file__.removesuffix(".py"), ValueError, "is not a target of a known kind"),
        ("run --token=abc", ValueError, r"--token=\*\*\*"),
        ([], ValueError, "at least a program"),
        (["x", 3], ValueError, "consists of strings"),
        (3, TypeError, "not int"),
    ],
)
def test_an_invalid_target_is_refused(target: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        Client(target)


def test_a_command_may_contain_paths() -> None:
    for target in ([sys.executable, Path("x.py")], (sys.executable, "x.py"), __file__, Path(__file__)):
        Client(target)


# Over HTTP.


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/mcp", r"Try http://[^ ]*:\d+/sse\.$"),
        ("/sse", r"Try http://[^ ]*:\d+/mcp\.$"),
        ("/mcp/", r"Try http://[^ ]*:\d+/sse\.$"),
        ("/x/", r"Try http://[^ ]*:\d+/x/mcp or http://[^ ]*:\d+/x/sse \(HTTP\+SSE of 2024-11-05\)\.$"),
        ("/x?key=1", r"Try http://[^ ]*:\d+/x/mcp or http://[^ ]*:\d+/x/sse \(HTTP\+SSE of 2024-11-05\)\.$"),
    ],
)
@pytest.mark.parametrize("status", [400, 404, 405, 410])
def test_the_error_for_a_url_without_a_server_suggests_other_urls(path: str, words: str, status: int) -> None:
    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to = lambda _: (status, "<html>")
            url = fake.url.removesuffix("/mcp") + path
            with pytest.raises(ConnectionFailed, match=str(status)) as caught:
                await Client(url).open()
            assert bool(re.search(words, str(caught.value))) is (status != 410)
            assert fake.new_methods() == ["server/discover", "initialize"]

    run(test())


def test_a_silent_url_is_sent_initialize_after_the_probe_timeout() -> None:
    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to = handshake
            fake.silent = True
            opening = asyncio.ensure_future(Client(fake.url).open())
            await asyncio.sleep(2.9)
            assert fake.new_methods() == ["server/discover"]
            fake.silent = False
            await asyncio.sleep(0.2)
            client = await opening
            assert fake.new_methods()[0] == "initialize"
            assert client.revision == "2025-11-25"
            assert now() < 4
            await client.close()

    run(test())


class SlowAuth:
    """Authentication that takes this many seconds to sign in."""

    def __init__(self, seconds: float, succeeds: bool = True) -> None:
        self.seconds, self.succeeds = seconds, succeeds
        self.signed_in = False
        self.calls = 0

    async def headers(self, url: str) -> Mapping[str, str]:
        return {"Authorization": "Bearer x"} if self.signed_in else {}

    async def refused(self, url: str, status: int, headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        self.signed_in = self.succeeds
        return self.succeeds


def test_sign_in_may_take_longer_than_open_timeout() -> None:
    async def test() -> None:
        async with FakeServer() as fake:
            auth = SlowAuth(1000)
            fake.reply_to = lambda message: stateless(message) if auth.signed_in else (401, "who?")
            async with Client(fake.url, auth=auth) as client:
                assert client.revision == STATELESS
                assert now() == pytest.approx(1000)
                assert fake.new_methods() == ["server/discover"] * 2
                assert auth.calls == 1
            refusing = SlowAuth(5, succeeds=False)
            fake.reply_to = lambda _: (401, "who?")
            with pytest.raises(ConnectionFailed, match="401"):
                await Client(fake.url, auth=refusing).open()
            assert refusing.calls == 1

    run(test())


def test_requests_after_sign_in_have_the_remaining_time() -> None:
    async def test() -> None:
        async with FakeServer() as fake:
            auth = SlowAuth(1000)

            def speaks(message: Any) -> Any:
                fake.silent = True  # from now on
                return 401, "who?"

            fake.reply_to = speaks
            with pytest.raises(ConnectionFailed, match="gave no answer within 20 s"):
                await Client(fake.url, auth=auth, open_timeout=20, revision=STATELESS).open()
            assert now() == pytest.approx(1020)

    run(test())


def test_a_null_result_of_initialize_is_reported() -> None:
    async def test() -> None:
        def empty(message: Any) -> Any:
            server.say(id=message["id"], result=None)
            return SILENCE

        async with Script(HANDSHAKE, initialize=empty) as server:
            with pytest.raises((NotMCP, InvalidResponse)):
                await server.client().open()

    run(test())
