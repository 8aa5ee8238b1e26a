"""What clients and servers declare that they can do; declares nothing itself."""

from __future__ import annotations

from msgspec import UNSET, UnsetType, field

from .base import JSONObject, Wire

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


class RootsCapability(Wire, kw_only=True):
    """The client names roots; `list_changed`: it also tells when they change (handshake era)."""

    list_changed: bool | UnsetType = UNSET


class SamplingCapability(Wire, kw_only=True):
    """The client asks its model; `context`: and can include context of servers; `tools`: and lets it use tools."""

    context: JSONObject | UnsetType = UNSET
    tools: JSONObject | UnsetType = UNSET


class ElicitationCapability(Wire, kw_only=True):
    """The client asks its user; with neither member it means by `form`."""

    form: JSONObject | UnsetType = UNSET
    url: JSONObject | UnsetType = UNSET


class ElicitationTaskRequests(Wire, kw_only=True):
    """`elicitation/create` may be made a task."""

    create: JSONObject | UnsetType = UNSET


class SamplingTaskRequests(Wire, kw_only=True):
    """`sampling/createMessage` may be made a task."""

    create_message: JSONObject | UnsetType = UNSET


class ClientTaskRequests(Wire, kw_only=True):
    """Which requests to a client may be made tasks (2025-11-25)."""

    elicitation: ElicitationTaskRequests | UnsetType = UNSET
    sampling: SamplingTaskRequests | UnsetType = UNSET


class ClientTasksCapability(Wire, kw_only=True):
    """The client keeps tasks for its server (2025-11-25); `listing` is the wire's `list`."""

    listing: JSONObject | UnsetType = field(default=UNSET, name="list")
    cancel: JSONObject | UnsetType = UNSET
    requests: ClientTaskRequests | UnsetType = UNSET


class ClientCapabilities(Wire, kw_only=True):
    """What a client offers to servers; unknown ones are ignored."""

    roots: RootsCapability | UnsetType = UNSET
    sampling: SamplingCapability | UnsetType = UNSET
    elicitation: ElicitationCapability | UnsetType = UNSET
    tasks: ClientTasksCapability | UnsetType = UNSET
    extensions: dict[str, JSONObject] | UnsetType = UNSET
    experimental: dict[str, JSONObject] | UnsetType = UNSET


class PromptsCapability(Wire, kw_only=True):
    """The server has prompts; `list_changed`: and tells when there are others."""

    list_changed: bool | UnsetType = UNSET


class ResourcesCapability(Wire, kw_only=True):
    """The server has resources; it tells when one changes (`subscribe`) and when there are others (`list_changed`)."""

    subscribe: bool | UnsetType = UNSET
    list_changed: bool | UnsetType = UNSET


class ToolsCapability(Wire, kw_only=True):
    """The server has tools; `list_changed`: and tells when there are others."""

    list_changed: bool | UnsetType = UNSET


class ToolTaskRequests(Wire, kw_only=True):
    """`tools/call` may be made a task."""

    call: JSONObject | UnsetType = UNSET


class ServerTaskRequests(Wire, kw_only=True):
    """Which requests to a server may be made tasks (2025-11-25)."""

    tools: ToolTaskRequests | UnsetType = UNSET


class ServerTasksCapability(Wire, kw_only=True):
    """The server keeps tasks for its client (2025-11-25); `listing` is the wire's `list`."""

    listing: JSONObject | UnsetType = field(default=UNSET, name="list")
    cancel: JSONObject | UnsetType = UNSET
    requests: ServerTaskRequests | UnsetType = UNSET


class ServerCapabilities(Wire, kw_only=True):
    """What a server offers to clients; a method whose capability is not here does not exist."""

    resources: ResourcesCapability | UnsetType = UNSET
    tools: ToolsCapability | UnsetType = UNSET
    prompts: PromptsCapability | UnsetType = UNSET
    completions: JSONObject | UnsetType = UNSET
    logging: JSONObject | UnsetType = UNSET
    tasks: ServerTasksCapability | UnsetType = UNSET
    extensions: dict[str, JSONObject] | UnsetType = UNSET
    experimental: dict[str, JSONObject] | UnsetType = UNSET
