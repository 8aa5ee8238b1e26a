"""Lost connections and watches with a scripted server: retries, delays and reported gaps."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.client.scripted import HANDSHAKE, SILENCE, STATELESS, Refusal, Script, now, run, settle, text
from tests.client.test_eras import FakeServer, handshake
from wharfinger.client import NEVER, Change, Client, Retry
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    RemoteError,
    RequestTimeout,
    ResourceNotFound,
    WharfingerError,
)

EACH_ERA = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
TAG = "io.modelcontextprotocol/subscriptionId"
KINDS = ("resources", "tools", "prompts")


def chances(count: int) -> list[float]:
    """Return the random numbers that jitter uses in `run`."""
    return [number for source in (random.Random(1),) for number in (source.random() for _ in range(count))]


# Reconnection.


@pytest.mark.parametrize(
    ("retry", "longest"),
    [
        (Retry(attempts=1, initial_delay=8), [8]),
        (Retry(attempts=3, initial_delay=8), [8, 16, 30]),
        (Retry(attempts=4, initial_delay=1, max_delay=4), [1, 2, 4, 4]),
        (Retry(), [0.1, 0.2, 0.4, 0.8, 1.6]),
        (Retry(attempts=10), [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30]),
    ],
)
def test_a_call_waits_for_reconnection_with_growing_delays(retry: Retry, longest: list[float]) -> None:
    async def test() -> None:
        async with Script(HANDSHAKE) as server, server.client(retry=retry) as client:
            await server.leave()
            begun = now()
            with pytest.raises(ConnectionFailed, match="there is no such socket"):
                await client.call_tool("x")
            waits = [most * chance for most, chance in zip(longest, chances(len(longest)), strict=True)]
            assert now() - begun == pytest.approx(sum(waits))
            await server.listen()
            await client.ping()
            assert server.connections == 2

    run(test())


@pytest.mark.parametrize(("stable", "waits"), [(0, [10, 10, 10, 10]), (1e9, [10, 20, 40, 80])])
def test_a_stable_connection_resets_the_count_of_attempts(stable: float, waits: list[float]) -> None:
    async def test() -> None:
        retry = Retry(initial_delay=10, max_delay=1000, reset_after=stable)
        async with Script(HANDSHAKE) as server, server.client(retry=retry) as client:
            for wait, chance in zip(waits, chances(4), strict=True):
                server.hang_up()
                await settle()
                begun = now()
                await client.ping()
                assert now() - begun == pytest.approx(wait * chance)

    run(test())


@pytest.mark.parametrize(("stable", "waits"), [(0, [10, 10, 10, 10]), (1e9, [10, 20, 40, 80])])
def test_a_stable_watch_resets_the_count_of_attempts(stable: float, waits: list[float]) -> None:
    async def test() -> None:
        retry = Retry(initial_delay=10, max_delay=1000, reset_after=stable, watch_attempts=4)
        async with watchable(STATELESS) as server, server.client(retry=retry) as client, client.watch("a:b") as changes:
            for wait, chance in zip(waits, chances(4), strict=True):
                begun = now()
                listens = [each for each in server.received if each["method"] == "subscriptions/listen"]
                server.say(id=listens[-1]["id"], result={"resultType": "complete"})
                assert (await anext(changes)).missed
                assert now() - begun == pytest.approx(wait * chance)
            listens = [each for each in server.received if each["method"] == "subscriptions/listen"]
            server.say(id=listens[-1]["id"], result={"resultType": "complete"})
            if stable:
                with pytest.raises(ConnectionLost, match="has ended the watch"):
                    await anext(changes)
            else:
                assert (await anext(changes)).missed

    run(test())


@pytest.mark.parametrize(("stable", "times"), [(0, 3), (1e9, 1)])
def test_the_era_is_detected_again_only_after_a_stable_connection(stable: float, times: int) -> None:
    async def test() -> None:
        from tests.client.test_eras import stateless

        async with FakeServer() as fake, Client(fake.url, retry=Retry(reset_after=stable)) as client:
            fake.new_methods()
            fake.reply_to = lambda m: stateless(m) if m["method"] == "server/discover" else (404, "<html>")
            for _ in range(3):
                with pytest.raises(ConnectionFailed, match="404"):
                    await client.list_tools()
            assert fake.new_methods().count("server/discover") == times

    run(test())


def test_a_client_without_attempts_does_not_reconnect() -> None:
    async def test() -> None:
        for retry in (NEVER, Retry(attempts=0)):
            async with Script(HANDSHAKE) as server, server.client(retry=retry) as client:
                server.hang_up()
                await settle()
                for _ in range(2):
                    with pytest.raises(ConnectionLost, match="is gone"):
                        await client.ping()
                assert (server.connections, now()) == (1, 0)

    run(test())


def test_a_server_that_no_longer_speaks_mcp_is_tried_once() -> None:
    async def test() -> None:
        async with Script(HANDSHAKE) as server, server.client() as client:
            server.answers["initialize"] = {"protocolVersion": "1900-01-01", "capabilities": {}, "serverInfo": {}}
            server.hang_up()
            await settle()
            with pytest.raises(WharfingerError):
                await client.ping()
            assert server.connections == 2

    run(test())


def test_a_call_that_waits_for_reconnection_keeps_its_timeout() -> None:
    async def test() -> None:
        async with (
            Script(HANDSHAKE) as server,
            server.client(retry=Retry(initial_delay=1000, max_delay=1000)) as client,
        ):
            await server.leave()
            begun = now()
            with pytest.raises(RequestTimeout, match=r"tools/call: not connected to .* again within 5 s"):
                await client.call_tool("x", timeout=5)
            assert now() - begun == pytest.approx(5)

    run(test())


def lose_connection(server: Script, times: int, answer: Any) -> Any:
    """Return a handler that closes the connection this many times and then sends `answer`."""
    left = times

    def handler(_: Any) -> Any:
        nonlocal left
        if not left:
            return answer
        left -= 1
        server.hang_up()
        return SILENCE

    return handler


CALLS: dict[str, tuple[Any, Any, bool]] = {
    "resources/read": (lambda it: it.read_resource("a:b"), {"contents": []}, True),
    "resources/list": (lambda it: it.list_resources(), {"resources": []}, True),
    "resources/templates/list": (lambda it: it.list_resource_templates(), {"resourceTemplates": []}, True),
    "tools/list": (lambda it: it.list_tools(), {"tools": []}, True),
    "prompts/list": (lambda it: it.list_prompts(), {"prompts": []}, True),
    "completion/complete": (lambda it: it.complete("p", "a"), {"completion": {"values": []}}, True),
    "ping": (lambda it: it.ping(), {}, True),
    "prompts/get": (lambda it: it.get_prompt("p"), {"messages": []}, False),
    "tools/call": (lambda it: it.call_tool("x"), text("ok"), False),
    "logging/setLevel": (lambda it: it.set_log_level("info"), {}, False),
}


@pytest.mark.parametrize("method", CALLS)
def test_a_read_only_request_is_retried_after_a_lost_connection(method: str) -> None:
    call, answer, reads = CALLS[method]

    async def test() -> None:
        for times, retry, fine, sent in (
            (1, Retry(), reads, 2 if reads else 1),
            (2, Retry(), False, 2 if reads else 1),
            (1, Retry(retry_reads=False), False, 1),
            (1, Retry(attempts=0), False, 1),
        ):
            async with Script(HANDSHAKE) as server, server.client(retry=retry) as client:
                server.answers[method] = lose_connection(server, times, answer)
                if fine:
                    begun = now()
                    await call(client)
                    assert 0 < now() - begun < 0.2
                else:
                    with pytest.raises(ConnectionLost):
                        await call(client)
                assert server.count(method) == sent

    run(test())


def test_a_retry_waits_a_random_part_of_the_initial_delay() -> None:
    async def test() -> None:
        async with Script(HANDSHAKE) as server, server.client(retry=Retry(initial_delay=40)) as client:
            server.answers["ping"] = lose_connection(server, 1, {})
            begun = now()
            await client.ping()
            before, opening = chances(2)
            assert now() - begun == pytest.approx(40 * before + min(30, 40) * opening)

    run(test())


@pytest.mark.parametrize("retry", [None, True, False])
def test_a_tool_call_is_retried_only_if_the_caller_allows_it(retry: bool | None) -> None:
    async def test() -> None:
        async with Script(HANDSHAKE) as server, server.client() as client:
            server.answers["tools/call"] = lose_connection(server, 1, text("ok"))
            if retry:
                assert (await client.call_tool("x", retry=retry)).text == "ok"
            else:
                with pytest.raises(ConnectionLost):
                    await client.call_tool("x", retry=retry)
            assert server.count("tools/call") == (2 if retry else 1)

    run(test())


@pytest.mark.parametrize(
    ("hints", "trusted", "again"),
    [
        ({"readOnlyHint": True}, True, True),
        ({"idempotentHint": True}, True, True),
        ({"readOnlyHint": True}, False, False),
        ({"readOnlyHint": False, "idempotentHint": False}, True, False),
        ({"title": "x"}, True, False),
        (None, True, False),
    ],
)
def test_a_tool_call_is_retried_if_trusted_hints_allow_it(hints: Any, trusted: bool, again: bool) -> None:
    async def test() -> None:
        tool: dict[str, Any] = {"name": "x", "inputSchema": {"type": "object"}}
        harmless = {**tool, "annotations": hints} if hints is not None else tool
        async with (
            Script(HANDSHAKE, tools__list={"tools": [harmless]}) as server,
            server.client(retry=Retry(trust_hints=trusted)) as client,
        ):
            await client.list_tools()
            server.answers["tools/call"] = lose_connection(server, 1, text("ok"))
            if again:
                assert (await client.call_tool("x")).text == "ok"
                server.answers["tools/list"] = {"tools": [tool]}
                await client.list_tools()  # the tool has lost its hints
                server.answers["tools/call"] = lose_connection(server, 1, text("ok"))
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")

    run(test())


def test_retryable_tools_are_remembered_up_to_a_number() -> None:
    async def test() -> None:
        annotations = {"readOnlyHint": True}
        tools = [
            {"name": f"n{n}", "inputSchema": {"type": "object"}, "annotations": annotations} for n in range(10_001)
        ]
        async with (
            Script(HANDSHAKE, tools__list={"tools": tools}) as server,
            server.client(retry=Retry(trust_hints=True)) as client,
        ):
            await client.list_tools()
            server.answers["tools/call"] = lose_connection(server, 1, text("ok"))
            assert (await client.call_tool("n9999")).text == "ok"
            server.answers["tools/call"] = lose_connection(server, 1, text("ok"))
            with pytest.raises(ConnectionLost):
                await client.call_tool("n10000")

    run(test())


@EACH_ERA
def test_a_closed_client_retries_nothing(revision: str) -> None:
    async def test() -> None:
        async with Script(revision, resources__read=SILENCE) as server:
            client = await server.client().open()
            call = asyncio.ensure_future(client.read_resource("a:b"))
            await settle()
            await client.close()
            with pytest.raises(ConnectionLost):
                await call
            assert (server.count("resources/read"), server.connections, now()) == (1, 1, 0)
            await client.close()
            async with client:
                server.answers["resources/read"] = {"contents": []}
                await client.read_resource("a:b")
            assert server.connections == 2

    run(test())


def test_opening_an_open_client_does_nothing() -> None:
    async def test() -> None:
        async with Script(HANDSHAKE) as server:
            client = server.client()
            await asyncio.gather(client.open(), client.open())
            await client.open()
            assert server.connections == 1
            await client.close()
            await server.leave()
            for _ in range(2):
                with pytest.raises(ConnectionFailed):
                    await client.open()
            await server.listen()
            await client.open()
            assert server.connections == 2
            await client.close()

    run(test())


# Watches.


def watchable(revision: str, **settings: Any) -> Script:
    """Return a server that accepts watches."""
    server = Script(revision, **settings)
    if revision == HANDSHAKE:
        server.answers |= {"resources/subscribe": {}, "resources/unsubscribe": {}}
    else:
        server.answers["subscriptions/listen"] = lambda message: acknowledged(server, message)
    return server


def acknowledged(server: Script, message: Any, **granted: Any) -> Any:
    notifications = granted or message["params"]["notifications"]
    meta = {TAG: message["id"]}
    server.notify("notifications/subscriptions/acknowledged", notifications=notifications, _meta=meta)
    return SILENCE


def notify(server: Script, name: str, **params: Any) -> None:
    """Report a change to each watch."""
    if server.revision == HANDSHAKE:
        server.notify(f"notifications/{name}", **params)
        return
    for message in server.received:
        if message.get("method") == "subscriptions/listen":
            server.notify(f"notifications/{name}", **params, _meta={TAG: message["id"]})


async def take(watch: Any, count: int) -> list[Change]:
    """Return the next changes, and check that there are no more of them yet."""
    found = [await anext(watch) for _ in range(count)]
    more = asyncio.ensure_future(anext(watch))
    await settle()
    assert not more.done()
    more.cancel()
    await asyncio.wait((more,))
    return found


@EACH_ERA
def test_a_watch_continues_over_the_next_connection_and_reports_the_gap_once(revision: str) -> None:
    async def test() -> None:
        gaps: list[WharfingerError] = []
        async with watchable(revision) as server, server.client() as client:
            watch = client.watch("a:b", "a:c")
            watch.on_interruption = gaps.append
            async with watch as changes:
                assert gaps == []
                for round in (1, 2):
                    server.received.clear()
                    server.times.clear()
                    await server.leave()
                    await asyncio.sleep(20)
                    assert len(gaps) == round
                    assert isinstance(gaps[-1], ConnectionLost)
                    await server.listen()
                    assert await take(changes, 2) == [
                        Change("resource", "a:b", missed=True),
                        Change("resource", "a:c", missed=True),
                    ]
                    await settle()
                    notify(server, "resources/updated", uri="a:c")
                    notify(server, "resources/updated", uri="a:c")
                    await settle()
                    assert await take(changes, 1) == [Change("resource", "a:c")]
                    if revision == HANDSHAKE:
                        assert server.params("resources/subscribe") == [{"uri": "a:b"}, {"uri": "a:c"}]
                    else:
                        wanted = {"notifications": {"resourceSubscriptions": ["a:b", "a:c"]}}
                        assert server.params("subscriptions/listen") == [wanted]
            assert server.connections == 3

    run(test())


@EACH_ERA
def test_a_watch_of_lists_reports_each_kind_and_no_resource(revision: str) -> None:
    async def test() -> None:
        async with watchable(revision) as server, server.client() as client, client.watch_lists() as changes:
            if revision == STATELESS:
                flags = {"resourcesListChanged": True, "toolsListChanged": True, "promptsListChanged": True}
                assert server.params("subscriptions/listen") == [{"notifications": flags}]
            for kind in KINDS:
                notify(server, f"{kind}/list_changed")
            notify(server, "resources/updated", uri="a:b")
            notify(server, "made/up")
            await settle()
            assert await take(changes, 3) == [Change(kind) for kind in ("resources", "tools", "prompts")]
            server.hang_up()
            assert {await anext(changes) for _ in KINDS} == {
                Change(kind, missed=True) for kind in ("resources", "tools", "prompts")
            }

    run(test())


@EACH_ERA
def test_an_invalid_change_notification_is_skipped(revision: str) -> None:
    async def test() -> None:
        async with watchable(revision) as server, server.client() as client, client.watch("a:b") as changes:
            notify(server, "resources/updated")
            notify(server, "resources/updated", uri=3)
            server.say(method="notifications/resources/updated")
            notify(server, "resources/list_changed")
            notify(server, "resources/updated", uri="a:b/c")
            await settle()
            assert await take(changes, 1) == [Change("resource", "a:b/c")]

    run(test())


def test_a_watch_reports_only_changes_below_its_uri() -> None:
    async def test() -> None:
        async with (
            watchable(HANDSHAKE) as server,
            server.client() as client,
            client.watch("a:b") as plain,
            client.watch("a:b/") as folder,
        ):
            for uri in ("a:b", "a:b/", "a:b/c", "a:b?c", "a:b#c", "a:bc", "a:", "a:c", "a:b/c/d"):
                notify(server, "resources/updated", uri=uri)
            await settle()
            reported = [change.uri for change in await take(plain, 6)]
            assert reported == ["a:b", "a:b/", "a:b/c", "a:b?c", "a:b#c", "a:b/c/d"]
            assert [change.uri for change in await take(folder, 3)] == ["a:b/", "a:b/c", "a:b/c/d"]

    run(test())


@pytest.mark.parametrize(("count", "together"), [(1024, False), (1025, True)])
def test_pending_changes_are_reported_one_by_one_up_to_a_number(count: int, together: bool) -> None:
    async def test() -> None:
        async with (
            watchable(HANDSHAKE) as server,
            server.client() as client,
            client.watch("a:", "b:") as changes,
        ):
            for number in range(count):
                notify(server, "resources/updated", uri=f"a:/{number}")
            notify(server, "resources/updated", uri=f"a:/{count - 1}")
            await client.ping()
            if together:
                reported = [change.uri for change in await take(changes, 3)]
                assert reported == ["a:", "b:", "a:/1024"]
            else:
                assert len(await take(changes, 1024)) == 1024

    run(test())


@pytest.mark.parametrize(("length", "named"), [(16 * 1024, True), (16 * 1024 + 1, False)])
def test_a_change_contains_its_uri_up_to_a_length(length: int, named: bool) -> None:
    async def test() -> None:
        async with watchable(HANDSHAKE) as server, server.client() as client, client.watch("a:/") as changes:
            uri = "a:/" + "x" * (length - 3)
            notify(server, "resources/updated", uri=uri)
            await client.ping()
            assert await take(changes, 1) == [Change("resource", uri if named else "a:/")]

    run(test())


@EACH_ERA
def test_a_watch_starts_once_and_ends_when_it_or_its_client_is_closed(revision: str) -> None:
    async def test() -> None:
        method = "resources/subscribe" if revision == HANDSHAKE else "subscriptions/listen"
        async with watchable(revision) as server:
            async with server.client() as client:
                watch = client.watch("a:b")
                assert server.count(method) == 0
                await watch
                assert await watch.start() is watch
                assert server.count(method) == 1
                waits = asyncio.ensure_future(anext(watch))
                await settle()
                await watch.close()
                with pytest.raises(StopAsyncIteration):
                    await waits
                await settle()
                ended = "resources/unsubscribe" if revision == HANDSHAKE else "notifications/cancelled"
                assert server.count(ended) == 1
                assert [change async for change in watch] == []
                await watch.close()
                assert (server.count(method), server.count(ended)) == (1, 1)
                never = client.watch("a:b")
                await never.close()
                assert [change async for change in never] == []
                assert server.count(method) == 1
                last = await client.watch("a:b")
                waits = asyncio.ensure_future(anext(last))
                await settle()
            with pytest.raises(StopAsyncIteration):
                await waits

    run(test())


@EACH_ERA
def test_a_watch_that_is_starting_fails_if_its_client_is_closed(revision: str) -> None:
    async def test() -> None:
        method = "resources/subscribe" if revision == HANDSHAKE else "subscriptions/listen"
        async with watchable(revision) as server:
            server.answers[method] = SILENCE
            client = await server.client().open()
            watch = asyncio.ensure_future(client.watch("a:b").start())
            await settle()
            await client.close()
            with pytest.raises(ConnectionLost, match="closed"):
                await watch

    run(test())


@EACH_ERA
def test_a_watch_cancelled_while_it_starts_is_cancelled_at_the_server(revision: str) -> None:
    async def test() -> None:
        method = "resources/subscribe" if revision == HANDSHAKE else "subscriptions/listen"
        async with watchable(revision) as server, server.client() as client:
            answer, server.answers[method] = server.answers[method], SILENCE
            watch = asyncio.ensure_future(client.watch("a:b").start())
            await settle()
            watch.cancel()
            with pytest.raises(asyncio.CancelledError):
                await watch
            await settle()
            assert server.count("notifications/cancelled") == 1
            server.answers[method] = answer
            async with client.watch("a:b"):
                assert server.count(method) == 2

    run(test())


def test_a_uri_is_unsubscribed_when_its_last_watch_closes() -> None:
    async def test() -> None:
        async with watchable(HANDSHAKE) as server, server.client() as client:
            one, two, three = [await client.watch("a:b", f"a:{n}") for n in range(3)]
            assert [each["uri"] for each in server.params("resources/subscribe")] == ["a:b", "a:0", "a:1", "a:2"]
            await two.close()
            await one.close()
            await settle()
            assert [each["uri"] for each in server.params("resources/unsubscribe")] == ["a:1", "a:0"]
            notify(server, "resources/updated", uri="a:b")
            await settle()
            assert await take(three, 1) == [Change("resource", "a:b")]
            server.answers["resources/unsubscribe"] = Refusal()
            await three.close()
            assert [each["uri"] for each in server.params("resources/unsubscribe")] == ["a:1", "a:0", "a:b", "a:2"]

    run(test())


def test_a_refused_watch_unsubscribes_its_earlier_uris() -> None:
    async def test() -> None:
        def subscribed(message: Any) -> Any:
            return Refusal(-32002, "not there") if message["params"]["uri"] == "a:bad" else {}

        async with watchable(HANDSHAKE) as server, server.client() as client:
            server.answers["resources/subscribe"] = subscribed
            async with client.watch("a:b"):
                with pytest.raises(RemoteError, match="not there"):
                    await client.watch("a:b", "a:c", "a:bad", "a:d")
                await settle()
                assert [each["uri"] for each in server.params("resources/unsubscribe")] == ["a:c"]
                assert [each["uri"] for each in server.params("resources/subscribe")] == ["a:b", "a:c", "a:bad"]

    run(test())


@pytest.mark.parametrize(
    ("granted", "fine"),
    [
        ({"resourcesListChanged": True}, True),
        ({"toolsListChanged": True}, True),
        ({"promptsListChanged": True}, True),
        ({"resourcesListChanged": False, "toolsListChanged": False, "promptsListChanged": False}, False),
        ({"resourceSubscriptions": ["a:b"]}, False),
    ],
)
def test_a_watch_of_lists_starts_if_the_server_reports_changes_of_one_list(granted: Any, fine: bool) -> None:
    async def test() -> None:
        async with watchable(STATELESS) as server, server.client() as client:
            server.answers["subscriptions/listen"] = lambda message: acknowledged(server, message, **granted)
            if fine:
                await client.watch_lists()
            else:
                with pytest.raises(RemoteError, match="does not report changes of its lists"):
                    await client.watch_lists()
                await settle()
                assert server.count("notifications/cancelled") == 1

    run(test())


def test_a_watch_fails_if_the_server_does_not_accept_all_its_uris() -> None:
    async def test() -> None:
        async with watchable(STATELESS) as server, server.client() as client:
            for granted in (["a:b"], [], ["a:b", "a:d"]):
                server.answers["subscriptions/listen"] = lambda message, uris=granted: acknowledged(
                    server, message, resourceSubscriptions=uris
                )
                with pytest.raises(ResourceNotFound, match="a:c" if granted else "a:b") as caught:
                    await client.watch("a:b", "a:c")
                assert caught.value.data == {"uri": "a:c" if granted else "a:b"}

    run(test())


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (Refusal(-32601, "no watches"), RemoteError, "no watches"),
        ({}, InvalidResponse, "ended a watch before it had acknowledged it"),
    ],
)
def test_a_watch_that_ends_before_its_acknowledgement_fails(answer: Any, error: Any, words: str) -> None:
    async def test() -> None:
        async with Script(subscriptions__listen=answer) as server, server.client() as client:
            with pytest.raises(error, match=words):
                await client.watch("a:b")
            assert server.count("subscriptions/listen") == 1

    run(test())


def test_a_watch_that_is_refused_on_resumption_raises_the_error() -> None:
    async def test() -> None:
        async with watchable(STATELESS) as server, server.client() as client, client.watch("a:b") as changes:
            server.answers["subscriptions/listen"] = Refusal(-32601, "no watches")
            (listen,) = [each for each in server.received if each["method"] == "subscriptions/listen"]
            server.say(id=listen["id"], result={"resultType": "complete"})
            with pytest.raises(RemoteError, match="no watches"):
                await anext(changes)
            with pytest.raises(RemoteError, match="no watches"):
                await anext(changes)

    run(test())


@pytest.mark.parametrize("most", [0, 1, 3, 50])
def test_a_watch_fails_after_watch_attempts_with_growing_delays(most: int) -> None:
    async def test() -> None:
        retry = (
            Retry(initial_delay=10, max_delay=25)
            if most == 50
            else Retry(watch_attempts=most, initial_delay=10, max_delay=25)
        )
        async with watchable(STATELESS) as server, server.client(retry=retry) as client, client.watch("a:b") as changes:

            def ends(message: Any) -> Any:
                acknowledged(server, message)
                return {}

            server.answers["subscriptions/listen"] = ends
            begun = now()
            (listen,) = [each for each in server.received if each["method"] == "subscriptions/listen"]
            server.say(id=listen["id"], result={"resultType": "complete"})
            with pytest.raises(ConnectionLost, match="has ended the watch"):
                while True:
                    assert (await anext(changes)).missed
            assert server.count("subscriptions/listen") == 1 + most
            waits = [min(25, 10 * 2**number) * chance for number, chance in enumerate(chances(most))]
            assert now() - begun == pytest.approx(sum(waits))
            assert server.connections == 1

    run(test())


# Heartbeats.


def speaking(era: str) -> Any:
    from tests.client.test_eras import stateless

    def old(message: Any) -> Any:
        if message["method"] in ("ping", "resources/subscribe"):
            return 200, {"result": {}}
        return handshake(message)

    return stateless if era == STATELESS else old


@EACH_ERA
def test_a_silent_server_is_pinged_during_a_watch(revision: str) -> None:
    async def test() -> None:
        method = "ping" if revision == HANDSHAKE else "server/discover"
        version = {} if revision == STATELESS else {"revision": "2025-11-25"}
        async with FakeServer() as fake:
            fake.reply_to, fake.streams = speaking(revision), True
            async with Client(fake.url, **version) as client:
                await asyncio.sleep(1000)
                fake.new_methods()
                watch = await client.watch("a:b")
                begun, at = now(), list[float]()
                while len(at) < 4:
                    await asyncio.sleep(0.5)
                    at += [now() - begun] * fake.new_methods().count(method)
                gaps = [second - first for first, second in zip([0, *at], at, strict=False)]
                assert all(44.5 <= gap <= 75.5 for gap in gaps)
                assert gaps == pytest.approx([60 * (0.75 + chance / 2) for chance in chances(4)], abs=0.6)
                await watch.close()
                fake.new_methods()
                await asyncio.sleep(1000)
                assert method not in fake.new_methods()

    run(test())


@EACH_ERA
def test_a_silent_server_is_pinged_until_the_last_watch_ends(revision: str) -> None:
    async def test() -> None:
        method = "ping" if revision == HANDSHAKE else "server/discover"
        version = {} if revision == STATELESS else {"revision": "2025-11-25"}
        async with FakeServer() as fake:
            fake.reply_to, fake.streams = speaking(revision), True
            async with Client(fake.url, **version) as client, client.watch("a:b"):
                async with client.watch("a:c"):
                    pass
                fake.new_methods()
                await asyncio.sleep(1000)
                assert method in fake.new_methods()

    run(test())


@EACH_ERA
def test_a_watch_restarts_after_two_unanswered_pings(revision: str) -> None:
    async def test() -> None:
        version = {} if revision == STATELESS else {"revision": "2025-11-25"}
        method = "subscriptions/listen" if revision == STATELESS else "resources/subscribe"
        async with FakeServer() as fake:
            fake.reply_to, fake.streams = speaking(revision), True

            async def leave_a_ping_unanswered() -> None:
                """Answer no ping, then the next one."""
                fake.new_methods()
                fake.silent = True
                async with asyncio.timeout(200):
                    while not {"ping", "server/discover"} & set(fake.methods):
                        await asyncio.sleep(1)
                await asyncio.sleep(6)
                fake.silent = False
                await asyncio.sleep(100)
                assert method not in fake.methods

            async with Client(fake.url, timeout=5, **version) as client, client.watch("a:b") as changes:
                assert fake.methods.count(method) == 1
                for _ in range(3):
                    await leave_a_ping_unanswered()
                fake.silent = bool(fake.new_methods())
                again = asyncio.ensure_future(anext(changes))
                pings = 0
                while pings < 2:
                    assert not again.done()
                    await asyncio.sleep(1)
                    pings += sum(asked in ("ping", "server/discover") for asked in fake.new_methods())
                await asyncio.sleep(30)
                assert {"initialize", "subscriptions/listen"} & set(fake.new_methods())  # before the next ping
                await asyncio.sleep(100)  # longer than the time between two pings: there is no connection to ping
                fake.silent = False
                assert await asyncio.wait_for(again, 100) == Change("resource", "a:b", missed=True)
                await asyncio.sleep(100)
                await leave_a_ping_unanswered()  # counted from 0 again

    run(test())


def test_no_ping_is_sent_without_a_heartbeat_or_over_a_local_connection() -> None:
    async def test() -> None:
        async with watchable(HANDSHAKE) as server, server.client() as client, client.watch("a:b"):
            await asyncio.sleep(10_000)
            assert server.count("ping") == 0
        async with FakeServer() as fake, Client(fake.url, retry=Retry(heartbeat=0)) as client, client.watch("a:b"):
            fake.new_methods()
            await asyncio.sleep(10_000)
            assert fake.new_methods() == []

    run(test())


def test_a_watch_continues_if_the_server_changes_its_era() -> None:
    async def test() -> None:
        async with FakeServer() as fake:
            fake.reply_to, fake.streams = speaking(HANDSHAKE), True
            async with Client(fake.url) as client, client.watch("a:b") as changes:
                assert client.revision == "2025-11-25"
                fake.reply_to = speaking(STATELESS)
                await client.list_tools()
                assert client.revision == STATELESS
                assert await asyncio.wait_for(anext(changes), 10) == Change("resource", "a:b", missed=True)
                assert "subscriptions/listen" in fake.new_methods()

    run(test())
