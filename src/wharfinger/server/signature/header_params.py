"""`Header`: marks a parameter that HTTP clients repeat in a header, so that proxies can route by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.protocol.http.headers import HeaderParam, InvalidHeaderAnnotation, find_header_params

__all__ = ["KEYWORD", "Header", "header_params_of"]

KEYWORD = "x-mcp-header"


class Header:
    """Marks a parameter that a header repeats: `Annotated[str, Header("Region")]` is sent as `Mcp-Param-Region`.

    Only strings, integers and booleans can be repeated. Do not repeat secrets: proxies log headers. Clients of
    2026-07-28 send the header over HTTP. A call whose header differs from the argument is refused before the function
    runs.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def header_params_of(schema: Mapping[str, Any]) -> tuple[HeaderParam, ...]:
    """Return the arguments that headers repeat, from a tool's input schema.

    Raises:
        ValueError: `x-mcp-header` is used where it is not allowed, or twice with one name (2026-07-28).
    """
    if KEYWORD.encode() not in msgspec.json.encode(schema):
        return ()
    try:
        return find_header_params(schema)
    except InvalidHeaderAnnotation as error:
        raise ValueError(str(error)) from None
