"""Makes a flat form from a type, and a value of that type from the user's answer. Does no I/O.

A form has the fields that `elicitation/create` allows (2026-07-28, elicitation): text, numbers, booleans, dates, one
choice, or several choices. Constraints that a form cannot express, such as a pattern or the author's own validation,
are checked when the answer arrives.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.text import many
from wharfinger.protocol.revisions import Revision

__all__ = ["Form", "InvalidAnswer", "form_of"]

SINGLE_FIELD = "value"
"""The name of the only field of a form that asks for a single value."""
_MAX_CACHED_FORMS = 512
"""The maximum number of forms in the cache `_forms`."""


class InvalidAnswer(ValueError):
    """An answer that does not match the question; the message has a line for each fault, with its field."""


class Form:
    """A form: its fields by name, the required ones, and `build`, which makes the value from the checked fields."""

    __slots__ = ("_build", "fields", "nullable", "required")

    def __init__(
        self,
        fields: dict[str, t.PrimitiveSchema],
        required: list[str],
        build: Callable[[dict[str, Any]], Any],
        nullable: frozenset[str] = frozenset(),
    ) -> None:
        self.fields = fields
        self.required = required
        self._build = build
        self.nullable = nullable
        """Fields that become None if they are left empty."""

    def schema_for(self, rules: Revision) -> t.RequestedSchema:
        """Return the form's schema in this revision."""
        fields = self.fields
        if not rules.full_forms:
            fields = {name: _downgrade(field) for name, field in fields.items()}
        return t.RequestedSchema(type="object", properties=fields, required=self.required or UNSET)

    def read(self, content: Any) -> Any:
        """Return the value of an answer's `content`, which is decoded JSON; UNSET counts as an empty form.

        Raises:
            InvalidAnswer: a required field is missing, or a value is not valid.
        """
        if content is UNSET:
            content = {}
        if not isinstance(content, dict):
            raise InvalidAnswer("content: expected an object")
        answers = cast("dict[str, Any]", content)
        faults: list[str] = []
        values: dict[str, Any] = dict.fromkeys(self.nullable)
        for name, field in self.fields.items():
            value = answers.get(name)
            if value is None or (value == "" and name not in self.required and _empty_means_missing(field)):
                if name in self.required:
                    faults.append(f"{name}: missing")
                continue
            try:
                values[name] = _check(field, value)
            except ValueError as error:
                faults.append(f"{name}: {error}")
        if faults:
            raise InvalidAnswer("\n".join(faults))
        return self._build(values)


_forms: dict[type[Any], Form] = {}
"""The forms of classes. Two equal `Literal`s may have their choices in a different order, so they are not cached."""


def form_of(schema: Any) -> Form:
    """Return the form for a struct, dataclass, TypedDict or pydantic model, the type of a single value, or a schema.

    Raises:
        TypeError: a form cannot have one of the fields; the message names it.
    """
    if isinstance(schema, Mapping):
        return _from_schema(cast("Mapping[str, Any]", schema))
    form = _forms.get(schema) if isinstance(schema, type) else None
    if form is not None:
        return form
    if hasattr(schema, "model_json_schema"):  # pydantic, which is never imported here
        form = _from_model(schema)
    elif isinstance(schema, type) and _is_record(cast("type[Any]", schema)):
        form = _from_record(schema)
    else:
        form = _from_value_type(schema)
    if isinstance(schema, type) and len(_forms) < _MAX_CACHED_FORMS and not _has_default_factory(schema):
        _forms[schema] = form
    return form


def _has_default_factory(kind: type[Any]) -> bool:
    """Return whether a default is made by a function, which may return another one for the next form."""
    if issubclass(kind, msgspec.Struct):
        return any(field.default_factory is not msgspec.NODEFAULT for field in msgspec.structs.fields(kind))
    is_dataclass = dataclasses.is_dataclass(kind)
    return is_dataclass and any(item.default_factory is not dataclasses.MISSING for item in dataclasses.fields(kind))


def _is_record(kind: type[Any]) -> bool:
    return issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind) or is_typeddict(kind)


def _from_value_type(schema: Any) -> Form:
    """Return a form of one field."""
    field, required, nullable = _make_field(SINGLE_FIELD, _Member(SINGLE_FIELD, schema, True, UNSET), {})

    def build(values: dict[str, Any]) -> Any:
        return _convert({SINGLE_FIELD: values.get(SINGLE_FIELD)}, dict[str, schema])[SINGLE_FIELD]

    return Form(
        {SINGLE_FIELD: field}, [SINGLE_FIELD] if required else [], build, frozenset({SINGLE_FIELD} if nullable else ())
    )


# --- from types -------------------------------------------------------------------------------------------------------


class _Member(NamedTuple):
    name: str
    annotation: Any
    required: bool
    default: Any


def _members(kind: Any) -> Iterator[_Member]:
    if issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            default = _default_value(field.default, field.default_factory, msgspec.NODEFAULT)
            yield _Member(field.encode_name, field.type, field.required, default)
        return
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        needed: frozenset[str] = kind.__required_keys__
        for name, annotation in hints.items():
            bare, marks = _strip_marks(annotation)  # `__required_keys__` ignores marks in textual annotations
            yield _Member(name, bare, "NotRequired" not in marks and (name in needed or "Required" in marks), UNSET)
        return
    for item in dataclasses.fields(kind):
        default = _default_value(item.default, item.default_factory, dataclasses.MISSING)
        yield _Member(item.name, hints[item.name], default is UNSET, default)


def _strip_marks(annotation: Any) -> tuple[Any, set[str]]:
    """Return an annotation without `Required`, `NotRequired` and `ReadOnly`, and the names of those removed."""
    marks: set[str] = set()
    while (mark := str(get_origin(annotation)).rpartition(".")[2]) in ("Required", "NotRequired", "ReadOnly"):
        marks.add(mark)
        annotation = get_args(annotation)[0]
    return annotation, marks


def _default_value(value: Any, factory: Any, missing: Any) -> Any:
    if value is not missing:
        return value
    return UNSET if factory is missing else factory()


def _from_record(kind: Any) -> Form:
    from wharfinger.server.signature.docstrings import parse_docstring

    try:
        members = list(_members(kind))
    except NameError as error:
        raise TypeError(
            f"{kind.__name__}: {error}; import or define the names in its annotations at module level."
        ) from None
    descriptions: Mapping[str, str] = {}
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):
        descriptions = parse_docstring(kind)[1]
    fields: dict[str, t.PrimitiveSchema] = {}
    required: list[str] = []
    nullable: set[str] = set()
    for member in members:
        where = f"{kind.__name__}.{member.name}"
        fields[member.name], needed, may_be_none = _make_field(where, member, descriptions)
        if needed:
            required.append(member.name)
        if may_be_none and member.required:
            nullable.add(member.name)
    return Form(fields, required, lambda values: _convert(values, kind), frozenset(nullable))


def _make_field(where: str, member: _Member, descriptions: Mapping[str, str]) -> tuple[t.PrimitiveSchema, bool, bool]:
    """Return `(field, whether it is required, whether it may be None)`."""
    annotation = member.annotation
    try:
        (schema,), shared = msgspec.json.schema_components((annotation,), ref_template="#/$defs/{name}")
    except (TypeError, NotImplementedError):
        raise TypeError(_not_flat(where, str(annotation))) from None
    schema, nullable = _resolve(schema, shared, where)
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    mappings = [cast("Mapping[Any, str]", extra) for extra in extras if isinstance(extra, Mapping)]
    titles = mappings[0] if mappings else _titles_of(annotation)
    field = _make_primitive(schema, shared, where, titles)
    _restore_order(field, annotation)
    if field.type == "string" and _has_datetime(annotation):
        field.format = "date-time"  # msgspec only sets it if a time zone is required
    text = next((extra for extra in extras if isinstance(extra, str)), None) or descriptions.get(member.name)
    if text and field.description is UNSET:
        field.description = text
    if member.default is not UNSET and member.default is not None:
        field.default = _check_default(field, member.default, where)
    return field, member.required and not nullable, nullable


def _check_default(field: t.PrimitiveSchema, default: Any, where: str) -> Any:
    value = msgspec.to_builtins(default, enc_hook=str)
    if isinstance(value, (list, tuple, set, frozenset)):
        value = list(cast("Any", value)) or UNSET
    if value is not UNSET:
        try:
            return _check(field, value)
        except ValueError as error:
            raise TypeError(f"{where}: its default {error}.") from None
    return UNSET


def _convert(values: dict[str, Any], kind: Any) -> Any:
    """Convert checked values to the type: msgspec makes dates and enums, and checks what a form cannot express."""
    try:
        return msgspec.json.decode(msgspec.json.encode(values), type=kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        name = re.match(r"\.?(\w*)", path)
        field = name[1] if name and name[1] else SINGLE_FIELD
        cause = error.__cause__
        from_author = isinstance(cause, (ValueError, TypeError)) and not isinstance(cause, msgspec.ValidationError)
        message = message.replace("`", "")
        raise InvalidAnswer(f"{field}: {str(cause) if from_author else message[:1].lower() + message[1:]}") from None


def _from_model(model: Any) -> Form:
    schema = model.model_json_schema()
    shared = schema.get("$defs", {})
    needed = set(schema.get("required", ()))
    fields: dict[str, t.PrimitiveSchema] = {}
    nullable: set[str] = set()
    for name, raw in schema.get("properties", {}).items():
        where = f"{model.__name__}.{name}"
        resolved, may_be_none = _resolve(raw, shared, where)
        fields[name] = _make_primitive(resolved, shared, where, None)
        if may_be_none and name in needed:
            nullable.add(name)

    def build(values: dict[str, Any]) -> Any:
        try:
            return model.model_validate_json(msgspec.json.encode(values))
        except ValueError as error:
            list_errors: Any = getattr(error, "errors", None)
            errors: list[Any] = [] if list_errors is None else list_errors()
            lines = [
                f"{'.'.join(map(str, error_item['loc'])) or SINGLE_FIELD}: {error_item['msg']}" for error_item in errors
            ]
            raise InvalidAnswer("\n".join(lines) or "content: does not fit") from None

    return Form(fields, [name for name in fields if name in needed - nullable], build, frozenset(nullable))


def _from_schema(schema: Mapping[str, Any]) -> Form:
    """Return the form for a `requestedSchema`. Members that the protocol does not define are not sent."""
    if schema.get("type", "object") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise TypeError("A schema of a form is an object with properties: {'type': 'object', 'properties': {…}}.")
    fields: dict[str, t.PrimitiveSchema] = {}
    for name, raw in schema["properties"].items():
        try:
            field = msgspec.convert(raw, t.PrimitiveSchema)
            t.check_primitive_schema(field)
        except (ValueError, TypeError) as error:
            kind = cast("Mapping[str, Any]", raw).get("type") if isinstance(raw, Mapping) else raw
            raise TypeError(f"{_not_flat(name, str(kind))} {error}") from None
        fields[name] = field
    required = list(schema.get("required", ()))
    if unknown := [name for name in required if name not in fields]:
        raise TypeError(f"The form requires {unknown[0]!r}, which is not one of its properties.")
    return Form(fields, required, lambda values: values)


# --- from JSON Schema -------------------------------------------------------------------------------------------------

_ATTRIBUTES = {
    "title": "title",
    "description": "description",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minimum": "minimum",
    "maximum": "maximum",
    "minItems": "min_items",
    "maxItems": "max_items",
}
_ATTRIBUTES_OF_TYPE = {
    "string": ("title", "description", "min_length", "max_length"),
    "number": ("title", "description", "minimum", "maximum"),
    "integer": ("title", "description", "minimum", "maximum"),
    "boolean": ("title", "description"),
    "array": ("title", "description", "min_items", "max_items"),
}
_FORMATS = ("email", "uri", "date", "date-time")


def _not_flat(where: str, what: str) -> str:
    return (
        f"{where}: a form has only flat fields (text, numbers, booleans, dates, one or several choices), "
        f"and {what} is not one of them: ask for its parts in separate fields."
    )


def _resolve(schema: dict[str, Any], shared: Mapping[str, Any], where: str) -> tuple[dict[str, Any], bool]:
    """Return a schema with its references, unions and null resolved, and whether it allowed null."""
    nullable = False
    resolved = dict(schema)
    for _ in range(8):  # bounds the levels of references and unions
        if "$ref" in resolved:
            name = resolved.pop("$ref").rpartition("/")[2]
            target = {key: value for key, value in shared[name].items() if key not in ("title", "description")}
            resolved = target | resolved
        elif "allOf" in resolved and len(resolved["allOf"]) == 1:
            resolved = resolved.pop("allOf")[0] | resolved
        elif "anyOf" in resolved:
            arms = resolved.pop("anyOf")
            rest = [arm for arm in arms if arm.get("type") != "null"]
            nullable = nullable or len(rest) < len(arms)
            if len(rest) != 1:
                raise TypeError(_not_flat(where, "a union"))
            resolved = rest[0] | resolved
        else:
            break
    if isinstance(resolved.get("enum"), list) and None in resolved["enum"]:
        nullable, resolved["enum"] = True, [value for value in resolved["enum"] if value is not None]
    return resolved, nullable


def _make_primitive(
    schema: dict[str, Any], shared: Mapping[str, Any], where: str, titles: Mapping[Any, str] | None
) -> t.PrimitiveSchema:
    """Make one field; `titles` are the titles of its choices."""
    options = _read_options(schema, where, titles)
    kind = "string" if options else schema.get("type")
    if "contentEncoding" in schema:
        raise TypeError(_not_flat(where, "bytes"))
    if kind not in _ATTRIBUTES_OF_TYPE:
        raise TypeError(_not_flat(where, str(kind or "anything")))
    field = t.PrimitiveSchema(type=cast("Any", kind))
    for name, attribute in _ATTRIBUTES.items():
        if name in schema and attribute in _ATTRIBUTES_OF_TYPE[kind]:
            setattr(field, attribute, schema[name])
    if kind == "integer":
        if "exclusiveMinimum" in schema:
            field.minimum = schema["exclusiveMinimum"] + 1
        if "exclusiveMaximum" in schema:
            field.maximum = schema["exclusiveMaximum"] - 1
    if options:
        field.enum, field.one_of = options.enum, options.any_of
        field.min_length = field.max_length = UNSET
    elif kind == "string" and schema.get("format") in _FORMATS:
        field.format = schema["format"]
    elif kind == "array":
        inner: Any = schema.get("items")
        known = cast("dict[str, Any]", inner) if isinstance(inner, dict) else None
        items = None if known is None else _read_options(_resolve(known, shared, where)[0], where, titles)
        if items is None:
            raise TypeError(_not_flat(where, "a list without fixed choices"))
        field.items = items
    default = schema.get("default")
    if default is not None and default != []:
        field.default = _check_default(field, default, where)
    return field


def _read_options(schema: dict[str, Any], where: str, titles: Mapping[Any, str] | None) -> t.EnumItems | None:
    """Return the choices of a schema; None if it has none."""
    titled = schema.get("oneOf")
    if titled is not None:
        return t.EnumItems(any_of=msgspec.convert(titled, list[t.EnumOption]))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is None:
        return None
    if not all(isinstance(value, str) for value in values):
        raise TypeError(f"{where}: the choices of a form are text, not {values!r}.")
    if titles:
        return t.EnumItems(any_of=[t.EnumOption(const=value, title=str(titles.get(value, value))) for value in values])
    return t.EnumItems(type="string", enum=values)


def _find_choice(annotation: Any) -> Any:
    """Return the enum or `Literal` in an annotation of one or several choices; None if there is none."""
    kinds: list[Any] = [annotation]
    while kinds:
        kind = kinds.pop()
        if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
            return kind
        kinds += [arm for arm in get_args(kind) if arm is not type(None)]
    return None


def _titles_of(annotation: Any) -> dict[Any, str] | None:
    """Return the names of an enum's members as titles; None if they are the same as the values."""
    kind = _find_choice(annotation)
    if not isinstance(kind, type):
        return None
    titles = {member.value: member.name.replace("_", " ").capitalize() for member in cast("type[Enum]", kind)}
    redundant = all(_letters(str(value)) == _letters(title) for value, title in titles.items())
    return None if redundant else titles


def _restore_order(field: t.PrimitiveSchema, annotation: Any) -> None:
    """Restore the order in which the choices were written; msgspec sorts them."""
    kind = _find_choice(annotation)
    if kind is None:
        return
    order = list(get_args(kind)) or [member.value for member in kind]
    position = order.index
    for owner, titled in ((field, "one_of"), (field.items, "any_of")):
        if owner is UNSET:
            continue
        if owner.enum is not UNSET and set(owner.enum) <= set(order):
            owner.enum = sorted(owner.enum, key=position)
        options: Any = getattr(owner, titled)
        if options is not UNSET and {option.const for option in options} <= set(order):
            setattr(owner, titled, sorted(options, key=lambda option: position(option.const)))


def _has_datetime(annotation: Any) -> bool:
    return annotation is datetime or any(_has_datetime(arm) for arm in get_args(annotation))


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


def _downgrade(field: t.PrimitiveSchema) -> t.PrimitiveSchema:
    """Return the field for a revision that has no titled or multiple choices, and defaults only for booleans."""
    default = field.default if field.type == "boolean" else UNSET
    if field.items is not UNSET:
        values = _choice_values(field.items)
        text = f"Any of {', '.join(values)}; with commas between them."
        description = text if field.description is UNSET else f"{field.description} {text}"
        return t.PrimitiveSchema(type="string", title=field.title, description=description)
    if field.one_of is not UNSET:
        return msgspec.structs.replace(
            field,
            one_of=UNSET,
            enum=[option.const for option in field.one_of],
            enum_names=[option.title for option in field.one_of],
            default=default,
        )
    return msgspec.structs.replace(field, default=default)


# --- answers ----------------------------------------------------------------------------------------------------------


def _choice_values(items: t.EnumItems) -> list[str]:
    if items.any_of is not UNSET:
        return [option.const for option in items.any_of]
    return items.enum if items.enum is not UNSET else []


def _empty_means_missing(field: t.PrimitiveSchema) -> bool:
    """Return whether an empty text means that the field was left empty, as many clients send it."""
    return field.type != "string" or not (field.format is UNSET and field.enum is UNSET and field.one_of is UNSET)


def _check(field: t.PrimitiveSchema, value: Any) -> Any:
    """Return the value, if it is valid for the field. Raises ValueError with what is expected."""
    return _CHECKS[field.type](field, value)


def _check_text(field: t.PrimitiveSchema, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    choices = field.enum
    if field.one_of is not UNSET:
        choices = [option.const for option in field.one_of]
    if choices is not UNSET and value not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")
    if field.min_length is not UNSET and len(value) < field.min_length:
        raise ValueError(f"must have at least {many(field.min_length, 'character')}")
    if field.max_length is not UNSET and len(value) > field.max_length:
        raise ValueError(f"must have at most {many(field.max_length, 'character')}")
    if field.format is not UNSET and not _FORMAT_CHECKS[field.format](value):
        raise ValueError(f"is not a valid {field.format}")
    return value


def _check_bool(field: t.PrimitiveSchema, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _check_number(field: t.PrimitiveSchema, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("must be a number")
    if field.type == "integer" and isinstance(value, float):
        if not value.is_integer():
            raise ValueError("must be a whole number")
        value = int(value)
    if field.minimum is not UNSET and value < field.minimum:
        raise ValueError(f"must be at least {field.minimum}")
    if field.maximum is not UNSET and value > field.maximum:
        raise ValueError(f"must be at most {field.maximum}")
    return value


def _check_several(field: t.PrimitiveSchema, value: Any) -> list[str]:
    items = field.items if field.items is not UNSET else t.EnumItems()
    choices = _choice_values(items)
    if isinstance(value, str):  # revisions without several choices asked for text
        value = _split_choices(value, choices)
    if not isinstance(value, list):
        raise ValueError("must be a list")
    values = list(cast("Any", value))
    if any(choice not in choices for choice in values):
        raise ValueError(f"must be some of {', '.join(choices)}")
    if field.min_items is not UNSET and len(values) < field.min_items:
        raise ValueError(f"must have at least {many(field.min_items, 'choice')}")
    if field.max_items is not UNSET and len(values) > field.max_items:
        raise ValueError(f"must have at most {many(field.max_items, 'choice')}")
    return values


def _split_choices(text: str, choices: list[str]) -> list[str]:
    """Split a text at its commas, except those within a choice."""
    longest_first = "|".join(map(re.escape, sorted(choices, key=len, reverse=True)))
    found = re.findall(rf"\s*((?:{longest_first})(?=\s*(?:,|$))|[^,]+)", text)
    return [choice.strip() for choice in found if choice.strip()]


_CHECKS: dict[str, Callable[[t.PrimitiveSchema, Any], Any]] = {
    "string": _check_text,
    "number": _check_number,
    "integer": _check_number,
    "boolean": _check_bool,
    "array": _check_several,
}


def _is_readable_as(text: str, kind: type) -> bool:
    try:
        msgspec.convert(text, kind)
    except msgspec.ValidationError:
        return False
    return True


_FORMAT_CHECKS: dict[str, Callable[[str], bool]] = {
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
    "uri": lambda text: re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text) is not None,
    "date": lambda text: len(text) == 10 and _is_readable_as(text, date),
    "date-time": lambda text: _is_readable_as(text, datetime),
}
