"""Resource templates of a client: makes URIs from values, reads them and completes values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wharfinger import types as t
from wharfinger.client.results import ReadResult
from wharfinger.errors import InvalidResponse, RemoteResourceNotFound
from wharfinger.protocol.uri.template import Expression, UriTemplate

if TYPE_CHECKING:
    from wharfinger.client.client import Client

__all__ = ["Template"]

REQUIRED_OPERATORS = ("", "+")
"""Operators of expressions that need a value: without one the URI would have a gap."""
SHOWN_NAMES, SHOWN_CHARACTERS = 10, 100
"""An error shows this many names of templates, and this many characters of each."""
MAX_TEMPLATE_CHARACTERS = 64 * 1024
"""The maximum length of a template that a server may list: parsing one takes 20 to 50 µs for each variable."""


class Template:
    """The resources of a URI template: `await client.template("log://{vessel}").read(vessel="mary")`."""

    def __init__(self, client: Client, name: str | t.ResourceTemplate, timeout: float | None = None) -> None:
        """If `name` is the name of a template, the first use looks it up.

        Raises:
            InvalidTemplate: it is not a URI template.
        """
        self._name = name if isinstance(name, str) else name.name
        self._client, self._timeout = client, timeout
        self._parsed: UriTemplate | None = None
        if isinstance(name, t.ResourceTemplate):
            self._parsed = UriTemplate(name.uri_template)
        elif "{" in name:
            self._parsed = UriTemplate(name)

    def __repr__(self) -> str:
        return f"<Template {self._name if self._parsed is None else self._parsed.text!r}>"

    async def uri(self, **values: object) -> str:
        """Return the URI for these values: text, numbers, lists or maps; None means no value.

        Raises:
            TypeError: a value is missing or cannot be put into a URI, or the template has no such variable.
            ResourceNotFound: the server has no template of that name.
            InvalidTemplate, InvalidResponse: the server's template of that name is malformed, or too long.
        """
        template = await self._template()
        unknown = values.keys() - set(template.variables)
        if unknown:
            known = ", ".join(template.variables) or "none"
            raise TypeError(f"{template.text} has no variable {', '.join(sorted(unknown))}: its variables are {known}.")
        missing = [
            variable.name
            for part in template.parts
            if isinstance(part, Expression) and part.operator in REQUIRED_OPERATORS
            for variable in part.variables
            if variable.name not in values
        ]
        if missing:
            raise TypeError(f"{template.text} needs a value for {', '.join(missing)} (None to leave it out).")
        return template.expand(values)

    async def read(self, **values: object) -> ReadResult:
        """Read the resource with these values; raises what `uri` and `Client.read_resource` raise."""
        return await self._client.read_resource(await self.uri(**values), timeout=self._timeout)

    async def complete(self, variable: str, value: str = "", /, **others: str) -> t.Completion:
        """Complete the beginning of a variable's value; `others` are known values of other variables."""
        template = await self._template()
        ref = t.ResourceTemplateReference(uri=template.text)
        return await self._client.complete(ref, variable, value, others or None, timeout=self._timeout)

    async def _template(self) -> UriTemplate:
        if self._parsed is not None:
            return self._parsed
        names: list[str] = []
        async for template in self._client.list_resource_templates(timeout=self._timeout):
            if template.name == self._name:
                text = template.uri_template
                if len(text) > MAX_TEMPLATE_CHARACTERS:
                    characters = f"{len(text)} characters; {MAX_TEMPLATE_CHARACTERS} are allowed"
                    raise InvalidResponse(f"The template {self._name!r} has {characters}.")
                self._parsed = UriTemplate(text)
                return self._parsed
            if len(names) < SHOWN_NAMES:
                names.append(template.name[:SHOWN_CHARACTERS])
        message = f"The server has no template {self._name!r}; it has: {', '.join(names) or 'none'}"
        raise RemoteResourceNotFound(RemoteResourceNotFound.code, message, {"uri": self._name})
