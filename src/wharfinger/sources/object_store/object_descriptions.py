"""Makes the resources of objects and directories."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import shown
from wharfinger.source import VERSION
from wharfinger.sources.directories import modified_annotations
from wharfinger.sources.object_store.object_store_contract import ObjectInfo

__all__ = ["resource_of"]


def resource_of(info: ObjectInfo, uri: str, top: str) -> t.Resource:
    """Return an object or directory as a resource. Its type is guessed from its name; `top` names the top directory."""
    path = shown(info.key.rstrip("/")) or top
    name = path.rpartition("/")[2]
    meta: dict[str, object] | UnsetType = {VERSION: info.version} if info.version else UNSET
    return t.Resource(
        uri=uri,
        name=name,
        title=path,
        mime_type=mime.DIRECTORY if info.is_directory else mime.by_name(name) or UNSET,
        size=UNSET if info.is_directory or info.size is None else info.size,
        annotations=modified_annotations(info.modified),
        meta=meta,
    )
