"""The contract of a source: a correct source passes every test, and each test fails for a source that breaks it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.testing import tiny
from tests.testing.tiny import PASSWORD, TOP, Tiny
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Document, Hit, SourceUnavailable
from wharfinger.testing import SourceContract
from wharfinger.testing.source_suite import suite_helpers, watch_tests
from wharfinger.testing.source_suite.driver import ContractBroken, SourceDriver

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "write_a_source.md"

BREAKS: list[tuple[str, str, type[Tiny]]] = []
"""The test that must fail, the clause that it must name, and a source that breaks it."""


def breaks(test: str, clause: str) -> Callable[[type[Tiny]], type[Tiny]]:
    def note(variant: type[Tiny]) -> type[Tiny]:
        BREAKS.append((test, clause, variant))
        return variant

    return note


# Its own URIs, its description, secrets.


@breaks("it_claims_its_own_uris_and_no_others", "matches")
class ClaimsAPrefixOfAnotherLabel(Tiny):
    def matches(self, uri: str) -> bool:
        return uri.startswith(TOP)


@breaks("it_claims_its_own_uris_and_no_others", "matches")
class ClaimsOnlyExistingUris(Tiny):
    def matches(self, uri: str) -> bool:
        return uri == TOP or uri.removeprefix(TOP + "/") in self.texts


@breaks("it_claims_its_own_uris_and_no_others", "matches")
class ClaimsEverything(Tiny):
    def matches(self, uri: str) -> bool:
        return True


@breaks("it_says_what_it_publishes", "describe")
class DescribesAtLength(Tiny):
    def describe(self) -> str:
        return "many texts\n" * 50


@breaks("it_says_what_it_publishes", "describe")
class DescribesSlowly(Tiny):
    def describe(self) -> str:
        time.sleep(2.1)
        return "9 texts"


@breaks("its_secret_stays_hidden", "Secrets")
class ShowsItsPasswordInItsLocation(Tiny):
    location = f"tiny://me:{PASSWORD}@box"


@breaks("its_secret_stays_hidden", "Secrets")
class ShowsItsPasswordInErrors(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        try:
            return super().find(uri)
        except ResourceNotFound:
            raise ResourceNotFound(uri.replace("tiny://", f"tiny://me:{PASSWORD}@")) from None


# Pages and keys.


@breaks("pages_of_any_size_are_the_same_list", "Pages")
class LosesOneBetweenPages(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        shown, key = super().page(after, limit)
        return shown[1:] if after and len(shown) > 1 else shown, key


@breaks("pages_of_any_size_are_the_same_list", "Pages")
class RepeatsOneBetweenPages(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        shown, key = super().page(after, limit)
        return ([self.described("a.txt"), *shown][:limit] if after else shown), key


@breaks("pages_of_any_size_are_the_same_list", "Pages")
class IgnoresTheLimit(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        return super().page(after, 1_000)


@breaks("pages_of_any_size_are_the_same_list", "Pages")
class NeverEnds(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        return [], "behind:a.txt"


@breaks("made_up_keys_are_refused", "Keys")
class AcceptsAnyKey(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        return super().page(after if after is None else "behind:" + after.removeprefix("behind:"), limit)


@breaks("made_up_keys_are_refused", "Keys")
class FailsOnUnknownKeys(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        if after is not None and not after.startswith("behind:"):
            int("x")
        return super().page(after, limit)


@breaks("keys_stay_valid_while_something_is_added", "Keys")
class UsesPositionsAsKeys(Tiny):
    """Keys are numbers, so that an entry added in front moves all that follow."""

    def page(self, after: str | None, limit: int) -> Any:
        begin = int((after or "behind:0").removeprefix("behind:"))
        names = list(reversed(self.texts))
        shown = [self.described(name) for name in names[begin : begin + limit]]
        return shown, f"behind:{begin + limit}" if begin + limit < len(names) else None


@breaks("what_is_added_is_listed", "page")
class NeverListsAdditions(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        self.texts = {name: text for name, text in self.texts.items() if not name.startswith("new")}
        return super().page(after, limit)


# Resources.


class _OtherResource(Tiny):
    """Changes fields of its resources."""

    message: Mapping[str, Any]

    def __init_subclass__(cls, message: Mapping[str, Any]) -> None:
        cls.message = message

    def described(self, name: str) -> t.Resource:
        return msgspec.structs.replace(super().described(name), **self.message)


@breaks("what_is_listed_is_there", "page")
class HasBlanksInItsUris(Tiny):
    def described(self, name: str) -> t.Resource:
        return msgspec.structs.replace(super().described(name), uri=f"{TOP}/{name} of today")


@breaks("what_is_listed_is_there", "page")
class HasNoNames(_OtherResource, message={"name": ""}):
    pass


@breaks("what_is_listed_is_there", "page")
class HasControlCharactersInTitles(_OtherResource, message={"title": "\x1b[2Jgone"}):
    pass


@breaks("what_is_listed_is_there", "page")
class HasAnInvalidType(_OtherResource, message={"mime_type": "text"}):
    pass


@breaks("what_is_listed_is_there", "page")
class HasAnInvalidTime(_OtherResource, message={"annotations": t.Annotations(last_modified="yesterday")}):
    pass


@breaks("what_is_listed_is_there", "stat")
class HasAWrongSize(_OtherResource, message={"size": 77}):
    pass


@breaks("what_is_listed_is_there", "read")
class ReadsAsAnotherType(_OtherResource, message={"mime_type": "text/html"}):
    pass


@breaks("what_is_listed_is_there", "read")
class ContradictsItsType(_OtherResource, message={"mime_type": "image/png"}):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        kind = "text/plain" if uri == TOP else "image/png"
        return msgspec.structs.replace(super().contents(uri, text, meta), mime_type=kind)


@breaks("what_is_listed_is_there", "stat")
class StatDiffersFromTheList(Tiny):
    def stat(self, uri: str) -> t.Resource:
        return msgspec.structs.replace(super().stat(uri), title="another")


@breaks("what_is_listed_is_there", "read")
class ReadsNothing(Tiny):
    def read(self, uri: str) -> t.ReadResourceResult:
        return msgspec.structs.replace(super().read(uri), contents=[])


@breaks("what_is_listed_is_there", "read")
class ReadsAnotherUri(Tiny):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(f"{TOP}/else", text, meta)


class _OtherCaching(Tiny):
    message: Mapping[str, Any]

    def __init_subclass__(cls, message: Mapping[str, Any]) -> None:
        cls.message = message

    def read(self, uri: str) -> t.ReadResourceResult:
        return msgspec.structs.replace(super().read(uri), **self.message)


@breaks("what_is_listed_is_there", "Caching")
class HasANegativeTtl(_OtherCaching, message={"ttl_ms": -1}):
    pass


@breaks("what_is_listed_is_there", "Caching")
class IsReadAsPublicThoughPrivate(Tiny):
    cache_scope = "private"


# Directories.


@breaks("directories_hold_what_they_say", "Pages")
class LosesChildren(Tiny):
    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        shown, key = super().children(uri, after, limit)
        return shown[:1], key


@breaks("directories_hold_what_they_say", "children")
class HasChildrenOfAnotherSource(Tiny):
    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        return [t.Resource(uri="other://x", name="x")], None


# Versions.


@breaks("versions_stay_while_nothing_changes", "Versions")
class HasANewVersionEachTime(Tiny):
    def described(self, name: str) -> t.Resource:
        return msgspec.structs.replace(super().described(name), meta={VERSION: str(time.perf_counter_ns())})


@breaks("versions_stay_while_nothing_changes", "Versions")
class ReadsWithoutAVersion(Tiny):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(uri, text, {k: v for k, v in meta.items() if k != VERSION})


@breaks("another_content_has_another_version", "Versions")
class NeverChangesItsVersion(Tiny):
    def version(self, uri: str) -> str:
        self.find(uri)
        return "1"


@breaks("another_content_has_another_version", "Versions")
class HasNoVersions(Tiny):
    def version(self, uri: str) -> str:
        self.find(uri)
        return ""


@breaks("another_content_has_another_version", "Versions")
class ReadsAnOldVersion(Tiny):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(uri, text, {**meta, VERSION: "old"})


# Missing resources and hostile URIs.


@breaks("what_is_missing_is_not_found", "Errors")
class RaisesKeyError(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        self.texts[uri.removeprefix(TOP + "/")]
        return super().find(uri)


@breaks("what_is_missing_is_not_found", "Errors")
class ReadsAnythingAsEmpty(Tiny):
    def read(self, uri: str) -> t.ReadResourceResult:
        try:
            return super().read(uri)
        except ResourceNotFound:
            return t.ReadResourceResult(contents=[self.contents(uri, "", {})])


@breaks("what_is_missing_is_not_found", "Errors")
class HasAVersionOfMissingResources(Tiny):
    def version(self, uri: str) -> str:
        return "1"


@breaks("what_is_missing_is_not_found", "Errors")
class FailsSlowlyForLongUris(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        if len(uri) > 1_000_000:
            time.sleep(5.1)
        return super().find(uri)


@breaks("what_is_missing_is_not_found", "Errors")
class HasChildrenInEverything(Tiny):
    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        return self.page(after, limit)


@breaks("hostile_uris_lead_nowhere", "Hostile URIs")
class FollowsDots(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        return ("a.txt", "") if ".." in uri else super().find(uri)


@breaks("hostile_uris_lead_nowhere", "Errors")
class FailsOnNul(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        if "\0" in uri:
            raise ValueError("embedded null byte")
        return super().find(uri)


@breaks("hostile_uris_lead_nowhere", "Errors")
class RepeatsLongUris(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        if len(uri) > 10_000:
            raise InvalidArgument(f"{uri} is too long.")
        return super().find(uri)


# Windows.


@breaks("windows_joined_are_the_whole", "Windows")
class LosesTextBetweenWindows(Tiny):
    def begin(self, query: str) -> int:
        begin = super().begin(query)
        return begin + 1 if begin else 0


@breaks("windows_joined_are_the_whole", "Windows")
class HasACycleOfWindows(Tiny):
    def begin(self, query: str) -> int:
        return super().begin(query) % 20


@breaks("windows_joined_are_the_whole", "Windows")
class HasNoLinkToTheNextWindow(Tiny):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(uri, text, {VERSION: meta.get(VERSION, "")})


@breaks("windows_joined_are_the_whole", "Windows")
class LinksTheNextWindowOnlyInMeta(Tiny):
    """The next window is only in `_meta`, which models do not see."""

    def read(self, uri: str) -> t.ReadResourceResult:
        result = super().read(uri)
        return msgspec.structs.replace(result, contents=result.contents[:1])


@breaks("windows_that_cannot_be_are_refused", "Windows")
class ReadsAnyWindow(Tiny):
    def begin(self, query: str) -> int:
        try:
            return super().begin(query)
        except InvalidArgument:
            return 0


@breaks("windows_that_cannot_be_are_refused", "Windows")
class GivesNoReasonForABadWindow(Tiny):
    def begin(self, query: str) -> int:
        try:
            return super().begin(query)
        except InvalidArgument:
            raise InvalidArgument("Bad window.") from None


# Templates and completion.


def _template(text: str, name: str = "text") -> tuple[t.ResourceTemplate, ...]:
    return (t.ResourceTemplate(uri_template=text, name=name),)


@breaks("templates_are_valid", "Templates")
class HasABrokenTemplate(Tiny):
    templates = _template(TOP + "/{name")


@breaks("templates_are_valid", "Templates")
class HasATemplateWithoutVariables(Tiny):
    templates = _template(TOP + "/name")


@breaks("templates_are_valid", "Templates")
class HasATemplateTwice(Tiny):
    templates = _template(TOP + "/{name}") * 2


@breaks("completions_lead_to_resources", "complete")
class CompletesWithMissingResources(Tiny):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return ["nothing.txt"]


@breaks("completions_lead_to_resources", "complete")
class CompletesForAnotherSource(Tiny):
    templates = _template("other:{name}")


@breaks("completions_lead_to_resources", "complete")
class DoesNotCompleteItsOwnValues(Tiny):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return [] if value else super().complete(template, argument, value, context)


@breaks("completion_is_bounded_and_takes_anything", "complete")
class CompletesAnyArgument(Tiny):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return sorted(self.texts)


@breaks("completion_is_bounded_and_takes_anything", "complete")
class CompletesWithTooManyValues(Tiny):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return [str(n) for n in range(1_000)] if argument == "name" and template in repr(self.templates) else []


@breaks("completion_is_bounded_and_takes_anything", "complete")
class FailsOnOddValues(Tiny):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        value.encode()
        return super().complete(template, argument, value, context)


# Searching.


@breaks("documents_are_what_can_be_searched", "documents")
class HasDocumentsOfAnotherSource(Tiny):
    def documents(self, after: str | None, limit: int) -> Any:
        return [Document(uri="other://x", title="x", version="")], None


@breaks("documents_are_what_can_be_searched", "documents")
class HasDocumentsWithOldVersions(Tiny):
    def documents(self, after: str | None, limit: int) -> Any:
        documents, key = super().documents(after, limit)
        return [msgspec.structs.replace(document, version="old") for document in documents], key


@breaks("documents_are_what_can_be_searched", "text")
class HasBytesForText(Tiny):
    def text(self, uri: str) -> Iterator[str]:
        yield self.texts[self.find(uri)[0]].encode()  # type: ignore[misc]


@breaks("documents_are_what_can_be_searched", "text")
class HasTextOfMissingResources(Tiny):
    def text(self, uri: str) -> Iterator[str]:
        yield "anything"


@breaks("search_is_bounded_and_takes_anything", "search")
class FindsTooMuch(Tiny):
    def search(self, query: str, limit: int) -> list[Hit]:
        return super().search("", 100)


@breaks("search_is_bounded_and_takes_anything", "search")
class FindsUrisOfAnotherSource(Tiny):
    def search(self, query: str, limit: int) -> list[Hit]:
        return [Hit(uri="other://x", title="x")]


@breaks("search_is_bounded_and_takes_anything", "search")
class FailsOnQuotes(Tiny):
    def search(self, query: str, limit: int) -> list[Hit]:
        if '"' in query:
            raise SyntaxError("unterminated string")
        return super().search(query, limit)


# Watching.


class _NeverNotifies(Tiny):
    def notify(self, uri: str | None) -> None:
        pass


@breaks("a_watcher_hears_of_a_change", "Watching")
class NeverReportsChanges(_NeverNotifies):
    pass


@breaks("a_watcher_of_the_list_hears_of_an_addition", "Watching")
class NeverReportsListChanges(_NeverNotifies):
    pass


@breaks("a_client_hears_of_a_change", "Watching")
class NeverNotifiesClients(_NeverNotifies):
    pass


@breaks("a_watcher_hears_of_a_change", "Watching")
class ReportsOnlyOneChange(Tiny):
    def notify(self, uri: str | None) -> None:
        if reported := self.watchers.pop(uri, None):
            reported(uri)


class _IgnoresUnwatch(Tiny):
    def unwatch(self, uri: str | None) -> None:
        pass


@breaks("a_watcher_hears_of_a_change", "Watching")
class ReportsChangesAfterUnwatch(_IgnoresUnwatch):
    pass


@breaks("a_watcher_of_the_list_hears_of_an_addition", "Watching")
class ReportsListChangesAfterUnwatch(_IgnoresUnwatch):
    pass


@breaks("a_watcher_hears_of_a_change", "Watching")
class BlocksTheLoop(Tiny):
    def watch(self, uri: str | None, changed: Changed) -> None:
        time.sleep(1.1)
        super().watch(uri, changed)


@breaks("watching_twice_and_unwatching_what_is_unknown_is_harmless", "Watching")
class FailsOnUnwatchOfAnUnknownUri(Tiny):
    def unwatch(self, uri: str | None) -> None:
        del self.watchers[uri]


GONE = "data_that_is_gone_is_reported_with_the_reason_and_so_is_its_return"


@breaks(GONE, "Unavailable")
class IsEmptyWhileUnavailable(Tiny):
    def page(self, after: str | None, limit: int) -> Any:
        return ([], None) if self.hidden else super().page(after, limit)


@breaks(GONE, "Unavailable")
class RaisesNotFoundWhileUnavailable(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        if self.hidden:
            raise ResourceNotFound(uri)
        return super().find(uri)


@breaks(GONE, "Unavailable")
class ReportsNoOutage(Tiny):
    def hide(self, hidden: bool) -> None:
        self.hidden = hidden


@breaks(GONE, "Unavailable")
class ReportsNoReturn(Tiny):
    def hide(self, hidden: bool) -> None:
        super().hide(hidden) if hidden else setattr(self, "hidden", False)


@breaks(GONE, "Unavailable")
class StaysUnavailable(Tiny):
    def hide(self, hidden: bool) -> None:
        super().hide(True)


@breaks(GONE, "Secrets")
class ShowsItsPasswordInTheReason(Tiny):
    def check(self) -> None:
        if self.hidden:
            raise SourceUnavailable(f"The box does not open with {PASSWORD}.")


# Threads, and clients.


@breaks("several_threads_may_use_it_at_once", "Threads")
class IsNotThreadSafe(Tiny):
    busy = False

    def stat(self, uri: str) -> t.Resource:
        if self.busy:
            raise RuntimeError("used in two threads at once")
        self.busy = True
        time.sleep(0.01)
        self.busy = False
        return super().stat(uri)


@breaks("a_client_gets_all_of_it", "read")
class ReadsAnotherTextEachTime(Tiny):
    number = 0

    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        self.number += 1
        return super().contents(uri, str(self.number), meta)


@breaks("a_client_gets_all_of_it", "Errors")
class FailsOnLongUris(Tiny):
    def find(self, uri: str) -> tuple[str, str]:
        if len(uri) > 1_000:
            raise OSError("File name too long")
        return super().find(uri)


@breaks("starting_and_ending_twice_is_harmless", "start and close")
class CannotStartTwice(Tiny):
    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.Thread(target=lambda: None)

    async def start(self) -> None:
        self.thread.start()


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite does not wait long for changes that never come."""
    monkeypatch.setattr(suite_helpers, "DEADLINE_SECONDS", 0.4)
    monkeypatch.setattr(watch_tests, "DEADLINE_SECONDS", 0.4)
    monkeypatch.setattr(watch_tests, "QUIET_SECONDS", 0.1)


def run(test: str, source: Tiny) -> None:
    """Run one test of the suite as pytest does."""
    case = tiny.TestTiny()
    function = getattr(case, f"test_{test}")
    wanted = inspect.signature(function).parameters
    if "driver" not in wanted:
        function(source, **({"revision": "2026-07-28"} if "revision" in wanted else {}))
        return
    with SourceDriver(source) as driver:
        function(driver)


@pytest.mark.parametrize(
    ("test", "clause", "variant"), BREAKS, ids=[f"{variant.__name__}-{test}" for test, _, variant in BREAKS]
)
def test_a_source_that_breaks_a_clause_fails_its_test(test: str, clause: str, variant: type[Tiny]) -> None:
    run(test, Tiny())
    with pytest.raises(ContractBroken) as caught:
        run(test, variant())
    problem, _, place = str(caught.value).rpartition("\n")
    assert place == f"(docs/write_a_source.md, “{clause}”)"
    assert len(problem) > 20


def suite_test_names() -> set[str]:
    return {name.removeprefix("test_") for name in dir(SourceContract) if name.startswith("test_")}


def test_every_test_of_the_suite_can_fail() -> None:
    assert suite_test_names() == {test for test, _, _ in BREAKS}


def test_every_clause_is_a_heading_of_the_page() -> None:
    headings = {line.lstrip("#").strip().strip("`") for line in PAGE.read_text().splitlines() if line.startswith("#")}
    assert {clause for _, clause, _ in BREAKS} <= headings


def test_a_correct_source_passes_the_suite() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "tests/testing/tiny.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_tests_of_features_that_a_source_lacks_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n"
        "from wharfinger import types as t\n"
        "from wharfinger.errors import ResourceNotFound\n"
        "from wharfinger.source import Source\n"
        "from wharfinger.testing import SourceContract\n"
        "class Empty(Source):\n"
        "    def matches(self, uri): return uri.startswith('empty:')\n"
        "    def page(self, after, limit):\n"
        "        from wharfinger.errors import InvalidArgument\n"
        "        if after is not None: raise InvalidArgument('no such key')\n"
        "        return [], None\n"
        "class TestEmpty(SourceContract):\n"
        "    missing = 'empty:none'\n"
        "    @pytest.fixture\n"
        "    def source(self): return Empty()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=False)
    assert "failed" not in done.stdout, done.stdout
    assert "skipped" in done.stdout
