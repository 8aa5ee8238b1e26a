"""The behaviour that all stores share: lists, reads, windows, completion, search and versions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.object_store.conftest import CONTENT, MemoryStore, WritableStore
from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import VERSION, version_of
from wharfinger.sources import objects
from wharfinger.sources.object_store import Objects
from wharfinger.sources.windows.window import NEXT
from wharfinger.testing.source_suite.driver import ChangeRecorder

ALL_PATHS = [
    "",
    "README.md",
    "a.txt",
    "a/",
    "a/b.txt",
    "empty",
    "harbours/",
    "harbours/hull.csv",
    "harbours/north/",
    "harbours/north/buoy.png",
    "harbours/%C3%A6%C3%B8%C3%A5%20%3F%23%25.txt",
]


def list_paths(source: Objects, limit: int) -> list[str]:
    """Return the paths of all resources, listed in pages of `limit`."""
    found: list[str] = []
    after = None
    while True:
        resources, after = source.page(after, limit)
        assert len(resources) <= limit
        found += [resource.uri[len(source.uri) :] for resource in resources]
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_each_resource_is_listed_once_with_any_page_size(source: Objects, limit: int) -> None:
    assert list_paths(source, limit) == ALL_PATHS


def test_a_listed_object_has_a_name_type_size_and_version(source: Objects) -> None:
    found = {resource.uri: resource for resource in source.page(None, 100)[0]}
    hull = found[source.uri + "harbours/hull.csv"]
    assert (hull.name, hull.title, hull.mime_type, hull.size) == ("hull.csv", "harbours/hull.csv", "text/csv", 19)
    assert isinstance(hull.annotations, t.Annotations)
    assert str(hull.annotations.last_modified).startswith("20")
    assert version_of(hull)
    assert found[source.uri + "a/"].mime_type == DIRECTORY
    assert found[source.uri].mime_type == DIRECTORY


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_directory_is_listed_in_pages(source: Objects, limit: int) -> None:
    def entries(uri: str) -> list[str]:
        found: list[str] = []
        after = None
        while True:
            resources, after = source.children(uri, after, limit)
            found += [resource.uri[len(source.uri) :] for resource in resources]
            if after is None:
                return found

    assert entries(source.uri) == ["README.md", "a.txt", "a/", "empty", "harbours/"]
    assert entries(source.uri + "a/") == ["a/b.txt"]
    assert entries(source.uri + "harbours")[:2] == ["harbours/hull.csv", "harbours/north/"]


@pytest.mark.parametrize("key", CONTENT)
def test_an_object_is_read_unchanged(source: Objects, key: str) -> None:
    uri = source.uri_of(key)
    (content,) = source.read(uri).contents
    data = content.text.encode() if isinstance(content.text, str) else content.blob
    assert data == CONTENT[key]
    assert isinstance(content.meta, dict)
    assert content.meta[VERSION] == source.version(uri) == version_of(source.stat(uri))


def test_an_object_and_a_directory_can_have_the_same_name(store: WritableStore, source: Objects) -> None:
    if isinstance(store, MemoryStore):
        return  # a store in memory does not allow it
    store.put("a", b"an object")
    assert list_paths(source, 1)[1:5] == ["README.md", "a", "a.txt", "a/"]
    assert [child.uri[-2:] for child in source.children(source.uri)[0]][1:4] == ["/a", "xt", "a/"]
    assert source.read(source.uri + "a").contents[0].text == "an object"
    assert source.read(source.uri + "a/").contents[1].uri == source.uri + "a/b.txt"


def test_reading_a_directory_lists_it(source: Objects) -> None:
    contents = source.read(source.uri + "harbours").contents
    assert str(contents[0].text).splitlines()[0].endswith("harbours/ holds 1 folder and 2 objects.")
    assert [content.text for content in contents[1:3]] == ["19 B text/csv", ""]


@pytest.mark.parametrize(
    "path",
    [
        *("none", "none/", "harbours/none", "README.md/", "a/b.txt/c", "harbours//hull.csv", "./a", "../a", "%2e%2e/a"),
        *("a%2Fb.txt", "%00", "%FF", "a#b", "%", "/etc/passwd", "..%2f..%2fa", "a\\b", "C:\\a", "x" * 5000),
    ],
)
def test_unknown_uris_are_not_found(source: Objects, path: str) -> None:
    for method in (source.stat, source.read, source.version, source.children):
        with pytest.raises(ResourceNotFound):
            method(source.uri + path)


def test_a_window_returns_a_part_of_the_object(source: Objects) -> None:
    uri = source.uri + "README.md"
    assert source.read(uri + "?lines=3-3").contents[0].text == "Soundings in fathoms.\n"
    assert source.read(uri + "?bytes=2-7").contents[0].text == "Charts"
    assert source.read(uri + "?tail=1").contents[0].text == "Soundings in fathoms.\n"
    with pytest.raises(InvalidArgument):
        source.read(uri + "?lines=9-9")
    with pytest.raises(ResourceNotFound):
        source.read(source.uri + "?lines=1-2")


def test_joined_windows_are_the_whole_object(store: WritableStore, source: Objects) -> None:
    whole = b"".join(b"%07d %s\n" % (number, b"fathom " * (number % 40)) for number in range(8_000))
    store.put("log.txt", whole)
    uri: str | None = source.uri + "log.txt?bytes=0-"
    pieces = b""
    while uri:
        content = source.read(uri).contents[0]
        pieces += str(content.text).encode()
        assert isinstance(content.meta, dict)
        uri = content.meta.get(NEXT)
    assert pieces == whole


def test_paths_are_completed(source: Objects) -> None:
    def complete(value: str) -> list[str]:
        return source.complete(source.template, "path", value, {})

    assert complete("") == ["README.md", "a.txt", "a/", "empty", "harbours/"]
    assert complete("a") == ["a.txt", "a/"]
    assert complete("a/") == ["a/b.txt"]
    assert complete("harbours/n") == ["harbours/north/"]
    assert complete("harbours/%C3%A6") == ["harbours/%C3%A6%C3%B8%C3%A5%20%3F%23%25.txt"]
    for value in ("x", "../", "/", "//a", "a/../", "%zz", "\0", "\ud800"):
        assert complete(value) == []


def test_a_search_matches_keys_and_texts(source: Objects) -> None:
    assert [hit.title for hit in search_documents(source, "hull", 10)] == ["harbours/hull.csv"]
    hits = search_documents(source, "FATHOMS soundings", 10)
    assert [(hit.title, hit.snippet) for hit in hits] == [("README.md", "3: Soundings in fathoms.")]
    assert search_documents(source, "", 10) == []


def test_all_objects_are_documents_but_images_have_no_text(source: Objects) -> None:
    documents, key = source.documents(None, 100)
    assert key is None
    assert [d.title for d in documents] == sorted(CONTENT)
    images = [d.uri for d in documents if d.title.endswith(".png")]
    assert images and not any(list(source.text(uri)) for uri in images)
    assert "".join(source.text(source.uri + "a.txt")) == "between the two\n"
    assert list(source.text(source.uri + "harbours/north/buoy.png")) == []


def test_a_change_of_an_object_is_reported_and_changes_its_version(
    store: WritableStore, source: Objects, recorder: ChangeRecorder
) -> None:
    uri = source.uri + "README.md"
    source._watches.every = 0.05
    before = source.version(uri)
    source.watch(uri, recorder)
    store.put("README.md", b"other text")
    recorder.wait_for(uri)
    assert source.version(uri) != before
    assert source.read(uri).contents[0].text == "other text"
    store.remove("README.md")
    recorder.wait_for(uri)
    source.unwatch(uri)


def test_a_new_object_changes_the_list_and_its_directory(
    store: WritableStore, source: Objects, recorder: ChangeRecorder
) -> None:
    source._watches.every = 0.05
    source.watch(None, recorder)
    directory = source.uri + "harbours/"
    source.stat(directory)
    source.watch(directory, recorder)
    while not all(isinstance(watched.state, str) for watched in source._watches._watched.values()):
        threading.Event().wait(0.01)  # until the first poll has read both
    store.put("harbours/new.txt", b"new")
    recorder.wait_for(None, directory)
    source.unwatch(None)
    source.unwatch(directory)


@pytest.mark.parametrize("after", ["", "x", "k:\ud800", "k:\0", "k:" + "x" * 5000])
def test_an_invalid_page_key_is_refused(source: Objects, after: str) -> None:
    for page in (source.page, source.documents):
        with pytest.raises(InvalidArgument):
            page(after, 10)


NAMES = st.lists(st.sampled_from(["a", "a.b", "b", "b-", "c0", "ø"]), min_size=1, max_size=3).map("/".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kept=st.sets(NAMES, min_size=1, max_size=20),
    steps=st.lists(st.tuples(st.booleans(), NAMES), max_size=12),
    limit=st.integers(1, 4),
)
def test_pages_list_each_kept_object_once_while_others_are_added_and_removed(
    kept: set[str], steps: list[tuple[bool, str]], limit: int
) -> None:
    # The suffixes keep files and directories apart: a store in memory cannot have both with one name.
    kept = {f"{name}.o" for name in kept}
    store = MemoryStore()
    for name in kept:
        store.put(name, b"x")
    source = store.publish()
    found: list[str] = []
    after = None
    remaining_steps = iter(steps)
    while True:
        resources, after = source.page(after, limit)
        found += [resource.uri for resource in resources if resource.mime_type != DIRECTORY]
        directories = [resource.uri for resource in resources if resource.mime_type == DIRECTORY]
        assert len(directories) == len(set(directories))
        if after is None:
            break
        added, name = next(remaining_steps, (False, ""))
        if added and f"{name}.x" not in kept:
            store.put(f"{name}.x", b"y")
        elif name and store.fs.exists(f"/{store.name}/prefix/{name}.x"):
            store.remove(f"{name}.x")
    assert len(found) == len(set(found))
    assert {source.uri_of(name) for name in kept} <= set(found)
    store.fs.rm(f"/{store.name}", recursive=True)


class PlainListing(MemoryFileSystem):  # type: ignore[misc]
    """A store whose `ls` takes no options, as over SFTP."""

    protocol = "plain-listing"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("plain-listing:", "memory:")))

    def ls(self, path: str, detail: bool = False) -> Any:
        return super().ls(path, detail=detail)


def test_a_missing_directory_of_a_store_that_lists_without_options_is_not_found() -> None:
    """A bug: it was an internal error."""
    fsspec.register_implementation("plain-listing", PlainListing, clobber=True)
    store = MemoryStore()
    store.put("a.txt", b"a")
    source = objects(f"plain-listing://{store.name}/prefix")
    assert source.read(f"{source.uri}a.txt").contents[0].text == "a"
    with pytest.raises(ResourceNotFound):
        source.read(f"{source.uri}missing")


class UnrootedStore(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A store whose paths do not begin with a slash, like GitHub."""

    protocol = "unrooted"
    entries = {"": [("README.md", "file"), ("docs", "directory")], "docs": [("docs/a.txt", "file")]}  # noqa: RUF012

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        if path not in self.entries:
            raise FileNotFoundError(path)
        return [{"name": name, "type": kind, "size": 4} for name, kind in self.entries[path]]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        return b"text"[start:end]


class HostStore(UnrootedStore):
    """A store whose paths are those of a host, as over SFTP."""

    protocol = "host"
    entries = {"/": [("/README.md", "file"), ("/docs", "directory")], "/docs": [("/docs/a.txt", "file")]}  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(infer_storage_options(path)["path"])


@pytest.mark.parametrize("url", ["unrooted://", "host://example", "host://example/"])
def test_the_top_of_a_store_is_published(url: str) -> None:
    """A bug: it had no objects."""
    fsspec.register_implementation("unrooted", UnrootedStore, clobber=True)
    fsspec.register_implementation("host", HostStore, clobber=True)
    source = objects(url)
    assert list_paths(source, 10) == ["", "README.md", "docs/", "docs/a.txt"]
    assert source.read(f"{source.uri}docs/a.txt").contents[0].text == "text"


def test_the_top_of_memory_is_published() -> None:
    store = MemoryStore()
    store.put("a.txt", b"a")
    source = objects("memory://")
    assert source.read(f"{source.uri}{store.name}/prefix/a.txt").contents[0].text == "a"


class OneConnection(MemoryFileSystem):  # type: ignore[misc]
    """A store whose calls share a connection, as over FTP. Records whether two of them overlap."""

    protocol = "one-connection"
    both = threading.Barrier(2)
    overlapped = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("one-connection:", "memory:")))

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            self.both.wait(0.2)
            type(self).overlapped = True
        return super().cat_file(path, start, end)


def test_a_store_that_may_not_support_threads_is_called_by_one_at_a_time() -> None:
    """A bug: with FTP, the answers of two reads at the same time could be confused."""
    fsspec.register_implementation("one-connection", OneConnection, clobber=True)
    store = MemoryStore()
    store.put("a.txt", b"a")
    source = objects(f"one-connection://{store.name}/prefix")
    with ThreadPoolExecutor(2) as pool:
        reads = [pool.submit(source.read, f"{source.uri}a.txt") for _ in range(2)]
    assert [read.result().contents[0].text for read in reads] == ["a", "a"]
    assert not OneConnection.overlapped
