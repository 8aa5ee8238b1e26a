"""The handshake, discovery, and the data of errors about revisions and capabilities."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from .base import CacheableResult, Implementation, Result, WireStruct
from .capabilities import ClientCapabilities, ServerCapabilities
from .requests import RequestParams

__all__ = [
    "DiscoverResult",
    "InitializeRequestParams",
    "InitializeResult",
    "MissingRequiredClientCapabilityData",
    "UnsupportedProtocolVersionData",
]


class InitializeRequestParams(RequestParams, kw_only=True):
    """Params of `initialize` (handshake era), with the latest revision that the client supports."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """Result of `initialize` (handshake era), with the revision to use: the client's if the server supports it."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | UnsetType = UNSET


class DiscoverResult(CacheableResult, kw_only=True):
    """Result of `server/discover` (stateless era)."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | UnsetType = UNSET


class UnsupportedProtocolVersionData(WireStruct, kw_only=True):
    """`data` of error -32022 (2026-07-28)."""

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(WireStruct, kw_only=True):
    """`data` of error -32021 (2026-07-28): the capabilities that the client must declare."""

    required_capabilities: ClientCapabilities
