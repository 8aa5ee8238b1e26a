"""`ServerInspection`: who watches what, the last requests, and the server as another principal sees it.

With a policy, a viewer needs the action `inspect` (level `admin`) on the server itself, and also on each resource that
is shown. Tools and prompts are shown to each viewer who may inspect the server. Without a policy everyone sees the
same, so views as another principal are refused; watchers and requests are shown to everyone who may connect, and to
nobody if there may be several callers (`shared`).

A view as another principal goes through the same checks as that principal's own requests, and can only list and read.
Its requests are recorded with the name of the principal and that of the inspector. A view as a principal with a key
has a key of its own, so it counts towards neither the limits nor the tasks of the principal.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import PermissionDenied, ResourceNotFound
from wharfinger.protocol.inspection import RecentRequest, WatchedResource
from wharfinger.protocol.interfaces import Access, Decision, Handler, NotificationHandler
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.observing import Observation, Refusal
from wharfinger.protocol.principal import LOCAL, Principal
from wharfinger.protocol.request import Request, ResultMeta
from wharfinger.protocol.revisions import Revision
from wharfinger.transports.memory import MemoryTarget

if TYPE_CHECKING:
    from wharfinger.server.app import Server

__all__ = ["MAX_RECENT", "ServerInspection"]

MAX_RECENT = 200
"""The maximum number of recent requests that are kept."""
MAX_WATCHED = 1_000
"""The maximum number of watched resources that are shown."""
MAX_NAMED = 20
"""The maximum number of watchers of one resource that are named."""
MAX_TARGET_CHARACTERS = 2_048
"""The maximum length of the target of a recent request, and of the name of its client."""
UNRECORDED = frozenset({"ping"})
"""The methods whose requests are not kept."""
WHOLE_SERVER = "method:inspect"
"""The target for the whole server. Only rules without `what`, or with `**`, match it: for `inspect`, the patterns of
`method:` have no effect."""


class ServerInspection:
    """Implements `protocol.inspection.Inspection` for one server. It records requests from its creation on."""

    def __init__(self, server: Server, *, shared: bool = False) -> None:
        """`shared` says whether several callers may use the server; then nobody may inspect it without a policy."""
        self._server = server
        self._shared = shared
        self._recent = _RecentRequests()
        server.observers.add(self._recent)

    # -- Inspection

    def allows(self, viewer: Principal) -> bool:
        """Return whether a principal may inspect the server."""
        access = self._access(viewer)
        return not self._shared if access is None else access.allows("inspect", WHOLE_SERVER)

    def watchers(self, viewer: Principal) -> Sequence[WatchedResource]:
        """Return the resources that are watched now, and by whom."""
        if not self.allows(viewer):
            return []
        access, watching = self._access(viewer), self._server.watching
        resources: list[WatchedResource] = []
        for uri in sorted(watching.watched()):
            if len(resources) == MAX_WATCHED:
                break
            if access is None or access.allows("inspect", uri):
                watchers = watching.principals_of(uri)
                names = dict.fromkeys(display_name(each) for each in watchers if each.subject)
                resources.append(WatchedResource(uri, tuple(names)[:MAX_NAMED], len(watchers)))
        return resources

    def recent(self, viewer: Principal) -> Sequence[RecentRequest]:
        """Return the most recent requests, the latest first."""
        if not self.allows(viewer):
            return []
        access = self._access(viewer)
        return [
            request
            for request, target in reversed(self._recent.all)
            if access is None or not target or access.allows("inspect", target)
        ]

    def view_as(self, viewer: Principal, principal: Principal) -> MemoryTarget:
        """Return a target that sees the server as another principal does, and can only list and read.

        Raises:
            PermissionDenied: `viewer` may not inspect the server, the server has no policy, or `principal` is LOCAL.
        """
        if self._server.policy is None:
            raise PermissionDenied("This server has no policy: everyone sees the same.")
        if not self.allows(viewer):
            raise PermissionDenied("This needs the action inspect, which rules of the level admin allow.")
        if principal is LOCAL:  # known by its connection: a copy would not be the local caller
            raise PermissionDenied("Connect over stdio to see what the local caller sees: no view can show it.")
        key = hashlib.sha256(f"inspect {viewer.key} {principal.key}".encode()).hexdigest()[:32]
        inspected = msgspec.structs.replace(
            principal, inspector=viewer.subject or "anyone", key=key if principal.key else ""
        )
        return MemoryTarget(_PrincipalView(self._server, lambda: self._require_access(viewer)), inspected)

    def _access(self, viewer: Principal) -> Access | None:
        authorizer = self._server.policy
        return None if authorizer is None else authorizer.access(viewer)

    def _require_access(self, viewer: Principal) -> Access:
        """Return the access of a viewer now: the policy may have changed since the view was opened.

        Raises:
            PermissionDenied: the viewer may no longer inspect the server.
        """
        access = self._access(viewer)
        if access is None or not access.allows("inspect", WHOLE_SERVER):
            raise PermissionDenied("The policy no longer allows this view.")
        return access


class _RecentRequests:
    """Keeps the last requests, each with its target for rules (see `protocol.observing.RequestObserver`)."""

    def __init__(self) -> None:
        self.all: deque[tuple[RecentRequest, str]] = deque(maxlen=MAX_RECENT)

    def ended(self, seen: Observation) -> None:
        """Keep a request."""
        request = seen.request
        if request.method in UNRECORDED:
            return
        caller = request.caller
        app = "" if caller.info is None else f"{caller.info.name} {caller.info.version}".strip()
        recent = RecentRequest(
            time.time(),
            request.method,
            seen.target[:MAX_TARGET_CHARACTERS],
            display_name(caller.principal),
            app[:MAX_TARGET_CHARACTERS],
            seen.outcome,
            seen.seconds,
            seen.size,
        )
        self.all.append((recent, target_of(seen, recent.target)))

    def began(self, seen: Observation) -> None:
        """Do nothing: a request is kept when it has ended."""

    def searched(self, request: Request, words: str, hits: int) -> None:
        """Do nothing: the words of a search may be personal."""

    def watched(self, request: Request, uris: Sequence[str], refused: Sequence[str]) -> None:
        """Do nothing: `watchers` asks the server."""

    def unwatched(self, request: Request, uris: Sequence[str]) -> None:
        """Do nothing: `watchers` asks the server."""

    def refused(self, refusal: Refusal) -> None:
        """Do nothing: only messages that were accepted are shown."""

    async def start(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


def display_name(principal: Principal) -> str:
    """Return the subject of a principal and, if an inspector sees the server as this principal, the inspector's too."""
    return f"{principal.subject} (seen by {principal.inspector})" if principal.inspector else principal.subject


def target_of(seen: Observation, target: str) -> str:
    """Return a request's target for rules: the name or URI in its params, names with `tool:` or `prompt:`."""
    if isinstance(getattr(seen.params, "ref", None), t.PromptReference):
        return f"prompt:{target}"
    prefix = {"tools/call": "tool:", "prompts/get": "prompt:"}.get(seen.request.method, "")
    return prefix + target


class _InspectedAccess:
    """Limits what is read in a view to what the viewer may inspect, as the access of an outer server does."""

    def __init__(self, viewer: Access) -> None:
        self._viewer = viewer
        self.key = f"inspect {viewer.key}"

    def decide(self, action: str, target: str) -> Decision:
        return self._viewer.decide("inspect", target)

    def allows(self, action: str, target: str) -> bool:
        return self._viewer.allows("inspect", target)

    def may_read_below(self, prefix: str) -> bool:
        return True

    def reads_all_below(self, prefix: str) -> bool:
        return False

    def is_public(self, uri: str) -> bool:
        return False


class _PrincipalView:
    """A service that lists and reads like the server, but hides everything that the viewer may not inspect."""

    def __init__(self, server: Server, require_access: Callable[[], Access]) -> None:
        self._server = server
        self._require_access = require_access
        self.notification_handlers: Mapping[str, NotificationHandler] = {}
        self.handlers: Mapping[str, Handler] = {
            method: self._make_handler(method) for method in _READING if method in server.handlers
        }

    @property
    def info(self) -> t.Implementation:
        return self._server.info

    @property
    def instructions(self) -> str | None:
        return self._server.instructions

    @property
    def limits(self) -> Limits:
        return self._server.limits

    @property
    def result_meta(self) -> ResultMeta:
        return self._server.result_meta

    def capabilities(self, rules: Revision) -> t.ServerCapabilities:
        """Declare neither subscriptions nor `listChanged`: nothing can be watched in a view."""
        own = self._server.capabilities(rules)
        return t.ServerCapabilities(
            resources=UNSET if own.resources is UNSET else t.ResourcesCapability(),
            tools=UNSET if own.tools is UNSET else t.ToolsCapability(),
            prompts=UNSET if own.prompts is UNSET else t.PromptsCapability(),
        )

    async def start(self, holder: object = None) -> None:
        await self._server.start(holder or self)

    def drain(self) -> None:
        """Do nothing: the server's own transport drains it."""

    async def close(self, holder: object = None) -> None:
        await self._server.close(holder or self)

    def _make_handler(self, method: str) -> Handler:
        """Return a handler that calls the server's and hides what the viewer may not inspect."""
        list_entries = _READING[method]

        async def serve(request: Request) -> Any:
            access = self._require_access()
            if method == "resources/read" and not access.allows("inspect", request.params.uri):
                raise ResourceNotFound(request.params.uri)
            request.access = _InspectedAccess(access)
            result = await self._server.handlers[method](request)  # looked up now: a new policy replaces the handlers
            if list_entries is None:
                return result
            member, target = list_entries
            kept = [entry for entry in getattr(result, member) if access.allows("inspect", target(entry))]
            return msgspec.structs.replace(result, **{member: kept})

        return serve


_READING: Mapping[str, tuple[str, Callable[[Any], str]] | None] = {
    "initialize": None,
    "server/discover": None,
    "ping": None,
    "resources/read": None,
    "resources/list": ("resources", lambda entry: str(entry.uri)),
    "resources/templates/list": ("resource_templates", lambda entry: str(entry.uri_template).partition("{")[0]),
    "tools/list": ("tools", lambda entry: f"tool:{entry.name}"),
    "prompts/list": ("prompts", lambda entry: f"prompt:{entry.name}"),
}
"""The methods of a view. For a list: the field of its result with the entries, and the target of the policy for one."""
