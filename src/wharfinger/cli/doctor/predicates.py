"""The functions that the checks of `wharfinger doctor` use. Most of them find the names, URIs or facts with a fault."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.cli.doctor.survey import Survey, SurveyedList, app_uri_of, text_of
from wharfinger.content.mime import essence_of
from wharfinger.content.mime_check import contradiction

LISTS = ("tools", "prompts", "resources", "templates")
MAX_NAME_CHARACTERS = 64
"""Maximum number of characters of a tool's name in model APIs, including the prefix that a host adds."""
MAX_PAGE_ITEMS = 1000

VAGUE_NAMES = frozenset(
    {
        "action", "add", "api", "call", "check", "cmd", "command", "create", "data", "delete", "do", "execute",
        "find", "fn", "foo", "func", "function", "get", "go", "handle", "handler", "helper", "info",
        "input", "item", "list", "main", "manage", "method", "misc", "my_function", "my_tool", "new", "object",
        "op", "operation", "output", "post", "process", "put", "read", "request", "run", "save",
        "send", "set", "start", "stuff", "submit", "task", "test", "thing", "tool", "update", "use", "util",
        "utils", "value", "work", "write",
    }
)  # fmt: skip
"""Names that do not say what a tool does. `search`, `fetch` and `query` are not among them: hosts expect these."""
NUMBERED_NAME = re.compile(r"(?:tool|func|function|command|action|prompt|resource|test|item|thing)[_-]?\d+")
PORTABLE_NAME = re.compile(r"[A-Za-z0-9_-]+")
VALID_NAME = re.compile(r"[A-Za-z0-9_.\-/]{1,128}")
ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f]+")
TYPE_KEYWORDS = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})
SCHEMA_NODES = 20_000
"""Maximum number of JSON values of a schema that are searched for references."""

Find = Callable[[Survey], Iterable[str]]
"""The type of a `Check.find` that returns the names, URIs or facts with the fault."""


def lists_of(survey: Survey) -> Iterator[tuple[str, SurveyedList]]:
    """Yield the four lists with their names."""
    return ((name, getattr(survey, name)) for name in LISTS)


def names_where(kind: str, is_faulty: Callable[[Any], Any]) -> Find:
    """Return a function that finds the names of the tools or prompts for which `is_faulty` holds."""
    return lambda survey: (item.name for item in getattr(survey, kind).items if is_faulty(item))


def schemas_where(is_faulty: Callable[[dict[str, Any]], Any]) -> Find:
    """Return a function that finds the names of the tools for whose input schema `is_faulty` holds."""
    return names_where("tools", lambda tool: isinstance(tool.input_schema, dict) and is_faulty(tool.input_schema))  # pyright: ignore[reportUnknownArgumentType]


def resources_where(is_faulty: Callable[[t.Resource], Any]) -> Find:
    """Return a function that finds the URIs of the resources for which `is_faulty` holds."""
    return lambda survey: (item.uri for item in survey.resources.items if is_faulty(item))


def duplicates(kind: str, member: str) -> Find:
    """Return a function that finds the values of a member, such as `name`, that several items of a list have."""

    def find(survey: Survey) -> Iterator[str]:
        counted = Counter(getattr(item, member) for item in getattr(survey, kind).items)
        return (value for value, number in counted.items() if number > 1)

    return find


def confusable_names(kind: str) -> Find:
    """Return a function that finds groups of names that differ only in case or punctuation."""

    def find(survey: Survey) -> Iterator[str]:
        alike: dict[str, list[str]] = {}
        for name in dict.fromkeys(item.name for item in getattr(survey, kind).items):
            # Remove punctuation of ASCII only: letters and vowel signs of other scripts distinguish names.
            alike.setdefault(re.sub(r"[^a-z0-9\x80-\U0010ffff]", "", name.casefold()), []).append(name)
        return (" / ".join(same) for same in alike.values() if len(same) > 1)

    return find


def is_vague(item: Any) -> bool:
    """Return whether a name does not say what the item does."""
    name = item.name.casefold()
    return name in VAGUE_NAMES or NUMBERED_NAME.fullmatch(name) is not None or len(name) < 3


def names_too_long_with_prefix(survey: Survey) -> Iterator[str]:
    """Find the tools whose name is too long only after a host has put the server's name before it."""
    prefix = f"mcp__{re.sub(r'[^A-Za-z0-9_-]', '_', survey.name)}__"
    names = (tool.name for tool in survey.tools.items)
    return (f"{prefix}{name}" for name in names if len(name) <= MAX_NAME_CHARACTERS < len(prefix) + len(name))


def has_title(item: Any) -> bool:
    """Return whether a tool or prompt has a title, of its own or in its annotations."""
    return bool(text_of(item.title) or text_of(getattr(getattr(item, "annotations", None), "title", "")))


def arguments_without_description(survey: Survey) -> Iterator[str]:
    """Find arguments of tools and prompts that have no description."""
    for tool in survey.tools.items:
        for name, schema in properties(tool.input_schema).items():
            if not (isinstance(schema, dict) and text_of(schema.get("description"))):  # pyright: ignore[reportUnknownMemberType,reportUnknownArgumentType]
                yield f"{tool.name}.{name}"
    for prompt in survey.prompts.items:
        for argument in prompt.arguments or ():
            if not text_of(argument.description):
                yield f"{prompt.name}.{argument.name}"


def arguments_without_type(survey: Survey) -> Iterator[str]:
    """Find arguments of tools that accept any JSON value."""
    for tool in survey.tools.items:
        for name, schema in properties(tool.input_schema).items():
            if schema is True or (isinstance(schema, dict) and not TYPE_KEYWORDS & schema.keys()):
                yield f"{tool.name}.{name}"


def properties(schema: Any) -> dict[str, Any]:
    """Return the properties of an object schema, or an empty dictionary if it has none."""
    members = schema.get("properties") if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
    return members if isinstance(members, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def has_external_reference(schema: dict[str, Any]) -> bool:
    """Return whether a `$ref` of a schema is an absolute URL. The search is bounded: the schema is not trusted."""
    stack: list[Any] = [schema]
    for _ in range(SCHEMA_NODES):
        if not stack:
            return False
        node = stack.pop()
        if isinstance(node, dict):
            reference: Any = node.get("$ref")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
            if isinstance(reference, str) and "://" in reference:
                return True
            stack += node.values()  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(node, list):
            stack += node  # pyright: ignore[reportUnknownArgumentType]
    return False


def invalid_headers(survey: Survey) -> Iterator[str]:
    """Find tools with an `x-mcp-header` that clients of stateless HTTP must not use."""
    from wharfinger.protocol.http.headers import InvalidHeaderAnnotation, find_header_params

    for tool in survey.tools.items:
        try:
            find_header_params(tool.input_schema)
        except InvalidHeaderAnnotation as error:
            yield f"{tool.name} ({error})"


def hint(tool: Any, name: str) -> bool | None:
    """Return an annotation of a tool, or None if it is not set."""
    value = getattr(tool.annotations, name, None)
    return value if isinstance(value, bool) else None


def invalid_templates(survey: Survey) -> Iterator[str]:
    """Find templates that RFC 6570 does not allow."""
    from wharfinger.protocol.uri.template import InvalidTemplate, UriTemplate

    for item in survey.templates.items:
        try:
            UriTemplate(item.uri_template)
        except InvalidTemplate as error:
            yield f"{item.uri_template} ({error})"


def unreadable(survey: Survey) -> Iterator[str]:
    """Find listed resources that could not be read."""
    listed = {item.uri for item in survey.resources.items}
    return (f"{uri} ({read.error})" for uri, read in survey.reads.items() if read.error and uri in listed)


def wrong_sizes(survey: Survey) -> Iterator[str]:
    """Find resources whose content has a different size than the list says."""
    sizes = {item.uri: item.size for item in survey.resources.items if isinstance(item.size, int)}
    for uri, parts in own_contents(survey):
        if uri not in sizes or len(parts) != 1:
            continue
        part = parts[0]
        if isinstance(part.meta, dict) and any(name.endswith(("/encoding", "/window")) for name in part.meta):
            continue  # it was decoded, or is only a part of the resource
        size = len(part.blob if isinstance(part.blob, bytes) else str(part.text or "").encode())
        if size != sizes[uri]:
            yield f"{uri} ({size:,} bytes, listed {sizes[uri]:,})"


def wrong_mime_types(survey: Survey) -> Iterator[str]:
    """Find resources whose content has a different MIME type than the list says."""
    types = {item.uri: text_of(item.mime_type) for item in survey.resources.items}
    for uri, parts in own_contents(survey):
        read, listed = text_of(parts[0].mime_type) if parts else "", types.get(uri, "")
        if read and listed not in ("", "inode/directory") and essence_of(read) != essence_of(listed):
            yield f"{uri} ({read}, listed {listed})"


def contradicted_types(survey: Survey) -> Iterator[str]:
    """Find resources whose content contradicts its own MIME type, or the MIME type in the list."""
    types = {item.uri: text_of(item.mime_type) for item in survey.resources.items}
    for uri, parts in own_contents(survey):
        for part in parts[:1]:
            meta: Any = {} if part.meta is UNSET else part.meta
            complete = "wharfinger/window" not in meta and "wharfinger/next" not in meta
            value = part.text if isinstance(part.text, str) else part.blob
            declared = dict.fromkeys((text_of(part.mime_type), types.get(uri, "")))
            content = value if isinstance(value, str | bytes) else b""
            problems = (contradiction(kind, content, complete=complete) for kind in declared)
            if problem := next(filter(None, problems), ""):
                yield f"{uri} ({problem})"


def own_contents(survey: Survey) -> Iterator[tuple[str, list[t.ResourceContents]]]:
    """Yield each resource that was read, with the contents that have its URI."""
    for uri, read in survey.reads.items():
        if not read.error:
            yield uri, [part for part in read.contents if part.uri == uri]


def outages(survey: Survey) -> Iterator[str]:
    """Find sources whose data is missing or could not be renewed, as their entries in the list say."""
    from wharfinger.source import PROBLEM

    for item in survey.resources.items:
        problem = text_of((item.meta or {}).get(PROBLEM))
        if problem:
            yield f"{item.uri}: {problem}"


def missing_pages(survey: Survey) -> Iterator[str]:
    """Find tools that name a page (MCP Apps) which is neither listed nor readable."""
    listed = {item.uri for item in survey.resources.items}
    for tool in survey.tools.items:
        uri = app_uri_of(tool)
        read = survey.reads.get(uri)
        if uri not in listed and read is not None and read.error:
            yield f"{tool.name} ({uri})"


def pages_of_another_type(survey: Survey) -> Iterator[str]:
    """Find pages (MCP Apps) with a MIME type that hosts do not show."""
    from wharfinger.types.apps import MIME_TYPE

    for item in survey.resources.items:
        if item.uri.startswith("ui://") and text_of(item.mime_type) != MIME_TYPE:
            yield f"{item.uri} ({text_of(item.mime_type) or 'none'})"


KNOWN_SCHEMES = frozenset({"file", "http", "https", "data", "ui", "mailto", "urn", "git", "skill"})
"""Schemes that hosts and models know, or that a specification defines."""


def unexplained_schemes(survey: Survey) -> Iterator[str]:
    """Find schemes of the server's own whose URIs and parameters are not explained anywhere.

    The description of a template or a resource explains its scheme, and so do instructions that name the scheme.
    """
    schemes: dict[str, str] = {}
    explained: set[str] = set()
    for item, uri in (
        *((item, item.uri) for item in survey.resources.items),
        *((item, item.uri_template) for item in survey.templates.items),
    ):
        scheme = uri.partition(":")[0].casefold()
        schemes.setdefault(scheme, uri)
        if text_of(item.description):
            explained.add(scheme)
    named = survey.instructions.casefold()
    for scheme, uri in schemes.items():
        if scheme not in KNOWN_SCHEMES and scheme not in explained and f"{scheme}:" not in named:
            yield f"{scheme}: ({uri})"


def failed_lists(survey: Survey) -> Iterator[str]:
    """Find lists that end with an error."""
    return (f"{name} ({listed.error})" for name, listed in lists_of(survey) if listed.error)


def large_pages(survey: Survey) -> Iterator[str]:
    """Find lists with too many items on a page."""
    return (
        f"{name} ({listed.largest_page:,} on a page)"
        for name, listed in lists_of(survey)
        if listed.largest_page > MAX_PAGE_ITEMS
    )


def empty_capabilities(survey: Survey) -> Iterator[str]:
    """Find capabilities that are declared although nothing is listed."""
    for name, listed in lists_of(survey):
        declared = getattr(survey.capabilities, name, UNSET)
        empty = not (listed.items or listed.error or (name == "resources" and survey.templates.items))
        if isinstance(declared, msgspec.Struct) and empty:
            yield name


def no_handshake(survey: Survey) -> bool:
    """Return whether the server was tried in every revision and speaks none that opens with `initialize`."""
    from wharfinger.protocol.revisions import HANDSHAKE

    return bool(survey.unsupported) and not set(survey.supported) & set(HANDSHAKE)


def no_stateless(survey: Survey) -> bool:
    """Return whether the server was tried in every revision and speaks no stateless one."""
    from wharfinger.protocol.revisions import STATELESS

    return bool(survey.unsupported) and not set(survey.supported) & set(STATELESS)
