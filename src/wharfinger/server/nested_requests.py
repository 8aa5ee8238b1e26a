"""Requests that a handler makes to its own server on behalf of its caller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import Request

__all__ = ["read_request"]


def read_request(request: Request, uri: str) -> Request:
    """Return a `resources/read` request for the caller of `request`, on the same stream. It reports no progress."""
    meta = request.params.meta
    params = t.ReadResourceRequestParams(
        uri=uri, meta=meta if meta is UNSET else msgspec.structs.replace(meta, progress_token=UNSET)
    )
    return msgspec.structs.replace(
        request,
        method="resources/read",
        row=METHODS["resources/read"],
        params=params,
        raw_params=msgspec.Raw(msgspec.json.encode(params)),
        channel=_OuterStream(request),
        accepts_lazy_blobs=False,
        nested=True,
        observers=(),
        on_answer=(),
        decision=None,
        failure=None,
    )


class _OuterStream:
    """The channel of a nested request: sends everything on the stream of the `outer` request, whose handler made it."""

    __slots__ = ("outer",)

    def __init__(self, request: Request) -> None:
        self.outer = request

    @property
    def multiplexed(self) -> bool:
        return self.outer.channel.multiplexed

    def send(self, request: Request, message: bytes) -> bool:
        return self.outer.channel.send(self.outer, message)

    def ask(self, request: Request, method: str, params: Any) -> Awaitable[Message] | None:
        return self.outer.channel.ask(self.outer, method, params)

    def detach(self, request: Request, retry_ms: int) -> bool:
        return self.outer.channel.detach(self.outer, retry_ms)
