"""Describes the queries of URIs, from the templates of a source and its `Source.parameters`.

The same words appear in the description of `read_resource`, in the list of the top folders, after a directory, and
after the first window of a long text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from wharfinger.content import mime
from wharfinger.content.text import shown
from wharfinger.policy.current import may_read_below, reads_source
from wharfinger.protocol.uri.template import InvalidTemplate, UnmatchableTemplate, UriTemplate
from wharfinger.source import Source

__all__ = ["explained", "parameters_at", "parameters_of_type", "queries_of", "template_entry", "with_queries"]

MAX_SOURCES = 12
"""Maximum number of kinds of sources that the description of a tool names."""
MAX_LINE_CHARACTERS = 300
"""Maximum number of characters about one source, or one kind of source."""

_QUERY = re.compile(r"\{[?&]([^}]*)\}")


def _query_variables(template: str) -> list[str]:
    """Return the variables in the query of a template: `["level", "text"]` of `log://app/{+path}{?level,text}`."""
    return [name.rstrip("*") for query in _QUERY.findall(template) for name in query.split(",")]


def _example(source: Source, name: str) -> str:
    """Return a parameter as it is written in a query, such as `level=error`."""
    example = source.parameters[name].example
    return f"{name}={example}" if example else name


def _common_parameters(source: Source) -> list[str]:
    """Return the parameters that all URIs of a source take."""
    template_names = {name for template in source.templates for name in _query_variables(template.uri_template)}
    return [name for name in source.parameters if name not in template_names]


def queries_of(source: Source) -> Iterator[str]:
    """Yield the queries of a source's URIs, such as `log://app/{+path}?level=error&text=word`.

    Parameters that exclude each other are all listed; if a read has several of them, the source's error says so.
    Parameters that only some types of resources take are left out: the descriptions of such resources name them.
    """
    general = {name for name, parameter in source.parameters.items() if not parameter.types}
    for template in source.templates:
        names = [name for name in _query_variables(template.uri_template) if name in general]
        if names and may_read_below(template.uri_template.partition("{")[0]):
            yield f"{_QUERY.sub('', template.uri_template)}?{'&'.join(_example(source, name) for name in names)}"
    if names := [name for name in _common_parameters(source) if name in general]:
        yield f"{(source.uri or source.name).rstrip('/')}/…{' '.join(f'?{_example(source, name)}' for name in names)}"


def explained(source: Source, *, parameters: bool = True) -> str:
    """Return the URI of a source and its queries in one line, or only the URI if `parameters` is False.

    `log://app: log://app/{+path}?tail=200&level=error; log://app/…?lines=1-200`. Parameters that only some types of
    resources take come last. A line of more than `MAX_LINE_CHARACTERS` has only the names of the parameters, and is cut
    if it is still too long.
    """
    top = shown(source.uri or source.name)
    if not parameters or not source.parameters:
        return top
    special = [_example(source, name) for name, parameter in source.parameters.items() if parameter.types]
    queries = [*queries_of(source), *([f"for some types ?{' ?'.join(special)}"] if special else [])]
    line = f"{top}: {'; '.join(queries)}"
    if len(line) > MAX_LINE_CHARACTERS:
        line = f"{top}: ?{' ?'.join(source.parameters)}"
    return _cut(line)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARACTERS else line[: MAX_LINE_CHARACTERS - 1] + "…"


def with_queries(description: str, sources: Iterable[Source]) -> str:
    """Return the description of a tool with the queries of these sources, once for each kind of source.

    It lists only sources of which the current caller may read something.
    """
    lines: dict[type[Source], str] = {}
    for source in sources:
        if type(source) not in lines and reads_source(source.uri) and (line := "; ".join(queries_of(source))):
            lines[type(source)] = _cut(line)
    if not lines:
        return description
    return "\n".join([description, "", "To read less, add a query:", *list(lines.values())[:MAX_SOURCES]])


def parameters_of_type(source: Source, mime_type: str) -> list[str]:
    """Return the parameters that are declared for this MIME type and not for all types, each with its meaning."""
    return [
        f"?{_example(source, name)}: {parameter.meaning}"
        for name, parameter in source.parameters.items()
        if mime_type in parameter.types
    ]


def parameters_at(source: Source, uri: str) -> list[str]:
    """Return the parameters of a URI, each with its meaning: `["?level=error: entries of this level and above"]`."""
    if not source.parameters:  # another server may have a thousand templates, which take a second to compile
        return []
    base = uri.partition("?")[0]
    names: list[str] = []
    for template in source.templates:
        with suppress(InvalidTemplate, UnmatchableTemplate):
            own = _query_variables(template.uri_template)
            if own and UriTemplate(_QUERY.sub("", template.uri_template)).match(base) is not None:
                names += own
    names += _common_parameters(source)
    kind = mime.by_name(unquote(base.rpartition("/")[2]))
    valid_names = [
        name
        for name in dict.fromkeys(names)
        if name in source.parameters and (not (types := source.parameters[name].types) or kind in types)
    ]
    return [f"?{_example(source, name)}: {source.parameters[name].meaning}" for name in valid_names]


def template_entry(source: Source | None, template: Any) -> dict[str, Any]:
    """Describe a template for a model: its text, its description, and the parameters of its query."""
    entry: dict[str, Any] = {"uriTemplate": template.uri_template}
    if description := template.description or template.title:
        entry["description"] = shown(str(description))[:MAX_LINE_CHARACTERS]
    if source is not None:
        parameters = {
            name: f"such as {parameter.example}: {parameter.meaning}" if parameter.example else parameter.meaning
            for name in _query_variables(template.uri_template) or _common_parameters(source)
            if (parameter := source.parameters.get(name)) is not None
        }
        entry |= {"parameters": parameters} if parameters else {}
    return entry
