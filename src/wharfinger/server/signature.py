"""A plain function's signature as a decoder of its arguments and as JSON Schema, made once; calls nothing.

Arguments are taken strictly by their JSON type: "1" is no integer, and neither is true. What is wrong with them is told
in one line for each, with its path, without the value and without words of any library.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger.server.completion import Complete

__all__ = ["BadArguments", "Parameter", "Signature", "annotations_of", "described", "json_schema", "summary_of"]


class BadArguments(ValueError):
    """Arguments that do not fit; `faults` has one readable line for each of them."""

    faults: list[str]

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class Parameter(NamedTuple):
    """One parameter that callers may give; `kind` is its type without markers."""

    name: str
    kind: Any
    description: str
    required: bool
    default: Any
    completer: Complete | None
    arms: tuple[Any, ...]
    """The members of a union that cannot be told apart by JSON type alone; the first that fits is taken."""

    @property
    def decoded_as(self) -> Any:
        """What the decoder is told: `kind`, if it can take that."""
        return Any if self.arms else self.kind


class Signature:
    """What a function takes, besides its context.

    Raises:
        TypeError: a parameter cannot be filled from JSON: it is `*args`, `**kwargs` or positional-only, its annotation
            cannot be resolved, or its type has no JSON form.
    """

    __slots__ = ("_decoder", "_optional", "_partly", "context", "name", "parameters", "returns", "schema")

    parameters: dict[str, Parameter]
    context: str | None
    """The name of the parameter that wants the `Context`."""
    schema: dict[str, Any]
    """JSON Schema (2020-12) of the arguments: always an object, without what it does not name."""
    returns: Any
    """The annotation of the result; `inspect.Signature.empty` without one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.context = None
        self.parameters = {}
        known = annotations_of(function)
        self.returns = known.get("return", inspect.Signature.empty)
        descriptions = described(function)[1]
        for parameter in inspect.signature(function).parameters.values():
            annotation = known.get(parameter.name, parameter.annotation)
            if is_context(annotation):
                self.context = parameter.name
            else:
                self.parameters[parameter.name] = self._parameter(parameter, annotation, descriptions)
        self._decoder = self._build()
        self._optional = not all(parameter.required for parameter in self.parameters.values())
        self._partly = tuple(parameter for parameter in self.parameters.values() if parameter.arms)
        self.schema = self._schema()

    @property
    def completers(self) -> dict[str, Complete]:
        """The completers beside the parameters, by name; a parameter with a choice of strings completes to them."""
        return {p.name: p.completer for p in self.parameters.values() if p.completer is not None}

    def _parameter(self, parameter: inspect.Parameter, annotation: Any, descriptions: Mapping[str, str]) -> Parameter:
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"{self.name}(): {parameter} cannot be filled by name; give every argument a name of its own."
            )
        if isinstance(annotation, str):
            raise TypeError(
                f"{self.name}(): the annotation {annotation!r} of {name!r} is unknown when the server runs; "
                f"import it outside of `if TYPE_CHECKING:`."
            )
        kind, description, completer = _unwrap(annotation)
        required = parameter.default is parameter.empty
        if parameter.default is None and kind is not Any:
            kind = kind | None if not isinstance(kind, str) else kind
        if completer is None and (choices := _choices(kind)):
            completer = Complete(choices)
        arms = _arms(kind)
        return Parameter(
            name, kind, description or descriptions.get(name, ""), required, parameter.default, completer, arms
        )

    def _build(self) -> msgspec.json.Decoder[Any]:
        fields: list[Any] = [
            (p.name, p.decoded_as)
            if p.required
            else (p.name, p.decoded_as | UnsetType, UNSET)
            if p.decoded_as is not Any
            else (p.name, Any, UNSET)
            for p in self.parameters.values()
        ]
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        return msgspec.json.Decoder(struct, dec_hook=_from_json)

    def _schema(self) -> dict[str, Any]:
        kinds = [arm for p in self.parameters.values() for arm in (p.arms or (p.kind,))]
        try:
            found, shared = json_schema(*kinds)
        except TypeError as error:
            reason = str(error).splitlines()[-1]
            raise TypeError(f"{self.name}(): a parameter's type has no JSON Schema: {reason}") from None
        schemas = iter(found)
        properties = {
            p.name: self._property(p, [next(schemas) for _ in p.arms or (p.kind,)]) for p in self.parameters.values()
        }
        required = [p.name for p in self.parameters.values() if p.required]
        schema: dict[str, Any] = {"type": "object"}
        if properties:
            schema["properties"] = properties
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if shared:
            schema["$defs"] = shared
        return schema

    def _property(self, parameter: Parameter, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        schema: dict[str, Any] = dict(schemas[0]) if len(schemas) == 1 else {"anyOf": schemas}
        if parameter.description:
            schema["description"] = parameter.description
        if not parameter.required and parameter.default is not None:
            with suppress(TypeError, ValueError):  # a default that JSON cannot say, such as a sentinel
                schema["default"] = msgspec.to_builtins(parameter.default, str_keys=True)
        return schema

    def decode(self, arguments: Raw | bytes | UnsetType) -> dict[str, Any]:
        """Arguments by name from a JSON object; those that are left out keep the function's defaults.

        Raises:
            BadArguments: they do not fit.
        """
        try:
            taken = msgspec.structs.asdict(self._decoder.decode(b"{}" if arguments is UNSET else arguments))
        except msgspec.MsgspecError:
            raise BadArguments(self._faults(b"{}" if arguments is UNSET else arguments)) from None
        if self._optional:
            taken = {name: value for name, value in taken.items() if value is not UNSET}
        for parameter in self._partly:
            if parameter.name in taken:
                taken[parameter.name] = _first_fit(parameter, taken[parameter.name])
        return taken

    def _faults(self, arguments: Raw | bytes) -> list[str]:
        """Look at each argument by itself, so that all that is wrong is told at once."""
        try:
            given = msgspec.json.decode(arguments, type=dict[str, Raw])
        except msgspec.MsgspecError:
            return ["arguments: expected an object"]
        faults: list[str] = []
        for parameter in self.parameters.values():
            if parameter.name in given:
                try:
                    value = msgspec.json.decode(given[parameter.name], type=parameter.decoded_as, dec_hook=_from_json)
                    if parameter.arms:
                        _first_fit(parameter, value)
                except BadArguments as error:
                    faults += error.faults
                except msgspec.MsgspecError as error:
                    faults.append(_fault(parameter, error))
            elif parameter.required:
                faults.append(f"{parameter.name}: missing")
        return faults + self._unknown(given)

    def _unknown(self, given: Mapping[str, Any]) -> list[str]:
        names = ", ".join(self.parameters)
        known = f"the arguments are {names}" if names else "there are none"
        return [f"{printable(name)}: no such argument; {known}" for name in given if name not in self.parameters][:8]

    def decode_strings(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Arguments by name from strings, as prompts have them: numbers and such are read, what is no scalar is JSON.

        Raises:
            BadArguments: they do not fit.
        """
        faults = [f"{p.name}: missing" for p in self.parameters.values() if p.required and p.name not in arguments]
        taken: dict[str, Any] = {}
        for name, text in arguments.items():
            parameter = self.parameters.get(name)
            if parameter is None:
                faults += self._unknown({name: text})
                continue
            try:
                taken[name] = _from_string(parameter, text)
            except BadArguments as error:
                faults += error.faults
            except msgspec.MsgspecError as error:
                faults.append(_fault(parameter, error))
        if faults:
            raise BadArguments(faults)
        return taken


# --- annotations and docstrings ---------------------------------------------------------------------------------------

# Patterns are text here: most processes never meet a docstring section or a fault, and compiling them costs 3 ms.
_CONTEXT_TEXT = r"(?:\w+\.)*Context(?:\[.*\])?"


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's annotations with `Annotated` kept; one that cannot be resolved stays text.

    Text that names `Context` counts as that class, since many import it for type checkers only.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        pass
    innermost = inspect.unwrap(function)
    scope = dict(getattr(innermost, "__globals__", {})) | _around(innermost)
    closure = getattr(innermost, "__closure__", None) or ()
    for name, cell in zip(getattr(getattr(innermost, "__code__", None), "co_freevars", ()), closure, strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not yet bound
            continue
    return {name: _resolve(value, scope) for name, value in getattr(innermost, "__annotations__", {}).items()}


def _around(function: Callable[..., Any]) -> dict[str, Any]:
    """The local names of the function in which this one is being defined, if that still runs."""
    outer = getattr(function, "__qualname__", "").rpartition(".<locals>")[0]
    frame = inspect.currentframe() if outer else None
    while frame is not None:
        if frame.f_code.co_qualname == outer:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def _resolve(annotation: Any, scope: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)["it"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        if re.fullmatch(_CONTEXT_TEXT, annotation):
            from wharfinger.server.context import Context

            return Context
        return annotation


def is_context(annotation: Any) -> bool:
    """Whether a parameter wants the `Context`, whatever its state is said to be."""
    from wharfinger.server.context import Context

    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return (get_origin(annotation) or annotation) is Context


def _unwrap(annotation: Any) -> tuple[Any, str, Complete | None]:
    """`(type, description, completer)`: texts and markers of `Annotated` are taken off, constraints stay on."""
    if annotation is inspect.Parameter.empty:
        return Any, "", None
    if get_origin(annotation) is not Annotated:
        return annotation, "", None
    kind, *extras = get_args(annotation)
    description = next((extra for extra in extras if isinstance(extra, str)), "")
    completer = next((extra for extra in extras if isinstance(extra, Complete)), None)
    for extra in extras:
        if isinstance(extra, msgspec.Meta):
            kind = Annotated[kind, extra]
    return kind, description, completer


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()


def _arms(kind: Any) -> tuple[Any, ...]:
    members = _members(kind)
    if members:
        try:
            msgspec.json.Decoder(kind)
        except TypeError:
            return members
    return ()


def _choices(kind: Any) -> list[str]:
    """The strings that are all that a parameter can be, if it is such a one."""
    kinds = [member for member in _members(kind) if member is not type(None)] or [kind]
    kind = kinds[0] if len(kinds) == 1 else None
    if get_origin(kind) is Literal:
        values = list(get_args(kind))
    elif isinstance(kind, type) and issubclass(kind, Enum):
        values = [member.value for member in kind]
    else:
        return []
    return [value for value in values if isinstance(value, str)]


_ARGUMENT_SECTIONS = frozenset(("args", "arguments", "parameters", "params"))
_OTHER_SECTIONS = frozenset(("attributes", "example", "examples", "note", "notes", "raises", "return", "returns"))
_SECTIONS = _ARGUMENT_SECTIONS | _OTHER_SECTIONS | {"warning", "warnings", "yield", "yields"}
_ARGUMENT = r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)"


def described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The text of a docstring before its first section, and what its section `Args:` says of each parameter."""
    lines = inspect.cleandoc(getattr(function, "__doc__", None) or "").splitlines()
    start = next((number for number, line in enumerate(lines) if _section(line)), len(lines))
    found: dict[str, str] = {}
    inside, name, depth = False, "", 0
    for line in lines[start:]:
        indent = len(line) - len(line.lstrip())
        if line and not indent:
            inside, name, depth = _section(line) in _ARGUMENT_SECTIONS, "", 0
        elif inside and line.strip():
            depth = depth or indent
            argument = re.fullmatch(_ARGUMENT, line.strip()) if indent <= depth else None
            if argument:
                name = argument[1]
                found[name] = argument[2]
            elif name:
                found[name] = f"{found[name]} {line.strip()}".strip()
    return "\n".join(lines[:start]).strip(), found


def _section(line: str) -> str:
    """The name of the section that a line begins, in lower case; empty for any other line."""
    name, colon, rest = line.partition(":")
    name = name.lower()
    return name if colon and not rest.strip() and name in _SECTIONS else ""


def summary_of(function: Callable[..., Any]) -> str:
    """The description of a feature: its docstring before the first section."""
    return described(function)[0]


# --- JSON Schema ------------------------------------------------------------------------------------------------------


def json_schema(*kinds: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A JSON Schema for each type, and the `$defs` that they refer to.

    Raises:
        TypeError: a type has none.
    """
    if not kinds:
        return [], {}
    schemas, shared = msgspec.json.schema_components(kinds, schema_hook=_schema_of, ref_template="#/$defs/{name}")
    return [dict(schema) for schema in schemas], dict(shared)


def _schema_of(kind: type) -> dict[str, Any]:
    if issubclass(kind, PurePath):
        return {"type": "string"}
    raise NotImplementedError


def _from_json(kind: type, value: Any) -> Any:
    if issubclass(kind, PurePath):
        if isinstance(value, str):
            return kind(value)
        raise ValueError("expected a string")
    raise NotImplementedError


# --- values and what is wrong with them -------------------------------------------------------------------------------


def _first_fit(parameter: Parameter, value: Any) -> Any:
    for arm in parameter.arms:
        try:
            return msgspec.convert(value, arm, dec_hook=_from_json, str_keys=True)
        except (msgspec.ValidationError, NotImplementedError):
            continue
    raise BadArguments([f"{parameter.name}: fits none of the {len(parameter.arms)} types that it may have"])


def _from_string(parameter: Parameter, text: str) -> Any:
    if parameter.arms:
        return _first_fit(parameter, text)
    if parameter.kind in (str, Any):
        return text
    try:
        return msgspec.convert(text, parameter.kind, strict=False, dec_hook=_from_json)
    except msgspec.ValidationError as error:
        if not any(word in str(error) for word in ("`object", "`array", "| object", "| array")):
            raise
        return msgspec.json.decode(text.encode(), type=parameter.kind, dec_hook=_from_json)


_WORDS = {
    "int": "an integer",
    "str": "a string",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
    "bytes": "base64 text",
    "Path": "a string",
}
_PATH = r"(?s)(.*?)(?: - at (`key` in )?`\$(.*)`)?"
_EXPECTED = r"(?s)Expected `([^`]+)`(?:, got `([^`]+)`| (.*))?"
_FIXED = {
    "Invalid UUID": "is no UUID",
    "Invalid RFC3339 encoded datetime": "is no date and time (RFC 3339), such as 2026-07-28T12:00:00Z",
    "Invalid RFC3339 encoded date": "is no date, such as 2026-07-28",
    "Invalid RFC3339 encoded time": "is no time, such as 12:00:00Z",
    "Invalid ISO8601 duration": "is no duration (ISO 8601), such as PT5M",
    "Invalid decimal string": "is no decimal number",
    "Invalid base64 encoded string": "is no base64 text",
    "Number out of range": "is out of range",
    "Integer value out of range": "is out of range",
}
_MEMBER = r"Object (missing required|contains unknown) field `([^`]*)`"


def _fault(parameter: Parameter, error: msgspec.MsgspecError) -> str:
    """One line: where, and what is wanted there."""
    found = re.fullmatch(_PATH, str(error))
    message, place = (found[1], found[3] or "") if found else ("", "")
    where = parameter.name + printable(place)
    member = re.fullmatch(_MEMBER, message)
    if member:
        missing = member[1] == "missing required"
        return f"{where}.{printable(member[2])}: {'missing' if missing else 'no such member'}"
    return f"{where}: {_reason(parameter, message, place, error)}"


def _reason(parameter: Parameter, message: str, place: str, error: msgspec.MsgspecError) -> str:
    if isinstance(error.__cause__, (ValueError, TypeError)):  # from the author's own check of a value
        return printable(str(error.__cause__), 200)
    expected = re.fullmatch(_EXPECTED, message)
    if expected:
        wanted = " or ".join(_WORDS.get(word, word) for word in expected[1].split(" | "))
        if expected[2]:
            return f"expected {wanted}, got {_WORDS.get(expected[2], expected[2])}"
        return f"expected {wanted} {expected[3] or ''}".rstrip()
    if message.startswith("Invalid enum value") and not place and (choices := _allowed(parameter.kind)):
        return f"must be one of {', '.join(choices)}"
    if message.startswith(("Invalid enum value", "Invalid value")):
        return "is not one of the values that are allowed here"
    return _FIXED.get(message, "is not valid here")


def _allowed(kind: Any) -> list[str]:
    values: list[Any] = []
    for member in _members(kind) or (kind,):
        if get_origin(member) is Literal:
            values += get_args(member)
        elif isinstance(member, type) and issubclass(member, Enum):
            values += [option.value for option in member]
    return [msgspec.json.encode(value).decode() for value in values]


def printable(text: str, most: int = 64) -> str:
    """A caller's text, fit for one line of an error."""
    short = text if len(text) <= most else text[:most] + "…"
    return "".join(char if char.isprintable() else "?" for char in short)
