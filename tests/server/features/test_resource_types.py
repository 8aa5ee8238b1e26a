"""A registered resource whose content contradicts its type is logged once, when it is first read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from wharfinger import Client, Server


def warnings_of(caplog: pytest.LogCaptureFixture, server: Server, *uris: str) -> list[str]:
    async def work() -> None:
        async with Client(server, cache=False) as client:
            for uri in uris:
                await client.read_resource(uri)

    with caplog.at_level(logging.WARNING, "wharfinger"):
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("mime_type", "value", "why"),
    [
        ("application/json", "{nothing}", "declared application/json, but it is not JSON"),
        ("image/png", b"<svg onload=alert(1)>", "declared image/png, but it begins like image/svg+xml"),
        ("text/plain", b"\xff\xfe\xfd", "declared text/plain, but it is not"),
    ],
)
def test_a_false_type_is_logged_once(caplog: pytest.LogCaptureFixture, mime_type: str, value: Any, why: str) -> None:
    server = Server("harbour")
    server.resources.add("harbour://tide", lambda: value, mime_type=mime_type)
    server.resources.add("harbour://tide/{day}", lambda day: value, mime_type=mime_type)
    found = warnings_of(caplog, server, *["harbour://tide"] * 3, "harbour://tide/1", "harbour://tide/2")
    assert len(found) == 2
    assert all(why in one and "Correct its mime_type, or its content" in one for one in found)
    assert "'harbour://tide/{day}'" in found[1]


@pytest.mark.parametrize(
    ("mime_type", "value"),
    [
        ("application/json", '{"a": 1}'),
        ("application/json", {"a": 1}),
        ("image/png", b"\x89PNG\r\n\x1a\n"),
        (None, "x"),
    ],
)
def test_a_true_type_is_not(caplog: pytest.LogCaptureFixture, mime_type: str | None, value: Any) -> None:
    server = Server("harbour")
    server.resources.add("harbour://tide", lambda: value, **({"mime_type": mime_type} if mime_type else {}))
    assert warnings_of(caplog, server, "harbour://tide") == []
