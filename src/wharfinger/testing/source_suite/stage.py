"""Drives one source as a server does: its blocking methods from several threads, its others on one event loop.

Refuses to know what a source should answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.server import Server
from wharfinger.server.threads import is_async
from wharfinger.source import Source

__all__ = ["BOUND", "Broken", "Served", "Stage", "Told", "expect"]

T = TypeVar("T")

BOUND = 20.0
"""Seconds in which every single call must be over, on a machine that does a lot else."""
PAGES = 2_000
"""Pages after which a list is taken for endless."""


class Broken(AssertionError):
    """A source does not keep its contract; the message ends with the clause."""


def expect(kept: object, clause: str, problem: str) -> None:
    """Raise unless the clause is kept; `clause` is a heading of docs/write_a_source.md."""
    __tracebackhide__ = True
    if not kept:
        raise Broken(f"{problem}\n(docs/write_a_source.md, “{clause}”)")


class Told:
    """Somebody who is told of changes, from any thread, and waits for them."""

    def __init__(self) -> None:
        self._told: list[str | None] = []
        self._more = threading.Condition()

    def __call__(self, uri: str | None) -> None:
        with self._more:
            self._told.append(uri)
            self._more.notify_all()

    def forget(self) -> None:
        """Begin anew."""
        with self._more:
            self._told.clear()

    def hears(self, uri: str | None, seconds: float) -> bool:
        """Whether this is told, or was, within so many seconds."""
        with self._more:
            return self._more.wait_for(lambda: uri in self._told, seconds)

    def hears_anything(self, seconds: float) -> list[str | None]:
        """What is told by then, at the first of it."""
        with self._more:
            self._more.wait_for(lambda: bool(self._told), seconds)
            return list(self._told)


class Stage:
    """An event loop in a thread of its own, and a source that is started there; used as a context."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stage", daemon=True)

    def __enter__(self) -> Stage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(BOUND)
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], within: float = BOUND) -> T:
        """Run something on the loop and return what it returns."""
        return self._wait(asyncio.run_coroutine_threadsafe(coroutine, self._loop), within, "This")

    def ask(self, method: str, *arguments: Any, within: float = BOUND) -> Any:
        """Call a method of the source as the server would: a plain function in another thread."""
        function = getattr(self.source, method)
        if is_async(function):
            return self.run(function(*arguments), within)
        return self.in_thread(function, *arguments, within=within)

    def in_thread(self, function: Callable[..., T], *arguments: Any, within: float = BOUND) -> T:
        """Call a function in a thread of its own."""
        return self._wait(_thread_of(function, arguments), within, f"{getattr(function, '__name__', function)}()")

    def on_loop(self, method: str, *arguments: Any) -> float:
        """Call a quick method of the source on the loop; the seconds that it held the loop up."""

        async def call() -> float:
            began = time.perf_counter()
            getattr(self.source, method)(*arguments)
            return time.perf_counter() - began

        return self.run(call())

    def _wait(self, future: Future[T], within: float, what: str) -> T:
        try:
            return future.result(within)
        except Late:
            if future.done():
                raise
            raise Broken(f"{what} is not over after {within:g} s.") from None

    # What several clauses look at.

    def pages(self, limit: int, most: int = PAGES, method: str = "page") -> list[Any]:
        """Everything that `page` (or `documents`) returns in pages of `limit`."""
        return self._pages(lambda after: self.ask(method, after, limit), limit, most, sparse=method == "documents")

    def children(self, uri: str, limit: int, most: int = PAGES) -> list[t.Resource]:
        """Everything directly in a directory, in pages of `limit`."""
        return self._pages(lambda after: self.ask("children", uri, after, limit), limit, most)

    def _pages(
        self, page: Callable[[str | None], tuple[list[Any], str | None]], limit: int, most: int, sparse: bool = False
    ) -> list[Any]:
        found: list[Any] = []
        after: str | None = None
        for _ in range(most):
            resources, after = page(after)
            expect(len(resources) <= limit, "Pages", f"A page of at most {limit} has {len(resources)}.")
            expect(after is None or isinstance(after, str), "Pages", f"The key {after!r} is neither text nor None.")
            found += resources
            if after is None:
                return found
            expect(resources or sparse, "Pages", "A page is empty, and yet has a key of a next one.")
        expect(most < PAGES, "Pages", f"The list does not end within {PAGES:,} pages of {limit}.")
        return found

    def text(self, uri: str, pieces: int = 10_000) -> list[str]:
        """The text of a document, in pieces."""
        if is_async(self.source.text):
            return list(islice(self.ask("text", uri), pieces))

        def text(uri: str) -> list[str]:
            found: Iterable[str] = self.source.text(uri)
            return list(islice(found, pieces))

        return self.in_thread(text, uri)

    @contextmanager
    def served(self, revision: str) -> Generator[Served]:
        """The source in a real server, and a client of one revision that is connected to it."""
        server = Server("contract")
        server.include(self.source)
        client = Client(server, revision=revision, cache=False)
        self.run(client.open())
        try:
            yield Served(self, client)
        finally:
            self.run(client.close())


class Served:
    """A client on the stage's loop, for the test's own thread."""

    def __init__(self, stage: Stage, client: Client) -> None:
        self._stage = stage
        self._client = client

    def do(self, use: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Have the client do something."""
        return self._stage.run(use(self._client))

    def read(self, uri: str) -> list[t.ResourceContents]:
        """What the client reads; raises what it raises."""
        return self.do(lambda client: client.read_resource(uri)).contents

    @contextmanager
    def watching(self, uri: str | None) -> Generator[Told]:
        """Who is told what the client is told of a URI, or (None) of the list of resources."""
        told, begun = Told(), threading.Event()

        async def watch() -> None:
            async with self._client.watch_lists() if uri is None else self._client.watch(uri) as changes:
                begun.set()
                async for change in changes:
                    told(change.uri or None)

        task = asyncio.run_coroutine_threadsafe(watch(), self._stage._loop)
        try:
            while not begun.wait(0.05):
                if task.done():
                    task.result()
            yield told
        finally:
            task.cancel()
            self._stage.run(asyncio.sleep(0))


def _thread_of(function: Callable[..., T], arguments: tuple[Any, ...]) -> Future[T]:
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="reader", daemon=True).start()
    return future
