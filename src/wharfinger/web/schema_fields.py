"""The fields of a form for a JSON Schema of an object, and the arguments that its values make.

A property of a simple type gets a field for that type; the value of any other property is written as JSON. The server
that gets the arguments checks them against its whole schema; this module only finds values that are missing, or that
cannot be sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from wharfinger import types as t
from wharfinger.web.html_elements import name_text

__all__ = ["FormField", "arguments_of", "fields_of", "fields_of_prompt"]

MAX_FIELDS = 200
"""Maximum number of properties that get a field; a tool with more is called from the command line."""
MAX_OPTIONS = 1000
MAX_LABEL_CHARACTERS = 200
MAX_DESCRIPTION_CHARACTERS = 2000
MAX_VALUE_CHARACTERS = 512 * 1024

_NO_CHOICE = ""


class FormField(NamedTuple):
    """One field. `kind` is `text`, `number`, `integer`, `checkbox`, `select`, `several`, `lines` or `json`."""

    name: str
    label: str
    description: str
    kind: str
    required: bool
    value: Any
    """The initial value."""
    options: tuple[tuple[str, str], ...] = ()
    constants: tuple[Any, ...] = ()
    """The value of each option, which need not be a string."""

    def for_browser(self) -> dict[str, Any]:
        """Return the values that the form in the browser uses."""
        kind = "number" if self.kind == "integer" else self.kind
        options = [list(option) for option in self.options]
        return {
            "name": self.name,
            "label": self.label,
            "description": self.description,
            "kind": kind,
            "required": self.required,
            "value": self.value,
            "options": options,
        }


def fields_of(schema: Any) -> list[FormField]:
    """Return the fields for the properties of a schema."""
    schema = _mapping(schema)
    required = set(map(str, _list(schema.get("required"))))
    properties = list(_mapping(schema.get("properties")).items())[:MAX_FIELDS]
    return [_field_of(name, _resolve(each, schema), name in required) for name, each in properties]


def fields_of_prompt(prompt: t.Prompt) -> list[FormField]:
    """Return the fields for the arguments of a prompt, all of which are texts."""
    arguments = prompt.arguments if isinstance(prompt.arguments, list) else []
    return [
        FormField(
            argument.name,
            name_text(argument.title if isinstance(argument.title, str) else argument.name, MAX_LABEL_CHARACTERS),
            name_text(
                argument.description if isinstance(argument.description, str) else "", MAX_DESCRIPTION_CHARACTERS
            ),
            "text",
            argument.required is True,
            "",
        )
        for argument in arguments[:MAX_FIELDS]
    ]


def arguments_of(fields: Sequence[FormField], values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments without empty fields, and for each wrong or missing value what to change."""
    arguments: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in fields:
        try:
            value = _parse_value(field, values.get(field.name, field.value))
        except ValueError as error:
            errors[field.name] = str(error)
            continue
        if value is not None:
            arguments[field.name] = value[0]
        elif field.required:
            errors[field.name] = "Fill this in: it is required."
    return arguments, errors


def _parse_value(field: FormField, value: Any) -> tuple[Any] | None:
    """Return the value of a field in a tuple; None if the field is empty."""
    if field.kind == "checkbox":
        return (value is True,)
    by_key = {key: constant for (key, _), constant in zip(field.options, field.constants, strict=True)}
    if field.kind == "select":
        return (by_key[str(value)],) if str(value) in by_key and value != _NO_CHOICE else None
    if field.kind == "several":
        chosen = [by_key[key] for key in map(str, _list(value)) if key in by_key]
        return (chosen,) if chosen else None
    text = str(value)
    if len(text) > MAX_VALUE_CHARACTERS:
        raise ValueError(f"Write at most {MAX_VALUE_CHARACTERS:,} characters.")
    if not text.strip():
        return None
    if field.kind == "lines":
        return ([line for line in text.splitlines() if line.strip()],)
    if field.kind == "integer":
        try:
            return (int(text),)
        except ValueError:
            raise ValueError("Write a whole number, such as 12.") from None
    if field.kind == "number":
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError("Write a number, such as 2.5.")
        return (int(number) if number.is_integer() and abs(number) < 2**53 else number,)
    if field.kind == "json":
        try:
            value = json.loads(text)
            json.dumps(value, allow_nan=False)  # NaN and infinite numbers would be sent as null
            return (value,)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Write JSON: {error}.") from None
    return (text,)


def _field_of(name: str, schema: Mapping[str, Any], required: bool) -> FormField:
    label = name_text(str(schema.get("title") or name), MAX_LABEL_CHARACTERS)
    description = name_text(" ".join(str(schema.get("description") or "").split()), MAX_DESCRIPTION_CHARACTERS)
    default = schema.get("default")
    kind, items, choices = _type_of(schema), _mapping(schema.get("items")), _choices(schema)
    if kind == "boolean" and not required and not isinstance(default, bool):
        choices = choices or [(True, "true"), (False, "false")]  # a checkbox could not leave it out
    if choices:
        values = tuple(value for value, _ in choices)
        defaults = [default] if "default" in schema else []
        chosen = next((str(index) for index, value in enumerate(values) if value in defaults), _NO_CHOICE)
        options, values = ((_NO_CHOICE, "(none)"), *_options_of(choices)), (None, *values)
        return FormField(name, label, description, "select", required, chosen, options, values)
    if kind == "array" and (item_choices := _choices(items)):
        values = tuple(value for value, _ in item_choices)
        preset = [str(index) for index, value in enumerate(values) if value in _list(default)]
        return FormField(name, label, description, "several", required, preset, _options_of(item_choices), values)
    if kind == "boolean":
        return FormField(name, label, description, "checkbox", required, default is True)
    if kind in ("integer", "number"):
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        return FormField(name, label, description, kind, required, str(default) if is_number else "")
    if kind == "string":
        return FormField(name, label, description, "text", required, default if isinstance(default, str) else "")
    if kind == "array" and _type_of(items) == "string":
        return FormField(name, label, description, "lines", required, "\n".join(map(str, _list(default))))
    hint = f"{description} Write JSON.".strip()
    return FormField(name, label, hint, "json", required, "" if default is None else json.dumps(default, indent=1))


def _options_of(choices: Sequence[tuple[Any, str]]) -> tuple[tuple[str, str], ...]:
    """Return the options for some choices: the key of each is its index."""
    return tuple((str(index), name_text(label, MAX_LABEL_CHARACTERS)) for index, (_, label) in enumerate(choices))


def _choices(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return the values that a schema allows, with the text for each; empty if it has no list of them."""
    if "enum" in schema:
        values, names = _list(schema["enum"]), _list(schema.get("enumNames"))
        titles = names if len(names) == len(values) else values
        return [(value, _label_of(title)) for value, title in zip(values, titles, strict=True)][:MAX_OPTIONS]
    for word in ("oneOf", "anyOf"):
        options = [_mapping(option) for option in _list(schema.get(word))]
        if options and all("const" in option for option in options):
            return [(option["const"], _label_of(option.get("title", option["const"]))) for option in options][
                :MAX_OPTIONS
            ]
    return [(schema["const"], _label_of(schema["const"]))] if "const" in schema else []


def _label_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema that allows one type, perhaps besides null; otherwise an empty string."""
    kind = schema.get("type")
    kinds = [name for name in (_list(kind) or [kind]) if name != "null"]
    return kinds[0] if len(kinds) == 1 and isinstance(kinds[0], str) else ""


def _resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a property's schema with references within the document followed, and without an alternative of null."""
    resolved = _mapping(schema)
    for _ in range(8):  # references may form a cycle
        reference = resolved.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for part in reference[2:].split("/"):
                target = _mapping(target).get(part.replace("~1", "/").replace("~0", "~"))
            resolved = {**_mapping(target), **{key: value for key, value in resolved.items() if key != "$ref"}}
            continue
        options = _list(resolved.get("anyOf"))
        other_options = [option for option in options if _mapping(option).get("type") != "null"]
        if len(other_options) != 1 or len(options) != 2:
            break
        resolved = {**_mapping(other_options[0]), **{key: value for key, value in resolved.items() if key != "anyOf"}}
    return resolved


def _list(value: Any) -> list[Any]:
    """Return a decoded value if it is a list, else an empty list."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
