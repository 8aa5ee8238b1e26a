"""The operations that the operator allowed, as tools.

The arguments become a request, and the API's response becomes the result. The arguments are the parameters by name, and
`body`. They are checked against the schemas of the document. A response of text is cut to the default size of a
resource tool's result (`Budget`). A response of JSON that was not cut is also structured content.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.decoded_json import as_list, as_object
from wharfinger.content.mime import TEXT, decode_text, is_text
from wharfinger.content.text import printable, size_text
from wharfinger.errors import ToolError
from wharfinger.protocol.interfaces import HttpResponse
from wharfinger.protocol.json_schema import CompiledSchema, InvalidSchema
from wharfinger.protocol.uri.template import is_unsafe
from wharfinger.sources.http_api.api_client import error_text
from wharfinger.sources.http_api.api_document import JsonObject, UnresolvedReference
from wharfinger.sources.http_api.api_operations import FORM, ApiDocument, ApiOperation, ApiParameter
from wharfinger.sources.http_api.api_schemas import json_schema
from wharfinger.sources.http_api.api_uris import is_escaped_path, query_text, request_path
from wharfinger.sources.resource_tool_set.answer_budget import Budget, end_of_part

__all__ = ["ApiRequest", "ApiTool", "UnusableOperation", "allowed_operations", "make_tool", "result_of"]

MAX_TOOL_NAME_CHARACTERS = 64
"""Length of the longest name of a tool or an argument that the APIs of models accept."""
MAX_TOOL_DESCRIPTION_CHARACTERS = 600
BODY = "body"
_SEPARATORS = {"spaceDelimited": " ", "pipeDelimited": "|"}
"""What separates the values of a list that is not exploded, by style; otherwise a comma."""


class UnusableOperation(ValueError):
    """An allowed operation is not in the document, or no tool can send its body. The message says which, and why."""


class ApiRequest(NamedTuple):
    """A request, without credentials."""

    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes | None


class ApiTool(NamedTuple):
    """The definition of a tool for an operation, without its name."""

    description: str
    input_schema: JsonObject
    annotations: t.ToolAnnotations
    call: Callable[[JsonObject], Awaitable[t.CallToolResult]]


def allowed_operations(document: ApiDocument, names: Iterable[str]) -> dict[str, ApiOperation]:
    """Return the operations with these IDs, or methods and paths such as `POST /orders`, by the names of their tools.

    Raises:
        UnusableOperation: there is no such operation, or no tool can send its body.
    """
    by_id = {operation.id: operation for operation in document.operations}
    by_name = {operation.name: operation for operation in document.operations}
    operations: dict[str, ApiOperation] = {}
    for name in names:
        operation = by_id.get(name) or by_name.get(re.sub(r"\A\w+", lambda word: word[0].upper(), name.strip()))
        if operation is None:
            matches = get_close_matches(name, list(by_id)[:5_000], 3, 0.5)
            others = matches or [each.id for each in document.operations if each.method != "GET"][:10]
            listed = ", ".join(printable(each, 100) for each in others)
            hint = f" Did you mean {listed}?" if matches else f" There are {listed}." if others else ""
            raise UnusableOperation(f"There is no operation {printable(name, 100)!r}.{hint}")
        if operation.body is not None and not operation.body.can_be_sent:
            raise UnusableOperation(f"{operation.name} takes {operation.body.mime_type}, which no tool can send.")
        if all(each is not operation for each in operations.values()):
            base = re.sub(r"[^A-Za-z0-9_\-]+", "_", operation.id).strip("_") or "operation"
            operations[_unused_name(base, operations)] = operation
    return operations


def make_tool(
    document: ApiDocument, operation: ApiOperation,
    call: Callable[[ApiOperation, ApiRequest], Awaitable[t.CallToolResult]], hidden: frozenset[str],
) -> ApiTool:  # fmt: skip
    """Return the tool for an operation. `hidden` has the names of query parameters that are credentials."""
    parameters = _by_argument(operation, hidden)
    schema = _input_schema(document, operation, parameters)

    async def run(arguments: JsonObject) -> t.CallToolResult:
        return await call(operation, _request(operation, parameters, arguments))

    method = operation.method
    description = operation.summary or operation.name
    if operation.description and operation.description != operation.summary:
        description += f"\n\n{operation.description}"
    return ApiTool(
        description=_short(f"{description}\n\n{operation.name}"),
        input_schema=schema,
        annotations=t.ToolAnnotations(
            title=operation.summary or operation.name,
            read_only_hint=method == "GET",
            # Whether a POST destroys something is unknown: without the hint, a host assumes that it may.
            destructive_hint=UNSET if method == "POST" else method != "GET",
            idempotent_hint=method in ("GET", "PUT", "DELETE"),
            open_world_hint=True,
        ),
        call=run,
    )


def result_of(response: HttpResponse, name: str) -> t.CallToolResult:
    """Return the result for an answer.

    Raises:
        ToolError: the API refused the request, or failed.
    """
    if response.status // 100 != 2:
        raise ToolError(f"{name} answered {error_text(response)}")
    mime_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    max_characters = Budget().characters
    decoded = decode_text(response.body)
    if not response.body:
        return t.CallToolResult(content=[t.TextContent(text=f"{name} answered {response.status}, without content.")])
    if decoded is None or (mime_type and not is_text(mime_type) and "json" not in mime_type):
        note = f"{name} answered {response.status} with {mime_type or 'data'}, {size_text(len(response.body))}."
        return t.CallToolResult(content=[t.TextContent(text=note)])
    text = decoded[0]
    if len(text) > max_characters:
        end = end_of_part(text, 0, max_characters)
        note = f"[These are the first {end:,} of {len(text):,} characters of the answer.]"
        return t.CallToolResult(content=[t.TextContent(text=text[:end]), t.TextContent(text=note)])
    try:
        value: Any = msgspec.json.decode(response.body) if "json" in mime_type else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if value is None:
        return t.CallToolResult(content=[t.TextContent(text=text)])
    return t.CallToolResult(
        content=[t.TextContent(text=text)], structured_content=value if isinstance(value, dict) else {"result": value}
    )


def _unused_name(base: str, taken: Container[str]) -> str:
    """Return the name, cut to the limit; if it is taken, with a number at its end."""
    name = base[:MAX_TOOL_NAME_CHARACTERS]
    number = 2
    while name in taken:
        end = f"_{number}"
        name = base[: MAX_TOOL_NAME_CHARACTERS - len(end)] + end
        number += 1
    return name


def _by_argument(operation: ApiOperation, hidden: frozenset[str]) -> dict[str, ApiParameter]:
    """Return the parameters by the names of the arguments. Of two equal names, the second gets a prefix."""
    parameters: dict[str, ApiParameter] = {}
    for parameter in operation.parameters:
        is_credential = parameter.location == "query" and parameter.name in hidden
        if is_credential or (parameter.location == "cookie" and not parameter.required):
            continue
        name = re.sub(r"[^A-Za-z0-9_.\-]", "_", parameter.name)[:MAX_TOOL_NAME_CHARACTERS]
        if name in parameters or (name == BODY and operation.body is not None):
            name = _unused_name(f"{parameter.location}_{name}", parameters)
        parameters[name] = parameter
    return parameters


def _input_schema(document: ApiDocument, operation: ApiOperation, parameters: Mapping[str, ApiParameter]) -> JsonObject:
    """Return the schema of the arguments.

    If it cannot be compiled, a schema that accepts any body takes its place, or else one that accepts any values.
    """
    properties: JsonObject = {}
    for name, parameter in parameters.items():
        schema = as_object(parameter.document_schema)
        description = {"description": parameter.description} if parameter.description and "$ref" not in schema else {}
        properties[name] = {**schema, **description}
    required = [name for name, parameter in parameters.items() if parameter.required]
    if operation.body is not None:
        properties[BODY] = operation.body.schema
        required += [BODY] * operation.body.required
    for body in ({}, {BODY: JsonObject()}):  # the second time, any body is accepted
        object_schema: JsonObject = {"type": "object", "properties": {**properties, **body}, "required": required}
        try:
            schema = json_schema(document.root, object_schema, version=document.dialect)
            schema["additionalProperties"] = False
            CompiledSchema(schema, "input_schema", trusted=False)
            return schema
        except (InvalidSchema, UnresolvedReference):
            continue
    names: JsonObject = {name: {} for name in properties}
    return {"type": "object", "properties": names, "required": required, "additionalProperties": False}


def _request(operation: ApiOperation, parameters: Mapping[str, ApiParameter], arguments: JsonObject) -> ApiRequest:
    """Return the request for the arguments of a call.

    Raises:
        ToolError: a value cannot be a part of a path or a header.
    """
    values: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    headers = {"accept": "application/json, */*;q=0.5"}
    cookies: list[str] = []
    for name, parameter in parameters.items():
        if name not in arguments or (arguments[name] is None and not parameter.required):
            continue
        value = arguments[name]
        if parameter.location == "path":
            text = _joined(value, explode=parameter.explode)
            values[parameter.variable] = _checked_segment(name, text, allow_slashes=parameter.allows_slashes)
        elif parameter.location == "query":
            pairs += _query(parameter, value)
        elif parameter.location == "header":
            text = _text(value) if parameter.is_json else _joined(value, explode=parameter.explode)
            if not text.isascii() or not text.isprintable():
                raise ToolError(f"{name}: a header has only printable characters of ASCII.")
            headers[parameter.name.lower()] = text
        else:
            text = _text(value) if parameter.is_json else _joined(value)
            cookies.append(f"{parameter.name}={quote(text, safe='')}")
    if cookies:
        headers["cookie"] = "; ".join(cookies)
    body: bytes | None = None
    if operation.body is not None and BODY in arguments:
        headers["content-type"] = operation.body.mime_type
        value = arguments[BODY]
        if operation.body.mime_type == FORM:
            body = urlencode(_form(value, operation.body.encoding)).encode()
        else:
            is_text_body = operation.body.mime_type == TEXT
            body = _text(value).encode() if is_text_body else msgspec.json.encode(value)
    return ApiRequest(request_path(operation, values), query_text(pairs), headers, body)


def _checked_segment(name: str, text: str, *, allow_slashes: bool) -> str:
    """Return a value for a path.

    Raises:
        ToolError: it would lead to another path.
    """
    parts = text.split("/") if allow_slashes else [text]
    if any(not part or is_unsafe(part) for part in parts) or is_escaped_path(text, allow_slashes=allow_slashes):
        raise ToolError(f"{name}: {printable(text)!r} cannot be a part of a path: give a name without slashes.")
    return text


def _query(parameter: ApiParameter, value: Any) -> list[tuple[str, str]]:
    if parameter.is_json:
        return [(parameter.name, _text(value))]
    if isinstance(value, list):
        texts = list(map(_text, as_list(value)))
        if parameter.explode:
            return [(parameter.name, text) for text in texts]
        separator = _SEPARATORS.get(parameter.style, ",")
        return [(parameter.name, separator.join(texts))]
    members = as_object(value).items()
    if members and parameter.style == "deepObject":
        return [(f"{parameter.name}[{key}]", _text(each)) for key, each in members]
    if members and parameter.explode:
        return [(key, _text(each)) for key, each in members]
    return [(parameter.name, _joined(value))]


def _joined(value: Any, *, explode: bool = False) -> str:
    """Return a value in the style `simple`, or, without `explode`, in the style `form`."""
    if isinstance(value, list):
        return ",".join(map(_text, as_list(value)))
    if isinstance(value, dict):
        mark = "=" if explode else ","
        return ",".join(f"{key}{mark}{_text(each)}" for key, each in as_object(value).items())
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _form(form: Any, encoding: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of a form.

    A list of texts or numbers repeats its name, unless `encoding` says otherwise (OpenAPI, Encoding Object). Objects,
    and lists in them or of them, for which OpenAPI defines nothing, have brackets, as Stripe and PHP read them.
    """
    fields: list[tuple[str, str]] = []
    stack: list[tuple[str, Any]] = [("", form)]
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            members = reversed(as_object(value).items())
            stack += [(f"{name}[{key}]" if name else key, each) for key, each in members]
        elif isinstance(value, list):
            items = as_list(value)
            details = as_object(encoding.get(name))
            is_flat = name in as_object(form) and not any(isinstance(each, (dict, list)) for each in items)
            if not is_flat or details.get("style") == "deepObject":
                name = f"{name}[]"
            elif details.get("explode") is False and items:
                separator = _SEPARATORS.get(str(details.get("style")), ",")
                items = [separator.join(map(_text, items))]
            stack += [(name, each) for each in reversed(items)]
        elif value is not None:
            fields.append((name, _text(value)))
    return fields


def _short(text: str) -> str:
    """Cut a description to the limit. Its last line, which names the operation, is kept."""
    lines = [printable(line, MAX_TOOL_DESCRIPTION_CHARACTERS) for line in text.splitlines()]
    full_text = "\n".join(lines)
    if len(full_text) <= MAX_TOOL_DESCRIPTION_CHARACTERS:
        return full_text
    last = printable(lines[-1], MAX_TOOL_DESCRIPTION_CHARACTERS // 2)
    return f"{full_text[: MAX_TOOL_DESCRIPTION_CHARACTERS - len(last) - 3]}…\n\n{last}"
