"""Templates of resources as a client uses them: values in, a URI out, and what is there is read; matches nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from wharfinger import types as t
from wharfinger.client.results import ReadResult
from wharfinger.errors import InvalidResponse, RemoteResourceNotFound
from wharfinger.protocol.uri.template import Expression, UriTemplate

__all__ = ["Template", "no_template"]

NEEDED = ("", "+")
"""Operators of expressions that leave a hole in the URI where they have no value."""
SHOWN = 10
LONGEST_NAME = 100
"""Names of templates that an error shows, and characters of each."""
LONGEST = 64 * 1024
"""Characters of a template that a server may list: reading one takes 20 to 50 µs for each of its variables."""


def no_template(name: str, there: Sequence[str]) -> RemoteResourceNotFound:
    """The error for a name that no template has."""
    names = ", ".join(each[:LONGEST_NAME] for each in there[:SHOWN]) or "none"
    message = f"The server has no template {name!r}; it has: {names}"
    return RemoteResourceNotFound(RemoteResourceNotFound.code, message, {"uri": name})


class Template:
    """A family of resources, by its URI template: `await client.template("log://{vessel}").read(vessel="mary")`."""

    def __init__(
        self,
        name: str | t.ResourceTemplate,
        find: Callable[[str], Awaitable[t.ResourceTemplate]],
        read: Callable[[str], Awaitable[ReadResult]],
        complete: Callable[[str, str, str, dict[str, str]], Awaitable[t.Completion]],
    ) -> None:
        """`name` may be a name: then its template is looked up once, by `find`, when it is needed.

        Raises:
            InvalidTemplate: it is no URI template.
        """
        self._name = name if isinstance(name, str) else name.name
        self._find, self._read, self._complete = find, read, complete
        self._parsed: UriTemplate | None = None
        if isinstance(name, t.ResourceTemplate):
            self._parsed = UriTemplate(name.uri_template)
        elif "{" in name:
            self._parsed = UriTemplate(name)

    def __repr__(self) -> str:
        return f"<Template {self._name if self._parsed is None else self._parsed.text!r}>"

    async def uri(self, **values: Any) -> str:
        """The URI for these values: text, numbers, lists or maps; None is no value.

        Raises:
            TypeError: a value is missing, or has no place in a URI, or the template has no such variable.
            ResourceNotFound: the server has no template of that name.
        """
        template = await self._template()
        unknown = values.keys() - set(template.variables)
        if unknown:
            known = ", ".join(template.variables) or "none"
            raise TypeError(f"{template.text} has no variable {', '.join(sorted(unknown))}: its variables are {known}.")
        missing = [
            variable.name
            for part in template.parts
            if isinstance(part, Expression) and part.operator in NEEDED
            for variable in part.variables
            if variable.name not in values
        ]
        if missing:
            raise TypeError(f"{template.text} needs a value for {', '.join(missing)} (None for none).")
        return template.expand(values)

    async def read(self, **values: Any) -> ReadResult:
        """What is in the resource with these values; raises what `uri` and `Client.read_resource` raise."""
        return await self._read(await self.uri(**values))

    async def complete(self, variable: str, value: str = "", /, **others: str) -> t.Completion:
        """What `value` may be the beginning of, for one variable; `others` are those that are known already."""
        template = await self._template()
        return await self._complete(template.text, variable, value, others)

    async def _template(self) -> UriTemplate:
        if self._parsed is None:
            found = (await self._find(self._name)).uri_template
            if len(found) > LONGEST:
                raise InvalidResponse(
                    f"The template {self._name!r} has {len(found)} characters; {LONGEST} are allowed."
                )
            self._parsed = UriTemplate(found)
        return self._parsed
