"""A client of a `SampleService` on a byte stream, without a pipe."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.transports.http_support import HANDSHAKE, INITIALIZE, SampleService
from wharfinger.protocol.limits import Limits
from wharfinger.transports.stream_server import StreamServer


class StreamClient:
    """An initialized connection of the handshake era that records the writes of the server."""

    def __init__(self, version: str = HANDSHAKE, **limits: Any) -> None:
        self.service = SampleService(Limits(**limits))
        self.server = StreamServer(self.service)
        self.server.connection_made(self)
        self.written = b""
        self.send(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE | {"protocolVersion": version}}
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, data: bytes) -> None:
        self.written += data

    def send(self, message: Any) -> None:
        self.server.data_received(json.dumps(message).encode() + b"\n")

    def read(self, name: str, id: Any = 1, **meta: Any) -> None:
        """Send a request that reads the resource `test://<name>`."""
        params = {"uri": f"test://{name}", **meta}
        self.send({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params})

    async def messages(self) -> list[Any]:
        """Wait until only blocked handlers are left, and return what was written since the last call.

        The answer to `initialize` is left out.
        """
        for _ in range(20):
            await asyncio.sleep(0)
        lines, self.written = self.written.splitlines(), b""
        messages = [json.loads(line) for line in lines]
        return [message for message in messages if isinstance(message, list) or message.get("id") != 0]
