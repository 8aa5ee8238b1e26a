"""Common behaviour of all stores: lists, reads, windows, completion, search and versions."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.conftest import ChangeRecorder
from tests.sources.object_store.conftest import CONTENT, Memory, Place
from wharfinger import types as t
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import VERSION, version_of
from wharfinger.sources.object_store import Objects
from wharfinger.sources.windows.window import NEXT

EVERYTHING = [
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


def uris(source: Objects, limit: int = 100) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        resources, after = source.page(after, limit)
        assert len(resources) <= limit
        found += [resource.uri[len(source.uri) :] for resource in resources]
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_everything_is_listed_once_in_pages_of_any_size(source: Objects, limit: int) -> None:
    assert uris(source, limit) == EVERYTHING


def test_an_object_is_described_without_being_read(source: Objects) -> None:
    found = {resource.uri: resource for resource in source.page(None, 100)[0]}
    hull = found[source.uri + "harbours/hull.csv"]
    assert (hull.name, hull.title, hull.mime_type, hull.size) == ("hull.csv", "harbours/hull.csv", "text/csv", 19)
    assert isinstance(hull.annotations, t.Annotations)
    assert str(hull.annotations.last_modified).startswith("20")
    assert version_of(hull)
    assert found[source.uri + "a/"].mime_type == DIRECTORY
    assert found[source.uri].mime_type == DIRECTORY


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_directory_has_its_entries_in_pages(source: Objects, limit: int) -> None:
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
def test_an_object_is_read_as_it_is(source: Objects, key: str) -> None:
    uri = source.uri_of(key)
    (content,) = source.read(uri).contents
    data = content.text.encode() if isinstance(content.text, str) else content.blob
    assert data == CONTENT[key]
    assert isinstance(content.meta, dict)
    assert content.meta[VERSION] == source.version(uri) == version_of(source.stat(uri))


def test_an_object_and_a_directory_of_the_same_name_are_two(place: Place, source: Objects) -> None:
    if isinstance(place, Memory):
        return  # which has no such thing
    place.put("a", b"an object")
    assert uris(source, 1)[1:5] == ["README.md", "a", "a.txt", "a/"]
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


def test_windows_are_parts_of_the_object(source: Objects) -> None:
    uri = source.uri + "README.md"
    assert source.read(uri + "?lines=3-3").contents[0].text == "Soundings in fathoms.\n"
    assert source.read(uri + "?bytes=2-7").contents[0].text == "Charts"
    assert source.read(uri + "?tail=1").contents[0].text == "Soundings in fathoms.\n"
    with pytest.raises(InvalidArgument):
        source.read(uri + "?lines=9-9")
    with pytest.raises(ResourceNotFound):
        source.read(source.uri + "?lines=1-2")


def test_windows_joined_are_the_whole(place: Place, source: Objects) -> None:
    whole = b"".join(b"%07d %s\n" % (number, b"fathom " * (number % 40)) for number in range(8_000))
    place.put("log.txt", whole)
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
    for nothing in ("x", "../", "/", "//a", "a/../", "%zz", "\0", "\ud800"):
        assert complete(nothing) == []


def test_a_search_looks_at_keys_and_then_at_texts(source: Objects) -> None:
    assert [hit.title for hit in search_documents(source, "hull", 10)] == ["harbours/hull.csv"]
    hits = search_documents(source, "FATHOMS soundings", 10)
    assert [(hit.title, hit.snippet) for hit in hits] == [("README.md", "3: Soundings in fathoms.")]
    assert search_documents(source, "", 10) == []


def test_documents_are_all_objects_and_pictures_have_no_text(source: Objects) -> None:
    documents, key = source.documents(None, 100)
    assert key is None
    assert [d.title for d in documents] == sorted(CONTENT)
    pictures = [d.uri for d in documents if d.title.endswith(".png")]
    assert pictures and not any(list(source.text(uri)) for uri in pictures)
    assert "".join(source.text(source.uri + "a.txt")) == "between the two\n"
    assert list(source.text(source.uri + "harbours/north/buoy.png")) == []


def test_a_changed_object_has_another_version_and_is_reported(
    place: Place, source: Objects, recorder: ChangeRecorder
) -> None:
    uri = source.uri + "README.md"
    source._polling.every = 0.05
    before = source.version(uri)
    source.watch(uri, recorder)
    place.put("README.md", b"other text")
    recorder.wait_for(uri)
    assert source.version(uri) != before
    assert source.read(uri).contents[0].text == "other text"
    place.remove("README.md")
    recorder.wait_for(uri)
    source.unwatch(uri)


def test_an_object_that_comes_changes_the_list(place: Place, source: Objects, recorder: ChangeRecorder) -> None:
    source._polling.every = 0.05
    source.watch(None, recorder)
    directory = source.uri + "harbours/"
    source.stat(directory)
    source.watch(directory, recorder)
    while not all(isinstance(watched.state, str) for watched in source._polling._watched.values()):
        threading.Event().wait(0.01)  # until both were seen
    place.put("harbours/new.txt", b"new")
    recorder.wait_for(None, directory)
    source.unwatch(None)
    source.unwatch(directory)


@pytest.mark.parametrize("after", ["", "x", "k:\ud800", "k:\0", "k:" + "x" * 5000])
def test_a_strange_key_of_a_page_is_refused(source: Objects, after: str) -> None:
    for page in (source.page, source.documents):
        with pytest.raises(InvalidArgument):
            page(after, 10)


NAMES = st.lists(st.sampled_from(["a", "a.b", "b", "b-", "c0", "ø"]), min_size=1, max_size=3).map("/".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stays=st.sets(NAMES, min_size=1, max_size=20),
    steps=st.lists(st.tuples(st.booleans(), NAMES), max_size=12),
    limit=st.integers(1, 4),
)
def test_pages_lose_nothing_and_repeat_nothing_while_objects_come_and_go(
    stays: set[str], steps: list[tuple[bool, str]], limit: int
) -> None:
    # In memory no name is a file and a directory at once, as it is in S3 and in archives.
    stays = {f"{name}.o" for name in stays}
    place = Memory()
    for name in stays:
        place.put(name, b"x")
    source = place.publish()
    found: list[str] = []
    after = None
    changes = iter(steps)
    while True:
        resources, after = source.page(after, limit)
        found += [resource.uri for resource in resources if resource.mime_type != DIRECTORY]
        directories = [resource.uri for resource in resources if resource.mime_type == DIRECTORY]
        assert len(directories) == len(set(directories))
        if after is None:
            break
        come, name = next(changes, (False, ""))
        if come and f"{name}.x" not in stays:
            place.put(f"{name}.x", b"y")
        elif name and place.fs.exists(f"/{place.name}/prefix/{name}.x"):
            place.remove(f"{name}.x")
    assert len(found) == len(set(found))
    assert {source.uri_of(name) for name in stays} <= set(found)
    place.fs.rm(f"/{place.name}", recursive=True)
