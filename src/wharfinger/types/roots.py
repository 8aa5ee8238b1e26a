"""Roots: the folders in which a client's user works. They are information, not a permission."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from .base import Meta, Result, WireStruct

__all__ = ["ListRootsResult", "Root"]


class Root(WireStruct, kw_only=True):
    """A folder or file with a `file:` URI."""

    uri: str
    name: str | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ListRootsResult(Result, kw_only=True):
    """Result of `roots/list`."""

    roots: list[Root]
