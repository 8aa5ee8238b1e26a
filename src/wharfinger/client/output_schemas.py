"""Checks tool results against the output schemas that the server listed.

Schemas elsewhere that a `$ref` names are not loaded, and checks that could be slow are skipped.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidResponse, MissingExtra

__all__ = ["OutputSchemas"]

log = logging.getLogger("wharfinger.client")

MAX_TOOLS = 10_000
"""The maximum number of tools whose schemas are remembered."""
MAX_BYTES = 4 * 1024 * 1024
"""The maximum size in bytes of structured content that is checked."""
MAX_STEPS = 3_000_000
"""The maximum number of times that one check may apply a schema to a value in the worst case: about 0.2 s."""
MAX_PATTERN_BYTES = 1024 * 1024
"""The maximum product of the bytes of text and the number of patterns in one check."""
BYTES_PER_STEP = 16
"""This many bytes of the schema count as one more step for each value: a large `enum` is one schema, but slow."""


class OutputSchemas:
    """The output schemas of the tools that were listed.

    A result is not checked if that would take too long, so that a server cannot block its client.
    """

    def __init__(self) -> None:
        self.by_tool: dict[str, Any] = {}
        """The listed schemas. The first use replaces a schema by its checker, or by None if it cannot be used."""

    def learn(self, tool: t.Tool) -> None:
        """Remember the output schema of a tool."""
        self.by_tool.pop(tool.name, None)
        if tool.output_schema is not UNSET and len(self.by_tool) < MAX_TOOLS:
            self.by_tool[tool.name] = tool.output_schema

    def check(self, name: str, result: t.CallToolResult) -> None:
        """Check a result. The results of a tool without a schema pass.

        Raises:
            InvalidResponse: it does not match the tool's output schema, or has no structured content.
        """
        checker = self.by_tool.get(name)
        if checker is None:
            return
        if isinstance(checker, dict):  # the schema, before its first use
            checker = self.by_tool[name] = _compile(name, checker)
            if checker is None:
                return
        value = result.structured_content
        if value is UNSET:
            raise InvalidResponse(f"The tool {name!r} has an output schema, but returned no structured content.")
        if not _is_quick_to_check(checker, value) or checker.fits(value):
            return
        faults = "; ".join(checker.faults(value, "structuredContent")[:4])
        raise InvalidResponse(f"The result of the tool {name!r} does not match its output schema: {faults}")


def _compile(name: str, schema: Any) -> Any:
    """Return a checker; None if the extra `schema` is not installed or the schema cannot be used."""
    from wharfinger.protocol.json_schema import CompiledSchema, InvalidSchema  # on use: few clients need it

    try:
        return CompiledSchema(schema, f"output schema of the tool {name!r}", trusted=False)
    except MissingExtra:
        return None
    except InvalidSchema as error:
        log.warning("results are not checked: %s", error)
        return None


def _is_quick_to_check(checker: Any, value: Any) -> bool:
    """Return whether checking a value is quick even in the worst case."""
    data = msgspec.json.encode(value)
    values = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
    steps_per_value = checker.weight + len(msgspec.json.encode(checker.schema)) // BYTES_PER_STEP
    if (
        len(data) <= MAX_BYTES
        and values * steps_per_value <= MAX_STEPS
        and len(data) * checker.pattern_count <= MAX_PATTERN_BYTES
    ):
        return True
    log.debug("a result is too large to be checked in time")
    return False
