"""The operations of an OpenAPI document: their parameters, bodies and answers.

Each operation is checked alone, by the models of openapi-pydantic, so that a mistake in one operation does not
remove the others. `ApiDocument.skipped` says which operations were left out, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from wharfinger.content.decoded_json import as_list, as_object
from wharfinger.content.mime import JSON, TEXT
from wharfinger.content.text import printable
from wharfinger.errors import MissingExtra
from wharfinger.source import UnusableSource
from wharfinger.sources.http_api.api_document import JsonObject, UnresolvedReference, check_version, resolve
from wharfinger.sources.http_api.api_schemas import json_schema

__all__ = ["FORM", "ApiBody", "ApiDocument", "ApiOperation", "ApiParameter", "read_document", "usual_answer"]

METHODS = ("get", "put", "post", "delete", "patch")
MAX_OPERATIONS = 20_000
MAX_PARAMETERS = 100
"""Maximum number of parameters of one operation."""
MAX_PATH_CHARACTERS = 1_000
MAX_SKIPPED = 100
"""Maximum number of left-out operations that are named."""
MAX_SUMMARY_CHARACTERS = 200
MAX_DESCRIPTION_CHARACTERS = 2_000
MAX_PARAMETER_SCHEMA_CHARACTERS = 4_000
_STYLES = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
}
_RESERVED_HEADERS = frozenset(
    ("accept", "authorization", "connection", "content-length", "content-type", "host", "transfer-encoding")
)
"""Headers that are not parameters: OpenAPI excludes three (Parameter Object), and the others belong to HTTP itself."""
FORM = "application/x-www-form-urlencoded"
_leaves_path = re.compile(r"[\x00-\x1f\x7f\\]|(?:\A|/)\.\.?(?:/|\Z)").search
"""Finds what leads to another path: a segment of dots, a backslash, or a control character. Takes a
percent-decoded path."""


class ApiParameter(NamedTuple):
    """A parameter of an operation."""

    name: str
    location: str
    """`path`, `query`, `header` or `cookie`."""
    variable: str
    """Its name in a URI template."""
    required: bool
    description: str
    schema: JsonObject
    """Its JSON Schema, without references into the document."""
    document_schema: Any
    """Its schema as it is in the document, perhaps with references."""
    style: str
    explode: bool
    example: Any = None
    allows_slashes: bool = False
    """Whether a value may contain slashes (`x-multi-segment`, in GitHub's document)."""
    is_json: bool = False
    """Whether a value is sent as JSON: the document describes it by `content`, without a style."""


class ApiBody(NamedTuple):
    """The body of a request."""

    mime_type: str
    required: bool
    schema: Any
    """As it is in the document."""
    encoding: Mapping[str, Any] = {}
    """How the fields of a form are written, by name: Encoding Objects of the document."""

    @property
    def can_be_sent(self) -> bool:
        """Whether a tool can send it: as JSON, as the fields of a form, or as a text."""
        return self.mime_type in (JSON, FORM, TEXT) or self.mime_type.endswith("+json")


class ApiOperation(NamedTuple):
    """An operation: a method of a path."""

    id: str
    method: str
    """In upper case."""
    path: str
    """As it is in the document, such as `/orders/{id}`."""
    tag: str
    summary: str
    description: str
    parameters: tuple[ApiParameter, ...]
    body: ApiBody | None
    security: tuple[tuple[str, ...], ...] | None
    """The alternatives, each with the names of the schemes that it needs; None if the document does not say."""
    mime_type: str
    """The type of its usual answer; empty if the document does not say."""
    deprecated: bool

    @property
    def name(self) -> str:
        """The method and the path, such as `GET /orders/{id}`."""
        return f"{self.method} {self.path}"

    def parameters_in(self, location: str) -> Iterator[ApiParameter]:
        """Yield the parameters in one location."""
        return (parameter for parameter in self.parameters if parameter.location == location)


class ApiDocument(NamedTuple):
    """The content of an OpenAPI document."""

    title: str
    version: str
    """The version of the API."""
    description: str
    servers: tuple[str, ...]
    """Their URLs, with the defaults of their variables."""
    tags: Mapping[str, str]
    """Descriptions of tags."""
    operations: tuple[ApiOperation, ...]
    skipped: Sequence[str]
    """The first `MAX_SKIPPED` operations that were left out, each with the reason."""
    skipped_count: int
    schemes: Mapping[str, JsonObject]
    """The security schemes."""
    root: JsonObject
    dialect: str
    """`3.0` or `3.1`."""


class _Unusable(ValueError):
    """An operation cannot be used; the message is the reason."""


def read_document(root: JsonObject, name: str) -> ApiDocument:
    """Return the content of an OpenAPI document.

    Raises:
        UnusableSource: it is not an OpenAPI document of version 3.0 or 3.1, or has no operations that can be used.
        MissingExtra: openapi-pydantic is not installed.
    """
    dialect = check_version(root, name)
    try:
        from openapi_pydantic.v3 import v3_0, v3_1
    except ImportError:
        raise MissingExtra("openapi", "Publishing an HTTP API") from None
    models: Any = v3_0 if dialect == "3.0" else v3_1
    reader = _OperationReader(root, dialect, models)
    info = as_object(root.get("info"))
    operations = tuple(reader.operations())
    if not operations:
        reasons = f" {reader.skipped[0]}." if reader.skipped else ""
        raise UnusableSource(f"{name} has no operations that can be used.{reasons}")
    return ApiDocument(
        title=_line(info.get("title"), MAX_SUMMARY_CHARACTERS),
        version=_line(info.get("version"), 50),
        description=_text(info.get("description")),
        servers=tuple(_server_urls(root.get("servers"))),
        tags={
            _line(as_object(tag).get("name"), 100): _line(as_object(tag).get("description"), MAX_SUMMARY_CHARACTERS)
            for tag in as_list(root.get("tags"))
        },
        operations=operations,
        skipped=reader.skipped,
        skipped_count=reader.skipped_count,
        schemes=_schemes(root, models),
        root=root,
        dialect=dialect,
    )


class _OperationReader:
    def __init__(self, root: JsonObject, dialect: str, models: Any) -> None:
        self.root = root
        self.dialect = dialect
        self.models = models
        self.skipped: list[str] = []
        self.skipped_count = 0
        self._ids: set[str] = set()
        self._schemas: dict[int, JsonObject] = {}
        """JSON Schemas of parameters, by the identity of their objects in the document, which many operations share."""

    def operations(self) -> Iterator[ApiOperation]:
        count = 0
        for path, node in as_object(self.root.get("paths")).items():
            if not path.startswith("/"):
                continue
            if "?" in path or "#" in path or _leaves_path(unquote(path)) or len(path) > MAX_PATH_CHARACTERS:
                self._skip(path, "it is not the path of a URL")
                continue
            try:
                item = as_object(resolve(self.root, node))
            except UnresolvedReference as error:
                self._skip(path, str(error))
                continue
            for method in METHODS:
                if method not in item:
                    continue
                count += 1
                if count > MAX_OPERATIONS:
                    self._skip("further operations", f"there are more than {MAX_OPERATIONS:,}")
                    return
                try:
                    yield self._operation(path, method, item, item[method])
                except (_Unusable, UnresolvedReference) as error:
                    self._skip(f"{method.upper()} {path}", str(error))

    def _skip(self, subject: str, reason: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(f"{printable(subject, 100)}: {reason}")

    def _operation(self, path: str, method: str, item: JsonObject, given: Any) -> ApiOperation:
        node = as_object(given)
        self._check(node)
        by_name = self._parameters(item.get("parameters")) | self._parameters(node.get("parameters"))
        if len(by_name) > MAX_PARAMETERS:
            raise _Unusable(f"it has more than {MAX_PARAMETERS} parameters")
        parameters = tuple(by_name.values())
        variables = re.findall(r"\{([^{}]*)\}", path)
        declared = {parameter.name for parameter in parameters if parameter.location == "path"}
        if set(variables) != declared or len(variables) != len(declared):
            raise _Unusable("its path and its parameters have different variables")
        tag = next((_line(each, 100) for each in as_list(node.get("tags"))), "")
        description = _text(node.get("description"))
        required = node.get("security", self.root.get("security"))
        security = tuple(tuple(as_object(each)) for each in as_list(required)) if isinstance(required, list) else None
        return ApiOperation(
            id=self._id(node.get("operationId"), method, path),
            method=method.upper(),
            path=path,
            tag=tag,
            summary=_line(node.get("summary"), MAX_SUMMARY_CHARACTERS) or _first_sentence(description),
            description=description,
            parameters=parameters,
            body=self._body(node.get("requestBody")),
            security=security,
            mime_type=usual_answer(self.root, node.get("responses"))[0],
            deprecated=node.get("deprecated") is True,
        )

    def _check(self, node: JsonObject) -> None:
        """Validate an operation without its answers and callbacks: they are large, and mistakes in them do no harm."""
        from pydantic import ValidationError

        try:
            self.models.Operation.model_validate({**node, "responses": {}, "callbacks": None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            location = ".".join(str(part) for part in first["loc"])
            raise _Unusable(f"{printable(location, 100)}: {printable(first['msg'], 200)}") from None
        except RecursionError:
            raise _Unusable("it is nested too deeply") from None

    def _id(self, given: Any, method: str, path: str) -> str:
        default = f"{method}_{re.sub(r'[^A-Za-z0-9]+', '_', path).strip('_')}".rstrip("_")
        name = base = given if isinstance(given, str) and given and given.isprintable() else default
        number = 2
        while name in self._ids:
            name, number = f"{base}_{number}", number + 1
        self._ids.add(name)
        return name

    def _parameters(self, given: Any) -> dict[tuple[str, str], ApiParameter]:
        parameters: dict[tuple[str, str], ApiParameter] = {}
        for each in as_list(given):
            node = as_object(resolve(self.root, each))
            name, location = node.get("name"), node.get("in")
            if not isinstance(name, str) or not name or location not in ("path", "query", "header", "cookie"):
                raise _Unusable("a parameter has no name or no valid location")
            is_reserved = location == "header" and name.lower() in _RESERVED_HEADERS
            parameter = None if is_reserved else self._parameter(name, location, node)
            if parameter is not None:
                parameters[location, name] = parameter
        return parameters

    def _parameter(self, name: str, location: str, node: JsonObject) -> ApiParameter | None:
        """Return a parameter, or None if it is optional and has a style that is not supported."""
        content = as_object(node.get("content"))
        style = node.get("style") or ("form" if location in ("query", "cookie") else "simple")
        is_supported = style in _STYLES.get(location, (style,))
        if (content or not is_supported) and node.get("required") is True:
            raise _Unusable(f"the parameter {printable(name)} is written in a way that is not supported")
        if not is_supported:
            return None
        key = id(node)
        schema = self._schemas.get(key)
        if schema is None:
            schema = self._schemas[key] = json_schema(
                self.root, node.get("schema", {}), version=self.dialect, max_characters=MAX_PARAMETER_SCHEMA_CHARACTERS
            )
        explode = node.get("explode")
        return ApiParameter(
            name=name,
            location=location,
            variable=_variable(name),
            required=node.get("required") is True or location == "path",
            description=_line(node.get("description"), MAX_SUMMARY_CHARACTERS),
            schema=schema,
            document_schema=node.get("schema", {}),
            style=str(style),
            explode=explode if isinstance(explode, bool) else style == "form",
            example=_example(self.root, node, schema),
            allows_slashes=node.get("x-multi-segment") is True,
            is_json=bool(content),
        )

    def _body(self, given: Any) -> ApiBody | None:
        if given is None:
            return None
        node = as_object(resolve(self.root, given))
        content = as_object(node.get("content"))
        types = {key.partition(";")[0].strip().lower(): key for key in content}
        ranked = [JSON, FORM, *(each for each in types if each.endswith("+json")), "*/*", TEXT]
        mime_type = next((each for each in ranked if each in types), next(iter(types), ""))
        media = as_object(content.get(types.get(mime_type, "")))
        mime_type = JSON if mime_type == "*/*" else mime_type
        encoding = as_object(media.get("encoding"))
        return ApiBody(mime_type, node.get("required") is True, media.get("schema", {}), encoding)


def usual_answer(root: JsonObject, responses: Any) -> tuple[str, JsonObject]:
    """Return the MIME type of the first successful answer (JSON if it is one of several) and its Media Type Object.

    Both are empty if the document states no type. A malformed type is returned as an empty string.
    """
    answers = as_object(responses)
    status = next((each for each in ("200", "201", "2XX", "202", "203", "default") if each in answers), "")
    try:
        content = as_object(as_object(resolve(root, answers.get(status))).get("content"))
    except UnresolvedReference:
        return "", {}
    by_type: dict[str, JsonObject] = {}
    for key, media in content.items():
        by_type.setdefault(key.partition(";")[0].strip().lower(), as_object(media))
    mime_type = JSON if JSON in by_type else next(iter(by_type), "")
    media_type = by_type.get(mime_type, {})
    return mime_type if re.fullmatch(r"[a-z0-9.+-]+/[a-z0-9.+-]+", mime_type) else "", media_type


def _variable(name: str) -> str:
    """Return the name of a parameter's URI template variable (RFC 6570 §2.3): its own name, percent-encoded."""
    return "".join(
        each
        if each.isascii() and (each.isalnum() or each == "_")
        else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in name
    )


def _example(root: JsonObject, node: JsonObject, schema: JsonObject) -> Any:
    """Return a value of a parameter to show: its example, its default, or the first of its examples."""
    schema_in_document = as_object(node.get("schema"))
    for value in (node.get("example"), schema_in_document.get("example"), schema.get("default")):
        if value is not None and not isinstance(value, (dict, list)):
            return value
    for each in list(as_object(node.get("examples")).values())[:1]:
        try:
            value = as_object(resolve(root, each)).get("value")
        except UnresolvedReference:
            return None
        if value is not None and not isinstance(value, (dict, list)):
            return value
    return None


def _schemes(root: JsonObject, models: Any) -> dict[str, JsonObject]:
    from pydantic import ValidationError

    schemes: dict[str, JsonObject] = {}
    for name, given in as_object(as_object(root.get("components")).get("securitySchemes")).items():
        try:
            scheme = as_object(resolve(root, given))
            models.SecurityScheme.model_validate(scheme)
            schemes[name] = scheme
        except (UnresolvedReference, ValidationError):
            continue
    return schemes


def _server_urls(given: Any) -> Iterator[str]:
    for each in as_list(given):
        node = as_object(each)
        if isinstance(url := node.get("url"), str):
            for name, variable in as_object(node.get("variables")).items():
                url = url.replace(f"{{{name}}}", str(as_object(variable).get("default", "")))
            yield url


def _line(value: Any, max_characters: int) -> str:
    return printable(" ".join(value.split()), max_characters) if isinstance(value, str) else ""


def _first_sentence(text: str) -> str:
    return _line(re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0], MAX_SUMMARY_CHARACTERS)


def _text(value: Any) -> str:
    """Return a text of several lines, bounded, without control characters."""
    if not isinstance(value, str):
        return ""
    lines = [
        printable(line.rstrip(), MAX_DESCRIPTION_CHARACTERS) for line in value[:MAX_DESCRIPTION_CHARACTERS].splitlines()
    ]
    return "\n".join(lines).strip()
