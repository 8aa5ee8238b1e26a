"""The results of a client's calls: lists in pages, contents of resources, results of tools."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.errors import InvalidResponse, RemoteInvalidParams
from wharfinger.protocol.methods import Method
from wharfinger.protocol.request import open_result
from wharfinger.types.task_extension import TaskStarted

__all__ = [
    "MULTI_ROUND_METHODS",
    "Listing",
    "ReadResult",
    "ToolResult",
    "convert",
    "data_of",
    "decode_result",
    "text_of",
]

T = TypeVar("T")
U = TypeVar("U")

Page = tuple[Sequence[T], str | UnsetType]
"""The items of a page, and the cursor of the next one; UNSET after the last."""

MULTI_ROUND_METHODS = frozenset(("tools/call", "prompts/get", "resources/read"))
"""Methods whose result may ask for input (2026-07-28, multi round-trip requests)."""
TASK_METHODS = frozenset(("tools/call",))
"""Methods whose result may be a task."""


class _Kind(msgspec.Struct, gc=False):
    kind: str | UnsetType = msgspec.field(name="resultType", default=UNSET)


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode_questions = msgspec.json.Decoder(t.InputRequiredResult).decode
_decode_started = msgspec.json.Decoder(TaskStarted).decode

_LENIENT_DECODERS: dict[str, Callable[[Raw], Any]] = {
    "tools/call": t.decode_call_tool_result,
    "prompts/get": t.decode_get_prompt_result,
}
"""By method, a decoder for results that strict decoding refuses: it accepts content blocks of unknown types."""


def decode_result(row: Method, raw: Raw, *, stateless: bool = False, tasks: bool = False) -> Any:
    """Decode the result of a method.

    If the revision is `stateless`, the result may also be an InputRequiredResult or, if the client supports `tasks`, a
    TaskStarted.

    Raises:
        InvalidResponse: the result is invalid, or its `resultType` is unknown.
    """
    try:
        return open_result(row, raw)
    except InvalidResponse as error:
        failure = error
    try:
        kind = _decode_kind(raw).kind
    except msgspec.MsgspecError:
        kind = UNSET
    complete = kind in (UNSET, "complete")
    try:
        if stateless and kind == "input_required" and row.name in MULTI_ROUND_METHODS:
            questions = _decode_questions(raw)
            if not questions.input_requests and questions.request_state is UNSET:
                raise InvalidResponse("The server requires input, but sends neither a question nor a state to return.")
            return questions
        if stateless and tasks and kind == "task" and row.name in TASK_METHODS:
            return _decode_started(raw)
        decode = _LENIENT_DECODERS.get(row.name)
        if decode is not None and complete:
            return decode(raw)
    except msgspec.MsgspecError as error:
        if complete:
            raise failure from None
        raise InvalidResponse(f"The server's answer to {row.name} is not a valid {kind!r} result: {error}") from None
    if not complete:
        raise InvalidResponse(f"The server's answer to {row.name} has a resultType that is not expected: {kind!r}.")
    raise failure


class Listing(Generic[T]):
    """A list that comes in pages: `await` it for all items, or iterate over them with `async for`.

    Nothing is requested before that. An iteration requests a page only when it has yielded all items of the previous
    one.
    """

    __slots__ = ("_max_pages", "_page")

    def __init__(self, page: Callable[[str | UnsetType], Awaitable[Page[T]]], max_pages: int) -> None:
        self._page = page
        self._max_pages = max_pages

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._collect().__await__()

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for item in page:
                yield item

    async def pages(self) -> AsyncIterator[Sequence[T]]:
        """Yield each page as it comes.

        Raises:
            InvalidResponse: the list does not end: a cursor comes twice, or there are more pages than allowed.
        """
        cursor: str | UnsetType = UNSET
        seen: set[int] = set()  # the hashes of cursors, since a cursor may be long
        for _ in range(self._max_pages):
            items, following = await self._page(cursor)
            yield items
            if following is UNSET:
                return
            if hash(following) in seen:
                raise InvalidResponse("The server's list never ends: it returns to an earlier page.")
            seen.add(hash(following))
            cursor = following
        raise InvalidResponse(f"The server's list has more than {self._max_pages} pages; set a larger max_pages.")

    async def page(self, cursor: str | UnsetType = UNSET) -> Page[T]:
        """Request one page. Returns it with the cursor of the next one, which is UNSET after the last."""
        return await self._page(cursor)

    async def _collect(self) -> list[T]:
        items: list[T] = []
        try:
            async for page in self.pages():
                items += page
        except RemoteInvalidParams:
            if not items:
                raise
            # The cursor is outdated: the list has changed, or the page before came from the cache.
            return [item async for item in self]
        return items


SUMMARY = "wharfinger/summary"
"""The member of `_meta` with which Wharfinger's servers mark a content that only describes the other contents, for
example by naming the part that comes next."""


class ReadResult(msgspec.Struct, eq=False):
    """The contents of a resource. Most have one; a directory, for example, may have several."""

    uri: str
    """The URI that was read."""
    result: t.ReadResourceResult
    """The whole result, including its caching hints."""

    def __repr__(self) -> str:
        return f"<ReadResult {self.uri!r}: {len(self.contents)} contents>"

    @property
    def contents(self) -> list[t.ResourceContents]:
        """All contents, as the server sent them."""
        return self.result.contents

    @property
    def mime_type(self) -> str | None:
        """The content's MIME type; None if the server does not give it.

        Raises:
            ValueError: there are several contents, or none.
        """
        kind = self._only_content().mime_type
        return None if isinstance(kind, UnsetType) else kind

    @property
    def text(self) -> str:
        """The content as text; bytes are decoded as UTF-8.

        Raises:
            ValueError: there are several contents, or none, or it is not text.
        """
        content = self._only_content()
        if isinstance(content.text, str):
            return content.text
        try:
            return str(self.bytes, "utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{self.uri} is not text in UTF-8: use .bytes") from None

    @property
    def bytes(self) -> builtins.bytes:
        """The content as bytes; text is encoded as UTF-8.

        Raises:
            ValueError: there are several contents, or none.
        """
        content = self._only_content()
        if isinstance(content.blob, builtins.bytes):
            return content.blob
        return content.text.encode() if isinstance(content.text, str) else b""

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[U]) -> U: ...
    def json(self, type: Any = Any) -> Any:
        """Return the content decoded from JSON, and converted to `type` if it is given.

        Raises:
            ValueError: there are several contents, or none, or it is not JSON of that type.
        """
        content = self._only_content()
        data = content.text if isinstance(content.text, str) else self.bytes
        try:
            if hasattr(type, "model_validate"):
                return type.model_validate(msgspec.json.decode(data))
            return msgspec.json.decode(data, type=type)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"{self.uri} is not the JSON that was asked for: {error}") from None

    def _only_content(self) -> t.ResourceContents:
        contents = self.result.contents
        if len(contents) != 1:
            contents = [content for content in contents if content.meta is UNSET or not content.meta.get(SUMMARY)]
        if len(contents) != 1:
            raise ValueError(f"{self.uri} has {len(contents)} contents: use .contents")
        return contents[0]


class ToolResult(msgspec.Struct, Generic[T], eq=False):
    """The result of a tool: `data` is typed, `content` is what a model reads."""

    data: T
    """The result as the requested type. If no type was requested, the structured content, or else the text.

    In older revisions, servers wrap a value that is not an object as `{"result": value}`; `data` is the value.
    """
    result: t.CallToolResult
    """The whole result."""

    def __repr__(self) -> str:
        return f"<ToolResult {self.data!r}>"

    @property
    def content(self) -> Sequence[t.Content]:
        """All content blocks."""
        return self.result.content

    @property
    def text(self) -> str:
        """The text blocks, joined with line breaks."""
        return text_of(self.result)

    @property
    def structured(self) -> Any:
        """The structured content as JSON values; UNSET if there is none, since null is a value."""
        return self.result.structured_content


def text_of(result: t.CallToolResult) -> str:
    """Return the text blocks, joined with line breaks."""
    content = result.content
    if len(content) == 1 and type(content[0]) is t.TextContent:  # as nearly always: 0.07 µs instead of 0.27
        return content[0].text
    return "\n".join(block.text for block in content if isinstance(block, t.TextContent))


def data_of(result: t.CallToolResult, kind: Any) -> Any:
    """Return the data of a tool's result as the type `kind`; UNSET accepts any.

    Raises:
        InvalidResponse: it is not of that type.
    """
    structured = _structured_value(result)
    if kind is UNSET:
        return text_of(result) if structured is UNSET else structured
    try:
        if structured is not UNSET:
            return _convert_structured(structured, result.structured_content, kind)
        text = text_of(result)
        return text if kind is str else convert(msgspec.json.decode(text), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        name = kind.__name__ if isinstance(kind, type) else str(kind)
        raise InvalidResponse(f"The tool's result is not of type {name}: {error}") from None


def _structured_value(result: t.CallToolResult) -> Any:
    """Return the structured content, or the value in `{"result": value}` if the server only wrapped it.

    It is wrapped if FastMCP's mark says so, or if the text is the value: the text of a real object is the whole object.
    """
    structured = result.structured_content
    if not isinstance(structured, dict):
        return structured
    members = cast("dict[str, Any]", structured)
    if len(members) != 1 or "result" not in members:
        return members
    value = members["result"]
    mark: Any = None if result.meta is UNSET else result.meta.get("fastmcp")
    if isinstance(mark, dict) and cast("dict[str, Any]", mark).get("wrap_result") is True:
        return value
    text = text_of(result)
    if isinstance(value, str) and text == value:
        return value
    try:
        return value if msgspec.json.decode(text) == value else members
    except (msgspec.MsgspecError, RecursionError):
        return members


def _convert_structured(structured: Any, original: Any, kind: Any) -> Any:
    """Convert the structured value or, if that is not possible, the whole structured content (`original`).

    `_structured_value` mistakes a real object `{"result": value}` for a wrapped value if its text is the value.
    """
    try:
        return _convert_value(structured, kind)
    except (msgspec.MsgspecError, ValueError):
        if structured is not original:
            with suppress(msgspec.MsgspecError, ValueError):
                return convert(original, kind)
        raise


def _convert_value(structured: Any, kind: Any) -> Any:
    """Convert the value or, if that fails, its member `result`: servers of older revisions wrap all but objects."""
    try:
        return convert(structured, kind)
    except (msgspec.MsgspecError, ValueError):
        if not isinstance(structured, dict) or structured.keys() != {"result"}:
            raise
        return convert(structured["result"], kind)


def convert(value: Any, kind: Any) -> Any:
    """Convert JSON values to `kind`: a struct, dataclass, TypedDict, plain type, or a pydantic model.

    Raises:
        ValueError: the values are not of that type.
    """
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    return msgspec.convert(value, kind)
