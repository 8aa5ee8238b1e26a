"""Clauses: watching, threads, and the same through a server and its clients."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from wharfinger import types as t
from wharfinger.client import Client
from wharfinger.errors import InvalidParams, ResourceNotFound
from wharfinger.source import Source
from wharfinger.testing.source_suite.base import Contract
from wharfinger.testing.source_suite.read_tests import (
    DEADLINE,
    SAMPLE,
    attempt,
    brief,
    bytes_of,
    sample,
)
from wharfinger.testing.source_suite.stage import Broken, Stage, Told, expect

__all__ = ["Watching"]

QUIET = 0.5
"""Seconds in which nobody may be told of anything."""
ERAS = ("2025-11-25", "2026-07-28")


class Watching(Contract):
    """Watching, threads and clients."""

    def test_a_watcher_is_told_of_a_change(self, stage: Stage) -> None:
        """Within ten seconds, and every time."""
        uri = self.change(stage.source)
        if uri is None:
            pytest.skip("nothing of it can be changed")
        told = Told()
        stage.ask("stat", uri)
        self._watch(stage, uri, told)
        for time_ in ("first", "second"):
            told.forget()
            self.change_again(stage, uri)
            heard = told.hears(uri, DEADLINE)
            expect(heard, "Watching", f"{uri} changed for the {time_} time, and after {DEADLINE:g} s nobody was told.")
        self._unwatch_quietly(stage, uri, told, lambda: self.change_again(stage, uri))

    def test_a_watcher_of_the_list_is_told_of_what_is_added(self, stage: Stage) -> None:
        """Within ten seconds."""
        told = Told()
        stage.ask("page", None, 10)
        self._watch(stage, None, told)
        time.sleep(QUIET)  # what a source saw before it was watched is its own business
        told.forget()
        added = self.add(stage.source)
        if added is None:
            stage.on_loop("unwatch", None)
            pytest.skip("its list never changes")
        heard = told.hears(None, DEADLINE)
        expect(heard, "Watching", f"{added} was added, and after {DEADLINE:g} s the list's watcher was not told.")
        self._unwatch_quietly(stage, None, told, lambda: self.add(stage.source))

    def _watch(self, stage: Stage, uri: str | None, told: Told) -> None:
        held = stage.on_loop("watch", uri, told)
        expect(held < 1, "Watching", f"watch({uri!r}) held the event loop up for {held:.1f} s.")

    def _unwatch_quietly(self, stage: Stage, uri: str | None, told: Told, do: Callable[[], object]) -> None:
        held = stage.on_loop("unwatch", uri)
        expect(held < 1, "Watching", f"unwatch({uri!r}) held the event loop up for {held:.1f} s.")
        time.sleep(QUIET)  # what was on its way
        told.forget()
        do()
        heard = told.hears_anything(2 * QUIET)
        expect(not heard, "Watching", f"After unwatch({uri!r}) its watcher was still told: {heard}")

    def test_watching_twice_and_unwatching_what_is_unknown_is_harmless(self, stage: Stage) -> None:
        """Watches come and go in any order, also of what is not there."""
        told = Told()
        uris = [None, self.missing, *(item.uri for item in sample(stage)[:3])]
        for method in ("unwatch", "watch", "watch", "unwatch", "unwatch"):
            for uri in uris:
                arguments = (uri, told) if method == "watch" else (uri,)
                try:
                    stage.on_loop(method, *arguments)
                except Exception as error:
                    raise Broken(f"{method}({uri!r}) raised {error!r}\n(docs/write_a_source.md, “Watching”)") from error

    def test_several_threads_may_use_it_at_once(self, stage: Stage) -> None:
        """Eight of them list, stat and read."""
        uris = [item.uri for item in sample(stage)[:10]]

        def work(number: int) -> None:
            for at in range(len(uris)):
                uri = uris[(at + number) % len(uris)]
                stage.ask("page", None, 5)
                stage.ask("stat", uri)
                stage.ask("read", uri)
                stage.ask("search", "a", 3)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(work, number) for number in range(8)]:
                try:
                    done.result()
                except Broken:
                    raise
                except Exception as error:
                    problem = f"With eight threads at once: {error!r}\n(docs/write_a_source.md, “Threads”)"
                    raise Broken(problem) from error

    @pytest.mark.parametrize("revision", ERAS)
    def test_a_client_gets_all_of_it(self, source: Source, revision: str) -> None:
        """Listed, read, completed and refused over the wire, in both eras."""
        with Stage(source) as stage, stage.served(revision) as served:
            listed: list[t.Resource] = served.do(lambda client: _listed(client))
            direct = [item.uri for item in stage.pages(1_000)]
            if not self.live:
                expect([item.uri for item in listed] == direct, "page", "A client lists other resources than page().")
            for item in listed[: SAMPLE // 4]:
                read = [bytes_of(content) for content in served.read(item.uri)]
                same = self.live or read == [bytes_of(content) for content in stage.ask("read", item.uri).contents]
                expect(same, "read", f"A client reads something else in {item.uri} than read() returns.")
            shown = served.do(lambda client: _templates(client))
            expect(shown == [item.uri_template for item in source.templates], "Templates", f"A client sees {shown}.")
            for uri in (self.missing, self.missing + "x" * 5_000, self.missing + "x" * (2 << 20)):
                error = attempt(partial(served.read, uri))
                problem = f"A client that reads {brief(uri)} must be told that it is not found: {brief(error)}."
                expect(isinstance(error, (ResourceNotFound, InvalidParams)), "Errors", problem)

    @pytest.mark.parametrize("revision", ERAS)
    def test_a_client_is_told_of_a_change(self, source: Source, revision: str) -> None:
        """Watched over the wire, in both eras."""
        uri = self.change(source)
        if uri is None:
            pytest.skip("nothing of it can be changed")
        with Stage(source) as stage, stage.served(revision) as served, served.watching(uri) as told:
            self.change_again(stage, uri)
            heard = told.hears(uri, DEADLINE)
            expect(heard, "Watching", f"{uri} changed, and after {DEADLINE:g} s its client was not told.")


async def _listed(client: Client) -> list[t.Resource]:
    return await client.list_resources()


async def _templates(client: Client) -> list[str]:
    return [template.uri_template for template in await client.list_resource_templates()]
