"""Content blocks of messages and tool results, with `type` as their tag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Annotations, JSONObject, JSONValue, Meta, WireStruct
from .resources import Resource, ResourceContents

__all__ = [
    "AudioContent",
    "Content",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceLink",
    "SamplingContent",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
    "decode_content",
]


class TextContent(WireStruct, kw_only=True, tag_field="type", tag="text"):
    """Text, to or from a model."""

    text: str
    annotations: Annotations | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ImageContent(WireStruct, kw_only=True, tag_field="type", tag="image"):
    """An image; `data` holds its bytes, and is base64 on the wire only."""

    data: bytes
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class AudioContent(WireStruct, kw_only=True, tag_field="type", tag="audio"):
    """Sound; `data` holds its bytes, and is base64 on the wire only."""

    data: bytes
    mime_type: str
    annotations: Annotations | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ResourceLink(Resource, kw_only=True, tag_field="type", tag="resource_link"):
    """A resource that can be read from the same server; it need not be listed."""


class EmbeddedResource(WireStruct, kw_only=True, tag_field="type", tag="resource"):
    """The contents of a resource, embedded instead of linked."""

    resource: ResourceContents
    annotations: Annotations | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


ContentBlock = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
"""A content block of a prompt's message or a tool's result."""


class UnknownContent(dict[str, Any]):
    """A block of an unknown `type`: the JSON object, unchanged."""

    @property
    def type(self) -> str:
        """The block's type, or an empty string if it is not a string."""
        kind = self.get("type")
        return kind if isinstance(kind, str) else ""


# msgspec cannot decode a field as "one of these, else a dict", so `decode_content` adds the unknown blocks. Only type
# checkers see that they can occur.
if TYPE_CHECKING:
    Content = ContentBlock | UnknownContent
    """A block that a client can receive."""
else:
    Content = ContentBlock


class ToolUseContent(WireStruct, kw_only=True, tag_field="type", tag="tool_use"):
    """The model calls a tool (sampling, since 2025-11-25)."""

    id: str
    name: str
    input: JSONObject
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


class ToolResultContent(WireStruct, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of the model's tool call (sampling, since 2025-11-25)."""

    tool_use_id: str
    content: Sequence[Content]
    structured_content: JSONValue = UNSET
    is_error: bool | UnsetType = UNSET
    meta: Meta | UnsetType = field(default=UNSET, name="_meta")


SamplingContent = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent
"""A content block of a sampling message (`SamplingMessageContentBlock` in the schema)."""


class _Tag(Struct, gc=False):
    type: str


_KNOWN = frozenset(("text", "image", "audio", "resource_link", "resource"))


def decode_content(raw: Raw | bytes) -> ContentBlock | UnknownContent:
    """Read one block of any type.

    Raises:
        msgspec.ValidationError: it is not an object with a `type`, or is an invalid block of a known type.
    """
    if msgspec.json.decode(raw, type=_Tag).type in _KNOWN:
        block: ContentBlock = msgspec.json.decode(raw, type=ContentBlock)
        return block
    return UnknownContent(msgspec.json.decode(raw))


T = TypeVar("T")


def split_content(raw: Raw | bytes, type: type[T], member: str) -> tuple[T, list[Raw]]:
    """Decode an object without the items of its list `member`. Returns the object and the raw items.

    Use it if strict decoding failed, perhaps because of an unknown block.

    Raises:
        msgspec.ValidationError: `member` is not a list, or the rest of the object does not match the type.
    """
    members = msgspec.json.decode(raw, type=dict[str, Raw])
    items = msgspec.json.decode(members.get(member, b"null"), type=list[Raw])
    members[member] = Raw(b"[]")
    return msgspec.json.decode(msgspec.json.encode(members), type=type), items
