"""Requests for input, as the result of a stateless request: the client sends that request again, with answers."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from .base import Result, WireStruct
from .elicitation import ElicitRequestParams, ElicitResult
from .requests import RequestParams
from .roots import ListRootsResult
from .sampling import CreateMessageRequestParams, CreateMessageResult

__all__ = [
    "CreateMessageRequest",
    "ElicitRequest",
    "InputRequest",
    "InputRequests",
    "InputRequiredResult",
    "InputResponse",
    "ListRootsRequest",
]


class CreateMessageRequest(WireStruct, kw_only=True, tag_field="method", tag="sampling/createMessage"):
    """Asks the client's model."""

    params: CreateMessageRequestParams


class ListRootsRequest(WireStruct, kw_only=True, tag_field="method", tag="roots/list"):
    """Asks for the client's roots."""

    params: RequestParams | UnsetType = UNSET


class ElicitRequest(WireStruct, kw_only=True, tag_field="method", tag="elicitation/create"):
    """Asks the client's user."""

    params: ElicitRequestParams


InputRequest = CreateMessageRequest | ListRootsRequest | ElicitRequest
"""One request for input."""

InputRequests = dict[str, InputRequest]
"""Requests for input, by keys that the answers repeat."""

InputResponse = CreateMessageResult | ListRootsResult | ElicitResult
"""One answer; its type follows from its request (see `InputResponses`)."""


class InputRequiredResult(Result, kw_only=True):
    """An incomplete result of `tools/call`, `prompts/get` or `resources/read`; its `result_type` is `input_required`.

    It has requests for input, a state to send back unread, or both (2026-07-28, multi round-trip requests).
    """

    input_requests: InputRequests | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
