"""The catalogue of a host: the resources and templates of all its servers, live.

The list of each server is read when it is first needed, and again after the server reports a change: at once while
`changes()` is iterated, otherwise when the catalogue is next used. A server that does not report changes is asked again
at the first use after a minute. If a server is slow or down, its last list is used. `notes` names the servers whose
list could not be read, or is not there yet.

`catalogue_lists` keeps and filters the list of one server; `catalogue_search` searches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.content.search_query import MAX_QUERY_CHARACTERS, query_of
from wharfinger.content.text import printable
from wharfinger.errors import InvalidArgument, WharfingerError
from wharfinger.host.catalogue_lists import (
    CatalogueEntry,
    CatalogueFilter,
    CatalogueFilters,
    ServerList,
    TreeNode,
    TreePage,
    read_server_list,
)
from wharfinger.host.catalogue_search import (
    CatalogueHit,
    CatalogueHits,
    ListedDocuments,
    RelatedEntry,
    call_search_tool,
    find_related,
    merged,
    search_documents_of,
    search_names,
    search_tool,
)
from wharfinger.transports.background import BackgroundTasks

if TYPE_CHECKING:
    from wharfinger.host.list_index import ListIndex

__all__ = ["Catalogue", "CatalogueChange", "CatalogueEntries", "CatalogueServer", "unknown_server"]

log = logging.getLogger("wharfinger.host")

PATIENCE_SECONDS = 5.0
"""Longest time that all calls together wait for one read of a list. After that they use the last list of the server."""
SEARCH_SECONDS = 5.0
"""Longest time that a search waits for one server."""
LIST_AGE_SECONDS = 60.0
"""Age at which a list is read again if its server does not report changes, or if a page failed."""
MIN_PAUSE_SECONDS = 0.1
PAUSE_FACTOR = 5
"""While changes are followed, the pause after a list was read is this many times as long as reading it took."""
MAX_CHANGED_URIS = 1_000
"""Maximum number of URIs that one change names; if more have changed, it names none."""
MAX_HITS = 1_000
MIN_ENTRIES_IN_THREAD = 2_000
"""Lists with at least this many entries in all are searched and filtered in a thread."""
MAX_NAMED_SERVERS = 20
"""Maximum number of servers that an error names."""

T = TypeVar("T")


class CatalogueServer(Protocol):
    """The members of `upstreams.Upstream` that the catalogue uses."""

    @property
    def status(self) -> str:
        """`disabled`, `starting`, `ready`, `idle` or `down`."""
        ...

    @property
    def error(self) -> str:
        """Why the server is down."""
        ...

    @property
    def client(self) -> Client:
        """The client; raises a WharfingerError if the server is down."""
        ...

    async def connected(self) -> Client:
        """Return the client when the server is ready; raises a WharfingerError if the server is down."""
        ...

    async def tools(self) -> list[t.Tool]:
        """Return the tools of the server."""
        ...


class CatalogueEntries(list[CatalogueEntry]):
    """Entries of a catalogue, in the order of the servers and of the URIs."""

    notes: Sequence[str] = ()
    """Sentences about missing entries, such as the list of a server that is down."""
    more: bool = False
    """Whether there are more entries than the limit."""


class CatalogueChange(msgspec.Struct, frozen=True):
    """The list of a server has changed.

    `many` is true, and no URI is named, if more than `MAX_CHANGED_URIS` have changed, or if this is the server's first
    list.
    """

    server: str
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    """URIs of entries whose title, size, date, version or the like has changed."""
    many: bool = False

    def after(self, earlier: CatalogueChange) -> CatalogueChange:
        """Return this change combined with an earlier one."""
        added = (earlier.added - self.removed) | (self.added - earlier.removed)
        removed = (earlier.removed - self.added) | (self.removed - earlier.added)
        changed = (earlier.changed | self.changed | (earlier.removed & self.added)) - added - removed
        many = earlier.many or self.many or len(added) + len(removed) + len(changed) > MAX_CHANGED_URIS
        return (
            CatalogueChange(self.server, many=True) if many else CatalogueChange(self.server, added, removed, changed)
        )


class _Follower:
    """One iteration over `changes()`: at most one pending change for each server."""

    def __init__(self) -> None:
        self.pending: dict[str, CatalogueChange] = {}
        self.ready = asyncio.Event()

    def put(self, change: CatalogueChange) -> None:
        earlier = self.pending.get(change.server)
        self.pending[change.server] = change if earlier is None else change.after(earlier)
        self.ready.set()


class _ServerState:
    """The state of one server in the catalogue."""

    def __init__(self) -> None:
        self.list: ServerList | None = None
        self.read_at = float("-inf")
        self.read_seconds = 0.0
        self.stale = True
        self.error = ""
        """Why the last attempt to read the list failed."""
        self.changes = 0
        """The number of changes that were reported."""
        self.reading: asyncio.Task[None] | None = None
        self.began: float | None = None
        """When the list that is being read was begun; None between two reads."""
        self.wanted = asyncio.Event()
        """Set when a call waits for the list: then there is no pause after a read."""


class Catalogue:
    """All resources and templates of a host's servers. `Host.catalogue` is one.

    A method that looks for entries first reads the lists that have changed. It waits for slow servers a few seconds at
    most, and raises InvalidArgument if no server has the name `server`. Use the catalogue in one event loop.
    """

    def __init__(
        self,
        servers: Mapping[str, CatalogueServer],
        *,
        index: bool = False,
        search_tools: Mapping[str, str | None] | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`servers` may change. Entries are in the order of the servers.

        A call waits for lists that are being read, each for at most `patience` seconds since its beginning, and then
        uses the last lists. A user interface that follows `changes()` sets it to 0.

        With `index`, all text of servers that have no search of their own is read once and indexed, so that searches
        are complete and quick. `search_tools` maps a server to the tool with which it is searched, or to None if it
        must not get the words of searches.
        """
        self._servers = servers
        self._states: dict[str, _ServerState] = {}
        self._followers: set[_Follower] = set()
        self._background = BackgroundTasks()
        self._search_tools = dict(search_tools or {})
        self._wants_index = index
        self._index: ListIndex | None = None
        self._patience = patience
        self._closed = False

    # Entries

    async def entries(
        self, *, limit: int | None = None, after: CatalogueEntry | None = None, **filters: Unpack[CatalogueFilters]
    ) -> CatalogueEntries:
        """Return the entries that pass the filters (see `CatalogueFilter`), in the order of the servers and the URIs.

        For the next `limit` entries, pass the last one as `after`, even if it was removed since.

        Raises:
            InvalidArgument: a filter cannot be used, the limit is not positive, or there is no such server.
        """
        conditions = CatalogueFilter(**filters)
        lists = await self._get_lists(conditions.server)
        entries = await _in_thread(lists, lambda: _filtered(lists, conditions, after, limit))
        entries.notes = self.notes(conditions.server)
        return entries

    async def tree(self, server: str = "", under: str = "", *, after: str = "", limit: int = 200) -> TreePage:
        """Return the nodes of one folder of a server: those below the URI prefix `under`. Without `server`, return the
        servers.

        The time depends on `limit`, not on the size of the folder. Pass `TreePage.after` to get the next nodes.

        Raises:
            InvalidArgument: there is no such server, or the limit is not positive.
        """
        _check_limit(limit)
        lists = await self._get_lists(server)
        if server:
            return lists[0].children(under, after, limit) if lists else TreePage([], "")
        nodes = [
            TreeNode(server_list.server, "", server_list.server, (), len(server_list.keys)) for server_list in lists
        ]
        return TreePage(nodes, "")

    async def find(self, uri: str, *, server: str = "") -> list[CatalogueEntry]:
        """Return the entries with exactly this URI, or this template: one for each server that lists it."""
        lists = await self._get_lists(server)
        return [entry for server_list in lists for entry in server_list.at(uri)]

    async def servers_of(self, uri: str, *, server: str = "") -> list[str]:
        """Return the names of the servers that have a URI: those that list it, or else those with a template for it.

        A URI with a query, such as the URI of a window, counts as listed if the URI without the query is listed.
        """
        lists = await self._get_lists(server)
        base = uri.partition("?")[0]
        listed = [
            server_list.server for server_list in lists if uri in server_list.resources or base in server_list.resources
        ]
        return listed or [server_list.server for server_list in lists if server_list.has_template_for(uri)]

    async def read(self, uri: str, server: str, *, bypass_cache: bool = False) -> t.ReadResourceResult:
        """Read a resource of a server.

        Raises:
            ResourceNotFound: there is no such resource, or it may not be read.
            InvalidArgument: there is no such server.
            WharfingerError: the server is down, or reading failed.
        """
        self._names(server)  # raises InvalidArgument
        return (await self._servers[server].client.read_resource(uri, bypass_cache=bypass_cache)).result

    @property
    def servers(self) -> list[str]:
        """The names of the servers."""
        return list(self._servers)

    def notes(self, server: str = "") -> list[str]:
        """Return sentences about the entries that are missing in the lists."""
        notes: list[str] = []
        for name in self._names(server):
            state = self._states.get(name)
            if state is None or self._servers[name].status == "disabled":
                continue
            if state.error:
                notes.append(f"{name}: {state.error}" + (" Its last list is used." if state.list is not None else ""))
            elif state.list is None:
                notes.append(f"{name}: its list is still being read.")
            if state.list is not None:
                notes += [f"{name}: {note}" for note in state.list.notes]
        return notes

    # Search

    async def search(
        self, words: str, *, contents: bool = True, limit: int = 20, **filters: Unpack[CatalogueFilters]
    ) -> CatalogueHits:
        """Return the resources whose names and contents fit some words or a question, best first.

        Contents are searched with each server's own tool `search`, which then gets the words, or else by reading the
        resources whose names fit best (with `index=True`, all of them). The URI of a hit may name a window. If
        `contents` is False, no word is sent to a server.

        Raises:
            InvalidArgument: a filter cannot be used, the limit is out of bounds, or the words are too long.
        """
        if not 1 <= limit <= MAX_HITS:
            raise InvalidArgument(f"limit is {limit}: give a number from 1 to {MAX_HITS:,}.")
        if len(words) > MAX_QUERY_CHARACTERS:
            raise InvalidArgument(f"Search for at most {MAX_QUERY_CHARACTERS:,} characters, not {len(words):,}.")
        conditions = CatalogueFilter(**filters)
        test, query = conditions.test(), query_of(words)
        lists = await self._get_lists(conditions.server)
        notes = self.notes(conditions.server)
        if not query.words:
            return CatalogueHits()
        names = await _in_thread(lists, lambda: search_names(lists, query, limit, test))
        texts: list[list[CatalogueHit]] = []
        if contents:
            answers = await asyncio.gather(*(self._search_contents(server_list, words, limit) for server_list in lists))
            for server_list, (hits, note) in zip(lists, answers, strict=True):
                texts.append([hit for hit in hits if _passes(hit, server_list, test, conditions)])
                notes += [f"{server_list.server}: {note}"] if note else []
        result = CatalogueHits(merged([*texts, *names], limit))
        result.notes = notes
        return result

    async def related(
        self, question: str, *, limit: int = 20, **filters: Unpack[CatalogueFilters]
    ) -> list[RelatedEntry]:
        """Return the entries whose titles, URIs or descriptions share most words with a question.

        Unlike `search`, it also returns entries that share only one word, even if others share more. No word is sent to
        a server.
        """
        conditions = CatalogueFilter(**filters)
        test, query = conditions.test(), query_of(question[:MAX_QUERY_CHARACTERS])
        lists = await self._get_lists(conditions.server)
        entries, _ = await _in_thread(lists, lambda: find_related(lists, query, limit, test))
        return entries

    async def _search_contents(self, server_list: ServerList, words: str, limit: int) -> tuple[list[CatalogueHit], str]:
        """Search the contents of one server. Returns the hits, and a note about contents that were not searched."""
        name, failure = server_list.server, ""
        try:
            self._names(name)  # raises InvalidArgument if the server was removed
            async with asyncio.timeout(SEARCH_SECONDS):
                server = self._servers[name]
                if (tool := await self._search_tool(name, server)) is not None:
                    try:
                        return await call_search_tool(name, server.client, tool, query_of(words), words)
                    except WharfingerError as error:
                        failure = f"its tool {tool!r} failed: {printable(str(error), 300)}"
                if self._index is not None and (answer := await self._index.search(name, words, limit)) is not None:
                    hits, note = answer
                else:
                    hits, note = await search_documents_of(self._documents(name, server_list), words, limit)
                return hits, " ".join(filter(None, (failure, note)))
        except WharfingerError as error:  # also a RequestTimeout, which is a TimeoutError too
            return [], f"its contents were not searched: {printable(str(error), 300)}"
        except TimeoutError:
            return [], f"its contents could not be searched within {SEARCH_SECONDS:g} s."

    async def _search_tool(self, name: str, server: CatalogueServer) -> str | None:
        """Return the name of the tool with which a server is searched, or None."""
        chosen = self._search_tools.get(name, "")
        if chosen is None:
            return None
        tool = search_tool(await server.tools(), chosen or None)
        if chosen and tool is None:
            raise InvalidArgument(f"{name} has no tool {chosen!r}: change search_tools.")
        return None if tool is None else tool.name

    def _documents(self, name: str, server_list: ServerList) -> ListedDocuments:
        async def read(uri: str) -> t.ReadResourceResult:
            return await self.read(uri, name)

        return ListedDocuments(server_list, read, self._states[name].changes)

    async def _begin_index(self) -> None:
        """Start the index of the servers that have no search of their own."""
        names = list(self._servers)
        answers = await asyncio.gather(*(self._has_own_search(name, self._servers[name]) for name in names))
        own_search = {name for name, answer in zip(names, answers, strict=True) if answer}

        def sources() -> Mapping[str, Any]:
            states = ((name, self._states.get(name)) for name in self._servers if name not in own_search)
            return {
                name: self._documents(name, state.list) for name, state in states if state is not None and state.list
            }

        if self._index is None and not self._closed:
            from wharfinger.host.list_index import ListIndex

            self._index = ListIndex(sources, asyncio.get_running_loop())

    async def _has_own_search(self, name: str, server: CatalogueServer) -> bool:
        with suppress(WharfingerError, TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._search_tool(name, server) is not None
        return False

    # Changes

    async def changes(self) -> AsyncIterator[CatalogueChange]:
        """Yield each change of a server's list from now on. Several changes may be yielded as one."""
        follower = _Follower()
        self._followers.add(follower)
        try:
            await self._get_lists("")  # the state to compare with
            follower.pending.clear()
            while True:
                follower.ready.clear()
                while follower.pending:
                    server = next(iter(follower.pending))
                    yield follower.pending.pop(server)
                await follower.ready.wait()
        finally:
            self._followers.discard(follower)

    def list_changed(self, server: str) -> None:
        """Note that a server's list has changed, or that the server was started again. `Host` calls this."""
        state = self._states.get(server)
        if state is None:
            return
        state.stale = True
        state.changes += 1
        if self._followers:
            self._start_reading(server, state)

    async def close(self) -> None:
        """Stop reading lists, and delete the index."""
        self._closed = True
        try:
            await self._background.cancel()
        finally:
            if self._index is not None:
                await self._index.close()

    # The lists

    def _names(self, server: str) -> list[str]:
        """Return the name of one server, or of all servers if `server` is empty.

        Raises:
            InvalidArgument: there is no such server.
        """
        if server and server not in self._servers:
            raise InvalidArgument(unknown_server(server, self._servers))
        return [server] if server else list(self._servers)

    async def _get_lists(self, server: str) -> list[ServerList]:
        """Return the lists. Those that are out of date are read again first, unless that takes too long."""
        names = self._names(server)
        now, patience = _now(), 0.0
        reading: list[asyncio.Task[None]] = []
        for name in names:
            if (task := self._refresh(name)) is not None:
                began = self._states[name].began
                remaining = self._patience - (0.0 if began is None else now - began)
                if remaining > 0:  # otherwise earlier calls have waited for this list long enough
                    reading.append(task)
                    patience = max(patience, remaining)
        if reading:
            await asyncio.wait(reading, timeout=patience)
        if self._wants_index and self._index is None:
            await self._begin_index()
        return [
            state.list for name in names if (state := self._states.get(name)) is not None and state.list is not None
        ]

    def _refresh(self, name: str) -> asyncio.Task[None] | None:
        """Start to read a list if it may be out of date. Returns the task that reads it, or None."""
        server, state = self._servers[name], self._states.setdefault(name, _ServerState())
        if server.status == "disabled":
            return None
        if server.status == "down":
            state.error = f"it cannot be reached: {printable(server.error, 300)}"
            state.stale = True
            return None
        failed = state.list is not None and state.list.failed
        is_old = _now() - state.read_at > LIST_AGE_SECONDS
        if state.reading is None and not state.stale and not (is_old and (failed or not self._reports_changes(server))):
            return None
        state.wanted.set()
        return self._start_reading(name, state)

    def _reports_changes(self, server: CatalogueServer) -> bool:
        """Return whether a server reports changes of its list. The list of an idle server cannot change."""
        if server.status == "idle":
            return True
        try:
            resources = server.client.capabilities.resources
        except WharfingerError:
            return True
        return resources is UNSET or resources.list_changed is True

    def _start_reading(self, name: str, state: _ServerState) -> asyncio.Task[None]:
        """Start to read a list, unless it is being read. Returns the task that reads it."""
        if state.reading is None:
            state.reading = self._background.start(self._read_list(name, state))
        return state.reading

    async def _read_list(self, name: str, state: _ServerState) -> None:
        """Read a list. If it changes meanwhile, and changes are followed, read it again."""
        try:
            while state.stale or state.list is None or state.read_at + LIST_AGE_SECONDS < _now():
                state.stale, began = False, _now()
                state.began = began
                try:
                    new_list = await read_server_list(name, await self._servers[name].connected(), state.list)
                except (WharfingerError, KeyError) as error:
                    state.error, state.stale = f"its list cannot be read: {printable(str(error), 300)}", True
                    return
                finally:
                    state.began = None
                state.read_seconds = _now() - began
                self._replace(name, state, new_list)
                if not state.stale or not self._followers:
                    return
                with suppress(TimeoutError):
                    pause = max(MIN_PAUSE_SECONDS, PAUSE_FACTOR * state.read_seconds)
                    async with asyncio.timeout(pause):
                        await state.wanted.wait()
                state.wanted.clear()
        finally:
            state.reading = None
            state.wanted.clear()

    def _replace(self, name: str, state: _ServerState, new_list: ServerList) -> None:
        """Use a new list, and report its differences to the last one."""
        old, state.list, state.read_at, state.error = state.list, new_list, _now(), ""
        if self._index is not None:
            self._index.notify()
        if not self._followers:
            return
        added, removed, changed = new_list.difference(old)
        if not (added or removed or changed):
            return
        many = old is None or len(added) + len(removed) + len(changed) > MAX_CHANGED_URIS
        change = (
            CatalogueChange(name, many=True)
            if many
            else CatalogueChange(name, frozenset(added), frozenset(removed), frozenset(changed))
        )
        for follower in self._followers:
            follower.put(change)


def _filtered(
    lists: Iterable[ServerList], conditions: CatalogueFilter, after: CatalogueEntry | None, limit: int | None
) -> CatalogueEntries:
    if limit is not None:
        _check_limit(limit)
    test, entries = conditions.test(), CatalogueEntries()
    for server_list in lists:
        if after is not None and server_list.server != after.server:
            continue
        following = server_list.entries("" if after is None else after.uri)
        if after is not None and not after.is_template:  # a template may be equal to the URI, and come after it
            following = chain((entry for entry in server_list.at(after.uri) if entry.is_template), following)
        after = None
        for entry in following:
            if test(entry):
                if len(entries) == limit:
                    entries.more = True
                    return entries
                entries.append(entry)
    return entries


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise InvalidArgument(f"limit is {limit}: give a positive number.")


def _passes(
    hit: CatalogueHit, server_list: ServerList, test: Callable[[CatalogueEntry], bool], conditions: CatalogueFilter
) -> bool:
    """Return whether a hit passes the filters. An unlisted hit passes only if no filter except `server` is set."""
    entries = server_list.at(hit.base) or server_list.at(hit.uri)
    if not entries:
        return conditions == CatalogueFilter(server=conditions.server)
    return any(map(test, entries))


async def _in_thread(lists: Sequence[ServerList], work: Callable[[], T]) -> T:
    """Do some work with lists: in a thread if they are long, so that the event loop is not blocked."""
    if sum(len(server_list.keys) for server_list in lists) < MIN_ENTRIES_IN_THREAD:
        return work()
    return await asyncio.to_thread(work)


def unknown_server(name: str, servers: Collection[str]) -> str:
    """Return the message of an error about a server that does not exist."""
    names = ", ".join(list(servers)[:MAX_NAMED_SERVERS])
    known = f"The servers are: {names}." if names else "There are no servers."
    return f"There is no server {printable(name)!r}. {known}"


def _now() -> float:
    return asyncio.get_running_loop().time()
