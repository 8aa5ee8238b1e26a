"""Calls one source as a server does: its plain methods in other threads, its async ones on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.server import Server
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.server.threads import is_async
from wharfinger.source import Source

__all__ = ["MAX_CALL_SECONDS", "ChangeRecorder", "ContractBroken", "ServedSource", "SourceDriver", "expect"]

T = TypeVar("T")

MAX_CALL_SECONDS = 20.0
"""The maximum time of a call, even on a busy machine."""
MAX_PAGES = 2_000
"""The number of pages after which a list counts as endless."""


CLAUSES = {
    **{name: name for name in ("describe", "page", "children", "stat", "read", "complete", "documents", "text")},
    **dict.fromkeys(("search", "search_documents"), "search"),
    **dict.fromkeys(("watch", "unwatch"), "Watching"),
    **dict.fromkeys(("start", "close"), "start and close"),
    "probe": "Unavailable",
}
"""For each call that may take too long: the clause about it."""
CLAUSE_OF_OTHERS = "How it is called"


class ContractBroken(AssertionError):
    """A source breaks its contract; the message ends with the clause."""


def expect(condition: object, clause: str, problem: str) -> None:
    """Raise ContractBroken unless `condition` is true; `clause` is a heading of docs/write_a_source.md."""
    __tracebackhide__ = True
    if not condition:
        raise ContractBroken(f"{problem}\n(docs/write_a_source.md, “{clause}”)")


class ChangeRecorder:
    """A watcher: records the changes that are reported to it from any thread, in their order."""

    def __init__(self) -> None:
        self.changes: list[str | None] = []
        self._more = threading.Condition()

    def __call__(self, uri: str | None) -> None:
        with self._more:
            self.changes.append(uri)
            self._more.notify_all()

    def clear(self) -> None:
        """Remove all recorded changes."""
        with self._more:
            self.changes.clear()

    def receives(self, uri: str | None, seconds: float) -> bool:
        """Return whether a change of this URI was recorded, or is recorded within `seconds`."""
        with self._more:
            return self._more.wait_for(lambda: uri in self.changes, seconds)

    def wait_for(self, *uris: str | None, seconds: float = 2 * MAX_CALL_SECONDS) -> None:
        """Wait until changes of all these URIs are recorded, and remove all recorded changes.

        The default of `seconds` allows for `Polling`, which rests twenty times as long as a round takes. On a busy
        machine, a round can take a second.

        Raises:
            AssertionError: one of them was not recorded in time.
        """
        with self._more:
            recorded = self._more.wait_for(lambda: set(uris) <= set(self.changes), seconds)
            assert recorded, f"{uris} were not reported: {self.changes}"
            self.changes.clear()

    def wait_for_any(self, seconds: float) -> list[str | None]:
        """Wait at most `seconds` for a first change, and return all recorded changes."""
        with self._more:
            self._more.wait_for(lambda: bool(self.changes), seconds)
            return list(self.changes)


class SourceDriver:
    """Drives a source with an event loop in its own thread. Use it as a context manager."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="driver", daemon=True)

    def __enter__(self) -> SourceDriver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(MAX_CALL_SECONDS)
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], within: float = MAX_CALL_SECONDS, subject: str = "The call") -> T:
        """Run a coroutine on the loop and return its result. An error for a late result begins with `subject`."""
        return self._wait(asyncio.run_coroutine_threadsafe(coroutine, self._loop), within, subject)

    def ask(self, method: str, *arguments: Any, within: float = MAX_CALL_SECONDS) -> Any:
        """Call a method of the source as a server does: a plain function in another thread."""
        function = getattr(self.source, method)
        if is_async(function):
            return self.run(function(*arguments), within, f"{method}()")
        result: Any = self._wait(_run_in_thread(function, arguments), within, f"{method}()")
        return self.run(_awaited(result), within, f"{method}()") if inspect.isawaitable(result) else result

    def in_thread(self, function: Callable[..., T], *arguments: Any, within: float = MAX_CALL_SECONDS) -> T:
        """Call a function in a new thread."""
        return self._wait(_run_in_thread(function, arguments), within, f"{getattr(function, '__name__', function)}()")

    def on_loop(self, method: str, *arguments: Any) -> float:
        """Call a quick method of the source on the loop. Returns how many seconds it blocked the loop."""

        async def call() -> float:
            began = time.perf_counter()
            getattr(self.source, method)(*arguments)
            return time.perf_counter() - began

        return self.run(call(), subject=f"{method}()")

    def _wait(self, future: Future[T], within: float, subject: str) -> T:
        try:
            return future.result(within)
        except FutureTimeout:
            if future.done():  # the call itself raised TimeoutError
                raise
            clause = CLAUSES.get(subject.removesuffix("()"), CLAUSE_OF_OTHERS)
            problem = f"{subject} did not return within {within:g} s."
            raise ContractBroken(f"{problem}\n(docs/write_a_source.md, “{clause}”)") from None

    def pages(self, limit: int, max_pages: int = MAX_PAGES, method: str = "page") -> list[Any]:
        """Return the items of `page` (or `documents`), requested in at most `max_pages` pages of `limit`."""
        return self._pages(lambda after: self.ask(method, after, limit), limit, max_pages, sparse=method == "documents")

    def children(self, uri: str, limit: int, max_pages: int = MAX_PAGES) -> list[t.Resource]:
        """Return the entries of a directory, requested in at most `max_pages` pages of `limit`."""
        return self._pages(lambda after: self.ask("children", uri, after, limit), limit, max_pages)

    def _pages(
        self,
        page: Callable[[str | None], tuple[list[Any], str | None]],
        limit: int,
        max_pages: int,
        sparse: bool = False,
    ) -> list[Any]:
        """Return the items of at most `max_pages` pages. With `sparse`, a page before the last one may be empty."""
        items: list[Any] = []
        after: str | None = None
        for _ in range(max_pages):
            page_items, after = page(after)
            expect(len(page_items) <= limit, "Pages", f"A page of at most {limit} has {len(page_items)}.")
            expect(after is None or isinstance(after, str), "Pages", f"The key {after!r} is neither text nor None.")
            items += page_items
            if after is None:
                return items
            expect(page_items or sparse, "Pages", "An empty page has the key of a next page.")
        # With a lower `max_pages`, the caller wants only the beginning of the list.
        expect(max_pages < MAX_PAGES, "Pages", f"The list does not end within {MAX_PAGES:,} pages of {limit}.")
        return items

    def text(self, uri: str, max_pieces: int = 10_000) -> list[str]:
        """Return the first pieces of the text of a document."""

        def text() -> list[str]:
            return list(islice(SourceReader(self._loop).pieces(self.source, uri), max_pieces))

        return self.in_thread(text)

    def search(self, query: str, limit: int) -> Any:
        """Search the source with its own search or, if it has none, with the server's search of its documents."""
        hits = self.ask("search", query, limit)
        if hits is None:
            hits = self.in_thread(search_documents, self.source, query, limit, SourceReader(self._loop))
        return hits

    @contextmanager
    def served(self, revision: str) -> Generator[ServedSource]:
        """Serve the source in a real server, with a connected client of one revision."""
        server = Server("contract")
        server.include(self.source)
        client = Client(server, revision=revision, cache=False)
        self.run(client.open())
        try:
            yield ServedSource(self, client)
        finally:
            self.run(client.close())


class ServedSource:
    """A connected client, called from the thread of the test."""

    def __init__(self, driver: SourceDriver, client: Client) -> None:
        self._driver = driver
        self._client = client

    def do(self, use: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run an operation of the client."""
        return self._driver.run(use(self._client))

    def read(self, uri: str) -> list[t.ResourceContents]:
        """Read a resource with the client, and return its contents."""
        return self.do(lambda client: client.read_resource(uri)).contents

    @contextmanager
    def watching(self, uri: str | None) -> Generator[ChangeRecorder]:
        """Record the changes that the client receives for a URI, or (None) for the list of resources."""
        recorder, subscribed = ChangeRecorder(), threading.Event()

        async def watch() -> None:
            async with self._client.watch_lists() if uri is None else self._client.watch(uri) as notifications:
                subscribed.set()
                async for change in notifications:
                    recorder(change.uri or None)

        task = asyncio.run_coroutine_threadsafe(watch(), self._driver._loop)
        try:
            deadline = time.monotonic() + MAX_CALL_SECONDS
            while not subscribed.wait(0.05):
                if task.done():
                    task.result()
                problem = f"Watching {uri or 'the list'} did not begin within {MAX_CALL_SECONDS:g} s."
                expect(time.monotonic() < deadline, "Watching", problem)
            yield recorder
        finally:
            task.cancel()
            self._driver.run(asyncio.sleep(0))


async def _awaited(value: Awaitable[T]) -> T:
    return await value


def _run_in_thread(function: Callable[..., T], arguments: tuple[Any, ...]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="reader", daemon=True).start()
    return future
