"""What a caller of the stateless era wants to be told, and what it will be told; tells nothing."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from .base import NotificationParams, Result, Wire
from .requests import RequestParams

__all__ = [
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
]


class SubscriptionFilter(Wire, kw_only=True):
    """Kinds of change notices; what is not named is not sent. `resource_subscriptions` are URIs.

    `task_ids` belongs to the extension `io.modelcontextprotocol/tasks`.
    """

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET
    task_ids: list[str] | UnsetType = UNSET


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    """Params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/subscriptions/acknowledged`, the first message of a subscription: what is granted."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """Result of `subscriptions/listen`: the server ends it; `meta` names it by `META_SUBSCRIPTION_ID`."""
