"""The methods that every service answers in the same way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.protocol.handshake import Session
from wharfinger.protocol.jsonrpc import decode
from wharfinger.protocol.lifecycle import handlers
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import Request, open_request
from wharfinger.protocol.revisions import SUPPORTED, Revision

STATELESS = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class StubService:
    """A service that declares its name, its instructions and an experimental capability for each revision."""

    info = t.Implementation(name="quay", version="1")

    def __init__(self, instructions: str = "") -> None:
        self.instructions = instructions

    def capabilities(self, rules: Revision) -> t.ServerCapabilities:
        return t.ServerCapabilities(experimental={rules.name: {}})


def call(service: Any, method: str, params: dict[str, Any], session: Session | None) -> Any:
    data = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request: Request = open_request(decode(data, Limits()), session)
    return asyncio.run(handlers(service)[method](request))


@pytest.mark.parametrize("instructions", ["", "Ask for a berth."])
def test_initialize_and_discover_return_the_name_instructions_and_capabilities(instructions: str) -> None:
    expected = instructions or t.UNSET
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    initialized = call(StubService(instructions), "initialize", params, Session())
    assert (initialized.protocol_version, initialized.server_info, initialized.instructions) == (
        "2025-06-18",
        StubService.info,
        expected,
    )
    assert initialized.capabilities.experimental == {"2025-06-18": {}}
    discovered = call(StubService(instructions), "server/discover", {"_meta": STATELESS}, None)
    assert (discovered.supported_versions, discovered.instructions) == (list(SUPPORTED), expected)
    assert discovered.capabilities.experimental == {"2026-07-28": {}}


def test_a_session_keeps_the_log_level_of_its_client() -> None:
    session = Session()
    session.advance("initialize")
    assert session.log_level is None
    assert type(call(StubService(), "logging/setLevel", {"level": "warning"}, session)) is t.EmptyResult
    assert session.log_level == "warning"
    assert type(call(StubService(), "ping", {}, session)) is t.EmptyResult
