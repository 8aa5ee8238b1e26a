"""How a client's stream writes requests and reads answers, without a process or a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.errors import InvalidResponse
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.transports.stream_client import MAX_COALESCED_MESSAGES, StreamLink


class Wire(StreamLink):
    """A link that records its writes."""

    def __init__(self, limits: Limits) -> None:
        super().__init__("the server", limits)
        self.written: list[bytes] = []
        self.write = self.written.append

    def ask(self) -> asyncio.Task[Message]:
        """Send a request in a separate task."""
        return asyncio.ensure_future(self.request("ping", t.RequestParams(), timeout=5))

    @property
    def sizes(self) -> list[int]:
        """Return the number of messages in each write."""
        return [data.count(b"\n") for data in self.written]


def answer(id: int, **result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": result}).encode() + b"\n"


def run(test: Callable[[Wire], Awaitable[None]], limits: Limits | None = None) -> None:
    async def main() -> None:
        await test(Wire(limits or Limits()))

    asyncio.run(asyncio.wait_for(main(), 5))


def test_a_single_request_is_written_at_once_and_concurrent_ones_share_writes_up_to_a_bound() -> None:
    async def test(wire: Wire) -> None:
        asked = [wire.ask() for _ in range(2 * MAX_COALESCED_MESSAGES + 3)]
        await asyncio.sleep(0)
        assert wire.sizes == [1, MAX_COALESCED_MESSAGES, MAX_COALESCED_MESSAGES]
        await asyncio.sleep(0)
        assert wire.sizes == [1, MAX_COALESCED_MESSAGES, MAX_COALESCED_MESSAGES, 2]
        wire.feed(b"".join(answer(id) for id in range(1, len(asked) + 1)))
        assert [(await each).id for each in asked] == list(range(1, len(asked) + 1))
        wire.written.clear()
        last = wire.ask()
        await asyncio.sleep(0)
        assert wire.sizes == [1]
        wire.feed(answer(len(asked) + 1))
        await last

    run(test)


def test_a_notification_is_written_before_later_requests() -> None:
    async def test(wire: Wire) -> None:
        async def both() -> Message:
            wire.notify("notifications/initialized", t.UNSET)
            return await wire.request("ping", t.RequestParams(), timeout=5)

        asked = asyncio.ensure_future(both())
        for _ in range(3):
            await asyncio.sleep(0)
        (written,) = wire.written
        assert [json.loads(line)["method"] for line in written.splitlines()] == ["notifications/initialized", "ping"]
        wire.feed(answer(1))
        await asked

    run(test)


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_lines_may_arrive_in_pieces(cut: int) -> None:
    async def test(wire: Wire) -> None:
        asked = [wire.ask() for _ in range(3)]
        await asyncio.sleep(0)
        first, second, third = (answer(id, x="y") for id in (1, 2, 3))
        wire.feed(first + second[:cut])
        wire.feed(second[cut:])
        wire.feed(b"\n\n" + third)
        assert [(await each).id for each in asked] == [1, 2, 3]

    run(test)


def test_a_line_over_the_limit_fails_its_request_and_the_next_one_is_read() -> None:
    limits = Limits(message=100)

    async def test(wire: Wire) -> None:
        for fits in (True, False):
            asked = wire.ask()
            await asyncio.sleep(0)
            id = json.loads(wire.written[-1])["id"]
            line = answer(id, x="")
            wire.feed(answer(id, x="y" * (100 - len(line) + 1 + (not fits))))
            if fits:
                assert (await asked).id == id
            else:
                with pytest.raises(InvalidResponse, match="over the limit of 100 bytes"):
                    await asked
        asked = wire.ask()
        await asyncio.sleep(0)
        wire.feed(answer(3))
        assert (await asked).id == 3

    run(test, limits)
