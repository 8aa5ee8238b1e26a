"""The public names, each loaded on first use: `import wharfinger` alone loads almost nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from wharfinger.version import __version__

if TYPE_CHECKING:
    from wharfinger import types
    from wharfinger.client import Client
    from wharfinger.errors import Cancelled, Declined, InvalidArgument, PermissionDenied, ResourceNotFound, ToolError
    from wharfinger.host import Host
    from wharfinger.server import Complete, Context, Depends, Server
    from wharfinger.server.features.media import Audio, File, Image
    from wharfinger.server.input.input_requests import Elicit, ElicitUrl, Roots, Sample
    from wharfinger.server.signature.header_params import Header


__all__ = [
    "Audio",
    "Cancelled",
    "Client",
    "Complete",
    "Context",
    "Declined",
    "Depends",
    "Elicit",
    "ElicitUrl",
    "File",
    "Header",
    "Host",
    "Image",
    "InvalidArgument",
    "PermissionDenied",
    "ResourceNotFound",
    "Roots",
    "Sample",
    "Server",
    "ToolError",
    "__version__",
    "types",
]

_MODULES = {
    "Audio": "wharfinger.server.features.media",
    "Cancelled": "wharfinger.errors",
    "Client": "wharfinger.client",
    "Complete": "wharfinger.server",
    "Context": "wharfinger.server",
    "Declined": "wharfinger.errors",
    "Depends": "wharfinger.server",
    "Elicit": "wharfinger.server.input.input_requests",
    "ElicitUrl": "wharfinger.server.input.input_requests",
    "File": "wharfinger.server.features.media",
    "Header": "wharfinger.server.signature.header_params",
    "Host": "wharfinger.host",
    "Image": "wharfinger.server.features.media",
    "InvalidArgument": "wharfinger.errors",
    "PermissionDenied": "wharfinger.errors",
    "ResourceNotFound": "wharfinger.errors",
    "Roots": "wharfinger.server.input.input_requests",
    "Sample": "wharfinger.server.input.input_requests",
    "Server": "wharfinger.server",
    "ToolError": "wharfinger.errors",
}


def __getattr__(name: str) -> object:
    if name == "types":
        return import_module("wharfinger.types")
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'wharfinger' has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
