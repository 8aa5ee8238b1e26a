"""The URIs of an API's answers, `api://LABEL/PATH?QUERY`, and how a URI becomes a request.

The path and the query are those of the API itself, below its base URL. So a rule of a policy covers what it seems to
cover: `api://shop/orders/**` is every order, whatever the query, since a query selects a part or a view of a resource.
The scheme is not `https:`, because only this server can read these URIs, with the operator's credentials; a host may
fetch `https:` resources itself (resources, “Common URI schemes”). The label distinguishes two accounts of one API.

Other URIs are views of the same paths:

- `api://LABEL`, the API, and `api://LABEL?tag=TAG`, a group of its operations;
- `PATH?about=get`, the description of an operation, with variables in braces: `api://shop/orders/%7Bid%7D?about=get`;
- `…?lines=1-200`, `?bytes=…` and `?tail=…`, windows of a long answer. If an operation has a parameter of such a name,
  the name means that parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from wharfinger.content.decoded_json import as_object
from wharfinger.content.text import printable
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.json_schema import CompiledSchema, InvalidSchema
from wharfinger.protocol.uri.template import InvalidTemplate, UnmatchableTemplate, is_unsafe
from wharfinger.protocol.uri.template_index import TemplateIndex
from wharfinger.sources.http_api.api_document import JsonObject
from wharfinger.sources.http_api.api_operations import ApiOperation, ApiParameter
from wharfinger.sources.http_api.api_paging import PAGE_NAMES
from wharfinger.sources.http_api.api_schemas import items_of, types_of, value_text, values_of
from wharfinger.sources.windows.window import PARAMETERS as WINDOWS
from wharfinger.sources.windows.window import Window, parse_window

__all__ = ["ApiTarget", "ApiUris", "is_escaped_path", "query_text", "request_path"]

MAX_URI_CHARACTERS = 8_192
MAX_DECODINGS = 4
"""A value that is escaped more often than this is refused."""
ABOUT = "about"
TAG = "tag"
_PATH_SAFE = "-._~!$&'()*+,;=:@"
"""Characters of a segment that are not escaped (RFC 3986 §3.3), besides letters and digits."""
_QUERY_SAFE = "-._~!$'()*,;:@/?"
"""Characters of a name or a value in a query that are not escaped. A `+` would be read as a space."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_DELIMITERS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


class ApiTarget(NamedTuple):
    """The meaning of a URI."""

    kind: str
    """`top`, `group`, `about` or `answer`."""
    operation: ApiOperation | None = None
    path: str = ""
    """The path of the request, escaped."""
    pairs: tuple[tuple[str, str], ...] = ()
    """The query of the request."""
    window: Window | None = None
    tag: str = ""


class ApiUris:
    """Makes and reads the URIs of one API."""

    def __init__(self, label: str, hidden_names: frozenset[str] = frozenset()) -> None:
        self.top = f"api://{quote(label, safe=_PATH_SAFE)}"
        self._hidden_names = hidden_names
        """Query parameters that are credentials, which no URI may contain."""
        self._index: TemplateIndex[ApiOperation] = TemplateIndex()
        self._shapes: dict[str, ApiOperation] = {}
        """The operations by their templates without the names of variables."""
        self._about: dict[tuple[str, str], ApiOperation] = {}
        """The operations by the URI of their description, without its query, and their method in lower case."""
        self._schemas: dict[tuple[str, str, str], CompiledSchema | None] = {}

    def add(self, operation: ApiOperation) -> str:
        """Add an operation, whose URIs `read` then accepts. Returns why it cannot be added, or an empty string."""
        template = self.top + _template_path(operation)
        shape = re.sub(r"\{[^{}]*\}", "{}", template)
        if shape in self._shapes:
            return f"{self._shapes[shape].name} has the same URIs"
        try:
            # Paths such as /issues/{number}/comments and /issues/comments/{id} are common. Only the URI in which each
            # value equals the name in the other path (/issues/comments/comments) could mean either.
            self._index.add(template, operation, allow_ambiguous=True)
            self._shapes[shape] = operation
        except (InvalidTemplate, UnmatchableTemplate) as error:
            return printable(str(error), 200)
        self._about[self.about(operation).partition("?")[0], operation.method.lower()] = operation
        return ""

    def matches(self, uri: str) -> bool:
        """Return whether a URI is one of this API, whether or not it exists."""
        return uri == self.top or uri.startswith((f"{self.top}/", f"{self.top}?"))

    # Making URIs

    def about(self, operation: ApiOperation) -> str:
        """Return the URI of the description of an operation."""
        return f"{self.top}{_literal(operation.path)}?{ABOUT}={operation.method.lower()}"

    def plain(self, operation: ApiOperation) -> str:
        """Return the URI of the answer without parameters; empty if the operation requires some."""
        if any(parameter.required for parameter in self.shown_parameters(operation)):
            return ""
        return self.top + _literal(operation.path)

    def template(self, operation: ApiOperation) -> str:
        """Return the URI template of the answers; empty if it would have no variables."""
        names = [
            parameter.variable + ("*" if parameter.explode and _is_array(parameter) else "")
            for parameter in operation.parameters_in("query")
            if parameter.name not in self._hidden_names and not _is_spread(parameter)
        ]
        text = self.top + _template_path(operation) + (f"{{?{','.join(names)}}}" if names else "")
        return text if "{" in text else ""

    def group(self, tag: str) -> str:
        """Return the URI of a group of operations."""
        return f"{self.top}?{TAG}={quote(tag, safe=_QUERY_SAFE)}"

    def shown_parameters(self, operation: ApiOperation) -> Iterator[ApiParameter]:
        """Yield the parameters that a URI may have."""
        return (
            parameter
            for parameter in operation.parameters
            if parameter.location == "path"
            or (parameter.location == "query" and parameter.name not in self._hidden_names)
        )

    def answer(self, path: str, pairs: Sequence[tuple[str, str]]) -> str:
        """Return the URI of an answer for the path and the query of a request."""
        query = query_text(pairs)
        return f"{self.top}{path}{'?' if query else ''}{query}"

    # Reading URIs

    def read(self, uri: str) -> ApiTarget:
        """Parse a URI.

        Raises:
            ResourceNotFound: no operation has such a path.
            InvalidArgument: the query does not fit the operation; the message says why.
        """
        if not self.matches(uri) or len(uri) > MAX_URI_CHARACTERS or not uri.isascii() or "#" in uri:
            raise ResourceNotFound(uri)
        base, mark, text = uri.partition("?")
        if _BROKEN_ESCAPE(base) or not base.isprintable():
            raise ResourceNotFound(uri)
        if base == self.top:
            if not mark:
                return ApiTarget("top")
            tags = _read_pairs(text)
            if len(tags) != 1 or tags[0][0] != TAG:
                raise InvalidArgument(f"The API itself has no parameters: read {self.top}.")
            return ApiTarget("group", tag=tags[0][1])
        pairs = _read_pairs(text) if mark else []
        if len(pairs) == 1 and pairs[0][0] == ABOUT and (base, pairs[0][1]) in self._about:
            return ApiTarget(ABOUT, self._about[base, pairs[0][1]])
        match = self._index.find(base)
        if match is None:
            if base == f"{self.top}/" and not mark:
                return ApiTarget("top")
            raise ResourceNotFound(uri)
        operation, values = match
        path_values = {name: value for name, value in values.items() if isinstance(value, str)}
        if any(not value for value in path_values.values()):
            raise ResourceNotFound(uri)
        for parameter in operation.parameters_in("path"):
            if is_escaped_path(path_values.get(parameter.variable, ""), allow_slashes=parameter.allows_slashes):
                raise ResourceNotFound(uri)
        declared = {parameter.name for parameter in operation.parameters_in("query")}
        if ABOUT not in declared and any(name == ABOUT for name, _ in pairs):
            raise ResourceNotFound(uri)
        windows = [(name, value) for name, value in pairs if name in WINDOWS and name not in declared]
        if len(windows) > 1:
            raise InvalidArgument("Ask for one window: lines=1-200, bytes=0-65535 or tail=200, once.")
        window = parse_window(dict(windows))
        pairs = [(name, value) for name, value in pairs if name not in WINDOWS or name in declared]
        self._check(operation, path_values, pairs)
        return ApiTarget("answer", operation, request_path(operation, path_values), tuple(pairs), window)

    def _check(self, operation: ApiOperation, values: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> None:
        """Refuse values that the document does not allow.

        Raises:
            InvalidArgument: a parameter is unknown or missing, or its value is not allowed.
        """
        known = {
            parameter.name: parameter
            for parameter in operation.parameters_in("query")
            if parameter.name not in self._hidden_names
        }
        members: set[str] = set()
        is_open = False  # whether an object takes members of any name
        for parameter in known.values():
            if _is_spread(parameter) and parameter.style != "deepObject":
                properties = as_object(parameter.schema.get("properties"))
                members |= properties.keys()
                is_open = is_open or parameter.schema.get("additionalProperties", not properties) is not False
        for name, _ in pairs:
            object_name = name.partition("[")[0]
            if name in self._hidden_names:
                raise InvalidArgument(f"{printable(name)} is a credential, which no URI may contain.")
            if (
                not is_open
                and name not in known
                and name not in members
                and name not in PAGE_NAMES
                and not (object_name in known and known[object_name].style == "deepObject" and name.endswith("]"))
            ):
                names = ", ".join([*known, *(each for each in WINDOWS if each not in known)])
                raise InvalidArgument(f"{operation.name} has no parameter {printable(name)!r}. It has {names[:1_000]}.")
        for parameter in operation.parameters_in("path"):
            text = values.get(parameter.variable, "")
            if items := items_of(parameter.schema):
                self._check_value(operation, parameter, [_json_value(items, each) for each in text.split(",")])
            elif not _is_object(parameter):
                self._check_value(operation, parameter, _json_value(parameter.schema, text))
        for name, parameter in known.items():
            texts = [value for other, value in pairs if other == name]
            if _is_spread(parameter):
                continue
            if not texts:
                if parameter.required:
                    example = parameter.example
                    such_as = "" if example is None else f" such as {printable(value_text(example), 60)}"
                    raise InvalidArgument(
                        f"{operation.name} requires {printable(parameter.name)}{such_as}: {self._hint(operation)}"
                    )
                continue
            if not _is_array(parameter):
                if len(texts) > 1:
                    raise InvalidArgument(f"{printable(name)} may be given once.")
                if _is_object(parameter):  # written `name,value,name,value`; the API checks it
                    continue
                self._check_value(operation, parameter, _json_value(parameter.schema, texts[0]))
                continue
            if len(texts) == 1 and not parameter.explode:
                texts = texts[0].split(_DELIMITERS.get(parameter.style, ","))
            items = items_of(parameter.schema) or {}
            self._check_value(operation, parameter, [_json_value(items, each) for each in texts])

    def _check_value(self, operation: ApiOperation, parameter: ApiParameter, value: Any) -> None:
        key = (operation.id, parameter.location, parameter.name)
        if key not in self._schemas:
            self._schemas[key] = _compiled(parameter.schema)
        schema = self._schemas[key]
        faults = [] if schema is None else schema.faults(value)
        if faults:
            fault = faults[0].removeprefix("arguments").removeprefix(": ")
            if values := values_of(items_of(parameter.schema) or parameter.schema):
                fault = f"must be one of {printable(', '.join(map(value_text, values)), 300)}"
            raise InvalidArgument(f"{printable(parameter.name)}: {fault}. {self._hint(operation)}")

    def _hint(self, operation: ApiOperation) -> str:
        return f"See {self.about(operation)}"


def request_path(operation: ApiOperation, values: Mapping[str, str]) -> str:
    """Return the path of a request, escaped. `values` has a text for each variable of the template."""

    def value_of(parameter: ApiParameter) -> str:
        return quote(values[parameter.variable], safe=_PATH_SAFE + ("/" if parameter.allows_slashes else ""))

    return _path(operation, value_of)


def is_escaped_path(value: str, *, allow_slashes: bool) -> bool:
    """Return whether a value leads to another path if an API, or a proxy before it, decodes the path again.

    For example, the request has `%252e%252e` for the value `%2e%2e`, which becomes `..` when it is decoded twice.
    """
    for _ in range(MAX_DECODINGS):
        decoded = unquote(value)
        if decoded == value:
            return False
        if is_unsafe(decoded, path=allow_slashes):
            return True
        value = decoded
    return True


def query_text(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the query of a request or a URI."""
    return "&".join(f"{quote(name, safe=_QUERY_SAFE)}={quote(value, safe=_QUERY_SAFE)}" for name, value in pairs)


def _json_value(schema: JsonObject, text: str) -> Any:
    """Return a value of a URI as the JSON value that the schema expects, or as a text if it is not such a value."""
    types = types_of(schema)
    if types & {"integer", "number"} and re.fullmatch(r"-?[0-9]{1,30}", text):
        return int(text)
    if "number" in types and re.fullmatch(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,2})?", text):
        return float(text)
    if "boolean" in types and text in ("true", "false"):
        return text == "true"
    return text


def _compiled(schema: Mapping[str, Any]) -> CompiledSchema | None:
    """Compile a schema, without its pattern if that cannot be used. Returns None if the rest cannot be used either."""
    without_pattern = {key: value for key, value in schema.items() if key != "pattern"}
    for candidate in (schema, without_pattern):
        try:
            return CompiledSchema(candidate, "schema of a parameter", trusted=False)
        except InvalidSchema:
            continue
    return None


def _read_pairs(text: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for part in text.split("&"):
        name, equals, value = part.partition("=")
        if not equals or not name or _BROKEN_ESCAPE(part):
            raise InvalidArgument("A query is written ?name=value, joined by &, with escapes such as %20.")
        try:
            pairs.append((unquote(name, errors="strict"), unquote(value, errors="strict")))
        except UnicodeDecodeError:
            raise InvalidArgument("A query is written in UTF-8, with escapes such as %C3%A9.") from None
    return pairs


def _template_path(operation: ApiOperation) -> str:
    """Return the path of an operation as a part of a URI template."""
    return _path(operation, lambda parameter: f"{{{'+' if parameter.allows_slashes else ''}{parameter.variable}}}")


def _path(operation: ApiOperation, text_of: Callable[[ApiParameter], str]) -> str:
    """Return the path of an operation, escaped, with a text in place of each variable in braces."""
    variables = {f"{{{parameter.name}}}": parameter for parameter in operation.parameters_in("path")}
    pieces = re.split(r"(\{[^{}]*\})", operation.path)
    return "".join(text_of(variables[piece]) if piece in variables else _literal(piece) for piece in pieces)


def _literal(text: str) -> str:
    """Return a part of a path of the document, escaped. The document may have escaped it already."""
    return quote(text, safe=_PATH_SAFE + ("/" if _BROKEN_ESCAPE(text) else "/%"))


def _is_object(parameter: ApiParameter) -> bool:
    """Return whether values are objects that are not written as JSON."""
    return "object" in types_of(parameter.schema) and not parameter.is_json


def _is_spread(parameter: ApiParameter) -> bool:
    """Return whether each member of an object is a pair of the query: `name[member]=`, or `member=`."""
    return parameter.style == "deepObject" or (parameter.explode and _is_object(parameter))


def _is_array(parameter: ApiParameter) -> bool:
    return items_of(parameter.schema) is not None
