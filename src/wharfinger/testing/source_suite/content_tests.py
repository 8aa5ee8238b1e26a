"""Tests of a source's contract: versions of contents, their windows, and errors."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from msgspec import UNSET

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import version_of
from wharfinger.testing.source_suite.base import ContractBase
from wharfinger.testing.source_suite.driver import SourceDriver, expect
from wharfinger.testing.source_suite.suite_helpers import (
    ABSENT_PATHS,
    NEXT,
    ODD_PATHS,
    answer_of,
    below,
    brief,
    bytes_of,
    next_of,
    sample,
    until,
    version_of_contents,
)

__all__ = ["ContentTests"]

MAX_WINDOWS = 400
"""The maximum number of windows that are followed."""
_is_range = re.compile(r"\d+-\d*|\d+").fullmatch


class ContentTests(ContractBase):
    """Versions, windows and errors."""

    def test_versions_are_stable_while_nothing_changes(self, driver: SourceDriver) -> None:
        """`version`, `stat` and `read` report the same version while the content stays the same."""
        for item in sample(driver):
            if self.live:
                self._check_live_version(driver, item.uri)
                continue
            versions = {
                "version()": driver.ask("version", item.uri),
                "stat()": version_of(driver.ask("stat", item.uri)),
                "the contents": version_of_contents(driver.ask("read", item.uri)),
                "version() again": driver.ask("version", item.uri),
            }
            problem = f"{item.uri} has several versions though nothing changed: {versions}"
            expect(len(set(versions.values())) == 1, "Versions", problem)

    def _check_live_version(self, driver: SourceDriver, uri: str) -> None:
        first, second = driver.ask("read", uri), driver.ask("read", uri)
        version = version_of_contents(first)
        if version and version == version_of_contents(second):
            same = [bytes_of(c) for c in first.contents] == [bytes_of(c) for c in second.contents]
            expect(same, "Versions", f"{uri} has two contents of one version, {version!r}.")

    def test_changed_content_has_another_version(self, driver: SourceDriver) -> None:
        """Changed content has a new version, and all methods report it."""
        uri = self.change(driver.source)
        if uri is None:
            pytest.skip("`change` returns None")
        old_version = driver.ask("version", uri)
        expect(old_version, "Versions", f"{uri} can change, but has no version.")
        self.change_again(driver, uri)
        until(lambda: driver.ask("version", uri) != old_version, "Versions", f"{uri} changed, but its version did not.")
        if not self.live:
            versions = {
                driver.ask("version", uri),
                version_of(driver.ask("stat", uri)),
                version_of_contents(driver.ask("read", uri)),
            }
            expect(len(versions) == 1, "Versions", f"{uri}: after a change version(), stat() and read() differ.")

    def test_missing_uris_are_not_found(self, driver: SourceDriver) -> None:
        """`stat`, `read`, `version` and `children` raise ResourceNotFound for a URI that names nothing."""
        for uri in (self.missing, self.missing + "/x", self.missing + "x" * (2 << 20)):
            for method in ("stat", "read", "version", "children"):
                began = time.monotonic()
                answer = answer_of(driver, method, uri)
                problem = f"{method}({brief(uri)}) must raise ResourceNotFound, not return {brief(answer)}."
                expect(isinstance(answer, ResourceNotFound), "Errors", problem)
                seconds = time.monotonic() - began
                expect(seconds < 5, "Errors", f"{method}({brief(uri)}) took {seconds:.1f} s to find nothing.")

    def test_hostile_uris_are_not_found(self, driver: SourceDriver) -> None:
        """Any URI below the top is answered, or refused with ResourceNotFound or InvalidArgument."""
        for uris, must_be_refused in (
            (below(driver.source, ABSENT_PATHS), True),
            (below(driver.source, ODD_PATHS), False),
        ):
            for uri in [*uris, self.missing + "%", self.missing + "\0"]:
                claimed = driver.source.matches(uri)
                expect(isinstance(claimed, bool), "matches", f"matches({brief(uri)}) is {claimed!r}.")
                for method in ("stat", "read", "version", "children"):
                    answer = answer_of(driver, method, uri)
                    is_refused = isinstance(answer, (ResourceNotFound, InvalidArgument))
                    problem = f"{method}({brief(uri)}) raised {brief(answer)}, not ResourceNotFound or InvalidArgument."
                    expect(is_refused or not isinstance(answer, Exception), "Errors", problem)
                    if must_be_refused:
                        problem = f"{method}({brief(uri)}) is answered: {brief(answer)}."
                        expect(is_refused, "Hostile URIs", problem)
                    if isinstance(answer, InvalidArgument):
                        problem = f"{method}({brief(uri)}): the error repeats the whole URI."
                        expect(len(str(answer)) < 2_000, "Errors", problem)

    def test_joined_windows_are_the_whole_content(self, driver: SourceDriver) -> None:
        """Following the next windows loses and repeats nothing."""
        if self.windowed is None:
            pytest.skip("`windowed` is None")
        pieces: list[str | bytes] = []
        uris: list[str] = []
        following: str | None = self.windowed
        while following is not None and len(uris) < MAX_WINDOWS:
            expect(following not in uris, "Windows", f"The next windows form a loop: {following} comes twice.")
            expect(
                driver.source.matches(following),
                "Windows",
                f"matches() is False for the next window {following}.",
            )
            uris.append(following)
            contents = driver.ask("read", following).contents
            first = contents[0]
            pieces.append(first.text if first.text is not UNSET else first.blob or b"")
            following = next_of(first)
            if following is not None:
                is_named = any(content.uri == following for content in contents[1:])
                expect(is_named, "Windows", f"{uris[-1]} continues at {following}, but no further content names it.")
        expect(
            len(uris) > 1, "Windows", f"{self.windowed} came in one piece: no {NEXT!r} in _meta of its first content."
        )
        expect(all(pieces), "Windows", "A window is empty.")
        if following is None:
            self._check_whole(driver, pieces)

    def _check_whole(self, driver: SourceDriver, pieces: list[Any]) -> None:
        whole: Any = self.whole(driver.source)
        size = driver.ask("stat", self.windowed).size
        if whole is not None:
            expect(type(whole)().join(pieces) == whole, "Windows", "The windows joined are not the whole.")
        elif size is not UNSET:
            joined_size = sum(len(piece.encode() if isinstance(piece, str) else piece) for piece in pieces)
            problem = f"The windows joined have {joined_size:,} bytes, and the whole has {size:,}."
            expect(joined_size == size, "Windows", problem)

    def test_impossible_windows_are_refused(self, driver: SourceDriver) -> None:
        """A read of an impossible window raises InvalidArgument, and the message suggests a valid one."""
        if self.windowed is None:
            pytest.skip("`windowed` is None")
        following = next_of(driver.ask("read", self.windowed).contents[0]) or ""
        base, _, query = following.partition("?")
        expect(query, "Windows", f"The next window of {self.windowed} has no query: {following!r}.")
        bad = [f"{base}?nobody=knows", f"{following}&{query}"]
        for name, value in (pair.partition("=")[::2] for pair in query.split("&")):
            if _is_range(value):
                bad += [f"{base}?{name}={wrong}" for wrong in ("x", "9-1", "-", "1-2-3", "", "1e3")]
        for uri in bad:
            answer = answer_of(driver, "read", uri)
            problem = f"read({uri!r}) must raise InvalidArgument, not return {brief(answer)}."
            expect(isinstance(answer, InvalidArgument), "Windows", problem)
            message = str(answer)
            problem = f"The error of {uri!r} does not say what to change: {message!r}"
            expect(20 <= len(message) < 1_000, "Windows", problem)
