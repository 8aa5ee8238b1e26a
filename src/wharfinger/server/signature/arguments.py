"""A function's signature, as a JSON Schema of its arguments and as a decoder of them.

`Signature` reads a function once, at registration, so that a type that JSON cannot express is an error there. It makes:

- a msgspec struct with a field for each parameter. Most calls are decoded by it in one step. JSON types are strict: "1"
  is not an integer, and neither is true.
- a JSON Schema (2020-12) for `tools/list`, with descriptions from the docstring and from `Annotated[int, "..."]`.

If decoding fails, each argument is decoded by itself, to report each fault on a line of its own: with its path, but
without the value, and without msgspec's vocabulary. In this step 1.0 is an integer, as JSON Schema says.

A union whose members JSON types do not distinguish, such as two structs without a tag, is decoded as Any, and then
converted to its first member that fits. Pydantic's `Field` and `annotated_types` become msgspec's constraints (see
`type_schemas`).
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, UnsetType

from wharfinger.content.text import printable
from wharfinger.server.dependencies import Need, depends_of, plan, refuse_default, refuse_positional_only
from wharfinger.server.features.result_errors import location_of
from wharfinger.server.signature.annotations import annotations_of, is_context, parameters_of
from wharfinger.server.signature.argument_errors import BadArguments, fault_lines, union_members
from wharfinger.server.signature.complete import Complete
from wharfinger.server.signature.docstrings import parse_docstring
from wharfinger.server.signature.header_params import KEYWORD, Header
from wharfinger.server.signature.type_schemas import facts_of, from_json, json_schema, to_json, to_msgspec

__all__ = [
    "BadArguments",
    "Parameter",
    "Signature",
    "completer_of",
    "json_schema",
]

MAX_DECODERS = 256
"""The maximum number of decoders to cache; functions whose parameters have the same names and types share one."""
_MAX_EXACT_INTEGER = 2**53
"""Not every JSON reader can represent larger integers exactly."""


class Parameter(NamedTuple):
    """One parameter that callers can set; `kind` is its type with its constraints, without texts and markers."""

    name: str
    kind: Any
    description: str
    required: bool
    default: Any
    completer: Complete | None
    arms: tuple[Any, ...]
    """The members of a union that JSON types do not distinguish; the first that fits is used. Empty for other types."""
    header: str = ""
    """The name of the HTTP header for this argument, without its prefix `Mcp-Param-`, or an empty string."""
    default_factory: Callable[[], Any] | None = None
    """Returns the default of a marker such as `Field(default=3)`, which Python itself does not apply."""

    @property
    def decoder_type(self) -> Any:
        """The type for the decoder: `kind`, or Any if the decoder does not support it."""
        return Any if self.arms else self.kind


_PLAIN_TYPES = frozenset((bool, int, float, str))
"""The types of most parameters. They need no further analysis, which would double the time of a registration."""


class Signature:
    """The arguments that a function takes, apart from its context and its dependencies. Immutable.

    Raises:
        TypeError: a parameter cannot be an argument: it is `*args`, `**kwargs` or positional-only, its annotation
            cannot be resolved, JSON cannot express its type, or its default has another type; or the function is a
            method that is not bound to an object.
    """

    __slots__ = (
        "_decoder",
        "_default_factories",
        "_has_optional",
        "_unions",
        "context",
        "name",
        "needs",
        "parameters",
        "returns",
        "schema",
        "summary",
    )

    parameters: dict[str, Parameter]
    context: str | None
    """The name of the parameter that takes the `Context`."""
    needs: dict[str, Need]
    """The parameters that dependencies fill."""
    schema: dict[str, Any]
    """The JSON Schema (2020-12) of the arguments: always an object without additional properties."""
    returns: Any
    """The return annotation; `inspect.Signature.empty` if there is none."""
    summary: str
    """The docstring before its first section."""

    def __init__(self, function: Callable[..., Any]) -> None:
        refuse_unbound(function)
        self.name = str(getattr(function, "__name__", type(function).__name__))
        self.context = None
        self.needs = {}
        self.parameters = {}
        hints = annotations_of(function)
        self.returns = hints.get("return", inspect.Signature.empty)
        self.summary, descriptions = parse_docstring(function)
        for parameter in parameters_of(function):
            refuse_default(function, parameter)
            annotation = hints.get(parameter.name, parameter.annotation)
            if parameter.name == "ctx" and annotation is parameter.empty:
                raise TypeError(
                    f"{location_of(function)}: ctx has no annotation: write ctx: Context for the context of the "
                    "request, or ctx: str for an argument of that name."
                )
            if (depends := depends_of(annotation)) is not None:
                refuse_positional_only(function, parameter)
                self.needs[parameter.name] = plan(depends)
            elif is_context(annotation):
                refuse_positional_only(function, parameter)
                self.context = parameter.name
            else:
                argument = self.parameters[parameter.name] = self._analyse(parameter, annotation, descriptions)
                _check_default(function, argument)
        self._decoder = self._make_decoder()
        self._has_optional = not all(parameter.required for parameter in self.parameters.values())
        self._unions = tuple(parameter for parameter in self.parameters.values() if parameter.arms)
        self._default_factories = tuple(p for p in self.parameters.values() if p.default_factory is not None)
        self.schema = self._make_schema()

    @property
    def completers(self) -> dict[str, Complete]:
        """The completers of parameters, by name. A parameter with a choice of strings is completed to these strings."""
        return {p.name: p.completer for p in self.parameters.values() if p.completer is not None}

    @property
    def struct_decoder(self) -> Callable[[Any], Any] | None:
        """Decodes the arguments to a struct that has all of them; None if they need more than decoding."""
        return None if self._has_optional or self._unions else self._decoder.decode

    def _analyse(self, parameter: inspect.Parameter, annotation: Any, descriptions: Mapping[str, str]) -> Parameter:
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{self.name}(): {parameter} cannot be passed by name; give every argument a name.")
        if parameter.default is parameter.empty and type(annotation) is type and annotation in _PLAIN_TYPES:
            return Parameter(name, annotation, descriptions.get(name, ""), True, parameter.empty, None, ())
        if isinstance(annotation, str):
            raise TypeError(
                f"{self.name}(): the annotation {annotation!r} of {name!r} is unknown when the server runs; "
                f"import it outside of `if TYPE_CHECKING:`."
            )
        try:
            parts = _split_annotation(annotation, parameter.default)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {name!r}: {error}.") from None
        kind, default = parts.kind, parts.default
        required = default is parameter.empty
        if default is None and kind is not Any:
            kind = kind | None if not isinstance(kind, str) else kind
        completer = parts.completer
        if completer is None and (choices := _choices(kind)):
            completer = Complete(choices)
        return Parameter(
            name,
            kind,
            parts.description or descriptions.get(name, ""),
            required,
            default,
            completer,
            _arms(kind),
            parts.header,
            parts.default_factory,
        )

    def _make_decoder(self) -> msgspec.json.Decoder[Any]:
        fields = tuple((p.name, p.decoder_type, p.required) for p in self.parameters.values())
        try:
            return _cached_decoder(fields)
        except TypeError:  # a type is not hashable, such as a constraint that contains a list; or it cannot be decoded
            pass
        try:
            return _cached_decoder.__wrapped__(fields)
        except TypeError as error:
            raise TypeError(f"{self.name}(): {self._find_unsupported()} cannot be read from JSON: {error}") from None

    def _make_schema(self) -> dict[str, Any]:
        kinds = [arm for p in self.parameters.values() for arm in (p.arms or (_schema_type(p),))]
        try:
            found, shared = json_schema(*kinds)
        except TypeError as error:
            reason = str(error).splitlines()[-1]
            raise TypeError(f"{self.name}(): {self._find_unsupported()} has no JSON Schema: {reason}") from None
        schemas = iter(found)
        properties = {
            p.name: self._property_schema(p, [next(schemas) for _ in p.arms or (p.kind,)])
            for p in self.parameters.values()
        }
        required = [p.name for p in self.parameters.values() if p.required]
        # Some models' interfaces refuse an object schema without `properties`: without parameters, it has `{}`.
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        if shared:
            schema["$defs"] = shared
        return schema

    def _find_unsupported(self) -> str:
        """Return words that name the parameter whose type is not supported, because msgspec does not report it."""
        for parameter in self.parameters.values():
            try:
                msgspec.json.Decoder(parameter.decoder_type)
                json_schema(*(parameter.arms or (_schema_type(parameter),)))
            except TypeError:
                return f"the type of {parameter.name!r}"
        return "a parameter's type"

    def _property_schema(self, parameter: Parameter, schemas: list[dict[str, Any]]) -> dict[str, Any]:
        schema: dict[str, Any] = dict(schemas[0]) if len(schemas) == 1 else {"anyOf": schemas}
        if parameter.description:
            schema["description"] = parameter.description
            if "anyOf" in schema:  # `Annotated[str, Field(description=…)] | None`: its string has the same description
                repeated = ("description", parameter.description)
                schema["anyOf"] = [dict(item for item in arm.items() if item != repeated) for arm in schema["anyOf"]]
        if not parameter.required and parameter.default is not None:
            with suppress(TypeError, ValueError):  # JSON cannot express the default, for example a sentinel
                schema["default"] = msgspec.json.decode(msgspec.json.encode(parameter.default, enc_hook=to_json))
        if parameter.header:
            if "enum" in schema and "type" not in schema and all(isinstance(value, str) for value in schema["enum"]):
                schema["type"] = "string"
            schema[KEYWORD] = parameter.header
        return schema

    def decode(self, arguments: Raw | bytes | UnsetType, *, json_strings: bool = False) -> dict[str, Any]:
        """Decode a JSON object to arguments by name. Omitted arguments keep the function's defaults.

        With `json_strings` an array or object may also be a string that contains its JSON.

        Raises:
            BadArguments: they are not valid.
        """
        raw: Raw | bytes = b"{}" if isinstance(arguments, UnsetType) else arguments
        try:
            values = msgspec.structs.asdict(self._decoder.decode(raw))
            if self._unions:
                self._convert_unions(values)
        except (msgspec.MsgspecError, RecursionError, BadArguments):
            values = self._decode_each(raw, json_strings)
            self._convert_unions(values)
        if self._has_optional:
            values = {name: value for name, value in values.items() if value is not UNSET}
        for parameter in self._default_factories:
            if parameter.name not in values:
                values[parameter.name] = cast("Callable[[], Any]", parameter.default_factory)()
        return values

    def _convert_unions(self, values: dict[str, Any]) -> None:
        for parameter in self._unions:
            if values.get(parameter.name, UNSET) is not UNSET:
                values[parameter.name] = _first_fit(parameter, values[parameter.name])

    def _decode_each(self, arguments: Raw | bytes, json_strings: bool) -> dict[str, Any]:
        """Decode each argument by itself, to report all faults at once, and to accept 1.0 as an integer."""
        try:
            raw = msgspec.json.decode(arguments, type=dict[str, Raw])
        except RecursionError:
            raise BadArguments([f"arguments: {_TOO_DEEP}"]) from None
        except msgspec.MsgspecError:
            raise BadArguments(["arguments: expected an object"]) from None
        faults: list[str] = []
        values: dict[str, Any] = {}
        for parameter in self.parameters.values():
            if parameter.name in raw:
                try:
                    values[parameter.name] = _decode_argument(parameter, bytes(raw[parameter.name]), json_strings)
                except BadArguments as error:
                    faults += error.faults
            elif parameter.required:
                faults.append(f"{parameter.name}: missing")
        faults += self._unknown_faults(raw)
        if faults:
            raise BadArguments(faults)
        return values

    def _unknown_faults(self, raw: Mapping[str, Any]) -> list[str]:
        names = ", ".join(self.parameters)
        known = f"the arguments are {names}" if names else "there are none"
        unknown = islice((name for name in raw if name not in self.parameters), 8)  # a caller may send thousands
        return [f"{printable(name)}: no such argument; {known}" for name in unknown]

    def decode_strings(self, arguments: Mapping[str, str]) -> dict[str, Any]:
        """Convert the strings of a prompt to arguments by name: scalars are converted, other types are read as JSON.

        Raises:
            BadArguments: they are not valid.
        """
        faults = [f"{p.name}: missing" for p in self.parameters.values() if p.required and p.name not in arguments]
        values: dict[str, Any] = {
            p.name: p.default_factory() for p in self._default_factories if p.default_factory is not None
        }
        for name, text in arguments.items():
            parameter = self.parameters.get(name)
            if parameter is None:
                continue  # reported below
            try:
                values[name] = _from_string(parameter, text)
            except BadArguments as error:
                faults += error.faults
            except msgspec.MsgspecError as error:
                faults += fault_lines(parameter.name, parameter.kind, error)
            except RecursionError:
                faults.append(f"{name}: {_TOO_DEEP}")
        faults += self._unknown_faults(arguments)
        if faults:
            raise BadArguments(faults)
        return values


_Fields = tuple[tuple[str, Any, bool], ...]
"""The name and the type of each parameter, and whether it is required."""


@functools.lru_cache(MAX_DECODERS)
def _cached_decoder(fields: _Fields) -> msgspec.json.Decoder[Any]:
    """Return a decoder to a struct that has the parameters as members; those that are left out are UNSET.

    Raises:
        TypeError: a type cannot be read from JSON.
    """
    members: list[Any] = []
    for name, kind, required in fields:
        if required:
            members.append((name, kind))
        else:
            members.append((name, Any if kind is Any else kind | UnsetType, UNSET))
    struct = msgspec.defstruct("Arguments", members, kw_only=True, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(struct, dec_hook=from_json)


_CHECKED_DEFAULTS = (bool, int, float, str, list, dict)
"""The types of defaults that are compared with the parameter's type; a default of another type may be a sentinel."""


def _check_default(function: Callable[..., Any], parameter: Parameter) -> None:
    """Raise TypeError for a default whose JSON type differs from the parameter's, but allow bools and sentinels."""
    if type(parameter.default) not in _CHECKED_DEFAULTS or parameter.arms:
        return
    try:
        msgspec.convert(parameter.default, parameter.kind, dec_hook=from_json)
    except msgspec.ValidationError as error:
        expected, actual, _ = str(error).partition(", got ")
        if actual and not isinstance(parameter.default, bool):  # a bool is an int to type checkers
            kind = type(parameter.default).__name__
            raise TypeError(
                f"{location_of(function)}: the default of {parameter.name!r} is of type {kind}: "
                f"{expected[:1].lower()}{expected[1:]}, as its annotation says."
            ) from None
    except (TypeError, ValueError, NotImplementedError):
        return  # msgspec does not support the type, so the default cannot be checked


def refuse_unbound(function: Any) -> None:
    """Raise TypeError for a method that is not bound to an object."""
    if isinstance(function, classmethod):
        name = cast("Any", function).__func__.__qualname__
        raise TypeError(
            f"{name}() has no class yet where it is decorated: add it after the class, with server.tools.add({name})."
        )
    code = getattr(function, "__code__", None)
    if code is None or not code.co_argcount or code.co_varnames[0] not in ("self", "cls"):
        return
    owner, _, name = function.__qualname__.rpartition(".")
    if owner and not owner.endswith("<locals>") and not inspect.ismethod(function):
        raise TypeError(
            f"{function.__qualname__}() is a method without an object: create the object and add the bound method, "
            f"such as server.tools.add({owner.rpartition('.')[2].lower()}.{name})."
        )


def completer_of(annotation: Any) -> Complete | None:
    """Return the completer of a parameter: its `Complete` marker, else its choice of strings, else None."""
    parts = _split_annotation(annotation)
    if parts.completer is None and (choices := _choices(parts.kind)):
        return Complete(choices)
    return parts.completer


class _AnnotationParts(NamedTuple):
    """The parts of an annotation and a default."""

    kind: Any
    """The type with its constraints, without texts and markers."""
    description: str
    completer: Complete | None
    header: str
    default: Any
    default_factory: Callable[[], Any] | None


def _split_annotation(annotation: Any, default: Any = inspect.Parameter.empty) -> _AnnotationParts:
    """Split an annotation and a default into their parts.

    Raises:
        TypeError: a marker has an alias.
    """
    kind, *extras = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    inner = _extras_of_only_member(kind)
    kind = Any if kind is inspect.Parameter.empty else to_msgspec(kind)
    description, header, completer, default_factory = "", "", None, None
    if default is not inspect.Parameter.empty and facts_of(default) is not None:  # `= Field(…)`, as in pydantic
        extras, default = [*extras, default], inspect.Parameter.empty
    for extra in (*extras, *inner):
        if isinstance(extra, str):
            description = description or extra
        elif isinstance(extra, Complete):
            completer = completer or extra
        elif isinstance(extra, Header):
            header = extra.name
        elif isinstance(extra, msgspec.Meta):
            kind = Annotated[kind, extra]
        elif (facts := facts_of(extra)) is not None:
            description = description or facts.description
            meta = facts.meta
            if meta is not None:
                kind = Annotated[kind, meta]
            if facts.default is not None and default is inspect.Parameter.empty:
                default_factory = facts.default
                default = default_factory()
    return _AnnotationParts(kind, description, completer, header, default, default_factory)


def _extras_of_only_member(kind: Any) -> list[Any]:
    """Return texts and markers of the only type in a union with None: `Annotated[str, "…"] | None`."""
    kinds = [member for member in union_members(kind) if member is not type(None)]
    if len(kinds) != 1 or get_origin(kinds[0]) is not Annotated:
        return []
    extras = [facts.description if (facts := facts_of(extra)) else extra for extra in get_args(kinds[0])[1:]]
    return [extra for extra in extras if isinstance(extra, (str, Complete, Header))]


def _schema_type(parameter: Parameter) -> Any:
    """Return the type whose schema is shown.

    For a parameter that a header repeats, it is the type without None: a header cannot be null, only left out.
    """
    if parameter.header:
        kinds = [member for member in union_members(parameter.kind) if member is not type(None)]
        if len(kinds) == 1:
            return kinds[0]
    return parameter.kind


def _arms(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union that msgspec cannot decode, or an empty tuple for any other type."""
    arms = union_members(kind)
    if arms:
        try:
            msgspec.json.Decoder(kind)
        except TypeError:
            return arms
    return ()


def _choices(kind: Any) -> list[str]:
    """Return the strings of an enum or `Literal`, or an empty list for other types."""
    kinds = [member for member in union_members(kind) if member is not type(None)] or [kind]
    kind = kinds[0] if len(kinds) == 1 else None
    if get_origin(kind) is Literal:
        values = list(get_args(kind))
    elif isinstance(kind, type) and issubclass(kind, Enum):
        values = [member.value for member in kind]
    else:
        return []
    return [value for value in values if isinstance(value, str)]


# --- values -----------------------------------------------------------------------------------------------------------


_TOO_DEEP = "is nested too deeply"


def _first_fit(parameter: Parameter, value: Any) -> Any:
    for arm in parameter.arms:
        try:
            return msgspec.convert(value, arm, dec_hook=from_json, str_keys=True)
        except (msgspec.ValidationError, NotImplementedError):
            continue
    raise BadArguments([f"{parameter.name}: does not match any of its {len(parameter.arms)} types"])


def _decode_argument(parameter: Parameter, data: bytes, json_strings: bool) -> Any:
    """Decode one argument. Accepts an integer written as 1.0 and, with `json_strings`, a string that contains JSON.

    Raises:
        BadArguments: it is not valid.
    """
    try:
        return _decode_strictly(parameter, data)
    except (msgspec.MsgspecError, BadArguments, RecursionError) as error:
        failure = error
    for loosened in (_with_integers(data), _inside_string(data) if json_strings else None):
        if loosened is not None:
            with suppress(msgspec.MsgspecError, BadArguments, RecursionError):
                return _decode_strictly(parameter, loosened)
    if isinstance(failure, BadArguments):
        raise failure
    if isinstance(failure, RecursionError):
        raise BadArguments([f"{parameter.name}: {_TOO_DEEP}"])
    raise BadArguments(fault_lines(parameter.name, parameter.kind, failure))


def _decode_strictly(parameter: Parameter, data: bytes) -> Any:
    value = msgspec.json.decode(data, type=parameter.decoder_type, dec_hook=from_json)
    if parameter.arms:
        _first_fit(parameter, value)
    return value


def _with_integers(data: bytes) -> bytes | None:
    """Return the same JSON with integers for numbers such as 1.0; None if it has no such numbers."""
    if not re.search(rb"[.eE]", data):
        return None
    changed = False

    def convert(value: Any) -> Any:
        nonlocal changed
        if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT_INTEGER:
            changed = True
            return int(value)
        if isinstance(value, list):
            return [convert(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            return {key: convert(item) for key, item in cast("dict[str, Any]", value).items()}
        return value

    try:
        found = convert(msgspec.json.decode(data))
    except (msgspec.MsgspecError, RecursionError):  # a number that is too large for a float, such as 1e400
        return None
    return msgspec.json.encode(found) if changed else None


def _inside_string(data: bytes) -> bytes | None:
    """Return the array or object in a JSON string; None if it contains neither."""
    if data[:1] != b'"':
        return None
    text = msgspec.json.decode(data, type=str).strip()
    return text.encode() if text[:1] in ("[", "{") else None


def _from_string(parameter: Parameter, text: str) -> Any:
    if parameter.arms:
        with suppress(BadArguments):
            return _first_fit(parameter, text)
        value: Any = text
        with suppress(msgspec.MsgspecError):
            value = msgspec.json.decode(text)
        return _first_fit(parameter, value)
    if parameter.kind in (str, Any):
        return text
    try:
        value = msgspec.convert(text, parameter.kind, strict=False, dec_hook=from_json)
        if isinstance(value, float) and not math.isfinite(value):  # "inf" and "nan" are not JSON
            raise BadArguments([f"{parameter.name}: is out of range"])
        return value
    except msgspec.ValidationError as error:
        # The error of a pydantic model has a cause. Such a model may accept any JSON, not only arrays and objects.
        if error.__cause__ is None and text.lstrip()[:1] not in ("[", "{"):
            raise
        return msgspec.json.decode(text.encode(), type=parameter.kind, dec_hook=from_json)
