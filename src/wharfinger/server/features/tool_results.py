"""Converts the return value of a tool or prompt to content blocks and structured content."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.protocol.downgrade import WRAPPED_KEY
from wharfinger.protocol.request import Request
from wharfinger.server.features.media import Media
from wharfinger.server.owners import owner_of
from wharfinger.server.signature.type_schemas import from_json, json_schema, to_json

if TYPE_CHECKING:
    from wharfinger.protocol.json_schema import CompiledSchema
    from wharfinger.server.services import Services

__all__ = ["BLOCKS", "Output", "block_of", "is_content", "read_media", "to_wire", "wrap_schema"]

BLOCKS = get_args(t.ContentBlock)
_CONTENT = (*BLOCKS, Media)


def is_content(value: Any) -> bool:
    """Return whether a value is a block of content, or a list that holds one."""
    if isinstance(value, _CONTENT):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(item, _CONTENT) for item in cast("list[Any]", value))


async def read_media(services: Services, request: Request, value: Any) -> Any:
    """Replace each `Image`, `Audio` and `File` in a value with a block. Reads files in a thread."""
    if isinstance(value, t.CallToolResult):
        blocks: Sequence[Any] = value.content
        if any(isinstance(item, Media) for item in blocks):
            return msgspec.structs.replace(value, content=await read_media(services, request, blocks))
        return value
    max_bytes = services.limits.content
    if isinstance(value, Media):
        if value.path is None:
            return value.block(max_bytes)
        return await services.pool.run(owner_of(request), value.block, max_bytes)
    if isinstance(value, t.PromptMessage):
        content: Any = value.content
        if not isinstance(content, Media):
            return value
        return msgspec.structs.replace(value, content=await read_media(services, request, content))
    if isinstance(value, (list, tuple)):
        items = cast("list[object]", value)
        if any(isinstance(item, (Media, t.PromptMessage)) for item in items):
            return [await read_media(services, request, item) for item in items]
        return items
    return value


def to_wire(value: Any) -> bytes:
    """Return a value as JSON.

    Raises:
        TypeError, ValueError, RecursionError: it has no JSON form, or a number in it is not finite.
    """
    if hasattr(value, "model_dump_json"):  # pydantic, which is never imported here
        encoded: bytes = value.model_dump_json(by_alias=True).encode()
    else:
        encoded = msgspec.json.encode(value, enc_hook=to_json)
    if b"null" in encoded and _holds_non_finite(value):
        raise ValueError("it holds NaN or an infinite number, which JSON does not have")
    return encoded


def _holds_non_finite(value: Any) -> bool:
    """Return whether a value holds a NaN or an infinity, which encoders write as null."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float):
            if item != item or item in (float("inf"), float("-inf")):
                return True
        elif isinstance(item, Mapping):
            stack.extend(cast("Mapping[str, object]", item).values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack.extend(cast("list[Any]", item))
        elif hasattr(item, "__struct_fields__"):
            stack.extend(getattr(item, name) for name in item.__struct_fields__)
        elif hasattr(item, "__dataclass_fields__"):
            stack.extend(getattr(item, name, None) for name in item.__dataclass_fields__)
        elif hasattr(item, "__attrs_attrs__"):
            stack.extend(getattr(item, field.name, None) for field in item.__attrs_attrs__)
        elif hasattr(item, "model_dump") and item.model_config.get("ser_json_inf_nan", "null") == "null":
            stack.append(item.model_dump())
    return False


class Output:
    """Makes the results of a tool from its return annotation, or from an explicit output schema."""

    __slots__ = ("_annotation", "_class", "_decoder", "_explicit_schema", "_wrapped", "schema")

    schema: dict[str, Any] | None
    """JSON Schema of the structured content; None if the tool declares none."""

    def __init__(self, annotation: Any, explicit_schema: CompiledSchema | None = None) -> None:
        self._explicit_schema = explicit_schema
        self._annotation = annotation
        self._class: type[Any] | None = None
        """The return annotation, if it is a class and gives the schema."""
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._wrapped: dict[str, Any] | None = None
        if explicit_schema is not None:
            self.schema = explicit_schema.schema
            return
        self.schema = None if _is_unstructured(annotation) else _output_schema(annotation)
        if self.schema is not None:
            self._class = annotation if isinstance(annotation, type) else None
            self._decoder = msgspec.json.Decoder(annotation, dec_hook=from_json)

    @property
    def unchecked_type(self) -> type[Any] | None:
        """The return annotation if it is `int`, `bool` or a struct, whose instances need no check; else None."""
        kind = self._class
        return kind if kind is not None and (kind in (int, bool) or issubclass(kind, msgspec.Struct)) else None

    @property
    def wraps(self) -> bool:
        """Whether structured content must be wrapped for revisions that allow only objects."""
        return self.schema is not None and self.schema.get("type") != "object"

    @property
    def wrapped_schema(self) -> dict[str, Any] | None:
        """The schema for revisions that allow only objects."""
        if self.schema is None or not self.wraps:
            return self.schema
        if self._wrapped is None:
            self._wrapped = wrap_schema(self.schema)
        return self._wrapped

    def result(self, value: Any) -> t.CallToolResult:
        """Return the result of `tools/call`.

        Raises:
            TypeError, ValueError, RecursionError: the value cannot be sent as content, or does not match the schema.
        """
        if isinstance(value, t.CallToolResult):
            return self._check_own_result(value)
        if self.schema is None:
            if value is None:
                if not _permits_none(self._annotation):
                    name = _type_name(self._annotation)
                    raise TypeError(f"None, and its return annotation is {name}: is a return missing?")
                return t.CallToolResult(content=[])
            if self._annotation is str and not isinstance(value, (str, bytes, bytearray)) and not is_content(value):
                raise TypeError(f"{type(value).__name__}, and its return annotation is str")
            if isinstance(value, (str, bytes, bytearray)) or is_content(value):
                items = cast("list[object]", value if isinstance(value, (list, tuple)) else [value])
                return t.CallToolResult(content=[block_of(item) for item in items])
        encoded = to_wire(value)
        self._check(value, encoded)
        text = t.TextContent(text=encoded.decode())
        return t.CallToolResult(content=[text], structured_content=Raw(encoded))

    def _check(self, value: Any, encoded: bytes) -> None:
        if self._explicit_schema is not None:
            faults = self._explicit_schema.faults(msgspec.json.decode(encoded), "result")
            if faults:
                raise TypeError(f"it does not match its output_schema: {'; '.join(faults)}")
        elif self._decoder is not None and (self._class is None or type(value) is not self._class):
            try:
                self._decoder.decode(encoded)
            except msgspec.ValidationError as error:
                message = f"it is not what its return annotation ({_type_name(self._annotation)}) says: {error}"
                raise TypeError(message + (" (is a return missing?)" if value is None else "")) from None

    def _check_own_result(self, result: t.CallToolResult) -> t.CallToolResult:
        """Check a result that the author made, also against an explicit output schema."""
        content: Any = result.content
        if not isinstance(content, (list, tuple)):
            raise TypeError("a CallToolResult whose content is not a list of blocks, such as types.TextContent(text=…)")
        for block in cast("list[Any]", content):
            if not isinstance(block, BLOCKS):
                name = type(block).__name__
                raise TypeError(f"a CallToolResult with {name} in its content: write types.TextContent(text=…)")
        structured = result.structured_content
        encoded = b"" if structured is UNSET or isinstance(structured, Raw) else to_wire(structured)
        if self._explicit_schema is not None and result.is_error is not True:
            if structured is UNSET:
                raise TypeError("a CallToolResult without structured_content, which its output_schema promises")
            self._check(structured, encoded or bytes(structured))
        return result


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _permits_none(annotation: Any) -> bool:
    """Return whether a function with this return annotation may return None."""
    if isinstance(annotation, str) or annotation in _PERMITTING_NONE:
        return True
    return get_origin(annotation) in (Union, UnionType) and any(map(_permits_none, get_args(annotation)))


_PERMITTING_NONE = (inspect.Signature.empty, Any, None, type(None), object, t.CallToolResult)


def wrap_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `{"result": …}` around what `schema` describes; its references are adjusted."""
    root = {name: schema[name] for name in ("$schema", "$defs", "definitions") if name in schema}
    inner = {name: value for name, value in schema.items() if name not in root}
    if "$id" in schema:  # its references are relative to its own root
        root, inner = {}, schema
    else:
        root, inner = _redirect(root), _redirect(inner)
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], WRAPPED_KEY: True} | root


def _redirect(part: Any) -> Any:
    """Redirect references into `result`, except those to definitions, which stay at the root."""
    if isinstance(part, list):
        return [_redirect(item) for item in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    redirected: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", part).items():
        if name == "$ref" and (value == "#" or str(value).startswith("#/")) and not str(value).startswith(_DEFINITIONS):
            redirected[name] = f"#/properties/result{value[1:]}"
        else:
            redirected[name] = value if name in _VALUE_KEYWORDS else _redirect(value)
    return redirected


_DEFINITIONS = ("#/$defs/", "#/definitions/")
_VALUE_KEYWORDS = ("const", "default", "enum", "examples")
"""Keywords that hold values, not schemas."""


_UNSTRUCTURED = (
    inspect.Signature.empty, Any, None, type(None), object, str, bytes, bytearray, list, tuple, t.CallToolResult,
)  # fmt: skip


def _is_unstructured(annotation: Any) -> bool:
    """Return whether an annotation gives no output schema.

    This is so if there is no annotation, if it allows anything, or if it allows only text, bytes, blocks and lists that
    may have blocks.
    """
    if isinstance(annotation, str) or annotation in _UNSTRUCTURED:  # a string is a name that only type checkers know
        return True
    origin, arms = get_origin(annotation), get_args(annotation)
    if origin is None:
        return isinstance(annotation, type) and issubclass(annotation, _CONTENT)
    if origin in (Union, UnionType):
        return all(map(_is_unstructured, arms))
    if origin in (list, tuple, Sequence):
        return Any in arms or any(_holds_blocks(arm) for arm in arms)  # anything may be blocks
    return False


def _holds_blocks(annotation: Any) -> bool:
    return any(isinstance(arm, type) and issubclass(arm, _CONTENT) for arm in get_args(annotation) or (annotation,))


def _output_schema(annotation: Any) -> dict[str, Any] | None:
    try:
        msgspec.json.Decoder(annotation, dec_hook=from_json)
        (schema,), shared = json_schema(annotation, mode="serialization")
    except (TypeError, NotImplementedError):
        return None
    reference = schema.get("$ref", "")
    if reference.startswith("#/$defs/"):
        name = reference.removeprefix("#/$defs/")
        schema = dict(shared[name])
        if f'"{reference}"'.encode() not in msgspec.json.encode([schema, shared]):
            del shared[name]
    if shared:
        schema["$defs"] = shared
    return schema


def block_of(value: Any) -> Any:
    """Make a block of content.

    Blocks stay as they are, strings become text, and bytes become a block of their detected type. Other values become
    text in JSON.

    Raises:
        TypeError: the bytes are not an image, audio or text, or the value has no JSON form.
    """
    if isinstance(value, str):
        return t.TextContent(text=value)
    if isinstance(value, BLOCKS):
        return value
    if not isinstance(value, (bytes, bytearray)):
        return t.TextContent(text=to_wire(value).decode())
    from wharfinger.content.mime import sniff

    data = bytes(value)
    mime_type = sniff(data)
    if mime_type.startswith("image/"):
        return t.ImageContent(data=data, mime_type=mime_type)
    if mime_type.startswith("audio/"):
        return t.AudioContent(data=data, mime_type=mime_type)
    try:
        return t.TextContent(text=data.decode())
    except UnicodeDecodeError:
        raise TypeError("bytes that are not an image, audio or text: return a File, which states their type") from None
