"""Requests as bytes, and the parsing of responses. Does no I/O.

A request is encoded in advance as a pair: the bytes before its id and those after it. The id always has nine digits, so
that sending costs one concatenation and the length never changes.
"""

from __future__ import annotations

from typing import Any

import msgspec

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
FIRST_ID = 100_000_000
CLIENT = {"name": "bench", "version": "1.0"}
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
NAME_FIELD = {"resources/read": "uri", "tools/call": "name"}

Pair = tuple[bytes, bytes]


class Message(msgspec.Struct):
    """The members that tell responses from notifications; the result is not decoded."""

    id: int | str | None = None
    method: str | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def ok(self) -> bool:
        return self.result is not msgspec.UNSET


decode = msgspec.json.Decoder(Message).decode
encode = msgspec.json.encode


def request(method: str, params: dict[str, Any], era: str) -> Pair:
    """Return the parts of a request before and after its id."""
    if era == STATELESS:
        params = {**params, "_meta": META}
    return b'{"jsonrpc":"2.0","id":', b"," + encode({"method": method, "params": params})[1:]


def notification(method: str) -> bytes:
    return encode({"jsonrpc": "2.0", "method": method})


def head(
    host: str, method: str, params: dict[str, Any], era: str, session: bytes, length: int, token: str = ""
) -> bytes:
    """Return the head of a POST request."""
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: {host}",
        "User-Agent: bench/1",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
    ]
    if era == STATELESS:
        lines += [f"MCP-Protocol-Version: {STATELESS}", f"Mcp-Method: {method}"]
        if method in NAME_FIELD:
            lines.append(f"Mcp-Name: {params[NAME_FIELD[method]]}")
    elif method != "initialize":
        lines.append(f"MCP-Protocol-Version: {HANDSHAKE}")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if session:
        lines.append(f"Mcp-Session-Id: {session.decode()}")
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def post(host: str, method: str, params: dict[str, Any], era: str, session: bytes, token: str = "") -> Pair:
    """Return the parts of a whole HTTP request before and after its id."""
    before, after = request(method, params, era)
    return head(host, method, params, era, session, len(before) + 9 + len(after), token) + before, after


def answer(body: bytes, id: int) -> Message | None:
    """Return the response to `id` from a body of JSON or of events, or None if the body does not contain it."""
    if body[:1] == b"{":
        message = decode(body)
        return message if message.id == id else None
    for line in body.split(b"\n"):
        if line.startswith(b"data:") and line[5:].strip():
            message = decode(line[5:])
            if message.id == id and message.method is None:
                return message
    return None
