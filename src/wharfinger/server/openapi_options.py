"""The options of `Server.from_openapi` and `Server.from_fastapi`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

__all__ = ["OpenApiOptions", "OpenApiServerOptions"]


class OpenApiOptions(TypedDict, total=False):
    """The options of `wharfinger.sources.openapi` except `app`. They are described there."""

    base_url: str | None
    label: str | None
    headers: Mapping[str, str] | None
    allow_operations: Sequence[str]
    allow_private_networks: bool
    every: float | None
    timeout: float


class OpenApiServerOptions(OpenApiOptions, total=False):
    """The options of `Server.from_openapi` except `app`. They are described there."""

    name: str | None
    tools: bool
