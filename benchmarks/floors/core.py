"""The floor: msgspec and a dict of handlers, in both eras, without the checks that a server must make.

It shows what is possible on this machine: no real server can be as fast.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).resolve().parent.parent / "servers"))
import spec

STATELESS = "2026-07-28"


class Message(msgspec.Struct):
    method: str
    id: int | str | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Meta(msgspec.Struct):
    version: str = msgspec.field(default="", name="io.modelcontextprotocol/protocolVersion")


class Sum(msgspec.Struct):
    a: int = 0
    b: int = 0


class Params(msgspec.Struct):
    uri: str = ""
    arguments: Sum | None = None
    protocolVersion: str = ""
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class Answer(msgspec.Struct):
    id: int | str
    result: Any
    jsonrpc: str = "2.0"


class TextContents(msgspec.Struct):
    uri: str
    mimeType: str
    text: str


class BlobContents(msgspec.Struct):
    uri: str
    mimeType: str
    blob: bytes


class Read(msgspec.Struct):
    contents: list[TextContents | BlobContents]


class StatelessRead(Read):
    resultType: str = "complete"
    ttlMs: int = 0
    cacheScope: str = "private"


class Text(msgspec.Struct):
    text: str
    type: str = "text"


class Called(msgspec.Struct):
    content: list[Text]


class StatelessCalled(Called):
    resultType: str = "complete"


class Resource(msgspec.Struct):
    uri: str
    name: str
    mimeType: str


class Listed(msgspec.Struct):
    resources: list[Resource]


class StatelessListed(Listed):
    resultType: str = "complete"
    ttlMs: int = 0
    cacheScope: str = "private"


encode = msgspec.json.Encoder().encode
decode_message = msgspec.json.Decoder(Message).decode
decode_params = msgspec.json.Decoder(Params).decode

CAPABILITIES = {"resources": {}, "tools": {}}
INFO = {"name": spec.NAME, "version": spec.VERSION}
RESOURCES = [
    Resource(spec.STATIC_URI, "static", spec.TEXT),
    Resource(spec.BLOB_URI, "blob", spec.BINARY),
    Resource(spec.BIG_BLOB_URI, "big blob", spec.BINARY),
    *(Resource(uri, name, spec.TEXT) for uri, name in spec.ENTRIES),
]


def is_stateless(params: Params) -> bool:
    return params.meta is not None and params.meta.version == STATELESS


def initialize(params: Params) -> Any:
    return {
        "protocolVersion": params.protocolVersion,
        "capabilities": CAPABILITIES,
        "serverInfo": INFO,
    }


def discover(params: Params) -> Any:
    stateless = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    meta = {"io.modelcontextprotocol/serverInfo": INFO}
    return {
        "supportedVersions": [STATELESS],
        "capabilities": CAPABILITIES,
        "_meta": meta,
        **stateless,
    }


def list_resources(params: Params) -> Listed:
    return (StatelessListed if is_stateless(params) else Listed)(RESOURCES)


def list_tools(params: Params) -> Any:
    """List the tools, which some clients do before their first call."""
    tools = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    return {**tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if is_stateless(params) else tools


def read_resource(params: Params) -> Read:
    uri = params.uri
    contents: TextContents | BlobContents
    if uri == spec.STATIC_URI:
        contents = TextContents(uri, spec.TEXT, spec.STATIC_TEXT)
    elif uri == spec.BLOB_URI:
        contents = BlobContents(uri, spec.BINARY, spec.BLOB)
    elif uri == spec.BIG_BLOB_URI:
        contents = BlobContents(uri, spec.BINARY, spec.big_blob())
    else:
        contents = TextContents(uri, spec.JSON, spec.item_text(uri.removeprefix("bench://item/")))
    return (StatelessRead if is_stateless(params) else Read)([contents])


def call_tool(params: Params) -> Called:
    numbers = params.arguments or Sum()
    return (StatelessCalled if is_stateless(params) else Called)([Text(str(numbers.a + numbers.b))])


HANDLERS: dict[str, Callable[[Params], Any]] = {
    "initialize": initialize,
    "server/discover": discover,
    "resources/list": list_resources,
    "resources/read": read_resource,
    "tools/list": list_tools,
    "tools/call": call_tool,
}


def answer(data: bytes) -> bytes | None:
    """Return the encoded response to a message; None for a notification."""
    message = decode_message(data)
    if message.id is None:
        return None
    return encode(Answer(message.id, HANDLERS[message.method](decode_params(message.params))))
