"""Subscriptions of the stateless era: `subscriptions/listen` and its filters."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from .base import NotificationParams, Result, WireStruct
from .requests import RequestParams

__all__ = [
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
]


class SubscriptionFilter(WireStruct, kw_only=True):
    """The notifications to send; others are not sent. `resource_subscriptions` are URIs.

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
    """Params of `notifications/subscriptions/acknowledged`, the first message of a subscription: the granted filter."""

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """Result of `subscriptions/listen`, with which the server ends it; `meta` has its `META_SUBSCRIPTION_ID`."""
