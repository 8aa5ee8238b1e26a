"""The public names, each loaded on first use: `import wharfinger` alone costs next to nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from wharfinger.version import __version__

if TYPE_CHECKING:
    from wharfinger import types
    from wharfinger.client import Client
    from wharfinger.errors import Cancelled, Declined, InvalidArgument, PermissionDenied, ResourceNotFound, ToolError
    from wharfinger.server import Complete, Context, Depends, Server
    from wharfinger.server.arguments.headers import Header
    from wharfinger.server.asking.questions import Elicit, ElicitUrl, Roots, Sample
    from wharfinger.server.media import Audio, File, Image


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

_HOMES = {
    "Audio": "wharfinger.server.media",
    "Cancelled": "wharfinger.errors",
    "Client": "wharfinger.client",
    "Complete": "wharfinger.server",
    "Context": "wharfinger.server",
    "Declined": "wharfinger.errors",
    "Depends": "wharfinger.server",
    "Elicit": "wharfinger.server.asking.questions",
    "ElicitUrl": "wharfinger.server.asking.questions",
    "File": "wharfinger.server.media",
    "Header": "wharfinger.server.arguments.headers",
    "Image": "wharfinger.server.media",
    "InvalidArgument": "wharfinger.errors",
    "PermissionDenied": "wharfinger.errors",
    "ResourceNotFound": "wharfinger.errors",
    "Roots": "wharfinger.server.asking.questions",
    "Sample": "wharfinger.server.asking.questions",
    "Server": "wharfinger.server",
    "ToolError": "wharfinger.errors",
}


def __getattr__(name: str) -> object:
    if name == "types":
        return import_module("wharfinger.types")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wharfinger' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
