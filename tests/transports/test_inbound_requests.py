"""The answers of a client to requests of its server, without a connection."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from wharfinger.errors import InvalidParams
from wharfinger.protocol.jsonrpc import Message
from wharfinger.transports.inbound_requests import RequestResponder


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("error", [InvalidParams("bad \ud800"), InvalidParams("bad", data=object())])
async def test_an_error_that_cannot_be_encoded_is_answered_with_an_internal_error(
    error: InvalidParams, raises: bool
) -> None:
    """A bug: there was no response, so the server waited for its timeout."""
    responses: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(request: Message) -> Any:
        if raises:
            raise error
        return error

    RequestResponder("the server").respond(Message("2.0", 1, "roots/list"), answer, responses.put_nowait)
    response = json.loads(await asyncio.wait_for(responses.get(), 5))
    assert (response["id"], response["error"]["code"]) == (1, -32603)
