"""The part of JSON Schema that describes a form for a user."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from .base import WireStruct

__all__ = ["EnumItems", "EnumOption", "PrimitiveSchema", "PrimitiveSchemaDefinition", "check_primitive_schema"]


class EnumOption(WireStruct, kw_only=True):
    """One choice: the value, and its title."""

    const: str
    title: str


class EnumItems(WireStruct, kw_only=True):
    """The choices of a multiple-choice field: `enum` with `type` string, or `any_of` with titles."""

    type: Literal["string"] | UnsetType = UNSET
    enum: list[str] | UnsetType = UNSET
    any_of: list[EnumOption] | UnsetType = UNSET


class PrimitiveSchema(WireStruct, kw_only=True):
    """One field of a form: text, number, boolean, single choice or multiple choice.

    In the protocol's schema these are `StringSchema`, `NumberSchema`, `BooleanSchema` and the five variants of
    `EnumSchema`, which differ only in their members; see `check_primitive_schema`.
    """

    type: Literal["string", "number", "integer", "boolean", "array"]
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    default: str | int | float | bool | list[str] | UnsetType = UNSET
    # text
    format: Literal["email", "uri", "date", "date-time"] | UnsetType = UNSET
    min_length: int | UnsetType = UNSET
    max_length: int | UnsetType = UNSET
    # number
    minimum: int | float | UnsetType = UNSET
    maximum: int | float | UnsetType = UNSET
    # single choice: plain, with titles, and with titles as before 2025-11-25
    enum: list[str] | UnsetType = UNSET
    one_of: list[EnumOption] | UnsetType = UNSET
    enum_names: list[str] | UnsetType = UNSET
    # multiple choice
    items: EnumItems | UnsetType = UNSET
    min_items: int | UnsetType = UNSET
    max_items: int | UnsetType = UNSET


PrimitiveSchemaDefinition = PrimitiveSchema
"""The name in the protocol's schema."""

_COMMON = frozenset(("type", "title", "description", "default"))
_MEMBERS: dict[str, frozenset[str]] = {
    "string": _COMMON | {"format", "min_length", "max_length", "enum", "one_of", "enum_names"},
    "number": _COMMON | {"minimum", "maximum"},
    "integer": _COMMON | {"minimum", "maximum"},
    "boolean": _COMMON,
    "array": _COMMON | {"items", "min_items", "max_items"},
}


def check_primitive_schema(schema: PrimitiveSchema) -> None:
    """Check that a schema is one of those that the protocol allows.

    Raises:
        ValueError: a member does not belong to the type or is missing, or the default is of another type.
    """
    names = {name for name in schema.__struct_fields__ if getattr(schema, name) is not UNSET}
    if extra := names - _MEMBERS[schema.type]:
        raise ValueError(f"A field of the type {schema.type} cannot have {', '.join(sorted(extra))}.")
    if schema.enum is not UNSET and schema.one_of is not UNSET:
        raise ValueError("A choice has either enum or oneOf.")
    if schema.enum_names is not UNSET and schema.enum is UNSET:
        raise ValueError("enumNames belong to enum.")
    if schema.type == "array":
        items = schema.items
        if items is UNSET or (items.enum is UNSET) == (items.any_of is UNSET):
            raise ValueError("An array field has items with either enum or anyOf.")
    if schema.default is not UNSET and not _fits(schema.default, schema.type):
        raise ValueError(f"The default of a field of the type {schema.type} cannot be {schema.default!r}.")


def _fits(value: object, type: str) -> bool:
    if type == "array":
        return isinstance(value, list)
    if type == "boolean" or isinstance(value, bool):
        return type == "boolean" and isinstance(value, bool)
    if type == "string":
        return isinstance(value, str)
    return isinstance(value, int) or (isinstance(value, float) and (type == "number" or value.is_integer()))
