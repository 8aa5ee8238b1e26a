"""Results of tools against the output schemas that their server listed; fetches nothing, and is never held up."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidResponse, MissingExtra

__all__ = ["Outputs"]

logger = logging.getLogger("wharfinger.client")

MOST_TOOLS = 10_000
"""Tools whose schema is remembered."""
LARGEST = 4 * 1024 * 1024
"""Bytes of a structured content that is checked."""
MOST_WORK = 3_000_000
"""Applications of a schema to a value that one check may take, at worst: about 0.2 s."""
MOST_MATCHED = 1024 * 1024
"""Bytes of text times patterns, likewise."""
BYTES_PER_STEP = 16
"""What a large `enum` costs beside its one schema: as much as so many schemas as it has times these bytes."""


class Outputs:
    """By tool: what its results must fit, as far as tools were listed.

    What would take too long to check is not checked: a server must not be able to hold its client up.
    """

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        """The schemas as they were listed; None where one cannot be used, and a checker once one was."""

    def remember(self, tool: t.Tool) -> None:
        """Keep what a tool says of its results."""
        self._given.pop(tool.name, None)
        if tool.output_schema is not UNSET and len(self._given) < MOST_TOOLS:
            self._given[tool.name] = tool.output_schema

    def check(self, name: str, result: t.CallToolResult) -> None:
        """Accept a result that fits, or that nothing is known of.

        Raises:
            InvalidResponse: it has no structured content although its tool says so, or one that does not fit.
        """
        schema = self._given.get(name)
        if schema is None:
            return
        value = result.structured_content
        if value is UNSET:
            raise InvalidResponse(f"The tool {name!r} has an output schema, and gave no structured content.")
        if isinstance(schema, dict):
            schema = self._given[name] = _compiled(name, schema)
            if schema is None:
                return
        if not _is_small(schema, value) or schema.fits(value):
            return
        faults = "; ".join(schema.faults(value)[:4])
        raise InvalidResponse(f"The result of the tool {name!r} is not what its output schema says: {faults}")


def _compiled(name: str, schema: Any) -> Any:
    """A checker; None where there is no library for it, or the schema cannot be used."""
    from wharfinger.protocol.json_schema import CompiledSchema, InvalidSchema  # on use: few clients need it

    try:
        return CompiledSchema(schema, f"output schema of the tool {name!r}", trusted=False)
    except MissingExtra:
        return None
    except InvalidSchema as error:
        logger.warning("results are not checked: %s", error)
        return None


def _is_small(schema: Any, value: Any) -> bool:
    """Whether the check of a value is quick for certain."""
    data = msgspec.json.encode(value)
    values = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
    each = schema.weight + len(msgspec.json.encode(schema.schema)) // BYTES_PER_STEP
    if len(data) <= LARGEST and values * each <= MOST_WORK and len(data) * schema.patterns <= MOST_MATCHED:
        return True
    logger.debug("a result is too large to be checked in time")
    return False
