"""Tests of a source's contract: claimed URIs, start and close, secrets, lists, and reading what is listed."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.content.mime_check import contradiction
from wharfinger.errors import InvalidArgument
from wharfinger.source import Source, version_of
from wharfinger.testing.source_suite.base import ContractBase
from wharfinger.testing.source_suite.driver import SourceDriver, expect
from wharfinger.testing.source_suite.suite_helpers import (
    ABSENT_PATHS,
    MAX_RESOURCES,
    NEXT,
    ODD_PATHS,
    answer_of,
    below,
    brief,
    bytes_of,
    check_resource,
    directories,
    few,
    is_directory,
    is_valid_uri,
    same_in_all_sizes,
    sample,
    until,
)

__all__ = ["ListTests"]

FOREIGN_URIS = ("other-scheme-of-nobody://elsewhere/x", "", "no uri", "urn:", "://", "other-scheme-of-nobody:")
INVALID_KEYS = ("not a key of any source", "\0", "\U0001f4a5", '{"no":"key"}', "9" * 5_000, "")
ENCODING, WINDOW = "wharfinger/encoding", "wharfinger/window"
"""Keys in `_meta` of a content: the encoding of a text that was not UTF-8, and the place of a window."""


class ListTests(ContractBase):
    """URIs, secrets, pages and keys, and listed resources."""

    def test_only_its_own_uris_are_claimed(self, driver: SourceDriver) -> None:
        """`matches` alone decides which source answers for a URI."""
        source, clause = driver.source, "matches"
        expect(self.missing, clause, "Give `missing`: a URI of the source that names nothing.")
        own = [*([source.uri] if source.uri else []), self.missing, *(item.uri for item in sample(driver))]
        for uri in own:
            expect(source.matches(uri) is True, clause, f"matches({uri!r}) must be True.")
        foreign = list(FOREIGN_URIS)
        if source.uri and not source.uri.endswith("/"):
            foreign += [source.uri + "-other", source.uri + "-other/x", source.uri + "x/y"]
        for uri in foreign:
            expect(source.matches(uri) is False, clause, f"matches({uri!r}) must be False.")

    def test_it_describes_itself(self, driver: SourceDriver) -> None:
        """`describe` quickly returns one line."""
        began = time.monotonic()
        text = driver.in_thread(driver.source.describe)
        seconds = time.monotonic() - began
        expect(isinstance(text, str), "describe", f"describe() returned {text!r}, which is not text.")
        expect(len(text) <= 200, "describe", f"describe() is longer than 200 characters: {text[:300]!r}")
        expect(text.isprintable(), "describe", f"describe() is not one line of plain text: {text!r}")
        # 2 s instead of half a second, for busy machines.
        expect(seconds < 2, "describe", f"describe() took {seconds:.1f} s, and must return within half a second.")

    def test_starting_and_ending_twice_is_harmless(self, source: Source) -> None:
        """A second start or end is harmless."""
        with SourceDriver(source) as driver:
            for method in ("start", "start", "close", "close"):
                answer = answer_of(driver, method)
                expect(answer is None, "start and close", f"{method}() after {method}(): {brief(answer)}.")

    def test_secrets_are_not_shown(self, driver: SourceDriver) -> None:
        """The secret is not in names, lists or errors."""
        if not self.secret:
            pytest.skip("`secret` is empty")
        source = driver.source
        texts = {
            "repr()": repr(source),
            "location": source.location,
            "name": source.name,
            "uri": source.uri,
            "describe()": driver.in_thread(source.describe),
            "templates": repr(source.templates),
            "the list": repr(sample(driver)),
        }
        for uri in (self.missing, *below(source, ABSENT_PATHS), *below(source, ODD_PATHS)):
            error = answer_of(driver, "read", uri)
            if isinstance(error, Exception):
                texts[f"the error of {uri[:60]!r}"] = f"{error} {getattr(error, 'data', '')}"
        for where, text in texts.items():
            expect(self.secret not in text, "Secrets", f"The secret is in {where}.")

    def test_pages_of_every_size_give_the_same_list(self, driver: SourceDriver) -> None:
        """No resource is lost or listed twice, with any size of a page."""
        same_in_all_sizes(lambda limit, max_pages: [item.uri for item in driver.pages(limit, max_pages)], self.live)

    def test_invented_keys_are_refused(self, driver: SourceDriver) -> None:
        """A key that the source did not make raises InvalidArgument."""
        for method, arguments in (("page", ()), ("documents", ()), ("children", (driver.source.uri,))):
            if method == "children" and not is_directory(driver, driver.source.uri):
                continue
            for key in INVALID_KEYS:
                answer = answer_of(driver, method, *arguments, key, 5)
                expect(
                    isinstance(answer, InvalidArgument),
                    "Keys",
                    f"{method}() with the key {key[:40]!r} must raise InvalidArgument, not return {brief(answer)}.",
                )

    def test_keys_stay_valid_after_an_addition(self, driver: SourceDriver) -> None:
        """A key is a position: adding a resource between two pages does not move the others."""
        old_uris = [item.uri for item in driver.pages(1_000)]
        if len(old_uris) < 2:
            pytest.skip("the source lists fewer than two resources")
        first, key = driver.ask("page", None, 1)
        added = self.add(driver.source)
        if added is None:
            pytest.skip("`add` returns None")
        new_uris = [item.uri for item in first]
        while key is not None:
            more, key = driver.ask("page", key, 1)
            new_uris += [item.uri for item in more]
            expect(
                len(new_uris) <= len(old_uris) + 1_000,
                "Keys",
                "The list has no end after something was added.",
            )
        expect(len(set(new_uris)) == len(new_uris), "Keys", f"A resource was listed twice after {added} was added.")
        lost = set(old_uris) - set(new_uris)
        expect(not lost, "Keys", f"Not listed any more after {added} was added between two pages: {few(lost)}.")

    def test_added_resources_are_listed(self, driver: SourceDriver) -> None:
        """A new resource is listed."""
        added = self.add(driver.source)
        if added is None:
            pytest.skip("`add` returns None")
        until(lambda: added in {item.uri for item in driver.pages(1_000)}, "page", f"{added} is never listed.")
        expect(driver.ask("stat", added).uri == added, "stat", f"stat() of {added} has another URI.")

    def test_listed_resources_can_be_read(self, driver: SourceDriver) -> None:
        """Every listed resource is valid, and `stat` and `read` agree with the list."""
        listed = sample(driver)
        for item in listed:
            check_resource(item, "page")
            described = driver.ask("stat", item.uri)
            check_resource(described, "stat")
            parts = ("uri", "name", "title", "mime_type") + (() if self.live else ("size",))
            for part in parts:
                of_list, of_stat = getattr(item, part), getattr(described, part)
                problem = f"{item.uri}: {part} is {of_list!r} in the list, but {of_stat!r} in stat()."
                expect(of_list == of_stat, "stat", problem)
            if version_of(item) and not self.live:
                problem = f"{item.uri}: the list and stat() report different versions."
                expect(version_of(item) == version_of(described), "Versions", problem)
            self._check_read(item, driver.ask("read", item.uri), driver.source)

    def _check_read(self, item: t.Resource, result: t.ReadResourceResult, source: Source) -> None:
        clause, uri = "read", item.uri
        expect(result.contents, clause, f"read({uri!r}) returned no contents.")
        for content in result.contents:
            t.check_contents(content)
            expect(content.mime_type, clause, f"{uri}: a content has no MIME type.")
            problem = f"{uri}: a content has the URI {content.uri!r}, which is not valid."
            expect(is_valid_uri(content.uri), clause, problem)
        first = result.contents[0]
        meta = {} if first.meta is UNSET else first.meta
        cut = WINDOW in meta or NEXT in meta
        expect(first.uri.startswith(uri), clause, f"read({uri!r}): the first content is that of {first.uri!r}.")
        scopes = (UNSET, "public", "private")
        expect(result.cache_scope in scopes, "Caching", f"{uri}: cache_scope is {result.cache_scope!r}.")
        value = first.text if first.text is not UNSET else first.blob
        wrong = contradiction(str(first.mime_type), value or b"", complete=not cut)
        expect(not wrong, "read", f"{uri}: {wrong}.")
        is_leaked = source.cache_scope == "private" and result.cache_scope == "public"
        expect(not is_leaked, "Caching", f"{uri}: the source is private, and its answer public.")
        ttl: Any = result.ttl_ms
        expect(
            ttl is UNSET or (isinstance(ttl, int) and ttl >= 0),
            "Caching",
            f"{uri}: ttl_ms is {ttl!r}, not milliseconds.",
        )
        if item.size is not UNSET and not cut and not self.live and ENCODING not in meta:
            size = len(bytes_of(first))
            expect(
                size == item.size, "stat", f"{uri} has {item.size:,} bytes in the list, but its content has {size:,}."
            )
        if item.mime_type not in (DIRECTORY, UNSET):
            problem = f"{uri} is {item.mime_type} in the list, but {first.mime_type} when read."
            expect(item.mime_type == first.mime_type, "read", problem)

    def test_directories_contain_the_children_that_they_list(self, driver: SourceDriver) -> None:
        """The pages of children form one list; `matches` and `stat` know each child."""
        if not is_directory(driver, driver.source.uri):
            pytest.skip("the source has no top directory")
        for directory in directories(driver):
            same_in_all_sizes(partial(_child_uris, driver, directory), self.live)
            for child in driver.children(directory, MAX_RESOURCES, max_pages=1):
                check_resource(child, "children")
                expect(
                    driver.source.matches(child.uri),
                    "children",
                    f"matches() is False for {child.uri} in {directory}.",
                )
                described = driver.ask("stat", child.uri)
                problem = f"{child.uri} is {child.mime_type} in {directory}, but {described.mime_type} in stat()."
                expect(described.mime_type == child.mime_type, "children", problem)
        expect(driver.ask("read", driver.source.uri).contents, "read", "The top directory has no contents.")


def _child_uris(driver: SourceDriver, directory: str, limit: int, max_pages: int) -> list[str]:
    return [child.uri for child in driver.children(directory, limit, max_pages)]
