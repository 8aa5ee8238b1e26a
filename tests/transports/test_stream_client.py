"""How a client's stream writes requests and reads answers, without a process or a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.scripted import QuickLoop
from wharfinger import types as t
from wharfinger.errors import InvalidResponse, RequestTimeout
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.transports.stream_client import MAX_COALESCED_MESSAGES, StreamLink


class RecordingLink(StreamLink):
    """A link that records its writes."""

    def __init__(self, limits: Limits) -> None:
        super().__init__("the server", limits)
        self.written: list[bytes] = []
        self.write = self.written.append

    def send_request(self) -> asyncio.Task[Message]:
        """Send a request in its own task."""
        return asyncio.ensure_future(self.request("ping", t.RequestParams(), timeout=40))

    @property
    def messages_per_write(self) -> list[int]:
        """Return the number of messages in each write."""
        return [data.count(b"\n") for data in self.written]


def answer(id: int, **result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n"


def run(test: Callable[[RecordingLink], Awaitable[None]], limits: Limits | None = None) -> None:
    async def main() -> None:
        await test(RecordingLink(limits or Limits()))

    asyncio.run(asyncio.wait_for(main(), 5))


def test_the_first_request_is_written_at_once_and_concurrent_ones_share_writes() -> None:
    async def test(link: RecordingLink) -> None:
        requests = [link.send_request() for _ in range(2 * MAX_COALESCED_MESSAGES + 3)]
        await asyncio.sleep(0)
        assert link.messages_per_write == [1, MAX_COALESCED_MESSAGES, MAX_COALESCED_MESSAGES]
        await asyncio.sleep(0)
        assert link.messages_per_write == [1, MAX_COALESCED_MESSAGES, MAX_COALESCED_MESSAGES, 2]
        link.feed(b"".join(answer(id) for id in range(1, len(requests) + 1)))
        assert [(await request).id for request in requests] == list(range(1, len(requests) + 1))
        link.written.clear()
        last = link.send_request()
        await asyncio.sleep(0)
        assert link.messages_per_write == [1]
        link.feed(answer(len(requests) + 1))
        await last

    run(test)


def test_a_notification_is_written_before_later_requests() -> None:
    async def test(link: RecordingLink) -> None:
        async def notify_and_request() -> Message:
            link.notify("notifications/initialized", t.UNSET)
            return await link.request("ping", t.RequestParams(), timeout=40)

        request = asyncio.ensure_future(notify_and_request())
        for _ in range(3):
            await asyncio.sleep(0)
        (written,) = link.written
        assert [json.loads(line)["method"] for line in written.splitlines()] == ["notifications/initialized", "ping"]
        link.feed(answer(1))
        await request

    run(test)


def test_the_wait_for_a_server_that_does_not_read_counts_toward_the_timeout() -> None:
    """A bug: the response got the full timeout again."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        link = RecordingLink(Limits())
        link.pause_writing()
        request = asyncio.ensure_future(link.request("ping", t.RequestParams(), timeout=10))
        await asyncio.sleep(8)
        link.resume_writing()
        with pytest.raises(RequestTimeout, match="ping: no answer from the server within 10 s"):
            await request
        assert loop.time() == pytest.approx(10)
        assert [json.loads(data)["method"] for data in link.written] == ["ping", "notifications/cancelled"]

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        runner.run(test())


@pytest.mark.parametrize("split", [1, 20, -1])
def test_lines_may_arrive_in_pieces(split: int) -> None:
    async def test(link: RecordingLink) -> None:
        requests = [link.send_request() for _ in range(3)]
        await asyncio.sleep(0)
        first, second, third = (answer(id, x="y") for id in (1, 2, 3))
        link.feed(first + second[:split])
        link.feed(second[split:])
        link.feed(b"\n\n" + third)
        assert [(await request).id for request in requests] == [1, 2, 3]

    run(test)


def test_an_error_that_names_no_request_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A server must not forge lines of its client's log, or send escapes to a terminal that shows it."""

    async def test(link: RecordingLink) -> None:
        link.rules = REVISIONS["2026-07-28"]
        link.feed(b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"bad\\nWARNING forged\\u001b[2J"}}\n')

    run(test)
    assert [record.getMessage() for record in caplog.records] == [
        "the server sent an error that names no request: bad?WARNING forged?[2J (error -32600)"
    ]


def test_a_line_over_the_limit_fails_its_request_and_the_next_one_is_read() -> None:
    limits = Limits(message=100)

    async def test(link: RecordingLink) -> None:
        for fits in (True, False):
            request = link.send_request()
            await asyncio.sleep(0)
            id = json.loads(link.written[-1])["id"]
            line = answer(id, x="")
            link.feed(answer(id, x="y" * (100 - len(line) + 1 + (not fits))))
            if fits:
                assert (await request).id == id
            else:
                with pytest.raises(InvalidResponse, match="over the limit of 100 bytes"):
                    await request
        request = link.send_request()
        await asyncio.sleep(0)
        link.feed(answer(3))
        assert (await request).id == 3

    run(test, limits)
