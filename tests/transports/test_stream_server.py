"""A server peer on a byte stream without a pipe: writes, cancellation, failures and the end of the stream."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgspec
import pytest

from tests.server.driving import ERAS, HANDSHAKE, STATELESS, Wire, initialize_params, line
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ProtocolError, ResourceNotFound
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.methods import Method, add_method
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.transports.stream_server import MAX_COALESCED_MESSAGES, StreamServer


class BlockingHandler:
    """A handler that waits until it is released, and records its outcome."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.outcomes: list[str] = []

    async def __call__(self) -> str:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.outcomes.append("cancelled")
            raise
        self.outcomes.append("done")
        return "let go"


def make_server(**limits: Any) -> tuple[Server, BlockingHandler]:
    server, handler = Server("s", limits=Limits(**limits)), BlockingHandler()
    server.resources.add("a:held", handler)

    @server.resource("a:b")
    async def quick() -> str:
        return "quick"

    @server.resource("blob:{size}")
    async def blob(size: int) -> bytes:
        return b"\xff" * size

    return server, handler


def read_request(uri: str, id: Any, revision: str = STATELESS) -> bytes:
    return line("resources/read", {"uri": uri}, id, revision)


def text(answer: Any) -> str:
    return str(answer["result"]["contents"][0]["text"])


# -- failures of single messages


class FailingParams(msgspec.Struct):
    """Params of an extension whose validation raises an unexpected exception."""

    def __post_init__(self) -> None:
        raise RuntimeError("secret")


add_method(Method("x.test/fragile", "client", FailingParams, t.EmptyResult))
add_method(Method("notifications/x.test/fragile", "client", FailingParams))


class FailingRequest:
    """A pending request that fails when its answer arrives."""

    def done(self) -> bool:
        raise RuntimeError("secret")


async def test_an_exception_in_one_message_does_not_affect_the_rest_of_its_chunk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: an unexpected exception lost the rest of the chunk and closed a socket."""
    server, _ = make_server()

    @server.notification("notifications/x.test/told")
    def fail(params: t.NotificationParams) -> None:
        raise RuntimeError("secret")

    async with Wire(server, HANDSHAKE[0]) as wire:
        id, _data = wire.stream.peer.request("roots/list", {}, FailingRequest())
        wire.stream.data_received(
            line("x.test/fragile", {}, 1, HANDSHAKE[0])
            + b'{"jsonrpc":"2.0","method":"notifications/x.test/fragile"}\n'
            + b'{"jsonrpc":"2.0","method":"notifications/x.test/told"}\n'
            + b'{"jsonrpc":"2.0","id":%d,"result":{"roots":[]}}\n' % id
            + line("notifications/initialized", {}, 2, STATELESS)
            + b" \t\n"
            + read_request("a:b", 3, HANDSHAKE[0])
        )
        assert text(await wire.answer(3)) == "quick"
        assert (await wire.answer(1))["error"]["code"] == -32603
        assert "secret" not in (await wire.answer(1))["error"]["message"]
        assert (await wire.answer(2))["error"]["code"] == -32601
        assert len(wire.answers) == 4, "including the answer to initialize"
    assert caplog.text.count("\nRuntimeError: secret") == 4


# -- framing and writing


@pytest.mark.parametrize("revision", ERAS)
async def test_chunks_of_any_size_get_the_same_answers(revision: str) -> None:
    server, _ = make_server()
    async with Wire(server, revision) as wire:
        data = b"\n\r\n" + read_request("a:b", 1, revision) + read_request("a:b", "1", revision).replace(b"\n", b"\r\n")
        for size in (1, 2, 3, 7, 64, len(data)):
            wire.answers.clear()
            for start in range(0, len(data), size):
                wire.stream.data_received(data[start : start + size])
            assert (text(await wire.answer(1)), text(await wire.answer("1"))) == ("quick", "quick")


async def test_answers_of_one_loop_iteration_share_writes() -> None:
    server, _ = make_server()
    async with Wire(server) as wire:
        wire.stream.data_received(b"".join(read_request("a:b", number) for number in range(50)))
        await wire.wait_until(lambda: len(wire.answers) == 50)
        assert len(wire.chunks) <= 50 / MAX_COALESCED_MESSAGES + 1


async def test_large_answers_keep_their_order_and_wait_for_a_slow_reader() -> None:
    server, _ = make_server()
    async with Wire(server) as wire:
        write = wire.write

        def write_and_pause(data: Any) -> None:
            write(data)
            wire.stream.pause_writing()

        wire.write = write_and_pause  # type: ignore[method-assign]
        wire.stream.data_received(read_request("a:b", 1) + read_request("blob:1000000", 2) + read_request("a:b", 3))
        await wire.wait_until(lambda: wire.stream.blocked)
        assert wire.answers.keys() == {(int, 1)}
        while len(wire.answers) < 3:
            wire.stream.resume_writing()
        assert list(wire.answers) == [(int, 1), (int, 2), (int, 3)]
        blob = wire.answers[int, 2]["result"]["contents"][0]["blob"]
        assert base64.b64decode(blob) == b"\xff" * 1_000_000
        assert max(map(len, wire.chunks)) < 300_000
        wire.stream.resume_writing()
        assert (len(wire.stream.queued), wire.stream.queued_bytes) == (0, 0)


async def test_the_bytes_that_wait_for_a_slow_reader_are_counted_exactly() -> None:
    """A bug: each small message was counted without its line end, so a queue that was never empty seemed to shrink."""
    server, _ = make_server()
    async with Wire(server) as wire:
        write, stream = wire.write, wire.stream

        def write_and_pause(data: Any) -> None:
            write(data)
            stream.pause_writing()

        wire.write = write_and_pause  # type: ignore[method-assign]
        stream.pause_writing()
        messages = [b'{"method":"m","params":"%s"}' % (b"x" * size) for size in (10, 300_000, 20)]
        for message in messages:
            stream.write(message)
        left = sum(len(message) + 1 for message in messages)
        while stream.queued:
            assert (stream.queued_bytes, stream.unread.total) == (left, left)
            stream.resume_writing()
            left -= len(wire.chunks[-1])
        assert (left, stream.queued_bytes, stream.queued_small_bytes, stream.unread.total) == (0, 0, 0, 0)


async def test_notifications_over_the_backlog_limit_are_dropped_and_answers_are_not() -> None:
    """Security S13."""
    server, _ = make_server(backlog=10_000)

    @server.resource("a:chatty")
    async def chatty(ctx: Context) -> str:
        for _ in range(1000):
            ctx.info("x" * 100)
        return "told"

    async with Wire(server, "2025-11-25") as wire:
        wire.stream.pause_writing()
        wire.send_request("resources/read", {"uri": "a:chatty"}, 1)
        wire.send_request("resources/read", {"uri": "a:b"}, 2)
        while wire.stream.peer.in_flight:
            await asyncio.sleep(0)
        assert wire.stream.queued_bytes < 11_000
        wire.stream.resume_writing()
        assert (text(await wire.answer(1)), text(await wire.answer(2))) == ("told", "quick")
        assert 10 < len(wire.notifications) < 100


# -- errors of handlers


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        RecursionError(),
        ValueError("hunter2"),
        StopAsyncIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_any_exception_in_a_handler_is_an_error_of_its_request(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Security F06, F07."""
    server, _ = make_server()

    @server.resource("a:fails")
    async def fails() -> str:
        raise error

    async with Wire(server) as wire:
        answer = await wire.ask("resources/read", {"uri": "a:fails"})
        assert answer["error"]["code"] == -32603
        assert "hunter2" not in json.dumps(answer)
        assert text(await wire.ask("resources/read", {"uri": "a:b"})) == "quick"
    reference = answer["error"]["message"].split("reference ")[1][:8]
    assert [reference in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("\udcff"),
        ProtocolError("told", data=object()),
        ResourceNotFound("a:\udcff"),
    ],
    ids=["message", "data", "uri"],
)
async def test_an_error_that_cannot_be_encoded_is_answered_with_an_internal_error(error: ProtocolError) -> None:
    server, _ = make_server()

    @server.resource("a:fails")
    async def fails() -> str:
        raise error

    for revision in ERAS:
        async with Wire(server, revision) as wire:
            answer = await wire.ask("resources/read", {"uri": "a:fails"})
            assert answer["error"]["code"] == -32603
            assert wire.stream.peer.in_flight == {}


async def test_a_result_that_cannot_be_encoded_is_an_error_of_its_request() -> None:
    """Security S07."""
    server, _ = make_server()
    server.resources.add("a:surrogate", lambda: "\udcff", inline=True)
    async with Wire(server) as wire:
        assert (await wire.ask("resources/read", {"uri": "a:surrogate"}))["error"]["code"] == -32603
        assert wire.stream.peer.in_flight == {}


async def test_a_failed_notification_handler_is_logged_and_the_connection_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, _ = make_server()

    def fails(session: Any, params: Any) -> None:
        raise RuntimeError("taker")

    server.notification_handlers["notifications/roots/list_changed"] = fails
    async with Wire(server, "2025-11-25") as wire:
        wire.notify("notifications/roots/list_changed")
        assert text(await wire.ask("resources/read", {"uri": "a:b"})) == "quick"
    assert len(caplog.records) == 1


# -- cancellation


@pytest.mark.parametrize("revision", ERAS)
async def test_a_cancelled_request_is_not_answered_and_its_id_may_be_reused(revision: str) -> None:
    server, handler = make_server()
    async with Wire(server, revision) as wire:
        wire.send_request("resources/read", {"uri": "a:held"}, 1)
        await handler.entered.wait()
        wire.notify("notifications/cancelled", {"requestId": "1"})
        wire.notify("notifications/cancelled", {"requestId": 1})
        wire.notify("notifications/cancelled", {"requestId": 1})
        assert text(await wire.ask("resources/read", {"uri": "a:b"}, 1)) == "quick"
        assert handler.outcomes == ["cancelled"]
        assert len(wire.answers) == 1 + (revision in HANDSHAKE)


async def test_a_request_cancelled_in_the_same_chunk_is_not_answered() -> None:
    server, handler = make_server()
    async with Wire(server) as wire:
        cancel = line("notifications/cancelled", {"requestId": 1})
        wire.stream.data_received(read_request("a:held", 1) + cancel + read_request("a:b", 2))
        await wire.answer(2)
        assert wire.answers.keys() == {(int, 2)}
        assert handler.outcomes == ["cancelled"] * handler.entered.is_set()


async def test_a_request_cancelled_during_a_write_is_not_answered() -> None:
    """A client in this process cancels while a message is written to it."""
    server, handler = make_server()

    @server.resource("a:chatty")
    async def chatty(ctx: Context) -> str:
        for _ in range(MAX_COALESCED_MESSAGES):
            ctx.info("x")
        return await handler()

    async with Wire(server, "2025-11-25") as wire:
        write = wire.write

        def cancel_on_write(data: Any) -> None:
            write(data)
            wire.notify("notifications/cancelled", {"requestId": 1})

        wire.write = cancel_on_write  # type: ignore[method-assign]
        wire.send_request("resources/read", {"uri": "a:chatty"}, 1)
        await wire.wait_for_notifications(MAX_COALESCED_MESSAGES)
        while not handler.outcomes:
            await asyncio.sleep(0)
        assert handler.outcomes == ["cancelled"]
        assert (int, 1) not in wire.answers
        assert wire.stream.peer.in_flight == {}


async def test_a_handler_that_cancels_itself_gets_an_error_answer() -> None:
    server, _ = make_server()

    @server.resource("a:self")
    async def itself() -> str:
        raise asyncio.CancelledError

    async with Wire(server) as wire:
        assert (await wire.ask("resources/read", {"uri": "a:self"}))["error"]["code"] == -32603


async def test_a_request_over_its_deadline_is_cancelled_and_a_listen_request_is_not() -> None:
    server, handler = make_server(handler_time=1.5)
    async with Wire(server) as wire:
        listen = await wire.watch("a:b")
        wire.send_request("resources/read", {"uri": "a:held"}, 1)
        await handler.entered.wait()
        for _ in range(2):
            assert not wire.answers
            wire.stream.sweeper.cancel()
            wire.stream.sweep()  # a second has passed
        error = (await wire.answer(1))["error"]
        assert (error["code"], "longer than 1.5 s" in error["message"]) == (-32603, True)
        assert list(wire.stream.peer.in_flight) == [listen]
        assert handler.outcomes == ["cancelled"]


async def test_what_a_handler_does_after_its_deadline_is_not_cancelled_again() -> None:
    """Bug: each later check of the deadlines cancelled the handler's `finally` too."""
    server, handler = make_server(handler_time=1.5)
    rolling_back, rolled_back = asyncio.Event(), BlockingHandler()

    @server.resource("a:transaction")
    async def transaction() -> str:
        try:
            return await handler()
        finally:
            rolling_back.set()
            await rolled_back()

    async with Wire(server) as wire:
        wire.send_request("resources/read", {"uri": "a:transaction"}, 1)
        await handler.entered.wait()
        for _ in range(4):
            wire.stream.sweeper.cancel()
            wire.stream.sweep()  # a second has passed
            await asyncio.sleep(0)
        await rolling_back.wait()
        rolled_back.release.set()
        assert "longer than 1.5 s" in (await wire.answer(1))["error"]["message"]
        assert rolled_back.outcomes == ["done"]


async def test_requests_over_the_limit_are_refused() -> None:
    """Security L22."""
    server, handler = make_server(in_flight=2)
    async with Wire(server) as wire:
        for id in (1, 2, 3):
            wire.send_request("resources/read", {"uri": "a:held"}, id)
        assert (await wire.answer(3))["error"]["code"] == -32603
        handler.release.set()
        assert (text(await wire.answer(1)), text(await wire.answer(2))) == ("let go", "let go")


# -- end of the stream


async def test_requests_read_before_the_end_of_input_are_answered() -> None:
    server, handler = make_server()
    wire = Wire(server)
    wire.stream.data_received(read_request("a:held", 1) + read_request("a:b", 2) + read_request("a:b", 3)[:-4])
    await handler.entered.wait()
    assert wire.stream.eof_received() is True
    assert not wire.stream.ended.done()
    handler.release.set()
    await wire.stream.ended
    assert {id: text(answer) for (_, id), answer in wire.answers.items()} == {1: "let go", 2: "quick"}


async def test_at_the_end_of_input_handlers_get_the_drain_time_and_listen_requests_end() -> None:
    server, handler = make_server(drain=0.01)
    wire = Wire(server)
    await wire.watch("a:b")
    assert server.watching.watched() == ["a:b"]
    wire.send_request("resources/read", {"uri": "a:held"}, 1)
    await handler.entered.wait()
    wire.stream.eof_received()
    await wire.stream.ended
    await asyncio.sleep(0)
    assert (handler.outcomes, wire.answers, server.watching.watched()) == (["cancelled"], {}, [])


async def test_an_idle_connection_ends_with_its_input() -> None:
    server, _ = make_server()
    wire = Wire(server)
    wire.stream.eof_received()
    assert wire.stream.ended.done()
    assert wire.stream.sweeper.cancelled()


async def test_a_lost_connection_cancels_handlers_and_drops_pending_answers() -> None:
    """A reader that disconnects with pending answers must not keep the server running (Security S05)."""
    server, handler = make_server()
    wire = Wire(server)
    wire.send_request("resources/read", {"uri": "a:held"}, 1)
    await handler.entered.wait()
    wire.stream.pause_writing()
    wire.send_request("resources/read", {"uri": "blob:500000"}, 2)
    await wait_until_queued(wire)
    wire.stream.connection_lost(None)
    assert wire.stream.ended.done()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (handler.outcomes, wire.answers, wire.stream.queued_bytes) == (["cancelled"], {}, 0)
    assert wire.stream.notify(b"{}") is False


async def test_the_answers_of_a_batch_whose_client_is_gone_do_not_count_as_unread() -> None:
    """A bug: they counted for as long as the server ran, until every other connection was refused large answers."""
    server, handler = make_server()
    wire = Wire(server, "2025-03-26")
    async with wire:
        requests = [read_request("blob:500000", 1, wire.revision), read_request("a:held", 2, wire.revision)]
        wire.stream.data_received(b"[%b,%b]\n" % (requests[0].strip(), requests[1].strip()))
        await handler.entered.wait()
    assert handler.outcomes == ["cancelled"]
    assert (wire.stream.unread.total, len(wire.stream.queued)) == (0, 0)


async def wait_until_queued(wire: Wire) -> None:
    while not wire.stream.queued:
        await asyncio.sleep(0)


async def test_after_the_end_of_input_a_slow_reader_gets_its_answers_and_a_stalled_one_does_not() -> None:
    server, _ = make_server(drain=0.02)
    for reads in (False, True):
        wire = Wire(server)
        wire.stream.pause_writing()
        wire.send_request("resources/read", {"uri": "blob:1000000"}, 1)
        await wait_until_queued(wire)
        wire.stream.eof_received()
        write = wire.write

        def write_and_pause(data: Any, wire: Wire = wire, write: Any = write) -> None:
            write(data)
            wire.stream.pause_writing()
            wire.stream.loop.call_later(0.005, wire.stream.resume_writing)

        if reads:
            wire.write = write_and_pause  # type: ignore[method-assign]
            wire.stream.resume_writing()
        await wire.stream.ended
        assert bool(wire.answers) is reads


async def test_ending_twice_and_writing_after_the_end_have_no_effect() -> None:
    server, _ = make_server()
    wire = Wire(server)
    for _ in range(2):
        wire.stream.finish()
        wire.stream.drain()
        wire.stream.connection_lost(None)
    wire.stream.write(b"{}")
    await asyncio.sleep(0)
    assert wire.chunks == []


async def test_a_session_ends_with_its_connection() -> None:
    server, _ = make_server()
    async with Wire(server, "2025-11-25") as wire:
        ended: list[Any] = []
        wire.stream.peer.session.on_close.append(ended.append)
    assert ended == [wire.stream.peer.session]
    ended_stream = StreamServer(server)
    ended_stream.connection_lost(None)
    ended_stream.data_received(line("initialize", initialize_params("2025-11-25"), 1, "2025-11-25"))
    assert ended_stream.peer.in_flight == {}


async def test_many_requests_leak_nothing() -> None:
    """Security X02."""
    server, _ = make_server()
    async with Wire(server) as wire:
        before = asyncio.all_tasks()
        for number in range(20):
            wire.stream.data_received(b"".join(read_request("a:b", number * 100 + n) for n in range(100)))
            await wire.wait_until(lambda number=number: len(wire.answers) == number * 100 + 100)  # type: ignore[misc]
        assert wire.stream.peer.in_flight == {}
        assert (wire.stream.out, len(wire.stream.queued)) == ([], 0)
        assert asyncio.all_tasks() == before


# -- a client that does not read


@pytest.mark.parametrize("revision", ERAS)
async def test_a_client_that_reads_no_answers_is_refused_and_then_disconnected(revision: str) -> None:
    """Answers are never dropped, so new requests are refused while too many answers are unread."""
    server, _ = make_server(unread=130_000)
    aborted: list[bool] = []
    async with Wire(server, revision) as wire:
        wire.abort = lambda: aborted.append(True)  # type: ignore[method-assign]
        wire.stream.pause_writing()
        for number in range(3):
            wire.stream.data_received(read_request("blob:60000", number, revision))
        while len(wire.stream.queued) < 3:
            await asyncio.sleep(0)
        wire.stream.data_received(read_request("a:b", "late", revision))
        wire.stream.resume_writing()
        assert (await wire.answer("late"))["error"]["code"] == -32603
        assert len((await wire.answer(1))["result"]["contents"][0]["blob"]) == 80_000
        assert (await wire.answer(2))["error"]["code"] == -32603
        wire.stream.data_received(read_request("a:b", "again", revision))
        assert text(await wire.answer("again")) == "quick"
        assert not aborted
        wire.stream.pause_writing()
        for number in range(3, 7):
            wire.stream.data_received(read_request("blob:60000", number, revision))
        while wire.stream.peer.in_flight:
            await asyncio.sleep(0)
        assert not aborted  # the answers after the limit were refusals
        for number in range(4_000):
            wire.stream.data_received(read_request("a:b", f"none {number}", revision))
        while not aborted:
            await asyncio.sleep(0)
