"""Encode values of the body as HTTP headers (`Mcp-Name`, `Mcp-Param-…`), and decode and check them."""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from wharfinger.content.decoded_json import is_list, is_mapping
from wharfinger.errors import HeaderMismatch, WharfingerError

__all__ = [
    "HeaderParam",
    "InvalidHeaderAnnotation",
    "check_arguments",
    "check_params",
    "decode_value",
    "encode_value",
    "find_header_params",
    "param_headers",
]

_PREFIX, _SUFFIX = "=?base64?", "?="
_TOKEN_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_is_number = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?").fullmatch
"""Matches a decimal number. `float` also accepts `1_0`, blanks, and digits of other scripts."""
_MAX_NUMBER_CHARACTERS = 32
_MAX_EXACT_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""


def encode_value(text: str) -> bytes:
    """Encode a string as a header value: unchanged if that is safe, else in base64 (2026-07-28, header encoding)."""
    plain = text.isascii() and text.isprintable() and text == text.strip(" ")
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text.encode()
    return b"=?base64?" + b2a_base64(text.encode(), newline=False) + b"?="


def decode_value(value: bytes) -> str:
    """Decode a header value; a value without both markers is literal.

    Raises:
        HeaderMismatch: the base64 is invalid, or the text is not UTF-8.
    """
    text = value.decode("latin-1").strip(" \t")
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= len(_PREFIX) + len(_SUFFIX)):
        try:
            return text.encode("latin-1").decode()
        except UnicodeDecodeError:
            raise HeaderMismatch("A header value is not UTF-8: encode it as =?base64?…?=.") from None
    try:
        return a2b_base64(text[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except (Base64Error, ValueError):
        raise HeaderMismatch("A header value is not valid base64 of UTF-8 between =?base64? and ?=.") from None


class InvalidHeaderAnnotation(WharfingerError):
    """A tool's schema uses `x-mcp-header` in a way that is not allowed: HTTP clients omit the tool."""


class HeaderParam(Struct, frozen=True):
    """One argument that is repeated in an HTTP header."""

    header: bytes
    """The header in lower case, with the prefix `mcp-param-`."""
    path: tuple[str, ...]
    """Property names from the root of the arguments."""


def find_header_params(schema: Mapping[str, Any]) -> tuple[HeaderParam, ...]:
    """Return the annotated properties of a tool's input schema (2026-07-28, `x-mcp-header`).

    Raises:
        InvalidHeaderAnnotation: an annotation is not a token, is used twice, is not on a string, integer or boolean, or
            is not reachable from the root through `properties` alone.
    """
    params: list[HeaderParam] = []
    stack: list[tuple[Any, tuple[str, ...], bool]] = [(schema, (), True)]
    while stack:
        node, path, reachable = stack.pop()
        if is_mapping(node):
            if "x-mcp-header" in node:
                params.append(_read_annotation(node, path, reachable))
            for key, value in node.items():
                if key == "properties" and is_mapping(value):
                    stack.extend((child, (*path, name), reachable) for name, child in value.items())
                elif key not in ("x-mcp-header", "const", "enum", "default", "examples"):
                    stack.append((value, path, False))
        elif is_list(node):
            stack.extend((child, path, False) for child in node)
    if len({param.header for param in params}) != len(params):
        raise InvalidHeaderAnnotation("Two properties use the same x-mcp-header name.")
    return tuple(sorted(params, key=lambda param: param.header))


def _read_annotation(node: Mapping[str, Any], path: tuple[str, ...], reachable: bool) -> HeaderParam:
    token = node["x-mcp-header"]
    if not isinstance(token, str) or not token or not _TOKEN_CHARACTERS.issuperset(token):
        raise InvalidHeaderAnnotation("x-mcp-header must be a header name (RFC 9110 token).")
    if node.get("type") not in ("string", "integer", "boolean"):
        raise InvalidHeaderAnnotation(f"x-mcp-header {token!r} must be on a string, an integer or a boolean.")
    if not reachable or not path:
        raise InvalidHeaderAnnotation(f"x-mcp-header {token!r} must be reachable through properties alone.")
    return HeaderParam(f"mcp-param-{token.lower()}".encode(), path)


def param_headers(params: Sequence[HeaderParam], arguments: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Return the headers that a client sends with these arguments; absent and null values have none.

    Raises:
        ValueError: an integer is so large that not every JSON reader represents it exactly.
    """
    values = ((param.header, _value_at(arguments, param.path)) for param in params)
    return [(name, encode_value(_text(value))) for name, value in values if value is not None]


def check_params(params: Sequence[HeaderParam], headers: Mapping[bytes, bytes], arguments: Mapping[str, Any]) -> None:
    """Raise HeaderMismatch if an `Mcp-Param-…` header is missing, malformed or differs from its argument."""
    for param in params:
        header, value = headers.get(param.header), _value_at(arguments, param.path)
        if (header is None) != (value is None):
            raise HeaderMismatch(f"{param.header.decode()} and its argument must both be sent, or neither.")
        if header is not None and not _matches(decode_value(header), value):
            raise HeaderMismatch(f"{param.header.decode()} and its argument differ.")


def check_arguments(params: Sequence[HeaderParam], headers: Mapping[bytes, bytes], arguments: Raw | UnsetType) -> None:
    """Decode the arguments and call `check_params`. The tool itself refuses arguments that are not an object.

    Raises:
        HeaderMismatch: a header does not match its argument.
    """
    if not params:
        return
    try:
        decoded: Any = {} if arguments is UNSET else msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        decoded = {}
    check_params(params, headers, decoded if is_mapping(decoded) else {})


def _value_at(arguments: Any, path: Sequence[str]) -> Any:
    value = arguments
    for name in path:
        value = value.get(name) if is_mapping(value) else None
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and abs(value) > _MAX_EXACT_INTEGER:
        raise ValueError("An integer in a header must lie within ±(2**53 - 1).")
    return str(value)


def _matches(text: str, value: Any) -> bool:
    if isinstance(value, str | bool):
        return text == _text(value)
    if not isinstance(value, int | float) or len(text) > _MAX_NUMBER_CHARACTERS or not _is_number(text):
        return False
    return float(text) == value
