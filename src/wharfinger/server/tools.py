"""Tools: functions that a model can call, from their arguments to what is told of their results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.errors import InvalidArgument, InvalidParams, PermissionDenied, ResourceNotFound, ToolError
from wharfinger.protocol.exchange import Request
from wharfinger.server.features import Features
from wharfinger.server.functions import Call
from wharfinger.server.lists import Listing
from wharfinger.server.signature import BadArguments, Signature, json_schema, printable, summary_of

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["Tool", "Tools", "feature_name", "is_content"]

BLOCKS = get_args(t.ContentBlock)
_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_TOLD = (ToolError, InvalidArgument, PermissionDenied, ResourceNotFound)
"""What an author raises on purpose: a result with `isError`, so that a model can do better (2025-11-25, tools)."""


class Tool:
    """A registered tool: what lists show, and how it is called.

    Raises:
        TypeError: the function's parameters cannot be filled from JSON.
        ValueError: the name is none (1 to 128 letters, digits, "_", "-", "." and "/").
    """

    __slots__ = ("_call", "_output", "definition", "full_definition", "name", "signature")

    definition: t.Tool
    """Valid in every revision: its output schema is an object's, or absent."""
    full_definition: t.Tool
    """With an output schema of any kind, for revisions whose rules say `any_structured_content`."""

    def __init__(
        self,
        server: Server,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: t.ToolAnnotations | None = None,
        icons: Sequence[t.Icon] | None = None,
        meta: dict[str, Any] | None = None,
        inline: bool = False,
        timeout: float | None = None,
    ) -> None:
        self.signature = Signature(function)
        self.name = feature_name(function, name)
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name for a tool: pass name= with letters, digits, '_', '-' and '.'.")
        self._call = Call(server, function, variables=tuple(self.signature.parameters), inline=inline, timeout=timeout)
        self._output = _Output(self.signature.returns)
        schema = self._output.schema
        self.full_definition = t.Tool(
            name=self.name,
            title=UNSET if title is None else title,
            description=description or summary_of(function) or UNSET,
            input_schema=self.signature.schema,
            output_schema=UNSET if schema is None else schema,
            annotations=UNSET if annotations is None else annotations,
            icons=UNSET if icons is None else list(icons),
            meta=UNSET if meta is None else meta,
        )
        self.definition = self.full_definition
        if schema is not None and schema.get("type") != "object":
            self.definition = msgspec.structs.replace(self.full_definition, output_schema=UNSET)

    async def call(self, request: Request) -> t.CallToolResult:
        """Call the function with the arguments of `tools/call`.

        Arguments that do not fit, and the errors that authors raise, are results with `isError`; any other exception
        is left to the transport.
        """
        try:
            arguments = self.signature.decode(request.params.arguments)
        except BadArguments as error:
            return _failed("Invalid arguments:\n" + str(error))
        try:
            value = await self._call.invoke(request, arguments)
        except _TOLD as error:
            if isinstance(error, (PermissionDenied, ResourceNotFound, InvalidArgument)) and error.remote:
                raise
            return _failed(str(error))
        return self._output.result(value, request.caller.rules.any_structured_content)


class Tools:
    """Everything of one server that can be called."""

    def __init__(self, server: Server, size: int) -> None:
        self._server = server
        self.features: Features[Tool] = Features("tool", lambda: server.list_changed("tools"))
        self.listing = Listing("tools", self.features, server.keys, size, _tools_result)

    def add(self, function: Callable[..., Any], *, fallback: bool = False, **options: Any) -> Tool:
        """Add a tool; `options` are those of `Tool`. A fallback gives way to another tool of the same name.

        Raises:
            TypeError: the function's parameters cannot be filled from JSON.
            ValueError: the name is taken, or is none.
        """
        tool = Tool(self._server, function, **options)
        self.features.add(tool.name, tool, fallback=fallback)
        return tool

    def remove(self, name: str) -> None:
        """Remove a tool.

        Raises:
            KeyError: there is none of this name.
        """
        self.features.remove(name)

    async def call(self, request: Request) -> t.CallToolResult:
        """The handler of `tools/call`.

        Raises:
            InvalidParams: there is no such tool.
        """
        tool = self.features.by_key.get(request.params.name)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {printable(request.params.name)}")
        return await tool.call(request)


def feature_name(function: Callable[..., Any], name: str | None) -> str:
    """The name given, else the function's."""
    return name if name is not None else str(getattr(function, "__name__", type(function).__name__))


def _tools_result(shown: list[Any], next_cursor: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=shown, next_cursor=next_cursor)


def _failed(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)], is_error=True)


def is_content(value: Any) -> bool:
    """Whether a value is a block of content, or a list of blocks (and texts between them)."""
    if isinstance(value, BLOCKS):
        return True
    return (
        isinstance(value, (list, tuple))
        and any(isinstance(item, BLOCKS) for item in value)  # pyright: ignore[reportUnknownVariableType]
        and all(isinstance(item, (*BLOCKS, str)) for item in value)  # pyright: ignore[reportUnknownVariableType]
    )


class _Output:
    """What becomes of a result, as far as the return annotation decides it."""

    __slots__ = ("_checked", "_exact", "schema")

    schema: dict[str, Any] | None
    """JSON Schema of structured content; None where the annotation promises none."""

    def __init__(self, annotation: Any) -> None:
        self.schema = None if _is_unstructured(annotation) else _output_schema(annotation)
        kind: Any = annotation
        self._exact: Any = kind if isinstance(kind, type) else None
        self._checked: msgspec.json.Decoder[Any] | None = None if self.schema is None else msgspec.json.Decoder(kind)

    def result(self, value: Any, any_structured: bool) -> t.CallToolResult:
        """The result of `tools/call`; structured content that is no object is left out unless `any_structured`.

        Raises:
            TypeError, ValueError: the value has no form as content, or is not what the annotation promises.
        """
        if isinstance(value, t.CallToolResult):
            return value
        if self.schema is None:
            if value is None:
                return t.CallToolResult(content=[])
            if isinstance(value, (str, bytes, bytearray, *BLOCKS)) or is_content(value):
                items: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]  # pyright: ignore[reportUnknownArgumentType]
                return t.CallToolResult(content=[_block(item) for item in items])
        encoded = _encode(value)
        if self._checked is not None and (self._exact is None or type(value) is not self._exact):
            try:
                self._checked.decode(encoded)
            except msgspec.ValidationError as error:
                raise TypeError(f"the tool's result is not what its return annotation says: {error}") from None
        structured = any_structured or encoded[:1] == b"{"
        text = t.TextContent(text=encoded.decode())
        return t.CallToolResult(content=[text], structured_content=Raw(encoded) if structured else UNSET)


_UNSTRUCTURED = (inspect.Signature.empty, Any, None, type(None), str, bytes, bytearray, t.CallToolResult)


def _is_unstructured(annotation: Any) -> bool:
    """Whether an annotation promises nothing, or only text, bytes and blocks of content."""
    if isinstance(annotation, str) or annotation in _UNSTRUCTURED:  # text: a name that only type checkers know
        return True
    origin, arms = get_origin(annotation), get_args(annotation)
    if origin is None:
        return isinstance(annotation, type) and issubclass(annotation, BLOCKS)
    if origin in (Union, UnionType):
        return all(map(_is_unstructured, arms))
    if origin in (list, tuple, Sequence):
        return any(_holds_blocks(arm) for arm in arms)
    return False


def _holds_blocks(annotation: Any) -> bool:
    return any(isinstance(arm, type) and issubclass(arm, BLOCKS) for arm in get_args(annotation) or (annotation,))


def _output_schema(annotation: Any) -> dict[str, Any] | None:
    try:
        msgspec.json.Decoder(annotation)
        (schema,), shared = json_schema(annotation)
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


def _encode(value: Any) -> bytes:
    if hasattr(value, "model_dump_json"):  # pydantic, which is never imported here
        return str(value.model_dump_json()).encode()
    return msgspec.json.encode(value)


def _block(value: Any) -> Any:
    if isinstance(value, str):
        return t.TextContent(text=value)
    if isinstance(value, BLOCKS):
        return value
    from wharfinger.server.mime import sniff

    data = bytes(value)
    mime_type = sniff(data)
    if mime_type.startswith("image/"):
        return t.ImageContent(data=data, mime_type=mime_type)
    if mime_type.startswith("audio/"):
        return t.AudioContent(data=data, mime_type=mime_type)
    try:
        return t.TextContent(text=data.decode())
    except UnicodeDecodeError:
        raise TypeError(
            "a tool returned bytes that are no image, no sound and no text: return an EmbeddedResource"
        ) from None
