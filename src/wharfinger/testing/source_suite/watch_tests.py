"""Tests of a source's contract: watching and threads, and what clients read and watch through a server."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidParams, ResourceNotFound
from wharfinger.source import Source, SourceUnavailable
from wharfinger.testing.source_suite.base import ContractBase
from wharfinger.testing.source_suite.driver import ChangeRecorder, ContractBroken, SourceDriver, expect
from wharfinger.testing.source_suite.suite_helpers import (
    DEADLINE_SECONDS,
    MAX_RESOURCES,
    attempt,
    brief,
    bytes_of,
    sample,
)

__all__ = ["WatchTests"]

QUIET_SECONDS = 0.5
"""Time for reports of earlier changes to arrive. A test waits twice as long to see that `unwatch` ended the reports."""
ERAS = ("2025-11-25", "2026-07-28")
"""A revision of each era."""


class WatchTests(ContractBase):
    """Watching, threads and clients."""

    def test_a_change_is_reported_to_its_watcher(self, driver: SourceDriver) -> None:
        """A watcher of a URI is notified of each change within ten seconds."""
        uri = self.change(driver.source)
        if uri is None:
            pytest.skip("`change` returns None")
        changes = ChangeRecorder()
        driver.ask("stat", uri)
        self._watch(driver, uri, changes)
        for ordinal in ("first", "second"):
            changes.clear()
            self.change_again(driver, uri)
            reported = changes.receives(uri, DEADLINE_SECONDS)
            expect(
                reported,
                "Watching",
                f"{uri} changed a {ordinal} time, and its watcher was not notified within {DEADLINE_SECONDS:g} s.",
            )
        self._expect_silence_after_unwatch(driver, uri, changes, lambda: self.change_again(driver, uri))

    def test_an_addition_is_reported_to_watchers_of_the_list(self, driver: SourceDriver) -> None:
        """A watcher of the list is notified of an addition within ten seconds."""
        changes = ChangeRecorder()
        driver.ask("page", None, 10)
        self._watch(driver, None, changes)
        time.sleep(QUIET_SECONDS)  # changes from before the watch may still arrive
        changes.clear()
        added = self.add(driver.source)
        if added is None:
            driver.on_loop("unwatch", None)
            pytest.skip("`add` returns None")
        reported = changes.receives(None, DEADLINE_SECONDS)
        expect(
            reported,
            "Watching",
            f"{added} was added, and after {DEADLINE_SECONDS:g} s the list's watcher was not notified.",
        )
        self._expect_silence_after_unwatch(driver, None, changes, lambda: self.add(driver.source))

    def test_lost_data_and_its_return_are_reported(self, driver: SourceDriver) -> None:
        """Each method that reads the data raises SourceUnavailable, and each watcher is notified of both changes."""
        uri = next((item.uri for item in sample(driver) if item.mime_type != DIRECTORY), None)
        if uri is None:
            pytest.skip("the source lists nothing but directories")
        changes = ChangeRecorder()
        driver.ask("stat", uri)
        for watched in (uri, None):
            self._watch(driver, watched, changes)
        time.sleep(QUIET_SECONDS)
        changes.clear()
        bring_back = self.hide(driver.source)
        if bring_back is None:
            pytest.skip("`hide` returns None")
        try:
            self._expect_notified(changes, uri, "went away")
            for method, arguments in (("page", (None, 10)), ("stat", (uri,)), ("read", (uri,)), ("probe", ())):
                error = attempt(partial(driver.ask, method, *arguments))
                problem = f"{method}() must raise SourceUnavailable with the reason, and not return or raise {error!r}."
                expect(isinstance(error, SourceUnavailable) and str(error), "Unavailable", problem)
                expect(not self.secret or self.secret not in str(error), "Secrets", f"{method}() revealed the secret.")
            changes.clear()
        finally:
            bring_back()
        self._expect_notified(changes, uri, "came back")
        for method, arguments in (("probe", ()), ("read", (uri,))):
            error = attempt(partial(driver.ask, method, *arguments))
            expect(not isinstance(error, Exception), "Unavailable", f"{method}() fails after the return: {error!r}")
        for watched in (uri, None):
            driver.on_loop("unwatch", watched)

    def _expect_notified(self, changes: ChangeRecorder, uri: str, event: str) -> None:
        for watched in (uri, None):
            watcher = f"the watcher of {watched or 'the list'}"
            problem = f"The data {event}, and after {DEADLINE_SECONDS:g} s {watcher} was not notified."
            expect(changes.receives(watched, DEADLINE_SECONDS), "Unavailable", problem)

    def _watch(self, driver: SourceDriver, uri: str | None, changes: ChangeRecorder) -> None:
        blocked_seconds = driver.on_loop("watch", uri, changes)
        expect(blocked_seconds < 1, "Watching", f"watch({uri!r}) blocked the event loop for {blocked_seconds:.1f} s.")

    def _expect_silence_after_unwatch(
        self, driver: SourceDriver, uri: str | None, changes: ChangeRecorder, change: Callable[[], object]
    ) -> None:
        blocked_seconds = driver.on_loop("unwatch", uri)
        expect(blocked_seconds < 1, "Watching", f"unwatch({uri!r}) blocked the event loop for {blocked_seconds:.1f} s.")
        time.sleep(QUIET_SECONDS)  # earlier changes may still arrive
        changes.clear()
        change()
        reported = changes.wait_for_any(2 * QUIET_SECONDS)
        expect(
            not reported, "Watching", f"After unwatch({uri!r}) its watcher was still notified of changes: {reported}"
        )

    def test_repeated_watch_and_unwatch_calls_are_harmless(self, driver: SourceDriver) -> None:
        """Watches begin and end in any order, also for missing URIs."""
        changes = ChangeRecorder()
        uris = [None, self.missing, *(item.uri for item in sample(driver)[:3])]
        for method in ("unwatch", "watch", "watch", "unwatch", "unwatch"):
            for uri in uris:
                arguments = (uri, changes) if method == "watch" else (uri,)
                try:
                    driver.on_loop(method, *arguments)
                except Exception as error:
                    raise ContractBroken(
                        f"{method}({uri!r}) raised {error!r}\n(docs/write_a_source.md, “Watching”)"
                    ) from error

    def test_several_threads_can_use_it_at_once(self, driver: SourceDriver) -> None:
        """Eight threads list, stat, read and search."""
        uris = [item.uri for item in sample(driver)[:5]]

        def work(number: int) -> None:
            for index in range(len(uris)):
                uri = uris[(index + number) % len(uris)]
                driver.ask("page", None, 5)
                driver.ask("stat", uri)
                driver.ask("read", uri)
                driver.search("a", 3)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, number) for number in range(8)]:
                try:
                    done.result()
                except ContractBroken:
                    raise
                except Exception as error:
                    problem = f"With eight threads at once: {error!r}\n(docs/write_a_source.md, “Threads”)"
                    raise ContractBroken(problem) from error

    @pytest.mark.parametrize("revision", ERAS)
    def test_a_client_reads_the_same_content(self, source: Source, revision: str) -> None:
        """A client lists and reads the resources, and gets errors for missing ones, in both eras."""
        with SourceDriver(source) as driver, driver.served(revision) as served:
            listed: list[t.Resource] = served.do(_list_resources)
            direct = [item.uri for item in driver.pages(1_000)]
            if not self.live:
                expect(
                    [item.uri for item in listed] == direct,
                    "page",
                    "A client gets a list that differs from page().",
                )
            for item in listed[: MAX_RESOURCES // 4]:
                read = [bytes_of(content) for content in served.read(item.uri)]
                same = self.live or read == [bytes_of(content) for content in driver.ask("read", item.uri).contents]
                expect(same, "read", f"A client that reads {item.uri} gets another content than read() returns.")
            templates = served.do(_list_templates)
            expect(
                templates == [item.uri_template for item in source.templates],
                "Templates",
                f"A client sees {templates}.",
            )
            for uri in (self.missing, self.missing + "x" * 5_000, self.missing + "x" * (2 << 20)):
                error = attempt(partial(served.read, uri))
                problem = f"A client that reads {brief(uri)} must get the error that it is not found: {brief(error)}."
                expect(isinstance(error, (ResourceNotFound, InvalidParams)), "Errors", problem)

    @pytest.mark.parametrize("revision", ERAS)
    def test_a_change_is_reported_to_a_client(self, source: Source, revision: str) -> None:
        """A client that watches a URI is notified of a change, in both eras."""
        uri = self.change(source)
        if uri is None:
            pytest.skip("`change` returns None")
        with SourceDriver(source) as driver, driver.served(revision) as served, served.watching(uri) as changes:
            self.change_again(driver, uri)
            reported = changes.receives(uri, DEADLINE_SECONDS)
            expect(
                reported, "Watching", f"{uri} changed, and after {DEADLINE_SECONDS:g} s its client was not notified."
            )


async def _list_resources(client: Client) -> list[t.Resource]:
    return await client.list_resources()


async def _list_templates(client: Client) -> list[str]:
    return [template.uri_template for template in await client.list_resource_templates()]
