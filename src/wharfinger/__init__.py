"""The public names, each loaded on first use: `import wharfinger` alone costs next to nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from wharfinger.version import __version__

if TYPE_CHECKING:
    from wharfinger import types
    from wharfinger.client import Client
    from wharfinger.errors import InvalidArgument, PermissionDenied, ResourceNotFound, ToolError
    from wharfinger.server import Complete, Context, Server


__all__ = [
    "Client",
    "Complete",
    "Context",
    "InvalidArgument",
    "PermissionDenied",
    "ResourceNotFound",
    "Server",
    "ToolError",
    "__version__",
    "types",
]

_HOMES = {
    "Client": "wharfinger.client",
    "Complete": "wharfinger.server",
    "Context": "wharfinger.server",
    "InvalidArgument": "wharfinger.errors",
    "PermissionDenied": "wharfinger.errors",
    "ResourceNotFound": "wharfinger.errors",
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
