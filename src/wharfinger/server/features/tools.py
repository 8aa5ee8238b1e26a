"""Tools: functions that a model can call. Decodes their arguments and encodes their results."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger import types as t
from wharfinger.content.text import printable
from wharfinger.errors import (
    InvalidArgument,
    InvalidParams,
    PermissionDenied,
    ResourceNotFound,
    ToolError,
    URLElicitationRequired,
)
from wharfinger.policy.current import is_restricted
from wharfinger.protocol.http.headers import HeaderParam
from wharfinger.protocol.request import Request
from wharfinger.server.features.feature_registration import (
    check_options,
    check_scopes,
    feature_name,
    refuse_generator,
    unwrap,
)
from wharfinger.server.features.feature_set import Features
from wharfinger.server.features.handler_function import HandlerFunction
from wharfinger.server.features.listing import PagedList
from wharfinger.server.features.result_errors import UNAWAITED, check_texts, unusable_result
from wharfinger.server.features.tool_results import Output, read_media
from wharfinger.server.signature.arguments import BadArguments, Signature
from wharfinger.server.signature.header_params import header_params_of
from wharfinger.types.base import or_unset

if TYPE_CHECKING:
    from typing import Unpack

    from wharfinger.protocol.interfaces import Handler
    from wharfinger.server.services import Services
    from wharfinger.server.signature.explicit_schema import SchemaSignature
    from wharfinger.server.tasks.task_extension import Tasks

__all__ = ["TaskKind", "ToolFeature", "ToolOptions", "Tools", "check_task_ttl", "report_tool_errors", "unknown_tool"]

MAX_TASK_TTL_SECONDS = 1e9
"""The largest `task_ttl`, about 30 years."""

_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
_ERRORS_FOR_THE_MODEL = (ToolError, InvalidArgument, PermissionDenied, ResourceNotFound)
"""Errors that authors raise for the model; they are sent as a result with `isError` (2025-11-25, tools)."""
_RESULT_ERRORS = (TypeError, ValueError, OSError, RecursionError)
_DECODE_ERRORS = (msgspec.MsgspecError, TypeError, RecursionError)

TaskKind = Literal[False, True, "required", "later"]

asdict = msgspec.structs.asdict
encode = msgspec.json.encode


class ToolOptions(TypedDict, total=False):
    """Options for registering a tool."""

    name: str | None
    """Its name for clients; by default the function's name."""
    title: str | None
    description: str | None
    """Its description for models; by default the function's docstring before its first section."""
    annotations: t.ToolAnnotations | Mapping[str, Any] | None
    """Hints for hosts: a struct, or a mapping with the protocol's names. The next four options set one hint each."""
    read_only: bool | None
    destructive: bool | None
    idempotent: bool | None
    open_world: bool | None
    icons: Sequence[t.Icon] | None
    meta: dict[str, Any] | None
    """`_meta` of the definition."""
    input_schema: Mapping[str, Any] | None
    """A JSON Schema of the arguments, instead of the one made from the parameters."""
    output_schema: Mapping[str, Any] | None
    """A JSON Schema of the result, instead of the one made from the return annotation."""
    decode_json_strings: bool | None
    """Whether arrays and objects may also be strings that contain their JSON; by default the server's option."""
    inline: bool
    """Whether a plain function runs on the event loop instead of in a thread, because it never blocks."""
    timeout: float | None
    """Seconds that a call may take."""
    task: TaskKind
    """Whether calls become tasks for clients that support tasks. True: at once; other clients wait for the result.
    `"required"`: other clients are refused. `"later"`: when the function calls `await ctx.start_task()`."""
    task_ttl: float | None
    """Seconds that a task may take, and for which it is kept from its start; its result is kept for at least five
    minutes. None for no limit. By default the server's option."""
    app: str | None
    """The `ui://` URI of the page that shows its results. Hosts without MCP Apps show the text of a result."""
    visibility: Sequence[Literal["model", "app"]] | None
    """Who may call it: the model, the page (`app`), or both, which is the default."""
    scopes: Sequence[str] | str | None
    """Scopes that a caller's token must have, all of them. Otherwise the tool is not listed, and calls get HTTP 403."""


class ToolFeature:
    """A registered tool: its definition and its function.

    Raises:
        TypeError: the type of a parameter cannot be decoded from JSON, the function is a generator, or an annotation is
            unknown.
        ValueError: the name is not 1 to 128 letters, digits, "_", "-", "." and "/", or an option has a value that is
            not valid.
        MissingExtra: a schema is given, and the extra `schema` is not installed.
    """

    __slots__ = (
        "_call",
        "_json_strings",
        "_output",
        "_services",
        "answer",
        "decode",
        "definition",
        "describe",
        "full_definition",
        "function",
        "header_params",
        "invoke",
        "name",
        "scopes",
        "signature",
        "text_unchanged",
        "unchecked_type",
        "url_exception",
        "wraps",
    )

    scopes: tuple[str, ...]
    """The scopes that a caller's token must have."""
    definition: t.Tool
    """The definition that every revision allows: an output schema of another type than object is wrapped in one."""
    full_definition: t.Tool
    """The definition with an output schema of any type, for revisions whose rules have `any_structured_content`."""
    describe: Callable[[], str] | None
    """Returns the description for a caller who is subject to a policy; None if it is the same for all."""
    header_params: tuple[HeaderParam, ...]
    """The arguments that HTTP headers repeat."""
    decode: Callable[[Any], Any] | None
    """Decodes the arguments, if the function takes nothing else and can be awaited directly; else None."""
    answer: Callable[[Request], Awaitable[t.CallToolResult]] | None
    """Answers the calls, if they may become tasks; else None."""
    unchecked_type: type[Any] | None
    """Results of exactly this type need no check; None if all need one."""
    text_unchanged: bool
    """Whether a result that is text is sent as it is, since the tool has no output schema."""
    wraps: bool
    """Whether revisions that allow only objects get the structured content as `{"result": …}`."""

    def __init__(
        self,
        services: Services,
        function: Callable[..., Any],
        options: ToolOptions,
    ) -> None:
        function = unwrap(function)
        refuse_generator(function)
        self.name = feature_name(function, options.get("name"))
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{printable(self.name)!r} cannot be the name of a tool: "
                "pass name= with 1 to 128 letters, digits, '_', '-', '.' and '/'."
            )
        self.describe = None
        self.scopes = check_scopes(options.get("scopes"))
        self._services = services
        decode_json_strings = options.get("decode_json_strings")
        self._json_strings = services.decode_json_strings if decode_json_strings is None else decode_json_strings
        input_schema = options.get("input_schema")
        self.signature: Signature | SchemaSignature
        if input_schema is None:
            self.signature = Signature(function)
        else:
            from wharfinger.server.signature.explicit_schema import SchemaSignature

            self.signature = SchemaSignature(function, input_schema, f"input_schema of tool {self.name!r}")
        self._output = self._make_output(options.get("output_schema"))
        self._call = HandlerFunction(
            services,
            function,
            signature=self.signature,
            inline=options.get("inline", False),
            timeout=options.get("timeout"),
        )
        self._call.finish = self.result
        try:
            self.header_params = header_params_of(self.signature.schema)
        except ValueError as error:
            raise ValueError(f"The tool {self.name!r}: {error}") from None
        self.function: Callable[..., Awaitable[Any]] = function
        self.decode = self.signature.struct_decoder if self._call.is_plain_async else None
        self.answer = None
        self.invoke = self._call.invoke
        self.url_exception = self._call.url_exception
        self.unchecked_type = self._output.unchecked_type
        self.text_unchanged = self._output.schema is None
        self.wraps = self._output.wraps
        self.full_definition = t.Tool(
            name=self.name,
            title=or_unset(options.get("title")),
            description=options.get("description") or self.signature.summary or UNSET,
            input_schema=self.signature.schema,
            output_schema=UNSET if self._output.schema is None else self._output.schema,
            annotations=_make_annotations(options),
            icons=UNSET if (icons := options.get("icons")) is None else list(icons),
            meta=or_unset(options.get("meta")),
        )
        self.definition = self.full_definition
        if self.wraps:
            wrapped = self._output.wrapped_schema
            self.definition = msgspec.structs.replace(self.full_definition, output_schema=wrapped)

    def _make_output(self, output_schema: Mapping[str, Any] | None) -> Output:
        if output_schema is not None:
            from wharfinger.protocol.json_schema import CompiledSchema

            return Output(None, CompiledSchema(output_schema, f"output_schema of tool {self.name!r}"))
        returns = self.signature.returns
        return _cached_output(returns) if isinstance(returns, type) else Output(returns)

    def decode_arguments(self, request: Request) -> dict[str, Any]:
        """Decode the arguments, and report every fault. Called if `decode` is None, or has refused them.

        Raises:
            BadArguments: they are not valid.
            InvalidParams: they are not an object.
        """
        given = request.params.arguments
        try:
            return self.signature.decode(given, json_strings=self._json_strings)
        except BadArguments:
            if given is not UNSET and bytes(given).lstrip()[:1] != b"{":  # the call itself is malformed
                raise InvalidParams("Invalid params: Expected `object` - at `params.arguments`") from None
            raise

    async def result(self, request: Request, value: Any) -> t.CallToolResult:
        """Return the result to send for the value that the function returned.

        Raises:
            UnusableResult: the value cannot be sent as content, or does not match the output schema.
        """
        request.wraps = self.wraps
        try:
            result = self._output.result(await read_media(self._services, request, value))
        except _RESULT_ERRORS as error:
            raise unusable_result(self.function, value, error) from error
        check_texts(self.function, result.content)
        return result


def _describe(tool: ToolFeature, definition: t.Tool) -> t.Tool:
    """Return a definition of a tool with the description for the current caller."""
    if tool.describe is None or not is_restricted():
        return definition
    return msgspec.structs.replace(definition, description=tool.describe())


class Tools:
    """The tools of one server."""

    def __init__(
        self,
        services: Services,
        page_size: int | None,
        serve_tasks: Callable[[], Tasks],
        wait_for_starts: Callable[[], Awaitable[None]],
    ) -> None:
        self._services = services
        self._wait_for_starts = wait_for_starts
        """Waits for the sources that are starting, which may add tools, at most for their patience."""
        self.serve_tasks = serve_tasks
        """Makes the server serve the tasks extension, and returns its tasks."""
        self.features: Features[ToolFeature] = Features("tool", lambda: services.watching.list_changed("tools"))
        self.listing = PagedList("tools", self.features, services, page_size, _tools_result)
        self.listing.definition_of = lambda tool: _describe(tool, tool.definition)
        self.listing.full_definition_of = lambda tool: _describe(tool, tool.full_definition)
        self.header_params: Mapping[str, tuple[HeaderParam, ...]] = _HeaderParams(self.features)
        """The arguments that HTTP headers repeat, by the name of the tool, for tools that have such arguments."""

    def add(
        self, function: Callable[..., Any], *, fallback: bool = False, **options: Unpack[ToolOptions]
    ) -> ToolFeature:
        """Register a function, or a bound method, as a tool, and report that the list has changed.

        The input schema is made from its parameters, which are checked by type, the description from its docstring,
        and the output schema from its return annotation. Another tool of the same name replaces a `fallback`.

        Raises:
            TypeError: a parameter's type cannot be decoded from JSON, the function is a generator, an option or
                annotation is unknown, or `task_ttl` is given without `task`.
            ValueError: the name is taken, or is not 1 to 128 letters, digits, "_", "-", "." and "/"; or an option has a
                value that is not valid.
            MissingExtra: a schema is given, and the extra `schema` is not installed.
        """
        check_options("tool", function, options, ToolOptions)
        if options.get("app") is not None or options.get("visibility") is not None:
            from wharfinger.server.apps import tool_meta

            options["meta"] = tool_meta(options.get("meta"), options.get("app"), options.get("visibility"))
        if options.get("task", False) is False:
            if "task_ttl" in options:
                raise TypeError("A tool without task= has no option 'task_ttl'.")
            tool = ToolFeature(self._services, function, options)
        else:
            from wharfinger.server.tasks.task_tool import TaskTool  # imported on use: most servers have none

            tool = TaskTool(self._services, function, options, self)
        self.features.add(tool.name, tool, fallback=fallback)
        if tool.scopes:
            self._services.enforce_scopes()
        self._services.serve("tools")
        return tool

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of the methods of tools."""
        return {"tools/list": self.serve_list, "tools/call": self.call}

    def remove(self, name: str) -> None:
        """Remove a tool, and report that the list has changed.

        Raises:
            KeyError: no tool has this name.
        """
        self.features.remove(name)

    def describe(self, name: str, description: str) -> None:
        """Change the description of a tool, and report that the list has changed.

        Raises:
            KeyError: no tool of this server itself has this name.
        """
        tool = self.features.by_key.get(name) or self.features.disabled[name]
        full = tool.full_definition
        tool.definition = msgspec.structs.replace(tool.definition, description=description)
        tool.full_definition = msgspec.structs.replace(full, description=description)
        self.features.definition_changed()

    def describe_to_callers(self, name: str, describe: Callable[[], str]) -> None:
        """Call `describe` for the description of a tool whenever a caller who is subject to a policy lists the tools.

        Raises:
            KeyError: no tool of this server itself has this name.
        """
        (self.features.by_key.get(name) or self.features.disabled[name]).describe = describe

    def disable(self, name: str) -> None:
        """Disable a tool until `enable`: it is not listed and cannot be called. Reports that the list has changed.

        Raises:
            KeyError: no tool has this name.
        """
        self.features.disable(name)

    def enable(self, name: str) -> None:
        """Enable a disabled tool again, at its old position, and report that the list has changed.

        Raises:
            KeyError: no tool has this name.
        """
        self.features.enable(name)

    def names(self) -> list[str]:
        """Return the names of the enabled tools, those of mounted servers too, in the order of the list."""
        return [name for name, _ in self.features.items()]

    async def serve_list(self, request: Request) -> t.ListToolsResult | Raw:
        """Serve `tools/list`."""
        await self._wait_for_starts()
        result: t.ListToolsResult | Raw = await self.listing.serve(request)
        return result

    async def call(self, request: Request, tool: ToolFeature | None = None) -> t.CallToolResult:
        """Serve `tools/call`. If `tool` is given, it is not looked up, and is called without its `answer`.

        Invalid arguments, and the errors that authors raise for the model, are results with `isError`; the transport
        handles any other exception. This is one long function because each further call would slow down every tool: a
        function that takes only arguments is awaited here, and a result that needs no check is encoded here.

        Raises:
            InvalidParams: there is no such tool, or `arguments` is not an object.
        """
        if tool is None:
            name = request.params.name
            tool = self.features.by_key.get(name)
            if self.features.parts and (found := self.features.find(name)) is not None:
                tool = found.feature
                if found.part is not None and not found.part.direct["tools/call"]:
                    result: t.CallToolResult = await found.part.serve(request, name=found.key)
                    return result
            if tool is None:
                await self._wait_for_starts()
                if self.features.find(name) is None:
                    raise unknown_tool(name)
                return await self.call(request)
            if tool.answer is not None:
                return await tool.answer(request)
        try:
            if tool.decode is None:
                value = await tool.invoke(request, tool.decode_arguments(request))
            else:
                try:
                    arguments = asdict(tool.decode(request.params.arguments))
                except _DECODE_ERRORS:
                    arguments = tool.decode_arguments(request)
                try:
                    value = await tool.function(**arguments)
                except URLElicitationRequired as error:
                    raise tool.url_exception(request, error) from None
        except BadArguments as error:
            return _failure("Invalid arguments:\n" + str(error))
        except _ERRORS_FOR_THE_MODEL as error:
            return error_result(error)
        except ExceptionGroup as group:
            return group_result(group)
        if type(value) is not tool.unchecked_type:
            if tool.text_unchanged and type(value) is str and not value.startswith(UNAWAITED):
                return t.CallToolResult(content=[t.TextContent(text=value)])
            return await tool.result(request, value)
        try:
            encoded = encode(value)
        except _RESULT_ERRORS:  # perhaps a field that only `to_json` can encode, such as a path
            return await tool.result(request, value)
        if b"null" in encoded:  # perhaps for NaN, which JSON does not have
            return await tool.result(request, value)
        request.wraps = tool.wraps
        return t.CallToolResult(content=[t.TextContent(text=encoded.decode())], structured_content=Raw(encoded))


class _HeaderParams(Mapping[str, tuple[HeaderParam, ...]]):
    """The arguments that HTTP headers repeat, by the name of the tool; computed again after the tools have changed."""

    def __init__(self, features: Features[ToolFeature]) -> None:
        self._features = features
        self._version = 0
        self._found: dict[str, tuple[HeaderParam, ...]] = {}

    def _current(self) -> dict[str, tuple[HeaderParam, ...]]:
        if self._version != self._features.version:
            self._found = {name: tool.header_params for name, tool in self._features.items() if tool.header_params}
            self._version = self._features.version
        return self._found

    def __getitem__(self, name: str) -> tuple[HeaderParam, ...]:
        return self._current()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())


_cached_output = functools.lru_cache(256)(Output)


def _make_annotations(options: ToolOptions) -> t.ToolAnnotations | UnsetType:
    """Return the annotations of a tool, with the hints of the short options."""
    annotations = options.get("annotations")
    if isinstance(annotations, Mapping):
        known = t.ToolAnnotations.__struct_encode_fields__
        for name in annotations:
            if name not in known:
                raise TypeError(f"{name!r} is not an annotation of a tool: there are {', '.join(known)}.")
        annotations = msgspec.convert(annotations, t.ToolAnnotations)
    short = {f"{word}_hint": options.get(word) for word in ("read_only", "destructive", "idempotent", "open_world")}
    hints: dict[str, Any] = {name: value for name, value in short.items() if value is not None}
    if hints:
        return msgspec.structs.replace(annotations or t.ToolAnnotations(), **hints)
    return or_unset(annotations)


def unknown_tool(name: str) -> InvalidParams:
    """Return the error for a tool that does not exist, or that the caller may not know."""
    return InvalidParams(f"Unknown tool: {printable(name)}")


def _tools_result(shown: list[Any], next_cursor: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=shown, next_cursor=next_cursor)


def _failure(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)], is_error=True)


def check_task_ttl(task_ttl: float | None) -> None:
    """Raise ValueError if a number of seconds cannot be the `task_ttl` of a server or a tool."""
    if task_ttl is not None and not 0 < task_ttl <= MAX_TASK_TTL_SECONDS:
        most = f"{MAX_TASK_TTL_SECONDS:g}"
        raise ValueError(f"task_ttl={task_ttl!r}: write more than 0 seconds, and at most {most}; None for no limit.")


def report_tool_errors(handler: Handler) -> Handler:
    """Turn a `ToolError` from middleware around `tools/call` into a result, as if the tool had raised it."""

    async def serve(request: Request) -> Any:
        try:
            return await handler(request)
        except ToolError as error:
            return error_result(error)

    return serve


def group_result(group: ExceptionGroup[Exception]) -> t.CallToolResult:
    """Return the result that reports the errors of a task group; re-raises a group with any other exception."""
    reported, others = group.split(_ERRORS_FOR_THE_MODEL)
    if reported is None or others is not None:
        raise group
    lines: list[str] = []
    pending: list[Exception] = [reported]
    while pending:
        error = pending.pop(0)
        if isinstance(error, ExceptionGroup):
            pending[:0] = error.exceptions
        else:
            lines += [block.text for block in error_result(error).content if isinstance(block, t.TextContent)]
    return _failure("\n".join(lines))


def error_result(error: Exception) -> t.CallToolResult:
    """Return the result for an error that an author raised; re-raise another server's error, which is private."""
    if isinstance(error, (PermissionDenied, ResourceNotFound, InvalidArgument)) and error.remote:
        raise error
    return _failure(str(error))
