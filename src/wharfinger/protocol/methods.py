"""Every method of the protocol as a row: its sender, params, result, revisions and capability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Raw

from wharfinger import types as t
from wharfinger.protocol.revisions import REVISIONS, Revision
from wharfinger.types import task_extension as tasks

__all__ = ["CORE", "EXTENSIONS_FROM", "METHODS", "Method", "add_method"]

_FIRST, _LAST = "2024-11-05", "2026-07-28"
_LAST_HANDSHAKE = "2025-11-25"
_WIRE_NAMES = {"task_id": "taskId"}
"""The JSON names of those values of `name_param` that differ in JSON."""


class Method:
    """One method. `decode_params` and `decode_result` decode and validate; their decoders are built on first use."""

    __slots__ = ("cacheable", "capability", "decode_params", "decode_result", "first", "is_notification", "last", "long", "name", "name_param", "params", "result", "routed_member", "sender")  # fmt: skip

    decode_params: Callable[[Raw | bytes], Any]
    decode_result: Callable[[Raw | bytes], Any]

    def __init__(
        self,
        name: str,
        sender: Literal["client", "server", "both"],
        params: type[Any],
        result: type[Any] | None = None,
        *,
        first: str = _FIRST,
        last: str = _LAST,
        capability: str = "",
        name_param: Literal["", "uri", "name", "task_id"] = "",
        cacheable: bool = False,
        long: bool = False,
    ) -> None:
        self.name = name
        self.sender = sender
        self.params = params
        self.result = result
        """None for a notification."""
        self.is_notification = result is None
        self.first = REVISIONS[first].order
        """The position in time (`Revision.order`) of the first revision that has the method."""
        self.last = REVISIONS[last].order
        self.capability = capability
        """The capability that the receiver must declare, such as `resources.subscribe`; empty if it needs none."""
        self.name_param = name_param
        """The attribute of the params that the HTTP header `Mcp-Name` repeats."""
        self.routed_member = f'"{_WIRE_NAMES.get(name_param, name_param)}"'.encode() if name_param else b""
        """The quoted JSON name of that attribute, which may occur only once in the params."""
        self.cacheable = cacheable
        """Whether results have `ttlMs` and `cacheScope` in the stateless era."""
        self.long = long
        """Whether the request stays open until the client or the server ends it; it has no deadline."""
        self.decode_params = self._decode_first_params
        self.decode_result = self._decode_first_result

    @property
    def spec(self) -> tuple[Any, ...]:
        """The values that must be equal in two rows of the same method: all except the capability."""
        return (
            self.name,
            self.sender,
            self.params,
            self.result,
            self.first,
            self.last,
            self.name_param,
            self.cacheable,
            self.long,
        )

    def within(self, rules: Revision) -> bool:
        """Return whether the method exists in this revision."""
        return self.first <= rules.order <= self.last

    def _decode_first_params(self, raw: Raw | bytes) -> Any:
        self.decode_params = msgspec.json.Decoder(self.params).decode
        return self.decode_params(raw)

    def _decode_first_result(self, raw: Raw | bytes) -> Any:
        self.decode_result = msgspec.json.Decoder(self.result or t.EmptyResult).decode
        return self.decode_result(raw)


def _rows() -> tuple[Method, ...]:
    handshake: dict[str, Any] = {"last": _LAST_HANDSHAKE}
    last_handshake: dict[str, Any] = {"first": _LAST_HANDSHAKE, "last": _LAST_HANDSHAKE}
    stateless: dict[str, Any] = {"first": _LAST}
    plain = t.NotificationParams
    return (
        Method("initialize", "client", t.InitializeRequestParams, t.InitializeResult, **handshake),
        Method("notifications/initialized", "client", plain, **handshake),
        Method("ping", "both", t.RequestParams, t.EmptyResult, **handshake),
        Method("server/discover", "client", t.RequestParams, t.DiscoverResult, cacheable=True, **stateless),
        Method("notifications/cancelled", "both", t.CancelledNotificationParams),
        Method("notifications/progress", "both", t.ProgressNotificationParams),
        Method("resources/list", "client", t.PaginatedRequestParams, t.ListResourcesResult, capability="resources", cacheable=True),
        Method("resources/templates/list", "client", t.PaginatedRequestParams, t.ListResourceTemplatesResult, capability="resources", cacheable=True),
        Method("resources/read", "client", t.ReadResourceRequestParams, t.ReadResourceResult, capability="resources", name_param="uri", cacheable=True),
        Method("resources/subscribe", "client", t.SubscribeRequestParams, t.EmptyResult, capability="resources.subscribe", **handshake),
        Method("resources/unsubscribe", "client", t.UnsubscribeRequestParams, t.EmptyResult, capability="resources.subscribe", **handshake),
        Method("notifications/resources/updated", "server", t.ResourceUpdatedNotificationParams),
        Method("notifications/resources/list_changed", "server", plain),
        Method("subscriptions/listen", "client", t.SubscriptionsListenRequestParams, t.SubscriptionsListenResult, long=True, **stateless),
        Method("notifications/subscriptions/acknowledged", "server", t.SubscriptionsAcknowledgedNotificationParams, **stateless),
        Method("tools/list", "client", t.PaginatedRequestParams, t.ListToolsResult, capability="tools", cacheable=True),
        Method("tools/call", "client", t.CallToolRequestParams, t.CallToolResult, capability="tools", name_param="name"),
        Method("notifications/tools/list_changed", "server", plain),
        Method("prompts/list", "client", t.PaginatedRequestParams, t.ListPromptsResult, capability="prompts", cacheable=True),
        Method("prompts/get", "client", t.GetPromptRequestParams, t.GetPromptResult, capability="prompts", name_param="name"),
        Method("notifications/prompts/list_changed", "server", plain),
        Method("completion/complete", "client", t.CompleteRequestParams, t.CompleteResult, capability="completions"),
        Method("logging/setLevel", "client", t.SetLevelRequestParams, t.EmptyResult, capability="logging", **handshake),
        Method("notifications/message", "server", t.LoggingMessageNotificationParams),
        Method("roots/list", "server", t.RequestParams, t.ListRootsResult, capability="roots", **handshake),
        Method("notifications/roots/list_changed", "client", plain, **handshake),
        Method("sampling/createMessage", "server", t.CreateMessageRequestParams, t.CreateMessageResult, capability="sampling", **handshake),
        Method("elicitation/create", "server", t.ElicitRequestParams, t.ElicitResult, capability="elicitation", first="2025-06-18", last=_LAST_HANDSHAKE),
        Method("notifications/elicitation/complete", "server", t.ElicitationCompleteNotificationParams, **last_handshake),
        # The extension io.modelcontextprotocol/tasks; its methods of 2025-11-25 are in `client.task_polling`.
        Method("tasks/get", "client", tasks.TaskParams, tasks.TaskState, name_param="task_id", **stateless),
        Method("tasks/update", "client", tasks.TaskUpdateParams, t.EmptyResult, name_param="task_id", **stateless),
        Method("tasks/cancel", "client", tasks.TaskParams, t.EmptyResult, name_param="task_id", **stateless),
        Method("notifications/tasks", "server", tasks.TaskNotificationParams, **stateless),
    )  # fmt: skip


METHODS: dict[str, Method] = {row.name: row for row in _rows()}
"""All known methods by name; extensions add theirs with `add_method`."""
CORE: frozenset[str] = frozenset(METHODS)
"""The methods of this module, including those of the tasks extension, which no other extension may redefine."""


EXTENSIONS_FROM = next(name for name, rules in REVISIONS.items() if rules.extensions)
"""The first revision whose clients and servers may declare extensions."""


def add_method(row: Method) -> Method:
    """Add an extension's method for all clients and servers of this process. Returns the row that is used.

    A row describes the messages, not their handler, so that all servers of a process share the table. Adding an equal
    row again returns the first one.

    Raises:
        ValueError: the protocol itself has a method of this name, or the name was added with another `spec`.
    """
    if row.name in CORE:
        raise ValueError(f"{row.name!r} is a method of the protocol: choose another name.")
    known = METHODS.setdefault(row.name, row)
    if known is not row and known.spec != row.spec:
        raise ValueError(
            f"The method {row.name!r} is known already, with other params, result or options: "
            "define its params and result once, in a module, for every server of this process."
        )
    return known
