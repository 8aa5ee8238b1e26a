"""This machine as live resources: load, memory, disks and processes as JSON, measured by psutil (extra `system`).

Command lines, environments and open files of processes are not read, because they contain secrets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import msgspec

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY, JSON, TEXT
from wharfinger.content.text import iso, many, shown
from wharfinger.errors import InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.policy.current import may_read
from wharfinger.source import VERSION, Changed, Document, Source, UriParameter
from wharfinger.sources.directories import MAX_CHILDREN, listing_text, summaries
from wharfinger.sources.etag import digest
from wharfinger.sources.page_keys import bad_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import split_query

__all__ = ["System", "system"]

TOP = "system:///"
POLL_SECONDS = 2.0
"""Shortest time between two measurements for watchers. It is also the `ttlMs` of measurements."""
CACHE_SECONDS = 0.5
"""Time for which all readers share a measurement."""
DEFAULT_PROCESSES, MAX_PROCESSES = 50, 1_000
MAX_NAME_CHARACTERS = 64
"""Maximum number of characters of the name of a process, user or disk."""


def system() -> System:
    """Publish the state of this machine: `server.include(system())`.

    Raises:
        MissingExtra: psutil is not installed.
    """
    return System()


class _View(NamedTuple):
    """A resource: its title, how it is measured, and how its values are rounded to be compared for watchers."""

    title: str
    measure: Callable[[_Machine], dict[str, Any]]
    rounded: Callable[[dict[str, Any]], Hashable]


class System(Watched[Polling], Source):
    """The source that `system()` returns. Its methods may be called from several threads at once."""

    name = "system"
    uri = TOP
    templates = (
        t.ResourceTemplate(
            uri_template="system:///processes{?by,limit}",
            name="processes",
            title="The processes that use the most CPU or memory",
            description=f"by: cpu (default) or memory; limit: at most {MAX_PROCESSES:,} (default {DEFAULT_PROCESSES}).",
            mime_type=JSON,
        ),
    )
    parameters: Mapping[str, UriParameter] = {
        "by": UriParameter("memory", "the processes that use most memory; by default, most CPU"),
        "limit": UriParameter("50", "this number of processes"),
    }

    def __init__(self) -> None:
        self._machine = _Machine()
        self.location = "this machine"
        self._watches = Polling("system", self._look, every=POLL_SECONDS)

    def __repr__(self) -> str:
        return "system()"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this source."""
        return uri.startswith(TOP)

    # Listing and reading

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List the directory and its entries."""
        names = _names_after(("/", *_readable_views()), after)
        resources = [_directory() if name == "/" else _describe(name) for name in names[:limit]]
        return resources, names[limit - 1] if len(names) > limit else None

    def children(
        self, uri: str, after: str | None = None, limit: int = MAX_CHILDREN
    ) -> tuple[list[t.Resource], str | None]:
        """List the entries of the only directory.

        Raises:
            ResourceNotFound: this is not the URI of the directory.
        """
        if uri != TOP:
            raise ResourceNotFound(uri)
        names = _names_after(_readable_views(), after)
        return [_describe(name) for name in names[:limit]], names[limit - 1] if len(names) > limit else None

    def stat(self, uri: str) -> t.Resource:
        """Return the resource with its version. The directory has none.

        Raises:
            ResourceNotFound: there is no such resource.
            InvalidArgument: the query of the URI is not valid.
        """
        if uri == TOP:
            return _directory()
        name, text, rounded = self._measure(uri)
        self._watches.record(uri, rounded)
        return _describe(name, uri, meta={VERSION: digest(text)}, size=len(text))

    def read(self, uri: str) -> t.ReadResourceResult:
        """Return a measurement as JSON, at most half a second old, or the listing of the directory.

        Raises:
            ResourceNotFound: there is no such resource.
            InvalidArgument: the query of the URI is not valid.
        """
        if uri == TOP:
            children = [_describe(name) for name in _readable_views()]
            text = listing_text("system/", many(len(children), "view"), children, describe=_title)
            top = t.ResourceContents(uri=uri, mime_type=TEXT, text=text)
            contents = [top, *summaries(children, describe=_title)]
            return t.ReadResourceResult(contents=contents, cache_scope=self.cache_scope)
        _, measured, _ = self._measure(uri)
        first = t.ResourceContents(uri=uri, mime_type=JSON, text=measured.decode(), meta={VERSION: digest(measured)})
        return t.ReadResourceResult(contents=[first], ttl_ms=round(POLL_SECONDS * 1000), cache_scope=self.cache_scope)

    def _measure(self, uri: str) -> tuple[str, bytes, Hashable]:
        """Return the name of a view, its measurement as JSON, and the rounded values that watches compare."""
        name, query = _parse(uri)
        view = VIEWS[name]
        measured = self._machine.look(name, view.measure)
        selected = _top_processes(measured, query) if name == "processes" else measured
        text = msgspec.json.format(msgspec.json.encode(selected), indent=1 if name == "processes" else 2)
        return name, text, view.rounded(selected)

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        """Suggest values for `by` and `limit`."""
        values = {"by": list(_ORDER), "limit": ["10", "50", "200", "1000"]}
        return [text for text in values.get(argument, []) if text.startswith(value)]

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return the resources with their titles only: their numbers change constantly."""
        names = _names_after(_readable_views(), after)
        documents = [Document(uri=TOP + name, title=VIEWS[name].title, version="1") for name in names[:limit]]
        return documents, names[limit - 1] if len(names) > limit else None

    def text(self, uri: str) -> tuple[str, ...]:
        """Return no text (see `documents`)."""
        return ()

    def describe(self) -> str:
        """Return a description of the resources, and of how changes are found."""
        return f"{', '.join(VIEWS)}, watched by {self._watches.means}"

    # Watching

    def _look(self, uri: str | None) -> Hashable:
        return None if uri in (None, TOP) else self._measure(str(uri))[2]

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` when the rounded values of this URI change."""
        if uri not in (None, TOP):  # the list never changes
            super().watch(uri, changed)


class _Machine:
    """Measures the machine. Measurements are shared for `CACHE_SECONDS`, and made by one thread at a time."""

    def __init__(self) -> None:
        try:
            import psutil
        except ImportError:
            raise MissingExtra("system", "Publishing the state of this machine") from None
        self.psutil: Any = psutil
        self.cpu_used: dict[tuple[int, float], tuple[float, float]] = {}
        """The CPU seconds of each process, and the time when they were measured, by process id and start time."""
        self._lock = threading.Lock()
        self._measurements: dict[str, tuple[float, dict[str, Any]]] = {}
        self._cpu_times: Any = psutil.cpu_times()

    def look(self, name: str, measure: Callable[[_Machine], dict[str, Any]]) -> dict[str, Any]:
        """Return a shared measurement, or a new one if it is too old."""
        with self._lock:
            at, values = self._measurements.get(name, (float("-inf"), {}))
            if time.monotonic() - at < CACHE_SECONDS:
                return values
            values = measure(self)
            self._measurements[name] = (time.monotonic(), values)
            return values

    def cpu_percent(self) -> float:
        """Return how much of the CPU time since the last call was used.

        `psutil.cpu_percent()` remembers the last call of each thread, and returns 0 for the first call in a thread.
        """
        before, self._cpu_times = self._cpu_times, self.psutil.cpu_times()
        passed = {
            name: max(0.0, getattr(self._cpu_times, name) - getattr(before, name))
            for name in before._fields
            if not name.startswith("guest")  # Linux counts these as `user` and `nice` too
        }
        total = sum(passed.values())
        idle = passed["idle"] + passed.get("iowait", 0.0)
        return round((total - idle) / total * 100, 1) if total else 0.0


def _load(machine: _Machine) -> dict[str, Any]:
    psutil = machine.psutil
    averages = dict(zip(("1", "5", "15"), (round(value, 2) for value in psutil.getloadavg()), strict=True))
    return {
        "cpus": psutil.cpu_count() or 1,
        "cpu_percent": machine.cpu_percent(),
        "load_average_of_minutes": averages,
        "up_since": iso(psutil.boot_time()),
    }


def _memory(machine: _Machine) -> dict[str, Any]:
    memory, swap = machine.psutil.virtual_memory(), machine.psutil.swap_memory()
    return {
        "total": memory.total,
        "available": memory.available,
        "percent": memory.percent,
        "swap": {"total": swap.total, "used": swap.used, "percent": swap.percent},
    }


def _disks(machine: _Machine) -> dict[str, Any]:
    psutil = machine.psutil
    places = {disk.mountpoint: disk for disk in psutil.disk_partitions(all=False)}
    places.setdefault("/", None)  # the root of a container is not a device
    disks: list[dict[str, Any]] = []
    devices: set[str] = set()
    for place, disk in sorted(places.items()):
        if disk is not None and disk.device in devices:  # mounted in several places
            continue
        try:
            usage = psutil.disk_usage(place)
        except OSError:  # not permitted, or removed
            continue
        devices.add("" if disk is None else disk.device)
        facts = {"place": shown(place[:MAX_NAME_CHARACTERS]), "kind": "" if disk is None else disk.fstype}
        disks.append(facts | {"total": usage.total, "used": usage.used, "free": usage.free, "percent": usage.percent})
    return {"disks": disks}


def _processes(machine: _Machine) -> dict[str, Any]:
    """List all processes. CPU percentages cover the time since the last measurement, or since the process started."""
    now, wall = time.monotonic(), time.time()
    total = machine.psutil.virtual_memory().total
    fields = ["pid", "name", "username", "cpu_times", "memory_info", "create_time"]
    used: dict[tuple[int, float], tuple[float, float]] = {}
    rows: list[dict[str, Any]] = []
    for process in machine.psutil.process_iter(fields):
        info = process.info
        began, times, memory = info["create_time"] or wall, info["cpu_times"], info["memory_info"]
        key = (info["pid"], began)
        seconds = times.user + times.system if times else 0.0
        # Without an earlier measurement, the use is averaged over the life of the process, but over at least a second.
        before, at = machine.cpu_used.get(key, (0.0, now - max(wall - began, 1.0)))
        used[key] = (seconds, now)
        resident_bytes = memory.rss if memory else 0
        rows.append({
            "pid": info["pid"],
            "name": shown((info["name"] or "")[:MAX_NAME_CHARACTERS]),
            "user": shown((info["username"] or "")[:MAX_NAME_CHARACTERS]),
            "cpu_percent": round(max(0.0, seconds - before) / max(now - at, 0.1) * 100, 1),
            "memory": resident_bytes,
            "memory_percent": round(resident_bytes / total * 100, 1),
        })  # fmt: skip
    machine.cpu_used = used
    return {"processes": rows}


_ORDER: Mapping[str, str] = {"cpu": "cpu_percent", "memory": "memory"}


def _top_processes(measured: dict[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    """List the processes that use the most CPU or memory."""
    by, limit = query.get("by", "cpu"), int(query.get("limit", DEFAULT_PROCESSES))
    rows = sorted(measured["processes"], key=lambda row: (-row[_ORDER[by]], -row["memory"], row["pid"]))
    return {"running": len(rows), "shown": min(limit, len(rows)), "by": by, "processes": rows[:limit]}


def _parse(uri: str) -> tuple[str, dict[str, str]]:
    """Parse a URI into the name of a view and its query.

    Raises:
        ResourceNotFound: there is no such view.
        InvalidArgument: the query is not valid.
    """
    base, query = split_query(uri)
    name = base.removeprefix(TOP)
    if name not in VIEWS:
        raise ResourceNotFound(uri)
    if query and (name != "processes" or not query.keys() <= {"by", "limit"}):
        raise InvalidArgument("Only system:///processes takes a query: ?by=cpu, ?by=memory and ?limit=NUMBER.")
    if query.get("by", "cpu") not in _ORDER:
        raise InvalidArgument("by= must be cpu or memory.")
    limit = query.get("limit", "1")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 4 and 1 <= int(limit) <= MAX_PROCESSES):
        raise InvalidArgument(f"limit= must be a number from 1 to {MAX_PROCESSES}.")
    return name, query


def _rounded_load(values: dict[str, Any]) -> Hashable:
    return _steps(values["cpu_percent"], 5), _steps(values["load_average_of_minutes"]["1"] / values["cpus"], 0.25)


def _rounded_memory(values: dict[str, Any]) -> Hashable:
    return round(values["percent"]), round(values["swap"]["percent"])


def _rounded_disks(values: dict[str, Any]) -> Hashable:
    disks: list[dict[str, Any]] = values["disks"]
    return tuple((disk["place"], round(disk["percent"])) for disk in disks)


def _rounded_processes(values: dict[str, Any]) -> Hashable:
    rows: list[dict[str, Any]] = values["processes"]
    return frozenset(
        (row["pid"], row["name"], _steps(row["cpu_percent"], 10), round(row["memory_percent"])) for row in rows
    )


def _steps(value: float, size: float) -> int:
    return round(value / size)


VIEWS: Mapping[str, _View] = {
    "disks": _View("Disks and how full they are", _disks, _rounded_disks),
    "load": _View("Load of the processors", _load, _rounded_load),
    "memory": _View("Memory in use and free", _memory, _rounded_memory),
    "processes": _View("Processes that use the most CPU or memory", _processes, _rounded_processes),
}
"""The resources by name, in the order of the list. The key of the next page is the last name on this one."""


def _readable_views() -> tuple[str, ...]:
    """Return the names of the resources that the current caller may read."""
    return tuple(name for name in VIEWS if may_read(TOP + name))


def _names_after(names: tuple[str, ...], after: str | None) -> list[Any]:
    if after is not None and after not in names:
        raise bad_cursor()
    return list(names if after is None else names[names.index(after) + 1 :])


def _directory() -> t.Resource:
    return t.Resource(uri=TOP, name="system", title="This machine", mime_type=DIRECTORY)


def _describe(name: str, uri: str = "", **more: Any) -> t.Resource:
    return t.Resource(uri=uri or TOP + name, name=name, title=VIEWS[name].title, mime_type=JSON, **more)


def _title(resource: t.Resource) -> str:
    return str(resource.title)
