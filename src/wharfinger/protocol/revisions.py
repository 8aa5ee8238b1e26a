"""The five revisions of the protocol as rows of a table. Code elsewhere reads a field, and never compares names."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["HANDSHAKE", "LATEST_HANDSHAKE", "REVISIONS", "STATELESS", "SUPPORTED", "Revision"]


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one revision."""

    name: str
    order: int
    """Position in time, so that a method can have a first and a last revision."""
    era: Literal["handshake", "stateless"]
    resource_not_found: int = -32002
    """The error code for a missing resource."""
    batches: bool = False
    """Batches (JSON arrays of messages) must be accepted."""
    polled_streams: bool = False
    """An HTTP stream begins with an event that has an id and no data. The server may close the connection at any time,
    and the client then resumes the stream."""
    disconnect_cancels: bool = False
    """Closing the HTTP stream of a request cancels it."""
    adds_result_meta: bool = False
    """Results have `resultType`, the server's identity and, if they are cacheable, caching hints."""
    logs_by_request: bool = False
    """Log messages are sent only for a request that names a level."""
    progress_message: bool = True
    """Progress notifications may have a `message`."""
    any_structured_content: bool = False
    """`structuredContent` may be any JSON value, not only an object."""
    server_makes_tasks: bool = False
    """The server decides whether to answer a call with a task, if the client declares the extension."""
    client_makes_tasks: bool = False
    """The client decides whether to call a tool as a task; some tools require it."""
    unknown_blocks: frozenset[str] = frozenset()
    """Content blocks that this revision does not have. In results, they are sent as text."""
    asks_by_result: bool = False
    """A server asks its client by a result; the client sends the request again with the answers."""
    has_capability_error: bool = False
    """There is an error (-32021) for a capability that the client does not declare."""
    elicits: bool = True
    """Servers can ask users with a form."""
    full_forms: bool = True
    """Forms have defaults of every type, titled choices and multiple choice. If not, only booleans have defaults,
    titles are `enumNames`, and multiple choice is text."""
    elicits_urls: bool = False
    """Servers can ask users to open a URL."""
    url_required: bool = False
    """There is an error (-32042) for a URL that must be opened, and a notification when that is done."""
    samples_blocks: bool = False
    """In sampling, a message may have several blocks of content, and the model may use tools."""
    version_header: bool = True
    """HTTP requests have the header `MCP-Protocol-Version`."""
    extensions: bool = False
    """Both ends may declare extensions: part of 2026-07-28, and already used with 2025-11-25."""


_ROWS = (
    Revision(
        name="2024-11-05",
        order=1,
        era="handshake",
        progress_message=False,
        elicits=False,
        unknown_blocks=frozenset(("audio", "resource_link")),
        version_header=False,
    ),
    Revision(
        name="2025-03-26",
        order=2,
        era="handshake",
        batches=True,
        elicits=False,
        unknown_blocks=frozenset(("resource_link",)),
        version_header=False,
    ),
    Revision(name="2025-06-18", order=3, era="handshake", full_forms=False),
    Revision(
        name="2025-11-25",
        order=4,
        era="handshake",
        polled_streams=True,
        client_makes_tasks=True,
        extensions=True,
        elicits_urls=True,
        url_required=True,
        samples_blocks=True,
    ),
    Revision(
        name="2026-07-28",
        order=5,
        era="stateless",
        resource_not_found=-32602,
        disconnect_cancels=True,
        adds_result_meta=True,
        logs_by_request=True,
        any_structured_content=True,
        asks_by_result=True,
        has_capability_error=True,
        elicits_urls=True,
        samples_blocks=True,
        server_makes_tasks=True,
        extensions=True,
    ),
)
REVISIONS: dict[str, Revision] = {row.name: row for row in _ROWS}
SUPPORTED: tuple[str, ...] = tuple(row.name for row in reversed(_ROWS))
"""Newest first."""
HANDSHAKE: tuple[str, ...] = tuple(name for name in SUPPORTED if REVISIONS[name].era == "handshake")
STATELESS: tuple[str, ...] = tuple(name for name in SUPPORTED if REVISIONS[name].era == "stateless")
LATEST_HANDSHAKE = HANDSHAKE[0]
