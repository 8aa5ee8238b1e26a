"""What a client makes of HTTP statuses, of arguments that headers repeat, and of failures that nobody waits for."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from tests.client.scripted import HANDSHAKE, STATELESS, Refusal, Script, now, run, settle
from tests.client.test_eras import Fake, handshake, stateless
from tests.transports.client_servers import Asked, answer, event, result, serving, stream
from wharfinger.client import Client, Retry
from wharfinger.client.auth_deadline import Patient
from wharfinger.errors import ConnectionFailed, RequestTimeout, WharfingerError

OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("status", "again"), [(500, False), (501, False), (502, True), (503, True), (504, True), (505, False)]
)
def test_read_is_sent_once_more_if_something_before_the_server_says_that_it_is_away(status: int, again: bool) -> None:
    async def test() -> None:
        async with Fake() as fake, Client(fake.url) as client:
            fake.heard()
            away = iter([True, False])
            fake.speaks = lambda message: (status, "<html>") if next(away) else stateless(message)
            if again:
                await client.list_tools()
            else:
                with pytest.raises(ConnectionFailed, match=str(status)):
                    await client.list_tools()
            assert fake.heard() == ["tools/list"] * (2 if again else 1)
            fake.speaks = lambda _: (status, "<html>")
            with pytest.raises(ConnectionFailed, match=str(status)):
                await client.call_tool("x")
            assert fake.heard() == ["tools/call"]

    run(test())


@pytest.mark.parametrize(
    ("status", "again"), [(400, True), (401, False), (404, True), (405, True), (406, False), (410, False)]
)
def test_status_that_may_mean_another_server_has_the_era_found_out_again(status: int, again: bool) -> None:
    async def test() -> None:
        async with Fake() as fake, Client(fake.url) as client:
            fake.heard()

            def other(message: Any) -> Any:
                if "io.modelcontextprotocol/protocolVersion" in message.get("params", {}).get("_meta", {}):
                    return status, "<html>"
                return handshake(message)

            fake.speaks = other
            if again:
                await client.list_tools()
                assert client.revision == "2025-11-25"
                assert fake.heard()[-1] == "tools/list"
                await settle()
                assert client.transport == "streamable http"
                await client.list_tools()
            else:
                with pytest.raises(WharfingerError, match=str(status)):
                    await client.list_tools()
                assert fake.heard() == ["tools/list"]

    run(test())


def test_nothing_is_found_out_again_without_attempts() -> None:
    async def test() -> None:
        async with Fake() as fake, Client(fake.url, retry=Retry(attempts=0)) as client:
            fake.heard()
            for speaks in (handshake, lambda _: (400, {"error": refused})):
                fake.speaks = speaks
                with pytest.raises(WharfingerError):
                    await client.list_tools()
                assert fake.heard() == ["tools/list"]

    refused = {"code": -32022, "message": "no", "data": {"supported": [STATELESS], "requested": "?"}}
    run(test())


def test_server_that_stays_as_it_is_keeps_its_connection_when_it_is_asked_anew() -> None:
    async def test() -> None:
        async with Fake() as fake, Client(fake.url) as client:
            fake.heard()
            fake.speaks = lambda m: stateless(m) if m["method"] == "server/discover" else (404, "<html>")
            calls = [asyncio.ensure_future(client.call_tool("x")) for _ in range(3)]
            for call in calls:
                with pytest.raises(ConnectionFailed, match="404"):
                    await call
            assert sorted(fake.heard()) == ["server/discover", *["tools/call"] * 3]
            fake.speaks = stateless
            await client.list_tools()
            assert fake.heard() == ["tools/list"]

    run(test())


# Arguments that headers repeat.


def annotated(name: str, header: str | None = "Quay", kind: str = "integer") -> dict[str, Any]:
    quay = {"type": kind} | ({} if header is None else {"x-mcp-header": header})
    return {"name": name, "inputSchema": {**OBJECT, "properties": {"quay": quay}}}


class Quays:
    """Lists these tools, and answers a call with the header that came with it."""

    def __init__(self, *tools: Any) -> None:
        self.tools = list(tools)

    async def __call__(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        method = asked.message["method"] if asked.body else ""
        if method == "server/discover":
            found = result(asked, supportedVersions=[STATELESS], capabilities={}, resultType="complete")
        elif method == "tools/list":
            found = result(asked, tools=self.tools, resultType="complete")
        else:
            said = asked.headers.get("mcp-param-quay")
            found = result(asked, content=[], structuredContent=said, resultType="complete")
        answer(writer, found)


def test_arguments_are_repeated_in_headers_as_the_last_listing_says() -> None:
    async def test() -> None:
        quays = Quays(annotated("berth"))
        async with serving(quays) as base, Client(f"{base}/mcp", cache=False) as client:
            for tools, header in (
                ([annotated("berth")], "7"),
                ([annotated("berth", None)], None),
                ([annotated("berth")], "7"),
                ([annotated("berth", "Other")], None),
            ):
                quays.tools = tools
                await client.list_tools()
                assert (await client.call_tool("berth", {"quay": 7})).data == header

    run(test())


def test_tool_that_cannot_be_called_over_http_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        quays = Quays(annotated("wrong", kind="number"), annotated("berth"))
        async with serving(quays) as base, Client(f"{base}/mcp") as client:
            assert [tool.name for tool in await client.list_tools()] == ["berth"]
            (record,) = [each for each in caplog.records if "left out" in each.getMessage()]
            assert (record.levelno, "'wrong'" in record.getMessage()) == (logging.WARNING, True)
        async with Script(tools__list={"tools": quays.tools}) as server, server.client() as client:
            assert [tool.name for tool in await client.list_tools()] == ["wrong", "berth"]

    run(test())


def test_headers_of_tools_are_remembered_up_to_a_number() -> None:
    async def test() -> None:
        quays = Quays(*(annotated(f"n{n}") for n in range(10_001)))
        async with serving(quays) as base, Client(f"{base}/mcp") as client:
            assert len(await client.list_tools()) == 10_001
            assert (await client.call_tool("n9999", {"quay": 7})).data == "7"
            assert (await client.call_tool("n10000", {"quay": 7})).data is None

    run(test())


# Failures that nobody waits for.


def test_failures_that_nobody_waits_for_are_not_complained_of() -> None:
    async def fail() -> None:
        logs: dict[str, Any] = {"logging": {}}
        async with Script(HANDSHAKE, capabilities=logs) as server, server.client(log=print) as client:
            server.answers["logging/setLevel"] = Refusal()
            await client.ping()
            await server.leave()
            with pytest.raises(RequestTimeout):
                await client.call_tool("x", timeout=0.001)
            await asyncio.sleep(1)
            await server.listen()
            server.answers["logging/setLevel"] = lambda _: server.hang_up()
            for _ in range(3):
                with pytest.raises(WharfingerError):
                    await client.call_tool("x")
                await asyncio.sleep(1)
        async with Script(HANDSHAKE) as server:
            path = server.path
        opening = asyncio.ensure_future(Client(f"unix:{path}").open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait((opening,))
        await settle()

    async def test() -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        await fail()
        gc.collect()
        await settle()
        assert complaints == []

    run(test())


def test_deadline_of_an_opening_stands_still_until_the_last_one_has_signed_in() -> None:
    class Person:
        async def headers(self, url: str) -> dict[str, str]:
            return {}

        async def refused(self, url: str, *_: Any) -> bool:
            await asyncio.sleep(float(url))
            return True

    async def test() -> None:
        async with asyncio.timeout(10) as deadline:
            patient = Patient(Person(), deadline)
            await asyncio.sleep(4)
            first = asyncio.ensure_future(patient.refused("20", 401, {}, {}))
            await asyncio.sleep(1)
            last = asyncio.ensure_future(patient.refused("90", 401, {}, {}))
            assert await first
            assert (deadline.when(), patient.idle.is_set()) == (None, False)
            assert await last
            assert (deadline.when(), patient.idle.is_set()) == (pytest.approx(now() + 6), True)
            assert await patient.refused("50", 401, {}, {})
            assert deadline.when() == pytest.approx(now() + 6)

    run(test())


def test_older_transport_that_names_no_place_to_post_to_is_given_up() -> None:
    async def refuses(asked: Asked, writer: asyncio.StreamWriter) -> None:
        seen.append(asked.verb)
        if asked.verb == "POST":
            answer(writer, b"no", "text/plain", "405 Method Not Allowed")

    seen: list[str] = []

    async def test() -> None:
        async with serving(refuses) as base:
            with pytest.raises(ConnectionFailed, match=r"405 Method Not Allowed.*Try"):
                await Client(f"{base}/x", probe_timeout=5).open()
            assert now() == pytest.approx(5)
            assert seen == ["POST", "POST", "GET"]

    run(test())


def test_log_messages_of_a_call_are_told_beside_its_progress() -> None:
    async def test() -> None:
        told: list[Any] = []

        async def serve(asked: Asked, writer: asyncio.StreamWriter) -> None:
            if asked.message["method"] == "server/discover":
                answer(writer, result(asked, supportedVersions=[STATELESS], capabilities={}, resultType="complete"))
                return
            stream(writer)
            token = asked.message["params"]["_meta"]["progressToken"]
            writer.write(event(method="notifications/message", params={"level": "info", "data": "hm"}))
            writer.write(event(method="notifications/progress", params={"progressToken": token, "progress": 2}))
            writer.write(event(id=asked.message["id"], result={"resultType": "complete", "content": []}))
            await writer.drain()
            writer.close()

        async with serving(serve) as base, Client(f"{base}/mcp", log=lambda log: told.append(log.data)) as client:
            await client.call_tool("x", progress=lambda done, *_: told.append(done))
        assert told == ["hm", 2]

    run(test())
