"""The five revisions as rows of named facts; nothing outside `protocol/` compares revisions, it reads a fact."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["HANDSHAKE", "LATEST_HANDSHAKE", "REVISIONS", "STATELESS", "SUPPORTED", "Revision"]


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """What one revision wants; spec.md's matrix, as far as code asks for it."""

    name: str
    order: int
    """Place in time, so that a row can say from when until when it is valid."""
    era: Literal["handshake", "stateless"]
    resource_not_found: int = -32002
    """The code that says that there is no such resource."""
    batches: bool = False
    """JSON-RPC arrays must be received."""
    polled_streams: bool = False
    """An HTTP stream begins with an event that has an id and no data, and may be read on over another connection."""
    disconnect_cancels: bool = False
    """The end of a request's HTTP stream means that nobody wants its answer."""
    stamps_results: bool = False
    """Results carry `resultType`, the server's identity and, where they can be kept, caching hints."""
    logs_by_request: bool = False
    """Log messages are sent only for a request that named a level."""
    progress_message: bool = True
    """Progress may carry a text."""
    any_structured_content: bool = False
    """`structuredContent` may be any JSON value, not only an object."""
    tasks: bool = False
    """Calls may be answered with a task, to clients that declare the extension."""
    task_calls: bool = False
    """Calls of tools may be sent as tasks: the client decides, and some tools want it."""
    unknown_blocks: frozenset[str] = frozenset()
    """Blocks of content that this revision does not know; they are sent as text."""
    asks_by_result: bool = False
    """A question to the client is a result, and its request comes again with the answer."""
    missing_capability: int | None = None
    """The code that says that a client lacks a capability; None where there is none."""
    elicits: bool = True
    """Users can be asked by a form."""
    full_forms: bool = True
    """Forms have defaults of every kind, titles of choices, and several choices at once; else defaults are for yes or
    no, titles are `enumNames`, and several choices are text."""
    elicits_urls: bool = False
    """Users can be sent to a URL."""
    url_required: bool = False
    """An error (-32042) and a notification say what a URL is for, which has an id."""
    samples_blocks: bool = False
    """A message to the model may have several blocks of content, and use tools."""
    version_header: bool = True
    """HTTP requests carry `MCP-Protocol-Version`."""
    extensions: bool = False
    """Both ends may declare extensions: in the core since 2026-07-28, and used with 2025-11-25 before."""


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
        task_calls=True,
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
        stamps_results=True,
        logs_by_request=True,
        any_structured_content=True,
        asks_by_result=True,
        missing_capability=-32021,
        elicits_urls=True,
        samples_blocks=True,
        tasks=True,
        extensions=True,
    ),
)
REVISIONS: dict[str, Revision] = {row.name: row for row in _ROWS}
SUPPORTED: tuple[str, ...] = tuple(row.name for row in reversed(_ROWS))
"""Newest first."""
HANDSHAKE: tuple[str, ...] = tuple(name for name in SUPPORTED if REVISIONS[name].era == "handshake")
STATELESS: tuple[str, ...] = tuple(name for name in SUPPORTED if REVISIONS[name].era == "stateless")
LATEST_HANDSHAKE = HANDSHAKE[0]
