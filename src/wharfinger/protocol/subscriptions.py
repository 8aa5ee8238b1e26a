"""Encodes change notifications, for listen streams (2026-07-28) and for sessions that began with a handshake.

Also reads the filter of a listen request, makes its acknowledgement, and decides which URIs a watched URI covers.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.protocol.jsonrpc import Id, encode_notification
from wharfinger.protocol.request import META_PREFIX

__all__ = [
    "LISTS",
    "ChangeNotification",
    "Tag",
    "acknowledgement",
    "covers",
    "list_changed",
    "listen_result",
    "lists_of",
    "meta_of",
    "task_changed",
    "updated",
]

_FILTERS = {
    "resources": "resources_list_changed",
    "tools": "tools_list_changed",
    "prompts": "prompts_list_changed",
}
"""The field of `SubscriptionFilter` for each list."""
LISTS = tuple(_FILTERS)
"""The lists that have change notifications."""

Tag = bytes | None
"""The encoded `_meta` of a notification on a listen stream; None in a session that began with a handshake."""


def meta_of(id: Id) -> dict[str, Any]:
    """Return the `_meta` that names the listen request, not yet encoded (see `Tag`).

    The id keeps its JSON type (2026-07-28, subscriptions).
    """
    return {f"{META_PREFIX}subscriptionId": id}


def lists_of(requested: t.SubscriptionFilter) -> list[str]:
    """Return the lists that a listen request asks for."""
    return [name for name, field in _FILTERS.items() if getattr(requested, field) is True]


def covers(watched: str, uri: str) -> bool:
    """Return whether `uri` is the watched URI, a part of it (`?…`, `#…`), or something in the folder that it names."""
    if not uri.startswith(watched):  # the cheapest test first
        return False
    return len(uri) == len(watched) or watched.endswith("/") or uri[len(watched)] in "/?#"


def acknowledgement(lists: list[str], uris: list[str], task_ids: list[str] | None = None) -> t.SubscriptionFilter:
    """Return the part of a filter that the server honours."""
    return t.SubscriptionFilter(
        **{_FILTERS[name]: True for name in lists},
        resource_subscriptions=uris or UNSET,
        task_ids=task_ids or UNSET,
    )


class ChangeNotification:
    """A change notification, encoded once for all watchers. Call it with a watcher's tag to get the bytes to send."""

    __slots__ = ("_after", "_before", "_untagged")

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self._untagged = encode_notification(method, params or UNSET)
        before, _, after = encode_notification(method, {"_meta": 0, **params}).partition(b'"_meta":0')
        self._before, self._after = before + b'"_meta":', after

    def __call__(self, tag: Tag) -> bytes:
        return self._untagged if tag is None else self._before + tag + self._after


def updated(uri: str) -> ChangeNotification:
    """Return `notifications/resources/updated`."""
    return ChangeNotification("notifications/resources/updated", {"uri": uri})


def list_changed(name: str) -> ChangeNotification:
    """Return `notifications/<name>/list_changed`."""
    return ChangeNotification(f"notifications/{name}/list_changed", {})


def task_changed(state: bytes, tag: Tag) -> bytes:
    """Encode `notifications/tasks`; `state` is the JSON object that `tasks/get` returns (tasks extension)."""
    params = state if tag is None else b'{"_meta":%b,%b' % (tag, state[1:])
    return encode_notification("notifications/tasks", Raw(params))


def listen_result(id: Id) -> t.SubscriptionsListenResult:
    """Return the result of a listen request that the server ends."""
    return t.SubscriptionsListenResult(meta=meta_of(id))
