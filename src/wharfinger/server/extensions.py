"""The extensions of a server, with their methods and notifications."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args, get_origin

import msgspec
from msgspec import Raw

from wharfinger import types as t
from wharfinger.errors import MissingClientCapability
from wharfinger.protocol.interfaces import Handler, NotificationHandler
from wharfinger.protocol.methods import CORE, EXTENSIONS_FROM, Method, add_method
from wharfinger.protocol.request import Request, take_hints
from wharfinger.server.features.feature_registration import check_hints, check_options
from wharfinger.server.features.handler_function import HandlerFunction
from wharfinger.server.threads import is_async

if TYPE_CHECKING:
    from typing import Unpack

    from wharfinger.protocol.handshake import Session
    from wharfinger.server.mounting import Mount
    from wharfinger.server.services import Services

__all__ = ["Extensions", "MethodOptions", "check_id", "check_settings", "require"]

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_ID = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
"""Like keys of `_meta`, with a prefix: `com.example/name` (2026-07-28, extensions)."""
_METHOD = re.compile(r"(?!rpc\.)[A-Za-z][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)+")
_RESERVED_MEMBERS = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""Members of a result that only a struct of `types` may set, because they differ between revisions."""


def check_id(id: str) -> str:
    """Return `id` if it is a valid identifier of an extension.

    Raises:
        ValueError: it is not valid.
    """
    if not _ID.fullmatch(id):
        raise ValueError(f"{id!r} is not the identifier of an extension: write one like com.example/tides.")
    return id


def check_settings(declared: Mapping[str, Mapping[str, Any]], id: str, settings: Mapping[str, Any]) -> None:
    """Check settings that are about to be added to an extension, which may be new.

    Raises:
        ValueError: `id` is not an identifier, or a setting is declared already with another value.
    """
    known = declared.get(check_id(id), {})
    for name, value in settings.items():
        if known.get(name, value) != value:
            raise ValueError(f"The extension {id!r} is declared already with {name}={known[name]!r}.")


def require(request: Request, id: str) -> dict[str, Any]:
    """Return the settings that the caller declares for an extension.

    Raises:
        MissingClientCapability: the caller does not declare the extension.
    """
    settings = request.caller.extension(id)
    if settings is None:
        raise MissingClientCapability(
            {"extensions": {id: {}}}, f"This method needs a client that declares the extension {id}."
        )
    return settings


class MethodOptions(TypedDict, total=False):
    """Options for registering a method of an extension."""

    params: type[t.RequestParams] | None
    """The struct to which the method's params are decoded; by default the annotation of the function's parameter."""
    result: type[Any] | None
    """The struct of the method's result; by default the function's return annotation."""
    extension: str
    """The identifier of the extension that the method belongs to. The server declares this extension."""
    required: bool
    """Whether only clients that declare `extension` may call the method."""
    cacheable: bool
    """Whether results carry caching hints, `ttl` and `cache_scope`."""
    name_param: str
    """The field of the params that the HTTP header `Mcp-Name` repeats."""
    ttl: float | None
    """Seconds that clients may cache a result; by default the server's `ttl`."""
    cache_scope: t.CacheScope | None
    inline: bool
    """Whether a plain function runs on the event loop instead of in a thread, because it never blocks."""
    timeout: float | None
    """Seconds that a call may take."""


class Extensions:
    """The extensions of one server. The servers in which it is mounted (`parents`) serve and declare them too."""

    def __init__(
        self,
        services: Services,
        notification_handlers: dict[str, NotificationHandler],
        parents: Sequence[Mount],
    ) -> None:
        self.declared: dict[str, dict[str, Any]] = {}
        """Settings by the extension's identifier."""
        self._services = services
        self._notification_handlers = notification_handlers
        self._parents = parents

    def declare(self, id: str, settings: Mapping[str, Any] | None = None) -> None:
        """Declare an extension, such as `com.example/tides`, to clients of the revisions that have extensions.

        Declaring it again adds to its settings.

        Raises:
            ValueError: `id` is not an identifier, or a setting is declared already with another value, here or by a
                server in which this one is mounted.
        """
        settings = settings or {}
        check_settings(self.declared, id, settings)
        for mount in self._parents:
            mount.check_settings(id, settings)
        self.declared.setdefault(id, {}).update(settings)
        self._publish()

    def add_method(self, name: str, function: Callable[..., Any], **options: Unpack[MethodOptions]) -> None:
        """Serve a method of an extension, such as `tides/forecast`.

        The function takes the decoded params, a struct that derives from `types.RequestParams`, and may take a
        `Context`; it returns a struct that derives from `types.Result`, a value that encodes to a JSON object, or None.

        Raises:
            TypeError: the type of the params is not allowed, the function has another parameter, or an option is
                unknown.
            ValueError: the name is invalid, a method of the protocol, taken (also by a server in which this one is
                mounted), or registered with other params or options; or an option has a value that is not valid.
        """
        if name in self._services.methods.handlers:
            raise ValueError(f"The method {name!r} is served already.")
        self._check_parents(name)
        extension = options.get("extension", "")
        if extension:
            check_id(extension)
        self._services.methods.set(name, _make_method(self._services, name, function, options))
        if extension:
            self.declared.setdefault(extension, {})
        self._publish()

    def add_notification(
        self, name: str, function: Callable[..., Any], *, params: type[t.NotificationParams] | None = None
    ) -> None:
        """Handle a client's notification of an extension with a plain function.

        The function takes the decoded params, a struct that derives from `types.NotificationParams`, and must not
        block. Stateless HTTP has no notifications from clients.

        Raises:
            TypeError: the function is async or has another parameter, or the params' type is not allowed.
            ValueError: the name is invalid, one of the protocol's, taken (also by a server in which this one is
                mounted), or registered with other params.
        """
        if name in self._notification_handlers:
            raise ValueError(f"The notification {name!r} is taken already.")
        self._check_parents(name)
        self._notification_handlers[name] = _make_notification(name, function, params=params)
        self._publish()

    def _check_parents(self, name: str) -> None:
        """Raise ValueError if a server in which this one is mounted has a method or notification of this name."""
        for mount in self._parents:
            mount.check_extension(name)

    def _publish(self) -> None:
        """Make the servers in which this one is mounted serve its extensions too."""
        for mount in self._parents:
            mount.publish_extensions()


def _make_method(services: Services, name: str, function: Callable[..., Any], options: MethodOptions) -> Handler:
    """Make the handler of a new method, and add its row to the table of methods.

    Raises:
        TypeError: the params do not derive from `types.RequestParams`, the function has another parameter, or an option
            is unknown.
        ValueError: the name is invalid, the protocol's own, or registered with a different row; or an option has a
            value that is not valid.
    """
    check_options("method", None, options, MethodOptions)
    result, ttl = options.get("result"), options.get("ttl")
    extension, required = options.get("extension", ""), options.get("required", False)
    _check_name(name)
    parameter, annotated, returns = _read_signature(function)
    params_type = _check_params_type(name, options.get("params") or annotated, t.RequestParams)
    if required and not extension:
        raise ValueError(f"{name}: required=True needs the extension that the client must declare.")
    name_param: Any = options.get("name_param", "")
    if name_param and name_param not in params_type.__struct_fields__:
        raise ValueError(f"{name}: {params_type.__name__} has no field {name_param!r}.")
    row = Method(
        name,
        "client",
        params_type,
        result or (returns if isinstance(returns, type) else t.EmptyResult),
        first=EXTENSIONS_FROM,
        cacheable=options.get("cacheable", False),
        name_param=name_param,
    )
    call = HandlerFunction(
        services,
        function,
        variables=(parameter,) if parameter else (),
        inline=options.get("inline", False),
        timeout=options.get("timeout"),
    )
    scope = options.get("cache_scope") or services.cache_scope
    ttl_ms = check_hints(services.ttl_ms / 1000 if ttl is None else ttl, scope)
    add_method(row)  # last, since all servers of this process share the table

    async def serve(request: Request) -> Any:
        if required:
            require(request, extension)
        request.ttl_ms, request.cache_scope = ttl_ms, scope
        value = await call.invoke(request, {parameter: request.params} if parameter else {})
        return _to_result(request, value)

    return serve


def _make_notification(
    name: str, function: Callable[[Any], Any], *, params: type[t.NotificationParams] | None = None
) -> NotificationHandler:
    """Make the handler of a new notification from clients, and add its row to the table of methods.

    Raises:
        TypeError: the function is async or has another parameter, or the params do not derive from
            `types.NotificationParams`.
        ValueError: the name is invalid, the protocol's own, or registered with a different row.
    """
    _check_name(name)
    if is_async(function):
        raise TypeError(f"{name}: use a plain function for a notification, because it must not wait.")
    parameter, annotated, _ = _read_signature(function)
    try:
        inspect.signature(function).bind(*((None,) if parameter else ()))
    except TypeError:
        raise TypeError(f"{name}: the function of a notification takes only the params.") from None
    params_type = _check_params_type(name, params or annotated, t.NotificationParams)
    if not name.startswith("notifications/"):
        raise ValueError(f"{name!r}: the names of notifications begin with 'notifications/'.")
    add_method(Method(name, "client", params_type, first=EXTENSIONS_FROM))

    def handle(session: Session | None, params: Any) -> None:
        function(*((params,) if parameter else ()))

    return handle


def _check_name(name: str) -> None:
    if not _METHOD.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a method: write one like tides/forecast.")
    if name in CORE:
        raise ValueError(f"{name!r} is a method of the protocol: choose another name.")


def _read_signature(function: Callable[..., Any]) -> tuple[str, Any, Any]:
    """Return the name and type of the parameter for the params ("" and None if there is none), and the return type."""
    from wharfinger.server.dependencies import depends_of
    from wharfinger.server.signature.annotations import annotations_of, is_context

    hints = annotations_of(function)
    for parameter in inspect.signature(function).parameters.values():
        annotation = hints.get(parameter.name, parameter.annotation)
        if depends_of(annotation) is None and not is_context(annotation):
            kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
            return parameter.name, kind, hints.get("return")
    return "", None, hints.get("return")


def _check_params_type(name: str, params_type: Any, base: type[Any]) -> type[Any]:
    """Return the type of a method's params: `base` if none is given.

    Raises:
        TypeError: it does not derive from `base`.
    """
    if params_type is None or params_type is inspect.Parameter.empty:
        return base
    if not (isinstance(params_type, type) and issubclass(params_type, base)):
        raise TypeError(f"{name}: the params must be a struct that derives from types.{base.__name__}.")
    return params_type


def _to_result(request: Request, value: Any) -> Any:
    """Convert a function's return value to a result that is valid in every revision.

    Raises:
        TypeError: it is not a JSON object, or sets a member that the protocol reserves.
    """
    if value is None:
        return t.EmptyResult()
    if isinstance(value, t.CacheableResult):
        return take_hints(request, value)
    if isinstance(value, t.Result):
        return value
    if hasattr(value, "model_dump_json"):  # pydantic, which is never imported here
        encoded = str(value.model_dump_json(by_alias=True)).encode()
    else:
        encoded = bytes(value) if isinstance(value, Raw) else msgspec.json.encode(value)
    try:
        members = msgspec.json.decode(encoded, type=dict[str, Raw])
    except msgspec.ValidationError:
        raise TypeError(f"{request.method} returned {type(value).__name__}, which is not a JSON object") from None
    if reserved := _RESERVED_MEMBERS & members.keys():
        raise TypeError(
            f"{request.method} returned a member {min(reserved)!r}: return a struct that derives from types.Result"
        )
    return Raw(encoded)
