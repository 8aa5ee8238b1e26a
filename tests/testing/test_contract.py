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

from tests.conftest import ROOT
from tests.testing import tiny
from tests.testing.tiny import PASSWORD, TOP, TinySource
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Document, Hit, SourceUnavailable
from wharfinger.testing import SourceContract
from wharfinger.testing.source_suite import driver as driver_module
from wharfinger.testing.source_suite import suite_helpers, watch_tests
from wharfinger.testing.source_suite.driver import ContractBroken, SourceDriver

PAGE = ROOT / "docs" / "write_a_source.md"

BREAKS: list[tuple[str, str, type[TinySource]]] = []
"""The test that must fail, the clause that the failure must name, and a source that breaks the clause."""


def breaks(test: str, clause: str) -> Callable[[type[TinySource]], type[TinySource]]:
    """Register a source that breaks a clause."""

    def register(variant: type[TinySource]) -> type[TinySource]:
        BREAKS.append((test, clause, variant))
        return variant

    return register


# URIs of the source, its description, secrets.


@breaks("only_its_own_uris_are_claimed", "matches")
class ClaimsAPrefixOfAnotherLabel(TinySource):
    def matches(self, uri: str) -> bool:
        return uri.startswith(TOP)


@breaks("only_its_own_uris_are_claimed", "matches")
class ClaimsOnlyExistingUris(TinySource):
    def matches(self, uri: str) -> bool:
        return uri == TOP or uri.removeprefix(TOP + "/") in self.texts


@breaks("only_its_own_uris_are_claimed", "matches")
class ClaimsEverything(TinySource):
    def matches(self, uri: str) -> bool:
        return True


@breaks("it_describes_itself", "describe")
class DescribesAtLength(TinySource):
    def describe(self) -> str:
        return "many texts\n" * 50


@breaks("it_describes_itself", "describe")
class DescribesSlowly(TinySource):
    def describe(self) -> str:
        time.sleep(2.1)
        return "9 texts"


@breaks("secrets_are_not_shown", "Secrets")
class ShowsItsPasswordInItsLocation(TinySource):
    location = f"tiny://me:{PASSWORD}@box"


@breaks("secrets_are_not_shown", "Secrets")
class ShowsItsPasswordInErrors(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        try:
            return super().find(uri)
        except ResourceNotFound:
            raise ResourceNotFound(uri.replace("tiny://", f"tiny://me:{PASSWORD}@")) from None


# Pages and keys.


@breaks("pages_of_every_size_give_the_same_list", "Pages")
class LosesOneBetweenPages(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        resources, key = super().page(after, limit)
        return resources[1:] if after and len(resources) > 1 else resources, key


@breaks("pages_of_every_size_give_the_same_list", "Pages")
class RepeatsOneBetweenPages(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        resources, key = super().page(after, limit)
        return ([self.resource_of("a.txt"), *resources][:limit] if after else resources), key


@breaks("pages_of_every_size_give_the_same_list", "Pages")
class IgnoresTheLimit(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        return super().page(after, 1_000)


@breaks("pages_of_every_size_give_the_same_list", "Pages")
class NeverEnds(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        return [], "after:a.txt"


@breaks("invented_keys_are_refused", "Keys")
class AcceptsAnyKey(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        return super().page(after if after is None else "after:" + after.removeprefix("after:"), limit)


@breaks("invented_keys_are_refused", "Keys")
class FailsOnUnknownKeys(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        if after is not None and not after.startswith("after:"):
            int("x")
        return super().page(after, limit)


@breaks("keys_stay_valid_after_an_addition", "Keys")
class UsesPositionsAsKeys(TinySource):
    """Keys are positions, which change for all entries after an added one."""

    def page(self, after: str | None, limit: int) -> Any:
        begin = int((after or "after:0").removeprefix("after:"))
        names = list(reversed(self.texts))
        resources = [self.resource_of(name) for name in names[begin : begin + limit]]
        return resources, f"after:{begin + limit}" if begin + limit < len(names) else None


@breaks("added_resources_are_listed", "page")
class NeverListsAdditions(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        self.texts = {name: text for name, text in self.texts.items() if not name.startswith("new")}
        return super().page(after, limit)


# Resources.


class _OtherResource(TinySource):
    """Base class of sources that change fields of their resources."""

    changes: Mapping[str, Any]

    def __init_subclass__(cls, changes: Mapping[str, Any]) -> None:
        cls.changes = changes

    def resource_of(self, name: str) -> t.Resource:
        return msgspec.structs.replace(super().resource_of(name), **self.changes)


@breaks("listed_resources_can_be_read", "page")
class HasBlanksInItsUris(TinySource):
    def resource_of(self, name: str) -> t.Resource:
        return msgspec.structs.replace(super().resource_of(name), uri=f"{TOP}/{name} of today")


@breaks("listed_resources_can_be_read", "page")
class HasNoNames(_OtherResource, changes={"name": ""}):
    pass


@breaks("listed_resources_can_be_read", "page")
class HasControlCharactersInTitles(_OtherResource, changes={"title": "\x1b[2Jgone"}):
    pass


@breaks("listed_resources_can_be_read", "page")
class HasAnInvalidType(_OtherResource, changes={"mime_type": "text"}):
    pass


@breaks("listed_resources_can_be_read", "page")
class HasAnInvalidTime(_OtherResource, changes={"annotations": t.Annotations(last_modified="yesterday")}):
    pass


@breaks("listed_resources_can_be_read", "stat")
class HasAWrongSize(_OtherResource, changes={"size": 77}):
    pass


@breaks("listed_resources_can_be_read", "read")
class ReadsAsAnotherType(_OtherResource, changes={"mime_type": "text/html"}):
    pass


@breaks("listed_resources_can_be_read", "read")
class ContradictsItsType(_OtherResource, changes={"mime_type": "image/png"}):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        kind = "text/plain" if uri == TOP else "image/png"
        return msgspec.structs.replace(super().contents(uri, text, meta), mime_type=kind)


@breaks("listed_resources_can_be_read", "stat")
class StatDiffersFromTheList(TinySource):
    def stat(self, uri: str) -> t.Resource:
        return msgspec.structs.replace(super().stat(uri), title="another")


@breaks("listed_resources_can_be_read", "read")
class ReadsNothing(TinySource):
    def read(self, uri: str) -> t.ReadResourceResult:
        return msgspec.structs.replace(super().read(uri), contents=[])


@breaks("listed_resources_can_be_read", "read")
class ReadsAnotherUri(TinySource):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(f"{TOP}/else", text, meta)


class _OtherCaching(TinySource):
    changes: Mapping[str, Any]

    def __init_subclass__(cls, changes: Mapping[str, Any]) -> None:
        cls.changes = changes

    def read(self, uri: str) -> t.ReadResourceResult:
        return msgspec.structs.replace(super().read(uri), **self.changes)


@breaks("listed_resources_can_be_read", "Caching")
class HasANegativeTtl(_OtherCaching, changes={"ttl_ms": -1}):
    pass


@breaks("listed_resources_can_be_read", "Caching")
class IsReadAsPublicThoughPrivate(TinySource):
    cache_scope = "private"


# Directories.


@breaks("directories_contain_the_children_that_they_list", "Pages")
class LosesChildren(TinySource):
    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        resources, key = super().children(uri, after, limit)
        return resources[:1], key


@breaks("directories_contain_the_children_that_they_list", "children")
class HasChildrenOfAnotherSource(TinySource):
    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        return [t.Resource(uri="other://x", name="x")], None


# Versions.


@breaks("versions_are_stable_while_nothing_changes", "Versions")
class HasANewVersionEachTime(TinySource):
    def resource_of(self, name: str) -> t.Resource:
        return msgspec.structs.replace(super().resource_of(name), meta={VERSION: str(time.perf_counter_ns())})


@breaks("versions_are_stable_while_nothing_changes", "Versions")
class ReadsWithoutAVersion(TinySource):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(uri, text, {k: v for k, v in meta.items() if k != VERSION})


@breaks("changed_content_has_another_version", "Versions")
class NeverChangesItsVersion(TinySource):
    def version(self, uri: str) -> str:
        self.find(uri)
        return "1"


@breaks("changed_content_has_another_version", "Versions")
class HasNoVersions(TinySource):
    def version(self, uri: str) -> str:
        self.find(uri)
        return ""


@breaks("changed_content_has_another_version", "Versions")
class ReadsAnOldVersion(TinySource):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(uri, text, {**meta, VERSION: "old"})


# Missing resources and hostile URIs.


@breaks("missing_uris_are_not_found", "Errors")
class RaisesKeyError(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        self.texts[uri.removeprefix(TOP + "/")]
        return super().find(uri)


@breaks("missing_uris_are_not_found", "Errors")
class ReadsAnythingAsEmpty(TinySource):
    def read(self, uri: str) -> t.ReadResourceResult:
        try:
            return super().read(uri)
        except ResourceNotFound:
            return t.ReadResourceResult(contents=[self.contents(uri, "", {})])


@breaks("missing_uris_are_not_found", "Errors")
class HasAVersionOfMissingResources(TinySource):
    def version(self, uri: str) -> str:
        return "1"


@breaks("missing_uris_are_not_found", "Errors")
class FailsSlowlyForLongUris(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        if len(uri) > 1_000_000:
            time.sleep(5.1)
        return super().find(uri)


@breaks("missing_uris_are_not_found", "Errors")
class HasChildrenInEverything(TinySource):
    def children(self, uri: str, after: str | None = None, limit: int = 1_000) -> Any:
        return self.page(after, limit)


@breaks("hostile_uris_are_not_found", "Hostile URIs")
class FollowsDots(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        return ("a.txt", "") if ".." in uri else super().find(uri)


@breaks("hostile_uris_are_not_found", "Errors")
class FailsOnNul(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        if "\0" in uri:
            raise ValueError("embedded null byte")
        return super().find(uri)


@breaks("hostile_uris_are_not_found", "Errors")
class RepeatsLongUris(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        if len(uri) > 10_000:
            raise InvalidArgument(f"{uri} is too long.")
        return super().find(uri)


# Windows.


@breaks("joined_windows_are_the_whole_content", "Windows")
class LosesTextBetweenWindows(TinySource):
    def start_of(self, query: str) -> int:
        begin = super().start_of(query)
        return begin + 1 if begin else 0


@breaks("joined_windows_are_the_whole_content", "Windows")
class HasACycleOfWindows(TinySource):
    def start_of(self, query: str) -> int:
        return super().start_of(query) % 20


@breaks("joined_windows_are_the_whole_content", "Windows")
class HasNoLinkToTheNextWindow(TinySource):
    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        return super().contents(uri, text, {VERSION: meta.get(VERSION, "")})


@breaks("joined_windows_are_the_whole_content", "Windows")
class LinksTheNextWindowOnlyInMeta(TinySource):
    """The next window is only in `_meta`, which models do not see."""

    def read(self, uri: str) -> t.ReadResourceResult:
        result = super().read(uri)
        return msgspec.structs.replace(result, contents=result.contents[:1])


@breaks("impossible_windows_are_refused", "Windows")
class ReadsAnyWindow(TinySource):
    def start_of(self, query: str) -> int:
        try:
            return super().start_of(query)
        except InvalidArgument:
            return 0


@breaks("impossible_windows_are_refused", "Windows")
class GivesNoReasonForABadWindow(TinySource):
    def start_of(self, query: str) -> int:
        try:
            return super().start_of(query)
        except InvalidArgument:
            raise InvalidArgument("Bad window.") from None


# Templates and completion.


def _template(text: str, name: str = "text") -> tuple[t.ResourceTemplate, ...]:
    return (t.ResourceTemplate(uri_template=text, name=name),)


@breaks("templates_are_valid", "Templates")
class HasABrokenTemplate(TinySource):
    templates = _template(TOP + "/{name")


@breaks("templates_are_valid", "Templates")
class HasATemplateWithoutVariables(TinySource):
    templates = _template(TOP + "/name")


@breaks("templates_are_valid", "Templates")
class HasATemplateTwice(TinySource):
    templates = _template(TOP + "/{name}") * 2


@breaks("completed_templates_can_be_read", "complete")
class CompletesWithMissingResources(TinySource):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return ["nothing.txt"]


@breaks("completed_templates_can_be_read", "complete")
class CompletesForAnotherSource(TinySource):
    templates = _template("other:{name}")


@breaks("completed_templates_can_be_read", "complete")
class DoesNotCompleteItsOwnValues(TinySource):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return [] if value else super().complete(template, argument, value, context)


@breaks("completion_is_bounded_and_accepts_any_text", "complete")
class CompletesAnyArgument(TinySource):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return sorted(self.texts)


@breaks("completion_is_bounded_and_accepts_any_text", "complete")
class CompletesWithTooManyValues(TinySource):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return [str(n) for n in range(1_000)] if argument == "name" and template in repr(self.templates) else []


@breaks("completion_is_bounded_and_accepts_any_text", "complete")
class FailsOnOddValues(TinySource):
    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        value.encode()
        return super().complete(template, argument, value, context)


# Searching.


@breaks("documents_have_searchable_text", "documents")
class HasDocumentsOfAnotherSource(TinySource):
    def documents(self, after: str | None, limit: int) -> Any:
        return [Document(uri="other://x", title="x", version="")], None


@breaks("documents_have_searchable_text", "documents")
class HasDocumentsWithOldVersions(TinySource):
    def documents(self, after: str | None, limit: int) -> Any:
        documents, key = super().documents(after, limit)
        return [msgspec.structs.replace(document, version="old") for document in documents], key


@breaks("documents_have_searchable_text", "text")
class HasBytesForText(TinySource):
    def text(self, uri: str) -> Iterator[str]:
        yield self.texts[self.find(uri)[0]].encode()  # type: ignore[misc]


@breaks("documents_have_searchable_text", "text")
class HasTextOfMissingResources(TinySource):
    def text(self, uri: str) -> Iterator[str]:
        yield "anything"


@breaks("search_is_bounded_and_accepts_any_query", "search")
class FindsTooMuch(TinySource):
    def search(self, query: str, limit: int) -> list[Hit]:
        return super().search("", 100)


@breaks("search_is_bounded_and_accepts_any_query", "search")
class FindsUrisOfAnotherSource(TinySource):
    def search(self, query: str, limit: int) -> list[Hit]:
        return [Hit(uri="other://x", title="x")]


@breaks("search_is_bounded_and_accepts_any_query", "search")
class FailsOnQuotes(TinySource):
    def search(self, query: str, limit: int) -> list[Hit]:
        if '"' in query:
            raise SyntaxError("unterminated string")
        return super().search(query, limit)


# Watching.


class _NeverNotifies(TinySource):
    def notify(self, uri: str | None) -> None:
        pass


@breaks("a_change_is_reported_to_its_watcher", "Watching")
class NeverReportsChanges(_NeverNotifies):
    pass


@breaks("an_addition_is_reported_to_watchers_of_the_list", "Watching")
class NeverReportsListChanges(_NeverNotifies):
    pass


@breaks("a_change_is_reported_to_a_client", "Watching")
class NeverNotifiesClients(_NeverNotifies):
    pass


@breaks("a_change_is_reported_to_its_watcher", "Watching")
class ReportsOnlyOneChange(TinySource):
    def notify(self, uri: str | None) -> None:
        if changed := self.watchers.pop(uri, None):
            changed(uri)


class _IgnoresUnwatch(TinySource):
    def unwatch(self, uri: str | None) -> None:
        pass


@breaks("a_change_is_reported_to_its_watcher", "Watching")
class ReportsChangesAfterUnwatch(_IgnoresUnwatch):
    pass


@breaks("an_addition_is_reported_to_watchers_of_the_list", "Watching")
class ReportsListChangesAfterUnwatch(_IgnoresUnwatch):
    pass


@breaks("a_change_is_reported_to_its_watcher", "Watching")
class BlocksTheLoop(TinySource):
    def watch(self, uri: str | None, changed: Changed) -> None:
        time.sleep(1.1)
        super().watch(uri, changed)


@breaks("repeated_watch_and_unwatch_calls_are_harmless", "Watching")
class FailsOnUnwatchOfAnUnknownUri(TinySource):
    def unwatch(self, uri: str | None) -> None:
        del self.watchers[uri]


UNAVAILABLE_TEST = "lost_data_and_its_return_are_reported"


@breaks(UNAVAILABLE_TEST, "Unavailable")
class IsEmptyWhileUnavailable(TinySource):
    def page(self, after: str | None, limit: int) -> Any:
        return ([], None) if self.hidden else super().page(after, limit)


@breaks(UNAVAILABLE_TEST, "Unavailable")
class RaisesNotFoundWhileUnavailable(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        if self.hidden:
            raise ResourceNotFound(uri)
        return super().find(uri)


@breaks(UNAVAILABLE_TEST, "Unavailable")
class ReportsNoOutage(TinySource):
    def hide(self, hidden: bool) -> None:
        self.hidden = hidden


@breaks(UNAVAILABLE_TEST, "Unavailable")
class ReportsNoReturn(TinySource):
    def hide(self, hidden: bool) -> None:
        super().hide(hidden) if hidden else setattr(self, "hidden", False)


@breaks(UNAVAILABLE_TEST, "Unavailable")
class StaysUnavailable(TinySource):
    def hide(self, hidden: bool) -> None:
        super().hide(True)


@breaks(UNAVAILABLE_TEST, "Secrets")
class ShowsItsPasswordInTheReason(TinySource):
    def check_available(self) -> None:
        if self.hidden:
            raise SourceUnavailable(f"The box does not open with {PASSWORD}.")


# Threads, and clients.


@breaks("several_threads_can_use_it_at_once", "Threads")
class IsNotThreadSafe(TinySource):
    busy = False

    def stat(self, uri: str) -> t.Resource:
        if self.busy:
            raise RuntimeError("used in two threads at once")
        self.busy = True
        time.sleep(0.01)
        self.busy = False
        return super().stat(uri)


@breaks("a_client_reads_the_same_content", "read")
class ReadsAnotherTextEachTime(TinySource):
    number = 0

    def contents(self, uri: str, text: str, meta: dict[str, object]) -> t.ResourceContents:
        self.number += 1
        return super().contents(uri, str(self.number), meta)


@breaks("a_client_reads_the_same_content", "Errors")
class FailsOnLongUris(TinySource):
    def find(self, uri: str) -> tuple[str, str]:
        if len(uri) > 1_000:
            raise OSError("File name too long")
        return super().find(uri)


@breaks("starting_and_ending_twice_is_harmless", "start and close")
class CannotStartTwice(TinySource):
    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.Thread(target=lambda: None)

    async def start(self) -> None:
        self.thread.start()


@pytest.fixture(autouse=True)
def _short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits of the suite for changes that are never reported."""
    monkeypatch.setattr(suite_helpers, "DEADLINE_SECONDS", 0.4)
    monkeypatch.setattr(watch_tests, "DEADLINE_SECONDS", 0.4)
    monkeypatch.setattr(watch_tests, "QUIET_SECONDS", 0.1)


def run(test: str, source: TinySource) -> None:
    """Run one test of the suite as pytest does."""
    case = tiny.TestTiny()
    function = getattr(case, f"test_{test}")
    parameters = inspect.signature(function).parameters
    if "driver" not in parameters:
        function(source, **({"revision": "2026-07-28"} if "revision" in parameters else {}))
        return
    with SourceDriver(source) as driver:
        function(driver)


@pytest.mark.parametrize(
    ("test", "clause", "variant"), BREAKS, ids=[f"{variant.__name__}-{test}" for test, _, variant in BREAKS]
)
def test_a_source_that_breaks_a_clause_fails_the_test_of_the_clause(
    test: str, clause: str, variant: type[TinySource]
) -> None:
    run(test, TinySource())
    with pytest.raises(ContractBroken) as caught:
        run(test, variant())
    problem, _, reference = str(caught.value).rpartition("\n")
    assert reference == f"(docs/write_a_source.md, “{clause}”)"
    assert len(problem) > 20


def test_a_watch_of_a_client_that_does_not_begin_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the suite waited forever for a source whose `watch` blocks the event loop."""
    released = threading.Event()

    class BlocksTheLoop(TinySource):
        def watch(self, uri: str | None, changed: Changed) -> None:
            if uri is not None:
                released.wait()

    monkeypatch.setattr(driver_module, "MAX_CALL_SECONDS", 0.2)
    uri = f"{TOP}/a.txt"
    with SourceDriver(BlocksTheLoop()) as driver, driver.served("2025-11-25") as served:
        timer = threading.Timer(1, released.set)
        timer.start()
        watching = served.watching(uri)
        with pytest.raises(ContractBroken, match=rf"^Watching {uri} did not begin within 0\.2 s\."), watching:
            pass
        timer.join()


@pytest.mark.parametrize(
    ("method", "arguments", "clause"),
    [("stat", (f"{TOP}/a.txt",), "stat"), ("read", (f"{TOP}/a.txt",), "read"), ("page", (None, 5), "page"),
     ("probe", (), "Unavailable"), ("start", (), "start and close"), ("batch", ([],), "How it is called")],
)  # fmt: skip
def test_a_call_that_takes_too_long_names_its_clause(method: str, arguments: tuple[object, ...], clause: str) -> None:
    """A bug: the failure named no clause."""
    released = threading.Event()
    source = TinySource()
    setattr(source, method, lambda *_: released.wait(20))
    with SourceDriver(source) as driver:
        with pytest.raises(ContractBroken) as caught:
            driver.ask(method, *arguments, within=0.01)
        released.set()
    assert str(caught.value) == (f"{method}() did not return within 0.01 s.\n(docs/write_a_source.md, “{clause}”)")


def suite_test_names() -> set[str]:
    return {name.removeprefix("test_") for name in dir(SourceContract) if name.startswith("test_")}


def test_every_test_of_the_suite_can_fail() -> None:
    assert suite_test_names() == {test for test, _, _ in BREAKS}


def test_every_clause_is_a_heading_of_the_page() -> None:
    headings = {line.lstrip("#").strip().strip("`") for line in PAGE.read_text().splitlines() if line.startswith("#")}
    assert {clause for _, clause, _ in BREAKS} <= headings
    assert {*driver_module.CLAUSES.values(), driver_module.CLAUSE_OF_OTHERS} <= headings


def test_a_correct_source_passes_the_suite() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "tests/testing/tiny.py"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "skipped" not in completed.stdout


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
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=55, check=False)
    assert "failed" not in completed.stdout, completed.stdout
    assert "skipped" in completed.stdout
