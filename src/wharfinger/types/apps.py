"""MCP Apps (extension `io.modelcontextprotocol/ui`): the metadata of views and of tools that use them.

Import this module to use them: the extension is not part of the core protocol, nor of `wharfinger.types`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import JSONObject, WireStruct

__all__ = [
    "EXTENSION",
    "MIME_TYPE",
    "Permission",
    "UiCsp",
    "UiPermissions",
    "UiResourceMeta",
    "UiToolMeta",
    "Visibility",
]

EXTENSION = "io.modelcontextprotocol/ui"
"""The identifier of the extension."""
MIME_TYPE = "text/html;profile=mcp-app"
"""The MIME type of a view."""

Permission = Literal["camera", "microphone", "geolocation", "clipboard_write"]
"""A permission that a view can request from its host."""
Visibility = Literal["model", "app"]
"""Who may call a tool: the model, or the views of the same server."""


class UiCsp(WireStruct, kw_only=True):
    """Origins that a view needs, such as `https://api.example.com` or `https://*.example.com`; by default none.

    `connect_domains` for requests, `resource_domains` for scripts, styles, pictures, fonts and media, `frame_domains`
    for frames, `base_uri_domains` for the document's base.
    """

    connect_domains: list[str] | UnsetType = UNSET
    resource_domains: list[str] | UnsetType = UNSET
    frame_domains: list[str] | UnsetType = UNSET
    base_uri_domains: list[str] | UnsetType = UNSET


class UiPermissions(WireStruct, kw_only=True):
    """The permissions that a view requests; the host may refuse any of them."""

    camera: JSONObject | UnsetType = UNSET
    microphone: JSONObject | UnsetType = UNSET
    geolocation: JSONObject | UnsetType = UNSET
    clipboard_write: JSONObject | UnsetType = UNSET


class UiResourceMeta(WireStruct, kw_only=True):
    """`_meta.ui` of a view; `domain` is a dedicated origin, in the form that its host requires."""

    csp: UiCsp | UnsetType = UNSET
    permissions: UiPermissions | UnsetType = UNSET
    domain: str | UnsetType = UNSET
    prefers_border: bool | UnsetType = UNSET


class UiToolMeta(WireStruct, kw_only=True):
    """`_meta.ui` of a tool: the view that shows its results, and who may call it (by default, both may)."""

    resource_uri: str | UnsetType = UNSET
    visibility: list[Visibility] | UnsetType = UNSET
