"""The arguments of a tool with an explicit input schema, which are validated by it and passed to the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast, get_origin

import msgspec
from msgspec import Raw, UnsetType

from wharfinger.content.text import printable
from wharfinger.protocol.json_schema import CompiledSchema, InvalidSchema
from wharfinger.server.dependencies import depends_of, needs_of
from wharfinger.server.signature.annotations import annotations_of, is_context
from wharfinger.server.signature.argument_errors import BadArguments, fault_lines
from wharfinger.server.signature.arguments import Signature, refuse_unbound
from wharfinger.server.signature.docstrings import description_of

__all__ = ["SchemaSignature"]

_DICTS = (dict, Mapping, Any, inspect.Parameter.empty)


class SchemaSignature:
    """Decodes arguments like a `Signature`, by a schema that the author gave.

    A function whose only parameter is a dict, and not a property of the schema, gets all arguments as that dict. A
    function with `**rest` gets them by name, as JSON values. Any other function needs a parameter for each property,
    and the values are converted to its annotations. `what` names the schema in errors.

    Raises:
        InvalidSchema: the schema cannot be used, or its type is not "object".
        MissingExtra: the extra `schema` is not installed.
        TypeError: the parameters of the function do not match the schema.
    """

    __slots__ = (
        "_compiled",
        "_dict_parameter",
        "_signature",
        "context",
        "needs",
        "parameters",
        "returns",
        "schema",
        "summary",
    )

    struct_decoder = None
    """Arguments always need more than decoding."""

    def __init__(self, function: Callable[..., Any], schema: Mapping[str, Any], what: str) -> None:
        refuse_unbound(function)
        self._compiled = CompiledSchema(schema, what)
        self.schema = self._compiled.schema
        if self.schema.get("type") != "object":
            raise InvalidSchema(f'The {what} must have "type": "object": arguments are always an object.')
        hints = annotations_of(function)
        self.returns = hints.get("return", inspect.Signature.empty)
        self.summary = description_of(function)
        self.context, self.needs = needs_of(function)
        self._signature: Signature | None = None
        self._dict_parameter = ""
        self.parameters = self._match(function, hints, what)

    def _match(self, function: Callable[..., Any], hints: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Decide how the function takes its arguments. Returns its parameters by name."""
        properties = self.schema.get("properties", {})
        name = getattr(function, "__name__", repr(function))
        parameters = {
            p.name: p
            for p in inspect.signature(function).parameters.values()
            if not is_context(annotation := hints.get(p.name, p.annotation)) and depends_of(annotation) is None
        }
        if len(parameters) == 1:
            (only,) = parameters.values()
            annotation = hints.get(only.name, only.annotation)
            is_dict = (get_origin(annotation) or annotation) in _DICTS
            if only.kind is only.POSITIONAL_OR_KEYWORD and only.name not in properties and is_dict:
                self._dict_parameter = only.name
                return parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        by_name = {key: p for key, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        missing = [key for key in properties if key not in by_name]
        if missing and not takes_any:
            raise TypeError(
                f"{name}() has no parameter for {missing[0]!r} of the {what}: add it, or take **rest, or one dict."
            )
        unknown = [key for key, p in by_name.items() if p.default is p.empty and key not in properties]
        if unknown:
            raise TypeError(f"{name}() takes {unknown[0]!r}, which is not a property of the {what}.")
        if not takes_any:
            self._signature = Signature(function)
        return by_name

    def decode(self, arguments: Raw | bytes | UnsetType, *, json_strings: bool = False) -> dict[str, Any]:
        """Decode a JSON object to arguments by name; `json_strings` is that of `Signature.decode`.

        Raises:
            BadArguments: they are not valid.
        """
        data: Raw | bytes = b"{}" if isinstance(arguments, UnsetType) else arguments
        try:
            decoded = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            raise BadArguments(_find_unreadable(data)) from None
        faults = self._compiled.faults(decoded)
        if faults and json_strings and isinstance(decoded, dict) and self._unwrap(cast("dict[str, Any]", decoded)):
            faults = self._compiled.faults(decoded)
            data = msgspec.json.encode(decoded)
        if faults:
            raise BadArguments(faults)
        if self._dict_parameter:
            return {self._dict_parameter: decoded}
        if self._signature is not None:
            return self._signature.decode(data)
        return cast("dict[str, Any]", decoded)

    def _unwrap(self, arguments: dict[str, Any]) -> bool:
        """Replace strings that contain an array or object by their content. Returns whether there were any."""
        changed = False
        properties = self.schema.get("properties", {})
        for name, value in arguments.items():
            kind = properties[name].get("type") if isinstance(properties.get(name), dict) else None
            if isinstance(value, str) and kind in ("array", "object"):
                try:
                    arguments[name] = msgspec.json.decode(value)
                    changed = True
                except (msgspec.DecodeError, RecursionError):
                    continue
        return changed


def _find_unreadable(data: Raw | bytes) -> list[str]:
    """Return why JSON cannot be decoded, in a line for each argument. One cause is a number such as 1e400."""
    faults: list[str] = []
    try:
        for name, value in msgspec.json.decode(data, type=dict[str, Raw]).items():
            try:
                msgspec.json.decode(value)
            except msgspec.MsgspecError as error:
                faults += fault_lines(printable(name), Any, error)
    except (msgspec.MsgspecError, RecursionError):
        pass
    return faults[:8] or ["arguments: expected an object"]
