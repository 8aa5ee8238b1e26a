"""JSON Schemas of Python types, and hooks that decode and encode the types that msgspec does not support.

Pydantic models are recognized by their methods; pydantic is never imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin

import msgspec

__all__ = ["FieldFacts", "ModelErrors", "facts_of", "from_json", "is_model", "json_schema", "to_json", "to_msgspec"]

DEFS = "#/$defs/"
MAX_SCHEMAS = 256
"""The maximum number of schemas of classes that are cached."""
_Mode = Literal["validation", "serialization"]


class ModelErrors(ValueError):
    """The validation errors of a model: pairs of the path inside the model and the reason."""

    faults: list[tuple[tuple[str | int, ...], str]]

    def __init__(self, faults: list[tuple[tuple[str | int, ...], str]]) -> None:
        self.faults = faults
        super().__init__("does not fit")


def is_model(kind: Any) -> bool:
    """Return whether a type is a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate_json")


# --- schemas ----------------------------------------------------------------------------------------------------------


def json_schema(*kinds: Any, mode: _Mode = "validation") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a JSON Schema (2020-12) for each type, and the `$defs` that they refer to.

    `mode` is for pydantic models only: the schema of the values that they accept, or of those that they produce.

    Raises:
        TypeError: a type has no schema, or two different types have the same name.
    """
    if not kinds:
        return [], {}
    make = _cached_schemas if all(isinstance(kind, type) for kind in kinds) else _make_schemas
    found, shared = make(kinds, mode)
    return [dict(schema) for schema in found], dict(shared)


def _make_schemas(kinds: tuple[Any, ...], mode: _Mode) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    definitions: dict[str, Any] = {}
    hook = functools.partial(_unsupported_schema, definitions, mode)
    schemas, shared = msgspec.json.schema_components(kinds, schema_hook=hook, ref_template=DEFS + "{name}")
    for name, schema in shared.items():
        _add_definition(definitions, name, schema)
    return schemas, definitions


_cached_schemas = functools.lru_cache(MAX_SCHEMAS)(_make_schemas)
"""Only for classes: two equal unions or literals may have their members in a different order."""


def _unsupported_schema(definitions: dict[str, Any], mode: _Mode, kind: Any) -> dict[str, Any]:
    if is_model(kind):
        schema: dict[str, Any] = kind.model_json_schema(ref_template=DEFS + "{model}", mode=mode)
        for name, inner in schema.pop("$defs", {}).items():
            _add_definition(definitions, name, inner)
        return schema
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return {"type": "string"}
    raise NotImplementedError


def _add_definition(definitions: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    if definitions.setdefault(name, schema) != schema:
        raise TypeError(f"two different types are called {name!r}: rename one")


# --- reading and writing ----------------------------------------------------------------------------------------------


def from_json(kind: Any, value: Any) -> Any:
    """msgspec's `dec_hook`: converts a decoded JSON value to a type that msgspec does not support.

    Raises:
        ValueError: the value is not valid for the type.
    """
    if is_model(kind):
        return _model_from(kind, value)
    if issubclass(kind, PurePath):
        if isinstance(value, str):
            return kind(value)
        raise ValueError("expected a string")
    raise NotImplementedError


_PLAIN_REASONS: Mapping[str, str] = {
    "missing": "missing",
    "extra_forbidden": "no such member",
    "union_tag_invalid": "is not of an allowed kind",
    "int_type": "expected an integer",
    "string_type": "expected a string",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "list_type": "expected an array",
    "dict_type": "expected an object",
    "model_type": "expected an object",
}
"""The texts for pydantic's error types.

Its other messages, and those of the author's validators, are passed on; pydantic's own contain no values.
"""


def _model_from(kind: Any, value: Any) -> Any:
    try:
        return kind.model_validate_json(msgspec.json.encode(value), strict=True)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        faults: list[Any] = cast("Any", error).errors(include_url=False, include_context=False, include_input=False)
        reasons = [(tuple(fault["loc"]), _reason(fault["type"], fault["msg"])) for fault in faults]
    raise ModelErrors(reasons)


def _reason(kind: str, message: str) -> str:
    if kind in _PLAIN_REASONS:
        return _PLAIN_REASONS[kind]
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return text if text != message else text[:1].lower() + text[1:]  # an author's own text is unchanged


def to_json(value: Any) -> Any:
    """msgspec's `enc_hook`: converts a value of a type that msgspec does not support.

    Raises:
        TypeError, ValueError: JSON cannot express it.
    """
    if hasattr(value, "model_dump_json") and not isinstance(value, type):
        return msgspec.Raw(value.model_dump_json(by_alias=True).encode())
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"JSON cannot express {type(value).__name__}")


# --- constraints next to a type -----------------------------------------------------------------------------


class FieldFacts(NamedTuple):
    """The declarations of a marker next to a type: pydantic's `Field`, or a class of `annotated_types`."""

    description: str
    meta: msgspec.Meta | None
    """Constraints, title and examples, in msgspec's form."""
    default: Callable[[], Any] | None
    """Makes the default; None if the marker has none."""


_CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


def facts_of(extra: Any) -> FieldFacts | None:
    """Return the declarations of a marker in `Annotated` or as a default; None if it is not a marker.

    Raises:
        TypeError: it has an alias, which parameters cannot have.
    """
    module = type(extra).__module__
    if type(extra).__name__ == "FieldInfo" and hasattr(extra, "is_required"):
        if extra.validation_alias is not None or extra.alias is not None:
            raise TypeError("a parameter cannot have an alias: give it the name that callers use")
        facts = dict(_constraints(extra.metadata))
        if extra.title:
            facts["title"] = extra.title
        if extra.examples:
            facts["examples"] = list(extra.examples)
        if isinstance(extra.json_schema_extra, dict):
            facts["extra_json_schema"] = cast("dict[str, Any]", extra.json_schema_extra)
        default = None if extra.is_required() else functools.partial(extra.get_default, call_default_factory=True)
        return FieldFacts(extra.description or "", msgspec.Meta(**facts) if facts else None, default)
    if module == "annotated_types" or module.startswith("annotated_types."):
        facts = dict(_constraints([extra]))
        return FieldFacts("", msgspec.Meta(**facts), None) if facts else None
    return None


def to_msgspec(kind: Any) -> Any:
    """Return the same type with the constraints and descriptions of other libraries in msgspec's form.

    Those in the fields of a dataclass, TypedDict or Struct, and in a `type` alias, are not converted, and so ignored.

    Raises:
        TypeError: as for `facts_of`.
    """
    if kind is object:
        return Any  # people write `object` for Any to satisfy strict type checkers
    origin, inner = get_origin(kind), get_args(kind)
    if not inner or origin is Literal:
        return kind
    if origin is Annotated:
        found = [facts for extra in inner[1:] if (facts := facts_of(extra)) is not None]
        metas = [facts.meta for facts in found if facts.meta is not None]
        metas += [msgspec.Meta(description=facts.description) for facts in found if facts.description]
        converted = to_msgspec(inner[0])
        if converted is inner[0] and not metas:
            return kind
        own_metas = [extra for extra in inner[1:] if isinstance(extra, msgspec.Meta)]
        for meta in (*own_metas, *metas):
            converted = Annotated[converted, meta]
        return converted
    parts = tuple(to_msgspec(part) for part in inner)
    if all(part is before for part, before in zip(parts, inner, strict=True)):
        return kind
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007


def _constraints(markers: Any) -> Iterator[tuple[str, Any]]:
    for marker in markers:
        for name in _CONSTRAINTS:
            value = getattr(marker, name, None)
            if value is not None:
                yield name, value
