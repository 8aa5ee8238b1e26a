"""Calls sources so that no caller waits for one that does not answer.

Each source has a `patience` and a `breaker` (`protocol.breaker`). Servers that share a source share both. The
rules are:

- A list continues without a source whose first page takes longer than its patience. When the page arrives, the list is
  reported as changed, and the next lists of the same caller use this page for a while, or until the source changes. So
  a source that is always slow is listed too.
- A search fails after the patience. Other calls have no time limit of their own, since a large read may be slow for
  good reasons. If a call takes longer than the patience, the source is probed (`Source.probe`). If the probe does not
  return within the patience either, the breaker opens, and all calls that wait for the source fail at once, with the
  reason.
- While the breaker is open, calls fail at once if the last failure was slow. If it was quick, they are still tried,
  since another quick failure would keep nobody waiting. A task probes the source after 1, 2, 4, … and finally every
  60 seconds.
- When the breaker opens and when it closes, watchers of the list and of the source's resources are notified.

Threads cannot be stopped. A probe without an answer keeps its thread, and no other probe starts until it has returned.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from wharfinger import types as t
from wharfinger.errors import InternalError, Overloaded
from wharfinger.server.subscriptions.watching import Watching
from wharfinger.server.threads import Pool, is_async, run_in_own_thread
from wharfinger.source import Source, SourceUnavailable, outage_of
from wharfinger.transports.background import BackgroundTasks, retrieve

__all__ = ["MISSING_META_KEY", "SourceCalls", "missing_from_list"]

log = logging.getLogger("wharfinger.server.sources")

MISSING_META_KEY = "wharfinger/missing"
"""The key in the `_meta` of a list for the sources that are missing from it, each as `{"source", "uri", "message"}`."""

START_SECONDS = 0.25
"""The maximum time for which a starting server waits for its sources; slower ones start in the background."""
LATE_PAGE_SECONDS = 30.0
"""How long a page that came too late for its list is used for later lists. If only the next list used it, several
callers that list the source at each notice would each request the page again, and so cause a notice for the others."""
MAX_LATE_PAGES = 64
"""The maximum number of late pages of one source."""
PROBE_RATIO = 0.9
"""If a caller gives up a call after this share of the patience, the source is probed."""
MIN_PROBE_SECONDS = 0.1
"""The minimum time between two probes of a source that is down."""

Page = tuple[Sequence[t.Resource], Any]
"""Resources, and the key of the next page or None."""


def missing_from_list(why: str) -> str:
    """Return a sentence that says why resources are missing from a list."""
    return f"{why}; its resources are missing from this list."


class _LatePage:
    """A first page that did not arrive in time for its list."""

    def __init__(self, answer: asyncio.Task[Page]) -> None:
        self.answer = answer
        self.used_until: float | None = None
        """When it expires, by the breaker's clock; None if it has not arrived yet."""


class _SourceState:
    """The state of one source in one server, besides its breaker."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Task[Any], float] = {}
        """The tasks that wait for the source, and when they began to (by the breaker's clock); the oldest first."""
        self.given_up: set[asyncio.Task[Any]] = set()
        """The waiting tasks that `_give_up` has cancelled."""
        self.timer: asyncio.TimerHandle | None = None
        """Checks for long calls; set while there are calls."""
        self.probe: asyncio.Task[None] | None = None
        """Probes the source because a call takes long, or until the source is back."""
        self.probe_answer: asyncio.Future[Any] | None = None
        """The result of `Source.probe`, which may come long after the probe has failed."""
        self.late: dict[tuple[str, int], _LatePage] = {}
        """The late pages by the owner of the list and its limit; the oldest first."""
        self.starting: asyncio.Task[None] | None = None
        self.start_failed = False
        """Whether the source failed to start, so that a probe first tries to start it again."""


class SourceCalls:
    """Calls the sources of one server."""

    def __init__(self, pool: Pool, watching: Watching) -> None:
        self._pool = pool
        self._watching = watching
        self._sources: list[Source] = []
        self._states: dict[Source, _SourceState] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks = BackgroundTasks(report_failures=True)

    # -- calls

    async def call(self, source: Source, function: Callable[..., Any], owner: str, *arguments: Any) -> Any:
        """Call a function of a source. A plain function runs in a thread that counts towards the share of `owner`.

        Raises:
            SourceUnavailable: the function raised it, or the source failed a moment ago or does not answer.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None  # coroutines of a server run in tasks
        state = self._states.get(source) or self._state(source)
        waiting = state.waiting
        if task in waiting:  # a call within a call of the same source: the outer call counts for both
            return await self._pool.call(owner, function, *arguments)
        breaker = source.breaker
        # A server that was not started sends no probes, so a call serves as the probe.
        is_probe = self._loop is None and breaker.try_probe()
        if not (is_probe or breaker.admits()):
            raise self.unavailable(source)
        began = waiting[task] = breaker.clock()
        if state.timer is None:
            self._start_timer(source, state)
        try:
            if state.starting is not None:
                await asyncio.wait((state.starting,))
            result = await self._pool.call(owner, function, *arguments)
            if is_probe:
                breaker.succeeded()
            return result
        except SourceUnavailable as error:
            breaker.failed(str(error), began)
            raise
        except asyncio.CancelledError:
            if task in state.given_up and task.cancelling() == 1:  # only `_give_up` has cancelled it
                raise self.unavailable(source) from None
            if breaker.clock() - began >= PROBE_RATIO * source.patience:  # a search gives up before our timer
                self._probe_once(source, state)
            raise
        except Exception as error:
            if is_probe and not isinstance(error, (InternalError, OSError)):  # any other error is an answer too
                breaker.succeeded()
            raise
        finally:
            if is_probe:
                breaker.give_up_probe()
            del waiting[task]
            if task in state.given_up:
                state.given_up.remove(task)
                task.uncancel()

    async def page(self, source: Source, owner: str, key: Any, limit: int) -> Page:
        """Return a page of a source's list.

        Raises:
            SourceUnavailable: the source cannot be listed now.
        """
        breaker = source.breaker
        began = breaker.clock()
        try:
            page: Page = await self.call(source, source.page, owner, key, limit)
        except (SourceUnavailable, Overloaded):
            raise
        except InternalError as error:
            breaker.failed(" ".join(str(error).split()), began)
            raise
        except OSError as error:
            breaker.failed("it cannot be read", began)
            raise SourceUnavailable(f"{source.name or source.uri} cannot be read now.") from error
        if page[1] is None or len(page[0]) > 1:  # the top directory alone may be known without asking the data
            breaker.succeeded()
        return page

    async def first_page(self, source: Source, owner: str, limit: int, arrived: Callable[[], None]) -> Page:
        """Return the first page of a source's list if it arrives in time; else call `arrived` when it arrives.

        Raises:
            SourceUnavailable: the page did not come in time, an earlier request is pending, or the source cannot be
                listed.
        """
        state, list_key, clock = self._state(source), (owner, limit), source.breaker.clock
        late = state.late.get(list_key)
        if late is not None and late.used_until is not None:
            if clock() < late.used_until and not source.breaker.down:
                return late.answer.result()
            del state.late[list_key]
        if any(page.used_until is None for page in state.late.values()):
            raise self.unavailable(source)
        answer = asyncio.get_running_loop().create_task(self.page(source, owner, None, limit))
        try:
            done, _ = await asyncio.wait((answer,), timeout=source.patience)
        except asyncio.CancelledError:
            answer.cancel()
            raise
        if done:
            return answer.result()
        if list_key in state.late:  # another list of the same owner began at the same time
            answer.cancel()
        else:
            if len(state.late) >= MAX_LATE_PAGES:
                state.late.pop(next(iter(state.late))).answer.cancel()
            state.late[list_key] = _LatePage(answer)
            answer.add_done_callback(partial(self._late_page_arrived, source, list_key, arrived))
        raise self.unavailable(source)

    def _late_page_arrived(
        self, source: Source, list_key: tuple[str, int], arrived: Callable[[], None], answer: asyncio.Future[Page]
    ) -> None:
        late = self._state(source).late
        page = late.get(list_key)
        if page is None or page.answer is not answer:  # others have taken its place
            retrieve(answer)
        elif answer.cancelled() or answer.exception() is not None:
            del late[list_key]
        else:
            page.used_until = source.breaker.clock() + LATE_PAGE_SECONDS
            arrived()

    def forget_late_pages(self, source: Source) -> None:
        """Stop using the late pages of a source whose list has changed. Can be called from any thread.

        A page that has not arrived yet will be used: otherwise, a source that changes often would never be listed.
        """
        state = self._states.get(source)
        for page in () if state is None else tuple(state.late.values()):
            if page.used_until is not None:
                page.used_until = -math.inf

    # -- missing sources

    def unavailable(self, source: Source) -> SourceUnavailable:
        """Return the error for a call that is refused or given up."""
        why = self.why_missing(source) or f"{source.name or source.uri} does not answer"
        return SourceUnavailable(f"{why}: try again later.")

    def describe_missing(self, source: Source) -> str:
        """Return a sentence about a source that is missing from a list, or an empty string if it is listed."""
        why = self.why_missing(source)
        return missing_from_list(why) if why else ""

    def why_missing(self, source: Source) -> str:
        """Return a clause that says why a source is missing from lists and searches; empty if it is listed."""
        outage = outage_of(source)
        state = self._states.get(source)
        if outage or state is None:
            return outage
        if any(page.used_until is None for page in state.late.values()):
            return f"{source.noun} {source.uri or source.name!r} has not answered within {source.patience:g} s"
        return f"{source.noun} {source.uri or source.name!r} is starting" if state.starting is not None else ""

    # -- calls that take long

    def _state(self, source: Source) -> _SourceState:
        state = self._states.get(source)
        if state is None:
            state = self._states[source] = _SourceState()
        return state

    def _start_timer(self, source: Source, state: _SourceState) -> None:
        loop = asyncio.get_running_loop()
        state.timer = loop.call_later(source.patience, self._look_for_long_calls, source, state)

    def _look_for_long_calls(self, source: Source, state: _SourceState) -> None:
        """Probe the source if its oldest call takes longer than the patience."""
        state.timer = None
        began = next(iter(state.waiting.values()), None)
        if began is None:
            return
        if source.breaker.clock() - began >= source.patience:
            self._probe_once(source, state)
        self._start_timer(source, state)

    def _probe_once(self, source: Source, state: _SourceState) -> None:
        if self._loop is not None and (state.probe is None or state.probe.done()):
            state.probe = self._tasks.start(self._probe(source, state))

    def _give_up(self, source: Source, state: _SourceState) -> None:
        """Fail the calls that wait for a source whose breaker refuses calls. Requests for late pages continue."""
        if not source.breaker.admits():
            late = {page.answer for page in state.late.values()}
            for task in state.waiting:
                if task not in late and not task.cancelling():  # a task that is being cancelled ends anyway
                    state.given_up.add(task)
                    task.cancel()

    # -- probes

    async def probe(self, sources: Iterable[Source]) -> None:
        """Probe sources at the same time, and wait for the answers, at most for their patience."""
        if self._loop is not None:
            await asyncio.gather(*[self._probe(source, self._state(source)) for source in sources])

    async def _probe(self, source: Source, state: _SourceState) -> None:
        """Record whether the source answers a probe within its patience."""
        breaker = source.breaker
        began = breaker.clock()
        answer = state.probe_answer
        if answer is None:
            answer = state.probe_answer = asyncio.ensure_future(self._run_probe(source, state))
            answer.add_done_callback(partial(self._probe_answered, source, state))
        try:
            done, _ = await asyncio.wait((answer,), timeout=source.patience)
        except asyncio.CancelledError:
            breaker.give_up_probe()
            raise
        if not done:
            breaker.failed()
        else:
            self._record_probe_error(source, answer, began)
        self._give_up(source, state)

    async def _run_probe(self, source: Source, state: _SourceState) -> None:
        if state.starting is not None:
            await asyncio.wait((state.starting,))
        if state.start_failed:
            await source.start()
            state.start_failed = False
        if is_async(source.probe):
            result: object = source.probe()
        else:  # not in a thread of the pool, which may be full of calls that wait for the same source
            result = await run_in_own_thread(source.probe, "wharfinger-probe")
        if inspect.isawaitable(result):
            await result

    def _probe_answered(self, source: Source, state: _SourceState, answer: asyncio.Future[Any]) -> None:
        state.probe_answer = None
        if not answer.cancelled() and answer.exception() is None:
            source.breaker.succeeded()

    def _record_probe_error(self, source: Source, answer: asyncio.Future[Any], began: float) -> None:
        """Record the error of a probe; `_probe_answered` has recorded a success."""
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, (InternalError, OSError)) and not isinstance(error, Overloaded):
            reason = " ".join(str(error).split()) if isinstance(error, InternalError) else "it cannot be read"
            source.breaker.failed(reason, began)
        elif error is not None and self._state(source).start_failed:  # it failed to start once more
            source.breaker.failed("it did not start", began)
        elif source.breaker.down and error is not None:  # any other error is an answer too
            source.breaker.succeeded()

    async def _keep_probing(self, source: Source, state: _SourceState) -> None:
        """Probe a source until it is back."""
        breaker = source.breaker
        while breaker.down:
            await asyncio.sleep(max(breaker.probe_in(), MIN_PROBE_SECONDS))
            if breaker.try_probe():
                await self._probe(source, state)

    def _breaker_changed(self, source: Source) -> None:
        """Handle the opening or closing of a breaker. Can be called from any thread."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._handle_breaker_change, source)

    def _handle_breaker_change(self, source: Source) -> None:
        if self._loop is None:
            return
        state = self._state(source)
        if source.breaker.down:
            log.warning("%s; retrying in the background", self.why_missing(source))
            self._give_up(source, state)
            self._begin_probing(source, state)
        else:
            log.info("%s is back", source.name or source.uri)
        self._watching.list_changed("resources")
        for uri in self._watching.watched():
            if source.matches(uri):
                self._watching.updated(uri)

    def _begin_probing(self, source: Source, state: _SourceState) -> None:
        if state.probe is None or state.probe.done():
            state.probe = self._tasks.start(self._keep_probing(source, state))
        else:  # the single probe of a long call: continue when it has ended

            def continue_probing(_: object) -> None:
                if self._loop is not None and source.breaker.down:
                    self._begin_probing(source, state)

            state.probe.add_done_callback(continue_probing)

    def look_again(self, source: Source) -> None:
        """Probe a source that reports a change although its breaker is open. Can be called from any thread.

        If it is back, the breaker closes, and then its watchers are notified.
        """
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._probe_now, source)

    def _probe_now(self, source: Source) -> None:
        state = self._state(source)
        if self._loop is not None and source.breaker.down and state.probe_answer is None:
            self._tasks.start(self._probe(source, state))

    # -- start and end

    def add(self, source: Source) -> None:
        """Add a source of this server, and observe its breaker."""
        self._sources.append(source)
        source.breaker.observers.append(partial(self._breaker_changed, source))

    async def start(self) -> None:
        """Start the sources at the same time, and wait a moment. Those that take longer continue in the background.

        Raises the error of a source that failed to start in this time.
        """
        self._loop = asyncio.get_running_loop()
        starts = [self._start(source) for source in self._sources]
        if starts:
            await asyncio.wait(starts, timeout=START_SECONDS)
        for source, starting in zip(self._sources, starts, strict=True):
            if starting.done():
                starting.result()
                self._state(source).starting = None
            else:
                starting.add_done_callback(partial(self._start_ended, source))
            if source.breaker.down:
                self._begin_probing(source, self._state(source))

    async def join(self, source: Source) -> None:
        """Start a source that was added after the server started, and log an error of its start."""
        starting = self._start(source)
        await asyncio.wait((starting,))
        self._start_ended(source, starting)

    def _start(self, source: Source) -> asyncio.Task[None]:
        state = self._state(source)
        state.starting = asyncio.ensure_future(source.start())
        state.starting.add_done_callback(retrieve)
        return state.starting

    def _start_ended(self, source: Source, starting: asyncio.Task[None]) -> None:
        state = self._state(source)
        state.starting = None
        if starting.cancelled():
            return
        error = starting.exception()
        if error is None:
            self._watching.list_changed("resources")
            return
        log.error("%s did not start", type(source).__qualname__, exc_info=error)
        state.start_failed = True
        source.breaker.failed(str(error) if isinstance(error, InternalError) else "it did not start")

    @property
    def starting(self) -> bool:
        """Whether any source is still starting."""
        return any(state.starting is not None for state in self._states.values())

    async def wait_for_starts(self) -> bool:
        """Wait for the starting sources, each at most for its patience. Returns whether there were any."""
        starting = [source for source, state in self._states.items() if state.starting is not None]
        if starting:
            await asyncio.gather(*map(self.wait_for_start, starting))
        return bool(starting)

    async def wait_for_start(self, source: Source) -> None:
        """Wait for a source that is starting, at most for its patience.

        If it takes longer, it is probed, and nobody waits for it again while it is down.
        """
        state = self._state(source)
        if state.starting is not None and not source.breaker.down:
            done, _ = await asyncio.wait((state.starting,), timeout=source.patience)
            if not done:
                self._probe_once(source, state)

    async def close(self) -> None:
        """Cancel the starts, the probes and the requests for late pages."""
        self._loop = None
        pending: list[asyncio.Future[Any]] = []
        for state in self._states.values():
            if state.timer is not None:
                state.timer.cancel()
            tasks = (state.starting, state.probe_answer, *[page.answer for page in state.late.values()])
            pending += [task for task in tasks if task is not None and not task.done()]
        self._states.clear()
        for task in pending:
            task.cancel()
        await self._tasks.cancel()
        if pending:
            await asyncio.wait(pending)
