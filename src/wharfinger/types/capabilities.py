"""The capabilities that clients and servers declare."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from .base import JSONObject, WireStruct

__all__ = [
    "ClientCapabilities",
    "ClientTaskRequests",
    "ClientTasksCapability",
    "ElicitationCapability",
    "ElicitationTaskRequests",
    "PromptsCapability",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "SamplingTaskRequests",
    "ServerCapabilities",
    "ServerTaskRequests",
    "ServerTasksCapability",
    "ToolTaskRequests",
    "ToolsCapability",
]


class RootsCapability(WireStruct, kw_only=True):
    """The client has roots; with `list_changed` it also notifies of changes (handshake era)."""

    list_changed: bool | UnsetType = UNSET


class SamplingCapability(WireStruct, kw_only=True):
    """The client can ask its model: with context from servers if `context` is set, with tools if `tools` is set."""

    context: JSONObject | UnsetType = UNSET
    tools: JSONObject | UnsetType = UNSET


class ElicitationCapability(WireStruct, kw_only=True):
    """The client can ask its user by form or by URL; without members, by form only."""

    form: JSONObject | UnsetType = UNSET
    url: JSONObject | UnsetType = UNSET


class ElicitationTaskRequests(WireStruct, kw_only=True):
    """`elicitation/create` can be a task."""

    create: JSONObject | UnsetType = UNSET


class SamplingTaskRequests(WireStruct, kw_only=True):
    """`sampling/createMessage` can be a task."""

    create_message: JSONObject | UnsetType = UNSET


class ClientTaskRequests(WireStruct, kw_only=True):
    """The requests to a client that can be tasks (2025-11-25)."""

    elicitation: ElicitationTaskRequests | UnsetType = UNSET
    sampling: SamplingTaskRequests | UnsetType = UNSET


class ClientTasksCapability(WireStruct, kw_only=True):
    """The client keeps tasks for its server (2025-11-25); `listing` is `list` in JSON."""

    listing: JSONObject | UnsetType = field(default=UNSET, name="list")
    cancel: JSONObject | UnsetType = UNSET
    requests: ClientTaskRequests | UnsetType = UNSET


class ClientCapabilities(WireStruct, kw_only=True):
    """The capabilities of a client; unknown ones are ignored."""

    roots: RootsCapability | UnsetType = UNSET
    sampling: SamplingCapability | UnsetType = UNSET
    elicitation: ElicitationCapability | UnsetType = UNSET
    tasks: ClientTasksCapability | UnsetType = UNSET
    extensions: dict[str, JSONObject] | UnsetType = UNSET
    experimental: dict[str, JSONObject] | UnsetType = UNSET


class PromptsCapability(WireStruct, kw_only=True):
    """The server has prompts; with `list_changed` it notifies when the list changes."""

    list_changed: bool | UnsetType = UNSET


class ResourcesCapability(WireStruct, kw_only=True):
    """The server has resources; it notifies when one changes (`subscribe`) and when the list does (`list_changed`)."""

    subscribe: bool | UnsetType = UNSET
    list_changed: bool | UnsetType = UNSET


class ToolsCapability(WireStruct, kw_only=True):
    """The server has tools; with `list_changed` it notifies when the list changes."""

    list_changed: bool | UnsetType = UNSET


class ToolTaskRequests(WireStruct, kw_only=True):
    """`tools/call` can be a task."""

    call: JSONObject | UnsetType = UNSET


class ServerTaskRequests(WireStruct, kw_only=True):
    """The requests to a server that can be tasks (2025-11-25)."""

    tools: ToolTaskRequests | UnsetType = UNSET


class ServerTasksCapability(WireStruct, kw_only=True):
    """The server keeps tasks for its client (2025-11-25); `listing` is `list` in JSON."""

    listing: JSONObject | UnsetType = field(default=UNSET, name="list")
    cancel: JSONObject | UnsetType = UNSET
    requests: ServerTaskRequests | UnsetType = UNSET


class ServerCapabilities(WireStruct, kw_only=True):
    """The capabilities of a server. It has no methods for the capabilities that it does not declare."""

    resources: ResourcesCapability | UnsetType = UNSET
    tools: ToolsCapability | UnsetType = UNSET
    prompts: PromptsCapability | UnsetType = UNSET
    completions: JSONObject | UnsetType = UNSET
    logging: JSONObject | UnsetType = UNSET
    tasks: ServerTasksCapability | UnsetType = UNSET
    extensions: dict[str, JSONObject] | UnsetType = UNSET
    experimental: dict[str, JSONObject] | UnsetType = UNSET
