"""The catalogue of an API: the list of its answers, its operations in groups, and a description of each operation.

An API may have a thousand operations, which no model should read at once. So the top, `api://LABEL`, lists groups, by
tag or by the first part in which the paths differ, and each group lists its operations. A search finds operations by
their descriptions, which come from the document alone: no request is sent for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from urllib.parse import unquote

from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.decoded_json import as_object
from wharfinger.content.mime import DIRECTORY, MARKDOWN
from wharfinger.content.text import many, printable
from wharfinger.policy.current import is_restricted, may, may_read, unrestricted
from wharfinger.source import VERSION, UriParameter
from wharfinger.sources.etag import digest
from wharfinger.sources.http_api.api_document import UnresolvedReference, resolve
from wharfinger.sources.http_api.api_operations import ApiDocument, ApiOperation, ApiParameter, usual_answer
from wharfinger.sources.http_api.api_schemas import items_of, types_of, value_text, values_of
from wharfinger.sources.http_api.api_uris import ApiUris
from wharfinger.sources.name_completion import complete_name

__all__ = ["ApiCatalogue", "list_order"]

MAX_UNGROUPED = 40
"""Maximum number of operations that the top lists itself."""
MAX_LISTED = 1_000
"""Maximum number of lines of a list."""
MAX_REMARKS = 20
"""Maximum number of operations that the top names as left out."""
MAX_SHOWN_VALUES = 30
"""Maximum number of values of an `enum` in a description."""
MAX_SHOWN_MEMBERS = 40
"""Maximum number of members of an answer in a description."""


class ApiCatalogue:
    """The operations of a document that can be read, and those that are tools. It does not change."""

    def __init__(
        self, document: ApiDocument, uris: ApiUris, tools: Mapping[str, ApiOperation], sent_headers: frozenset[str]
    ) -> None:
        self.document = document
        self.uris = uris
        self.tools = tools
        """The operations that are tools, by the name of the tool."""
        self.operations: list[ApiOperation] = []
        """The operations that can be read, in the order of the document."""
        self.remarks = list(document.skipped)
        """Operations that were left out, each with the reason; not all of them if there are many."""
        self.left_out_count = document.skipped_count
        """The number of all operations that were left out."""
        for operation in document.operations:
            if operation.method != "GET":
                continue
            reason = _unreadable_reason(operation, sent_headers) or uris.add(operation)
            if reason:
                self.left_out_count += 1
                self.remarks.append(f"{printable(operation.name, 100)}: {reason}")
            else:
                self.operations.append(operation)
        self.unavailable_count = sum(operation.method != "GET" for operation in document.operations) - sum(
            operation.method != "GET" for operation in tools.values()
        )
        """The number of operations that may change data and are not tools."""
        self.templates = [self._template(operation) for operation in self.operations if uris.template(operation)]
        self._by_template = {
            uris.template(operation): operation for operation in self.operations if uris.template(operation)
        }
        self.plain = {uri: operation for operation in self.operations if (uri := uris.plain(operation))}
        """The operations that need no parameter, by the URI of their answer."""
        self._versions: dict[str, str] = {}
        self.groups: dict[str, list[ApiOperation]] = {}
        columns = zip(*map(_fixed_segments, self.operations), strict=False)
        shared_count = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        for operation in self.operations:
            names = _fixed_segments(operation)[shared_count:] or ["other"]
            self.groups.setdefault(operation.tag or printable(names[0], 100), []).append(operation)
        self.grouped = len(self.operations) > MAX_UNGROUPED and len(self.groups) > 1

    @cached_property
    def parameters(self) -> dict[str, UriParameter]:
        """The parameters of queries by name, each as the first operation that has it describes it."""
        uri_parameters: dict[str, UriParameter] = {}
        for operation in self.operations:
            for parameter in self.uris.shown_parameters(operation):
                is_query = parameter.location == "query"
                if is_query and parameter.name not in uri_parameters and parameter.variable == parameter.name:
                    meaning = parameter.description or f"the parameter {parameter.name}"
                    uri_parameters[parameter.name] = UriParameter(_example(parameter), printable(meaning, 80))
        return uri_parameters

    # Lists

    def listed(self) -> list[t.Resource]:
        """Return the API, its groups if there are many operations, and the answers that need no parameters."""
        groups = map(self.uris.group, self._readable_groups()) if self.grouped else ()
        return [self.resource(uri) for uri in sorted([self.uris.top, *groups, *self.plain], key=list_order)]

    def descriptions(self) -> list[t.Resource]:
        """Return the descriptions of all operations."""
        return sorted(map(self.about, self.operations), key=lambda resource: list_order(resource.uri))

    def resource(self, uri: str) -> t.Resource:
        """Return the API, a group, or an answer that needs no parameters as a resource, by its URI."""
        if uri == self.uris.top:
            return self._directory(uri, self.document.title or unquote(uri.removeprefix("api://")))
        if (operation := self.plain.get(uri)) is not None:
            return self.answer(operation, uri)
        return self._directory(uri, unquote(uri.partition("=")[2]))

    def _directory(self, uri: str, title: str) -> t.Resource:
        """Return the API or a group of its operations as a directory."""
        return t.Resource(
            uri=uri,
            name=printable(title, 200) or uri,
            title=printable(title, 200) or uri,
            mime_type=DIRECTORY,
            meta={VERSION: self._version(uri, lambda: self.directory_text(uri))},
        )

    def _version(self, uri: str, text: Callable[[], str]) -> str:
        """Return the version of a text made from the document: of the whole text, whatever part the caller may see."""
        if uri not in self._versions:
            self._versions[uri] = digest(unrestricted(text))
        return self._versions[uri]

    def answer(self, operation: ApiOperation, uri: str) -> t.Resource:
        """Return an answer as a resource, without its version."""
        return t.Resource(
            uri=uri,
            name=printable(uri.removeprefix(self.uris.top), 500) or "/",
            title=operation.summary or operation.name,
            mime_type=operation.mime_type or UNSET,
        )

    def about(self, operation: ApiOperation) -> t.Resource:
        """Return the description of an operation as a resource."""
        uri = self.uris.about(operation)
        return t.Resource(
            uri=uri,
            name=printable(operation.path, 500),
            title=operation.summary or operation.name,
            description=self.uris.template(operation) or self.uris.plain(operation),
            mime_type=MARKDOWN,
            meta={VERSION: self._version(uri, lambda: self.about_text(operation))},
        )

    def children(self, tag: str) -> list[t.Resource]:
        """Return the resources of a group, or of the top if `tag` is empty, that the caller may read."""
        if not tag and self.grouped:
            return [self.resource(self.uris.group(name)) for name in self._readable_groups()]
        operations = self.groups[tag] if tag else self.operations
        resources: list[t.Resource] = []
        for operation in operations:
            plain = self.uris.plain(operation)
            if may_read(plain or self.uris.about(operation)):
                resources.append(self.answer(operation, plain) if plain else self.about(operation))
        return resources

    def directory_text(self, uri: str) -> str:
        """Return the text of the top, or of a group."""
        tag = "" if uri == self.uris.top else unquote(uri.partition("=")[2])
        if tag:
            about = self.document.tags.get(tag, "")
            head = (
                f"{printable(tag, 100)}: {many(self._readable_count(self.groups[tag]), 'operation')}. {about}".rstrip()
            )
            return "\n".join([head, "", *self._lines(self.groups[tag])]) + "\n"
        document = self.document
        lines = [
            f"{document.title or 'API'} {document.version}".strip()
            + f": {many(self._readable_count(self.operations), 'operation')}."
        ]
        if summary := document.description.partition("\n")[0]:
            lines.append(printable(summary, 300))
        lines += [f"The description of an operation is at its path with ?about=get, such as {self._first_about()}.", ""]
        if self.grouped:
            lines += [
                f"{printable(name, 100)}/  ({many(self._readable_count(self.groups[name]), 'operation')})  "
                f"{self.uris.group(name)}"
                for name in self._readable_groups()
            ]
        else:
            lines += self._lines(self.operations)
        return "\n".join([*lines, *self._tool_lines()]) + "\n"

    def _first_about(self) -> str:
        return next(
            (self.uris.about(operation) for operation in self.operations if may_read(self.uris.about(operation))),
            "…?about=get",
        )

    def _readable_count(self, operations: Sequence[ApiOperation]) -> int:
        return sum(may_read(self.uris.about(operation)) for operation in operations)

    def _readable_groups(self) -> list[str]:
        """Return the groups with an operation that the caller may read."""
        return sorted(name for name, operations in self.groups.items() if self._readable_count(operations))

    def _lines(self, operations: Sequence[ApiOperation]) -> list[str]:
        readable = [operation for operation in operations if may_read(self.uris.about(operation))]
        lines = [
            (self.uris.template(operation) or self.uris.plain(operation))
            + (f"  {operation.summary}" if operation.summary else "")
            for operation in readable[:MAX_LISTED]
        ]
        return lines + [f"… and {len(readable) - MAX_LISTED:,} more"] * (len(readable) > MAX_LISTED)

    def _tool_lines(self) -> Iterator[str]:
        tools = {name: operation for name, operation in self.tools.items() if may("call", f"tool:{name}")}
        if tools:
            yield ""
            for name, operation in tools.items():
                yield f"The tool {name} calls {operation.name}."
        if is_restricted():  # what follows would name operations that the caller may not see
            return
        if self.unavailable_count:
            yield ""
            yield f"{many(self.unavailable_count, 'operation')} that may change data are not offered."
        if self.remarks:
            yield ""
            for remark in self.remarks[:MAX_REMARKS]:
                yield f"Left out: {remark}."
            if self.left_out_count > MAX_REMARKS:
                yield f"Left out: {self.left_out_count - MAX_REMARKS:,} more."

    # Descriptions

    def _template(self, operation: ApiOperation) -> t.ResourceTemplate:
        required = [
            parameter.name
            for parameter in self.uris.shown_parameters(operation)
            if parameter.required and parameter.location == "query"
        ]
        return t.ResourceTemplate(
            uri_template=self.uris.template(operation),
            name=printable(operation.id, 200),
            title=operation.summary or operation.name,
            description=printable(f"Requires {', '.join(required)}.", 300) if required else UNSET,
            mime_type=operation.mime_type or UNSET,
        )

    def about_text(self, operation: ApiOperation) -> str:
        """Return the description of an operation in Markdown."""
        lines = [f"# {operation.summary or operation.name}", "", f"`{operation.name}`", ""]
        if operation.deprecated:
            lines += ["Deprecated.", ""]
        if operation.description and operation.description != operation.summary:
            lines += [operation.description, ""]
        lines += [f"Read it at `{self.uris.template(operation) or self.uris.plain(operation)}`.", ""]
        parameters = list(self.uris.shown_parameters(operation))
        lines += [_parameter_line(parameter) for parameter in parameters]
        lines += [""] * bool(parameters)
        if members := self._answer_members(operation):
            lines += [f"It answers {members}", ""]
        return "\n".join(lines).rstrip() + "\n"

    def _answer_members(self, operation: ApiOperation) -> str:
        """Describe the answer: its type, and the members of an object or of the items of a list."""
        root = self.document.root
        mime_type = operation.mime_type
        try:
            node = as_object(as_object(root["paths"]).get(operation.path))
            responses = as_object(resolve(root, node).get(operation.method.lower())).get("responses")
            _, media = usual_answer(root, responses)
            schema = as_object(resolve(root, media.get("schema")))
            is_list = "items" in schema
            schema = as_object(resolve(root, schema["items"])) if is_list else schema
        except UnresolvedReference:
            return f"{mime_type}." if mime_type else ""
        names = [printable(name, 60) for name in as_object(schema.get("properties"))]
        if not names:
            return f"{mime_type}." if mime_type else ""
        more = ", …" if len(names) > MAX_SHOWN_MEMBERS else ""
        shape = "a list of objects with" if is_list else "an object with"
        kind = f" ({mime_type})" if mime_type else ""
        return f"{shape} {', '.join(names[:MAX_SHOWN_MEMBERS])}{more}{kind}."

    # Completion

    def complete(self, template: str, argument: str, value: str) -> list[str]:
        """Return the listed values of a variable that contain `value`, first those that begin with it."""
        operation = self._by_template.get(template)
        for parameter in () if operation is None else self.uris.shown_parameters(operation):
            if parameter.variable == argument:
                return complete_name(_values(parameter), value)
        return []


def list_order(uri: str) -> tuple[bool, bool, str]:
    """Return the key by which lists are sorted: the API, then its groups, then the rest by URI."""
    has_path = "/" in uri.removeprefix("api://").partition("?")[0]
    return has_path, "?" in uri and not has_path, uri


def _unreadable_reason(operation: ApiOperation, sent_headers: frozenset[str]) -> str:
    """Return why an operation cannot be read by a URI, or an empty string."""
    if operation.body is not None and operation.body.required:
        return "it requires a body"
    for parameter in operation.parameters:
        if (
            parameter.required
            and parameter.location in ("header", "cookie")
            and parameter.name.lower() not in sent_headers
        ):
            return f"it requires the {parameter.location} {printable(parameter.name)}"
    return ""


def _fixed_segments(operation: ApiOperation) -> list[str]:
    """Return the segments of a path that are not variables."""
    return [part for part in operation.path.split("/") if part and "{" not in part]


def _values(parameter: ApiParameter) -> list[str]:
    """Return the values that the document lists for a parameter, or for the items of its array."""
    items = items_of(parameter.schema)
    return [value_text(value) for value in values_of(parameter.schema if items is None else items)]


def _example(parameter: ApiParameter) -> str:
    """Return an example of a parameter's value; if the document has none, `1` for a number, otherwise an ellipsis."""
    if parameter.example is not None:
        return printable(value_text(parameter.example), 40)
    values = _values(parameter)
    if values:
        return printable(values[0], 40)
    types = types_of(parameter.schema)
    return "1" if types & {"integer", "number"} else "…"


def _parameter_line(parameter: ApiParameter) -> str:
    facts = [parameter.location, *sorted(types_of(parameter.schema) - {"null"})]
    facts += ["required"] * parameter.required
    line = f"- `{printable(parameter.name, 100)}` ({', '.join(facts)})"
    if parameter.description:
        line += f": {parameter.description}"
    values = _values(parameter)
    if values:
        more = f" and {len(values) - MAX_SHOWN_VALUES} more" if len(values) > MAX_SHOWN_VALUES else ""
        line = (
            f"{line.rstrip('.')}. One of {', '.join(printable(each, 60) for each in values[:MAX_SHOWN_VALUES])}{more}."
        )
    elif parameter.example is not None:
        line = f"{line.rstrip('.')}. For example {printable(value_text(parameter.example), 60)}."
    return line
