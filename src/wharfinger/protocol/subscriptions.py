"""Change notifications as bytes, for the watchers of both eras: filters, the acknowledgement and tagging."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from wharfinger import types as t
from wharfinger.protocol.exchange import META
from wharfinger.protocol.jsonrpc import Id, encode, encode_notification

__all__ = [
    "LISTS",
    "Tag",
    "acknowledgement",
    "list_changed",
    "listen_result",
    "lists_of",
    "tag",
    "task_changed",
    "updated",
]

LISTS = ("resources", "tools", "prompts")
"""The lists whose change can be told."""

_FILTERS = {
    "resources": "resources_list_changed",
    "tools": "tools_list_changed",
    "prompts": "prompts_list_changed",
}

Tag = dict[str, Any] | None
"""The `_meta` of a notification on a listen stream; None in the handshake era."""


def tag(id: Id) -> dict[str, Any]:
    """Say which listen request a notification belongs to; the id keeps its JSON type (2026-07-28, subscriptions)."""
    return {f"{META}subscriptionId": id}


def lists_of(wanted: t.SubscriptionFilter) -> list[str]:
    """The lists that a listen request asks for."""
    return [name for name, field in _FILTERS.items() if getattr(wanted, field) is True]


def acknowledgement(lists: list[str], uris: list[str], task_ids: list[str] | None = None) -> t.SubscriptionFilter:
    """The part of a filter that is honoured; what is not is left out."""
    return t.SubscriptionFilter(
        **{_FILTERS[name]: True for name in lists},
        resource_subscriptions=uris or UNSET,
        task_ids=task_ids or UNSET,
    )


def updated(uri: str, tag: Tag = None) -> bytes:
    """`notifications/resources/updated`; a hint, with no payload but the URI."""
    return encode_notification("notifications/resources/updated", _params({"uri": uri}, tag))


def list_changed(name: str, tag: Tag = None) -> bytes:
    """`notifications/<name>/list_changed`."""
    return encode_notification(f"notifications/{name}/list_changed", _params({}, tag))


def task_changed(state: bytes, tag: Tag) -> bytes:
    """`notifications/tasks` with all that `tasks/get` would say: `state` is an object's JSON (the tasks extension)."""
    params = state if tag is None else b'{"_meta":%b,%b' % (encode(tag), state[1:])
    return encode_notification("notifications/tasks", Raw(params))


def _params(params: dict[str, Any], tag: Tag) -> Any:
    if tag is not None:
        return {"_meta": tag, **params}
    return params or UNSET


def listen_result(id: Id) -> t.SubscriptionsListenResult:
    """The final answer of a listen request: the server ends it, gracefully."""
    return t.SubscriptionsListenResult(meta=tag(id))
