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
    version_header: bool = True
    """HTTP requests carry `MCP-Protocol-Version`."""


_ROWS = (
    Revision(name="2024-11-05", order=1, era="handshake", progress_message=False, version_header=False),
    Revision(name="2025-03-26", order=2, era="handshake", batches=True, version_header=False),
    Revision(name="2025-06-18", order=3, era="handshake"),
    Revision(name="2025-11-25", order=4, era="handshake"),
    Revision(
        name="2026-07-28",
        order=5,
        era="stateless",
        resource_not_found=-32602,
        disconnect_cancels=True,
        stamps_results=True,
        logs_by_request=True,
        any_structured_content=True,
    ),
)
REVISIONS: dict[str, Revision] = {row.name: row for row in _ROWS}
SUPPORTED: tuple[str, ...] = tuple(row.name for row in reversed(_ROWS))
"""Newest first."""
HANDSHAKE: tuple[str, ...] = tuple(name for name in SUPPORTED if REVISIONS[name].era == "handshake")
STATELESS: tuple[str, ...] = tuple(name for name in SUPPORTED if REVISIONS[name].era == "stateless")
LATEST_HANDSHAKE = HANDSHAKE[0]
