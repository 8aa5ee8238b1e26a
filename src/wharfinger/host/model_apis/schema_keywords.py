"""The keywords of JSON Schema 2020-12 that describe or restrict a value, with a check of the form of each."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from wharfinger.content.decoded_json import is_list, is_object

__all__ = [
    "ABOUT_THE_SCHEMA",
    "ANNOTATIONS",
    "KEYWORDS",
    "NAMED_SCHEMAS",
    "NEVER_KEPT",
    "NOT_NOTED",
    "ONE_SCHEMA",
    "REFERENCES",
    "SEVERAL_SCHEMAS",
    "is_anything",
    "is_count",
    "is_flag",
    "is_names",
    "is_nonempty_list",
    "is_number",
    "is_pattern",
    "is_schema",
    "is_text",
    "is_type",
    "items_of",
    "members_of",
    "names_in",
    "text_in",
    "types_of",
]

Schema = dict[str, Any]

_FLAGS = re.compile(r"\(\?[A-Za-z-]+(?=[:)])")
"""Flags in a pattern, such as `(?i)`."""
_CHARACTER = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)|[^\x00-\x7f]", re.DOTALL)
"""An escaped character of a pattern, or one that is not ASCII."""

TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str)


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_anything(value: Any) -> bool:
    return True


def is_nonempty_list(value: Any) -> TypeGuard[list[Any]]:
    return is_list(value) and bool(value)


def is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def is_names(value: Any) -> TypeGuard[list[str]]:
    return is_list(value) and all(isinstance(name, str) for name in value)


def is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return is_nonempty_list(value) and all(item in TYPES for item in value)


def is_pattern(value: Any) -> bool:
    try:
        re.compile(_quick(value) if isinstance(value, str) and len(value) <= 10_000 else "(")
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _quick(pattern: str) -> str:
    """Return a pattern of the same form that is compiled in linear time.

    Each range takes milliseconds if it ignores case, or has characters beyond Latin-1. So flags are left out, and each
    character is replaced by one of Latin-1, in the same order.
    """
    return _CHARACTER.sub(_latin_character, _FLAGS.sub("(?:", pattern))


def _latin_character(match: re.Match[str]) -> str:
    text, digits = match[0], match[1] or match[2]
    code = int(digits, 16) if digits else ord(text) if len(text) == 1 else 0
    return chr(128 + code * 127 // sys.maxunicode) if 128 <= code <= sys.maxunicode else text


KEYWORDS: Mapping[str, Callable[[Any], bool]] = {
    "type": is_type,
    "title": is_text,
    "description": is_text,
    "enum": is_nonempty_list,
    "const": is_anything,
    "default": is_anything,
    "examples": is_list,
    "format": is_text,
    "pattern": is_pattern,
    "minLength": is_count,
    "maxLength": is_count,
    "minimum": is_number,
    "maximum": is_number,
    "exclusiveMinimum": is_number,
    "exclusiveMaximum": is_number,
    "multipleOf": lambda value: is_number(value) and value > 0,
    "items": is_schema,
    "prefixItems": is_nonempty_list,
    "minItems": is_count,
    "maxItems": is_count,
    "uniqueItems": is_flag,
    "contains": is_schema,
    "minContains": is_count,
    "maxContains": is_count,
    "unevaluatedItems": is_schema,
    "properties": is_object,
    "required": is_names,
    "additionalProperties": is_schema,
    "patternProperties": is_object,
    "propertyNames": is_schema,
    "minProperties": is_count,
    "maxProperties": is_count,
    "dependentRequired": lambda value: is_object(value) and all(is_names(names) for names in value.values()),
    "dependentSchemas": is_object,
    "unevaluatedProperties": is_schema,
    "anyOf": is_nonempty_list,
    "oneOf": is_nonempty_list,
    "allOf": is_nonempty_list,
    "not": is_schema,
    "if": is_schema,
    "then": is_schema,
    "else": is_schema,
}
"""The keywords of JSON Schema 2020-12 that describe or restrict a value, each with a check of its form."""

NEVER_KEPT = frozenset(
    ("not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "minContains", "maxContains", "oneOf")
)
"""Keywords that would allow less if a part of them, or a keyword beside them, were dropped. No API needs them."""

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
ONE_SCHEMA = frozenset(("items", "contains", "unevaluatedItems", "not", "if", "then", "else")) | frozenset(
    ("additionalProperties", "propertyNames", "unevaluatedProperties")
)
SEVERAL_SCHEMAS = frozenset(("prefixItems", "anyOf", "oneOf", "allOf"))
NAMED_SCHEMAS = frozenset(("properties", "patternProperties", "dependentSchemas"))
ABOUT_THE_SCHEMA = frozenset(
    ("$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$vocabulary")
) | frozenset(("$defs", "definitions", *REFERENCES))
"""Keywords without effect on a value after references are rewritten, so dropping them is not reported."""
NOT_NOTED = frozenset(("title", "description", "prefixItems", "unevaluatedItems", "unevaluatedProperties"))
"""Keywords that the description of the narrowed schema does not repeat when they are dropped."""
ANNOTATIONS = frozenset(("title", "description", "default", "examples"))


def types_of(value: Any) -> list[Any]:
    return value if is_list(value) else [] if value is None else [value]


def names_in(value: Any) -> list[str]:
    return value if is_names(value) else []


def members_of(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if is_object(value) else []


def items_of(value: Any) -> list[tuple[int, Any]]:
    return list(enumerate(value)) if is_list(value) else []


def text_in(value: Any) -> str:
    return value if isinstance(value, str) else ""
