"""One supervised server: started, watched, restarted when it ends, and stopped while it is not used.

    starting --- connected ---> ready --- idleSeconds without a call ---> idle
       ^  ^                       |                                         |
       |  +--- ended or killed ---+                                         |
       |  +----------------------------- the next call ---------------------+
       |
       +--- a later attempt ---- down <--- an attempt failed, or it ended several times soon after its start

A call to a server that is starting waits for it, within the call's own timeout. A call to a server that is down fails
at once with the reason, so that its callers do not wait. Attempts to start it continue at growing intervals.

A connection to a program ends with the program. A server at a URL can go away unnoticed. So after a failed call, or the
end of the stream of list changes, it is pinged until it answers, and every `CHECK_SECONDS` in any case.

One `Client` is used throughout. It opens a lost connection again by itself (`client.connection`), so a watch continues
after a restart. `Upstream` makes the client reconnect at once, and keeps the state. It is also middleware around every
call: it waits for the start, counts the calls in progress, and leaves out what the configuration hides.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, overload

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client import Call, Client, ClientOptions, Next, Retry
from wharfinger.content.globs import compile_glob
from wharfinger.content.redaction import redacted_text
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidParams,
    RemoteError,
    RequestTimeout,
    ResourceNotFound,
    WharfingerError,
)
from wharfinger.protocol.backoff import Backoff
from wharfinger.source import SourceUnavailable
from wharfinger.transports.background import BackgroundTasks
from wharfinger.upstreams.config import ServerConfig
from wharfinger.upstreams.placeholders import InvalidConfiguration
from wharfinger.upstreams.uri_index import UriIndex

__all__ = ["Status", "Upstream", "UpstreamChange", "UpstreamUnreachable"]

log = logging.getLogger("wharfinger.upstreams")

Status = Literal["disabled", "starting", "ready", "idle", "down"]
ChangeKind = Literal["status", "tools", "prompts", "resources"]

LISTS: tuple[ChangeKind, ...] = ("tools", "prompts", "resources")

RESTART_SECONDS, MAX_RESTART_SECONDS = 0.2, 60.0
"""The first and the longest delay before another attempt to start a server. Each failure doubles it."""
STABLE_SECONDS = 10.0
"""After a server has run for this long, its earlier failures are forgotten."""
MAX_QUICK_ENDS = 3
"""After this many quick ends in a row, calls are refused until the server runs again."""
START_SECONDS = 60.0
"""The default of `open_timeout`: a command may have to be downloaded first (`npx`, `uvx`)."""
LIST_AGE_SECONDS = 60.0
"""Age at which a list is read again if its server does not report changes."""
REPORTED_LIST_AGE_SECONDS = 600.0
"""Age at which any list is read again: a server may change an approved tool without reporting it."""
MAX_LISTED = 10_000
"""The maximum number of tools, prompts or templates of one server. The client's `max_pages` bounds the resources."""
MAX_ERROR_CHARACTERS = 500
STOPPED = "it was stopped."
PING_SECONDS = 10.0
CHECK_SECONDS = 30.0
"""Seconds between pings of a server at a URL, which can go away unnoticed while nothing is called."""

_is_ping: ContextVar[bool] = ContextVar("_is_ping", default=False)
"""Whether this task pings the server: a ping does not wait until the server is ready, as other calls do."""


class UpstreamUnreachable(SourceUnavailable):
    """A server cannot be reached now; the message names it and the reason."""


class UpstreamChange(NamedTuple):
    """A change of the state of a server, or of one of its lists."""

    server: str
    kind: ChangeKind


class Upstream:
    """A server of a configuration, and its state. `Upstreams` makes, starts and stops it."""

    def __init__(
        self, config: ServerConfig, options: ClientOptions, changed: Callable[[UpstreamChange], object]
    ) -> None:
        """`changed` is called when the state or a list has changed.

        Raises:
            InvalidConfiguration: the target cannot be a server.
        """
        self.config = config
        self.name = config.name
        self.status: Status = "down" if config.error else "disabled" if config.disabled else "starting"
        self.error = _brief(config.error)
        """Why it is down, or why it last ended; empty if it is ready."""
        self.restarts = 0
        """The number of times that it was started again after it had ended, or after its connection was lost."""
        self.uris = UriIndex()
        """The URIs that it has listed."""
        self._changed = changed
        self._offers_name = _Filter(config, uris=False)
        self._offers_uri = _Filter(config, uris=True)
        client_options = dict(options)
        client_options["middleware"] = (self._supervise, *options.get("middleware", ()))
        if config.timeout_seconds is not None:
            client_options["timeout"] = config.timeout_seconds
        client_options.setdefault("open_timeout", START_SECONDS)
        client_options.setdefault(
            "retry",
            Retry(
                attempts=2,
                watch_attempts=1_000_000,
                initial_delay=RESTART_SECONDS,
                max_delay=MAX_RESTART_SECONDS,
                reset_after=STABLE_SECONDS,
            ),
        )
        connection = {"headers": config.headers, "env": config.env, "cwd": config.cwd}
        client_options |= {name: value for name, value in connection.items() if value}
        if any(name.lower() == "authorization" for name in config.headers):  # has precedence over a sign-in
            client_options.pop("auth", None)
        try:
            self._client = Client(config.target, **client_options)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise InvalidConfiguration(f"{config.name!r}: {error}") from None
        self._client.observe_connection(self._connection_changed)
        self._settled = asyncio.Event()
        """Set when a start has succeeded or failed; cleared when another one begins."""
        self._start_requested = asyncio.Event()
        """Set when a call needs the server while it is idle."""
        self._lost = asyncio.Event()
        """Set while the connection is lost."""
        self._runner: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._reports_lists = False
        """Whether changes of the lists are reported now."""
        self._ping_task: asyncio.Task[None] | None = None
        self._connected_at = 0.0
        self._quick_ends = 0
        """The number of ends in a row that followed soon after a start."""
        self._calls_in_progress = 0
        self._used_at = 0.0
        """When the last call ended."""
        self._lists: dict[str, tuple[float, list[Any]]] = {}
        """The last lists, by their kind, with the time at which they were read.

        For the kind `uris`, only the time counts: `self.uris` has the URIs.
        """
        self._changed_lists: set[str] = set()
        """The kinds of the lists that have changed since the last request for them."""
        self._listing: dict[str, asyncio.Task[list[Any]]] = {}
        """The tasks that read a list now, by its kind."""
        self._background = BackgroundTasks()

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}: {self.status}{f', {self.error}' if self.error else ''}>"

    @property
    def client(self) -> Client:
        """The client. A call waits while the server is starting, and starts it if it is idle.

        Raises:
            UpstreamUnreachable: the server is down or disabled.
        """
        if self.status in ("down", "disabled"):
            raise self._unreachable()
        return self._client

    async def connected(self, timeout: float | None = None) -> Client:
        """Return the client when the server is ready; starts it if it is idle.

        Raises:
            UpstreamUnreachable: the server is down or disabled, or not ready within `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._wait_until_ready()
        except TimeoutError:
            raise UpstreamUnreachable(f"{self.name} is not ready within {timeout:g} s.") from None
        return self._client

    async def settled(self) -> None:
        """Wait until the server has started, or the attempt has failed. Does not start an idle server."""
        if self.status == "starting":
            await self._settled.wait()

    def offers_tool(self, name: str) -> bool:
        """Return whether the configuration offers a tool, by the server's own name for it."""
        config = self.config
        included = config.include_tools is None or name in config.include_tools
        return included and name not in config.exclude_tools and self._offers_name(name)

    def offers_prompt(self, name: str) -> bool:
        """Return whether the configuration offers a prompt, by the server's own name for it."""
        return self._offers_name(name)

    def offers_uri(self, uri: str) -> bool:
        """Return whether the configuration offers a resource."""
        return self._offers_uri(uri)

    # Lists.

    async def tools(self) -> list[t.Tool]:
        """Return its tools: the last list, if it is not too old and the server has not reported a change since.

        Raises:
            UpstreamUnreachable: the list has to be read, and the server is down or disabled.
        """
        return await self._get_list("tools", lambda: self._client.list_tools(bypass_cache=True))

    async def prompts(self) -> list[t.Prompt]:
        """Return its prompts; see `tools`."""
        return await self._get_list("prompts", lambda: self._client.list_prompts(bypass_cache=True))

    async def templates(self) -> list[t.ResourceTemplate]:
        """Return its resource templates; see `tools`."""
        templates = await self._get_list("templates", lambda: self._client.list_resource_templates(bypass_cache=True))
        self.uris.set_templates(templates)
        return templates

    async def resources(self) -> list[t.Resource]:
        """Return its resources, from the server or from its client's cache."""
        await self._wait_until_ready()
        resources: list[t.Resource] = []
        index = UriIndex()
        requested_at = _now()
        with self._reading("uris"):
            if self._client.capabilities.resources is not UNSET:
                async for page in self._client.list_resources().pages():
                    index.add(page, UNSET)
                    resources += page
        if not self._has_newer("uris", requested_at):
            index.share_templates(self.uris)
            self.uris = index
            self._lists["uris"] = (requested_at, [])
        return resources

    async def index_uris(self, max_age: float = 0.0) -> None:
        """Read the index of its URIs again, unless it is up to date or was read in the last `max_age` seconds."""
        if self._is_fresh("uris") or ("uris" in self._lists and _now() - self._lists["uris"][0] < max_age):
            return
        task = self._listing.get("uris")
        if task is None or task.done():
            task = self._listing["uris"] = self._background.start(self._index())
        await self._result_of(task)

    async def _index(self) -> list[Any]:
        await self.resources()
        await self.templates()
        return []

    def knows(self, kind: str) -> bool:
        """Return whether it has listed its `tools`, `prompts`, `templates` or `uris` before."""
        return kind in self._lists

    @overload
    def last_listed(self, kind: Literal["tools"]) -> list[t.Tool]: ...
    @overload
    def last_listed(self, kind: Literal["prompts"]) -> list[t.Prompt]: ...
    @overload
    def last_listed(self, kind: Literal["templates"]) -> list[t.ResourceTemplate]: ...
    @overload
    def last_listed(self, kind: str) -> list[Any]: ...
    def last_listed(self, kind: str) -> list[Any]:
        """Return the last list, which may be out of date; empty if none was read yet."""
        return self._lists[kind][1] if kind in self._lists else []

    def _is_fresh(self, kind: str) -> bool:
        if kind not in self._lists or kind in self._changed_lists:
            return False
        task = self._listing.get(kind)
        if task is not None and not task.done():  # a request from before the last change may have ended after this one
            return False
        if self.status == "idle":  # the list of a stopped server cannot change
            return True
        member = "resources" if kind in ("templates", "uris") else kind
        declared = getattr(self._client.capabilities, member)
        reported = self._reports_lists and declared is not UNSET and declared.list_changed is True
        return _now() - self._lists[kind][0] < (REPORTED_LIST_AGE_SECONDS if reported else LIST_AGE_SECONDS)

    async def _get_list(self, kind: Literal["tools", "prompts", "templates"], listing: Callable[[], Any]) -> list[Any]:
        if self._is_fresh(kind):
            return self._lists[kind][1]
        task = self._listing.get(kind)
        if task is None or task.done():
            task = self._listing[kind] = self._background.start(self._list(kind, listing))
        return await self._result_of(task)

    async def _result_of(self, task: asyncio.Task[list[Any]]) -> list[Any]:
        """Return the result of a task for which others may wait too. Cancelling this does not stop it."""
        await asyncio.wait((task,))
        if task.cancelled():
            raise UpstreamUnreachable(f"{self.name} cannot be reached: {STOPPED}")
        return task.result()

    async def _list(self, kind: Literal["tools", "prompts", "templates"], listing: Callable[[], Any]) -> list[Any]:
        await self._wait_until_ready()
        member = "resources" if kind == "templates" else kind
        items: list[Any] = []
        requested_at = _now()
        with self._reading(kind):
            if getattr(self._client.capabilities, member) is not UNSET:
                async for page in listing().pages():
                    items += page
                    if len(items) > MAX_LISTED:
                        log.warning("%s lists more than %d %s: the others are left out", self.name, MAX_LISTED, kind)
                        items = items[:MAX_LISTED]
                        break
        if not self._has_newer(kind, requested_at):
            self._lists[kind] = (requested_at, items)
        return items

    def _has_newer(self, kind: str, requested_at: float) -> bool:
        """Return whether a list was already read that was requested later: requests may end in another order."""
        return kind in self._lists and self._lists[kind][0] > requested_at

    @contextmanager
    def _reading(self, kind: str) -> Generator[None]:
        """Note that a list is up to date, unless it changes while it is read, or cannot be read."""
        self._changed_lists.discard(kind)
        try:
            yield
        except BaseException:
            self._changed_lists.add(kind)
            raise

    def _invalidate(self, kind: ChangeKind) -> None:
        """Note that a list has changed."""
        kinds = ("templates", "uris") if kind == "resources" else (kind,)
        self._changed_lists.update(kinds)
        for name in kinds:
            self._listing.pop(name, None)  # this request may have been answered before the change
        self._changed(UpstreamChange(self.name, kind))

    # Starting and stopping.

    def start(self) -> None:
        """Start it, unless it is disabled or was started, or its configuration cannot be used."""
        if self.config.error:
            log.warning("%s is not started: %s", self.name, self.error)
        elif self.status != "disabled" and self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop it. Its process has ended when this returns, and it cannot be started again."""
        tasks = [task for task in (self._runner, self._watch_task) if task is not None]
        self._runner = self._watch_task = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._background.cancel()
        with suppress(WharfingerError):
            await self._client.close()
        if self.status != "disabled" and not self.config.error:
            self._set_status("down", STOPPED)

    async def _run(self) -> None:
        backoff = Backoff(RESTART_SECONDS, MAX_RESTART_SECONDS, _random_factor)
        while True:
            opening = not self._client.is_open
            try:
                if opening:
                    await self._client.open()
                else:
                    await self._client.reconnect()  # after a delay that grows with the failures
            except WharfingerError as error:
                self._report_failure(error)
                if opening:
                    await asyncio.sleep(backoff.failed())
                continue
            except Exception as error:  # a target of the application, such as a server of this process
                log.exception("%s could not be started", self.name)
                self._report_failure(error)
                await asyncio.sleep(backoff.failed())
                continue
            if opening:
                backoff.succeeded()
                self._watch_task = asyncio.get_running_loop().create_task(self._watch_lists())
            if await self._wait_until_unused():
                await self._stop_idle()

    def _connection_changed(self, error: WharfingerError | None) -> None:
        """Follow the connection: `error` says why it was lost, and is None if it was made."""
        if error is None:
            self._lost.clear()
            self._connected_at = _now()
            if self.status != "ready":
                # The lists may have changed while the server was away.
                for kind in LISTS if self._lists else ():
                    self._invalidate(kind)
                self._set_status("ready")
            return
        self._lost.set()
        if self._runner is None or self.status == "idle":
            return
        lasted = _now() - self._connected_at
        self._quick_ends = self._quick_ends + 1 if lasted < STABLE_SECONDS else 0
        self.restarts += 1
        self._set_status("down" if self._quick_ends >= MAX_QUICK_ENDS else "starting", _brief(error))

    def _report_failure(self, error: Exception) -> None:
        if self.status != "down":
            log.warning("%s cannot be reached: %s", self.name, _brief(error))
        self._set_status("down", _brief(error) or type(error).__name__)

    def _set_status(self, status: Status, error: str = "") -> None:
        if (status, error) == (self.status, self.error):
            return
        self.status, self.error = status, error
        if status == "starting":
            self._settled.clear()
        else:
            self._settled.set()
        self._changed(UpstreamChange(self.name, "status"))

    async def _wait_until_unused(self) -> bool:
        """Return True when the server was not used for `idle_seconds`, or False when its connection is lost."""
        limit = self.config.idle_seconds
        self._used_at = max(self._used_at, _now())
        while not self._lost.is_set():
            remaining = None
            if limit is not None:
                own_watches = 1 if self._reports_lists else 0  # following the lists does not keep the server in use
                busy = self._calls_in_progress or self._client.watch_count > own_watches
                remaining = limit if busy else limit - (_now() - self._used_at)
                if remaining <= 0:
                    return True
            if isinstance(self.config.target, str):
                remaining = CHECK_SECONDS if remaining is None else min(remaining, CHECK_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(remaining):
                    await self._lost.wait()
            if isinstance(self.config.target, str):
                self._check_connection()
        return False

    async def _stop_idle(self) -> None:
        self._start_requested.clear()
        self.status = "idle"  # calls wait from now on; the change is reported when the process has ended
        watch_task, self._watch_task, self._reports_lists = self._watch_task, None, False
        if watch_task is not None:
            watch_task.cancel()
            await asyncio.wait((watch_task,))
        await self._client.close()
        if not self._start_requested.is_set():
            self._changed(UpstreamChange(self.name, "status"))
        await self._start_requested.wait()
        self._set_status("starting")

    async def _watch_lists(self) -> None:
        """Follow the changes of its lists. If a server reports none, `_is_fresh` limits the age of its lists."""
        try:
            watch = self._client.watch_lists()
            watch.on_interruption = self._check_connection
            async with watch as changes:
                self._reports_lists = True
                async for change in changes:
                    if change.kind != "resource":
                        self._invalidate(change.kind)
        except WharfingerError as error:
            log.debug("%s does not report changes of its lists: %s", self.name, error)
            self._check_connection()
        finally:
            self._reports_lists = False

    def _check_connection(self, error: WharfingerError | None = None) -> None:
        """Begin to ping the server until it answers, unless its connection is known to be lost.

        `error` is not used: the watch passes it to its callback.
        """
        is_pinging = self._ping_task is not None and not self._ping_task.done()
        if self.status == "ready" and not self._lost.is_set() and not is_pinging:
            self._ping_task = self._background.start(self._ping_until_answered())

    async def _ping_until_answered(self) -> None:
        backoff = Backoff(RESTART_SECONDS, MAX_RESTART_SECONDS, _random_factor)
        _is_ping.set(True)
        while self.status in ("ready", "down") and not self._lost.is_set():
            if not self._client.is_open:  # the application closed it
                self.restarts += 1
                self._set_status("starting", "its client was closed.")
                self._lost.set()
                return
            try:
                await self._client.ping(timeout=PING_SECONDS)
            except RemoteError:
                pass  # it answers
            except WharfingerError as error:
                self._report_failure(error)
                await asyncio.sleep(backoff.failed())
                continue
            if self.status == "down":
                self.restarts += 1
                for kind in LISTS:
                    self._invalidate(kind)
                self._set_status("ready")
            return

    # Calls.

    async def _wait_until_ready(self) -> None:
        while self.status in ("starting", "idle"):
            if self.status == "idle":
                self._start_requested.set()
                self._set_status("starting")
            await self._settled.wait()
        if self.status != "ready":
            raise self._unreachable()

    def _unreachable(self) -> UpstreamUnreachable:
        if self.status == "disabled":
            return UpstreamUnreachable(f"{self.name} is disabled in its configuration.")
        return UpstreamUnreachable(f"{self.name} cannot be reached: {self.error}")

    async def _supervise(self, call: Call, next: Next) -> Any:
        """Make a call as soon as the server is ready. Refuse hidden items, and leave them out of lists.

        This is middleware of the client.
        """
        if _is_ping.get():
            return await next(call)
        self._calls_in_progress += 1
        try:
            if self.status != "ready":
                try:
                    async with asyncio.timeout(call.left(asyncio.get_running_loop().time())):
                        await self._wait_until_ready()
                except TimeoutError:
                    raise RequestTimeout(
                        f"{call.method}: {self.name} was not ready within {call.timeout:g} s."
                    ) from None
            self._check_offered(call)
            return self._without_hidden(call, await next(call))
        except (ConnectionFailed, ConnectionLost):
            self._check_connection()
            raise
        finally:
            self._calls_in_progress -= 1
            self._used_at = _now()

    def _check_offered(self, call: Call) -> None:
        """Refuse a hidden tool, prompt or resource, with the error code of a server that does not have it."""
        if call.method == "tools/call" and not self.offers_tool(call.params.name):
            raise InvalidParams(f"{self.name} offers no tool {call.params.name!r}: its configuration hides it.")
        reference: object = call.params.ref if call.method == "completion/complete" else None
        item: Any = call.params if reference is None else reference
        is_prompt = call.method == "prompts/get" or isinstance(reference, t.PromptReference)
        if is_prompt and not self.offers_prompt(item.name):
            raise InvalidParams(f"{self.name} offers no prompt {item.name!r}: its configuration hides it.")
        is_resource = call.method in _READS or isinstance(reference, t.ResourceTemplateReference)
        if is_resource and not self.offers_uri(item.uri):
            raise ResourceNotFound(item.uri)

    def _without_hidden(self, call: Call, result: Any) -> Any:
        """Return the result of a list, or of a read, without the items that the configuration hides."""
        row = _FILTERED.get(call.method)
        if row is None:
            return result
        member, attribute, offers = row
        items = getattr(result, member, None)
        if not items:
            return result
        own_uri = call.params.uri.partition("?")[0] if call.method == "resources/read" else None
        shown = [
            item for item in items if offers(self, key := getattr(item, attribute)) or key.partition("?")[0] == own_uri
        ]
        return result if len(shown) == len(items) else msgspec.structs.replace(result, **{member: shown})


_READS = frozenset(("resources/read", "resources/directory/read"))
_FILTERED: dict[str, tuple[str, str, Callable[[Upstream, str], bool]]] = {
    "tools/list": ("tools", "name", Upstream.offers_tool),
    "prompts/list": ("prompts", "name", Upstream.offers_prompt),
    "resources/list": ("resources", "uri", Upstream.offers_uri),
    "resources/templates/list": ("resource_templates", "uri_template", Upstream.offers_uri),
    "resources/directory/read": ("resources", "uri", Upstream.offers_uri),
    "resources/read": ("contents", "uri", Upstream.offers_uri),
}
"""For the method of each list or read: the member of the result with the items, the attribute that identifies an item,
and the function that returns whether an item is offered."""


class _Filter:
    """Whether the patterns of a configuration offer a name or, with `uris`, a URI."""

    def __init__(self, config: ServerConfig, *, uris: bool) -> None:
        self._expose = [compile_glob(text, path=False) for text in config.expose if ("://" in text) is uris]
        self._hide = [compile_glob(text, path=False) for text in config.hide if ("://" in text) is uris]

    def __call__(self, text: str) -> bool:
        if any(hidden(text) for hidden in self._hide):
            return False
        return not self._expose or any(exposed(text) for exposed in self._expose)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _random_factor() -> float:
    """Return a random factor from 0.5 to 1 for the delay before an attempt."""
    return 0.5 + random.random() / 2  # noqa: S311


def _brief(error: BaseException | str) -> str:
    """Return the start of an error's message as one line, without control characters and secrets."""
    text = redacted_text(" ".join(str(error)[: 4 * MAX_ERROR_CHARACTERS].split()))
    text = "".join(character for character in text if character.isprintable())
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 1] + "…"
