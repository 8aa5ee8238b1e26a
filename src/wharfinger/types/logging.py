"""Log messages that a server sends to its client."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from .base import NotificationParams

__all__ = ["LoggingLevel", "LoggingMessageNotificationParams"]

LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severity, as in syslog (RFC 5424, §6.2.1), lowest first."""


class LoggingMessageNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/message`: `data` is any JSON value, often a string."""

    level: LoggingLevel
    data: Any
    logger: str | UnsetType = UNSET
