"""Elicitation: requests to a user, by a form or a URL, and the answers."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from .base import NotificationParams, Result, WireStruct
from .json_schema import PrimitiveSchema
from .requests import TaskAugmentedRequestParams

__all__ = [
    "ElicitRequestParams",
    "ElicitResult",
    "ElicitationCompleteNotificationParams",
    "RequestedSchema",
    "URLElicitationRequiredData",
    "check_elicitation",
]


class RequestedSchema(WireStruct, kw_only=True):
    """The form: a flat object of primitive fields, in display order."""

    type: Literal["object"]
    properties: dict[str, PrimitiveSchema]
    required: list[str] | UnsetType = UNSET
    schema: str | UnsetType = field(default=UNSET, name="$schema")


class ElicitRequestParams(TaskAugmentedRequestParams, kw_only=True):
    """Params of `elicitation/create`: a form (`requested_schema`; `mode` may be absent), or a URL (`url`).

    In the protocol's schema these are `ElicitRequestFormParams` and `ElicitRequestURLParams`; see `check_elicitation`.
    `elicitation_id` is for URLs in 2025-11-25 only.
    """

    message: str
    mode: Literal["form", "url"] | UnsetType = UNSET
    requested_schema: RequestedSchema | UnsetType = UNSET
    url: str | UnsetType = UNSET
    elicitation_id: str | UnsetType = UNSET


def check_elicitation(params: ElicitRequestParams) -> None:
    """Check that params are those of a form or of a URL.

    Raises:
        ValueError: the member of its mode is missing, or that of the other mode is set.
    """
    by_url = params.mode == "url"
    if by_url and (params.url is UNSET or params.requested_schema is not UNSET):
        raise ValueError("An elicitation by URL has url, and no requestedSchema.")
    if not by_url and (params.requested_schema is UNSET or params.url is not UNSET):
        raise ValueError("An elicitation by form has requestedSchema, and no url.")


class ElicitResult(Result, kw_only=True):
    """Result of `elicitation/create`; only an accepted form has `content`."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, str | int | float | bool | list[str]] | UnsetType = UNSET


class ElicitationCompleteNotificationParams(NotificationParams, kw_only=True):
    """Params of `notifications/elicitation/complete`: the user has finished at the URL (2025-11-25)."""

    elicitation_id: str


class URLElicitationRequiredData(WireStruct, kw_only=True):
    """`data` of error -32042: what the user must do before the request is sent again (2025-11-25)."""

    elicitations: list[ElicitRequestParams]
