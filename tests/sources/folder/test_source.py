"""A folder as resources: lists, reads, completion and counts."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tests.sources.conftest import create_files
from wharfinger import types as t
from wharfinger.content.text import iso
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.uri.template import UriTemplate
from wharfinger.source import VERSION, SourceUnavailable, version_of
from wharfinger.sources.folder import file_content, tree_resources
from wharfinger.sources.folder.file_content import DuplicatedFile
from wharfinger.sources.folder.safe_open import open_file
from wharfinger.sources.folder.source import ENCODING, MAX_CHILDREN, SUMMARY, Folder, files, size_text
from wharfinger.sources.windows.line_index import LineIndex
from wharfinger.sources.windows.window import GUESSED, NEXT, WINDOW

MODIFIED = 1_700_000_000
MODIFIED_TEXT = "2023-11-14T22:13:20Z"


def content(source: Folder, path: str) -> t.ResourceContents:
    """Read a file and return its content without the version in `_meta`."""
    return without_version(source.read(f"{source.uri}/{path}").contents[0])


def resources_by_uri(source: Folder) -> dict[str, t.Resource]:
    return {resource.uri: resource for resource in source.page(None, 100)[0]}


def index_of(source: Folder, name: str) -> LineIndex:
    entry = source.files._lines._indexes.get((name,))
    assert entry is not None
    return entry[2]


def without_version(contents: t.ResourceContents) -> t.ResourceContents:
    meta = dict(contents.meta or {})
    assert meta.pop(VERSION)
    return msgspec.structs.replace(contents, meta=meta or UNSET)


# Listing


def test_a_file_is_listed_with_title_type_size_time_and_version(source: Folder, charts: Path) -> None:
    os.utime(charts / "harbours" / "hull.ts", (MODIFIED, MODIFIED))
    os.utime(charts / "harbours", (MODIFIED, MODIFIED))
    resources = resources_by_uri(source)
    assert resources["file:///charts/harbours/hull.ts"] == t.Resource(
        uri="file:///charts/harbours/hull.ts",
        name="hull.ts",
        title="harbours/hull.ts",
        mime_type="text/x-typescript",
        size=24,
        annotations=t.Annotations(last_modified=MODIFIED_TEXT),
        meta={VERSION: source.version("file:///charts/harbours/hull.ts")},
    )
    assert resources["file:///charts/harbours"] == t.Resource(
        uri="file:///charts/harbours",
        name="harbours",
        title="harbours",
        mime_type="inode/directory",
        annotations=t.Annotations(priority=0.7, last_modified=MODIFIED_TEXT),
    )
    assert resources["file:///charts"].name == "charts"
    assert len(resources) == 8


def test_a_file_is_described_by_its_heading_in_every_list(source: Folder, charts: Path) -> None:
    (charts / "harbours" / "pilot.py").write_text('"""Guides ships.\n\nMore."""\n')
    (charts / "harbours" / "secret.md").write_bytes(b"\x89PNG\r\n\x1a\n\0\0 # Not a heading")
    descriptions = {
        resource.uri.removeprefix("file:///charts"): resource.description for resource in source.page(None, 100)[0]
    }
    assert {path: text for path, text in descriptions.items() if text is not UNSET} == {
        "/README.md": "Charts",
        "/harbours/pilot.py": "Guides ships.",
    }
    assert source.stat(f"{source.uri}/README.md").description == "Charts"
    assert [child.description for child in source.children(f"{source.uri}/harbours")[0]][1:] == [
        UNSET,
        "Guides ships.",
        UNSET,
    ]


def test_a_heading_is_read_again_only_when_its_file_changes(
    source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = charts / "README.md"
    assert resources_by_uri(source)["file:///charts/README.md"].description == "Charts"
    opened: list[str] = []
    monkeypatch.setattr(file_content, "open_file", lambda parent, name: opened.append(name) or open_file(parent, name))
    source.page(None, 100)
    assert opened == []
    path.write_text("# Seas\n")
    assert resources_by_uri(source)["file:///charts/README.md"].description == "Seas"
    assert opened == ["README.md"]


def test_a_list_that_exceeds_its_time_shows_only_cached_headings(
    source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_resources, "HEADING_SECONDS", 0)
    assert resources_by_uri(source)["file:///charts/README.md"].description is UNSET
    assert source.stat(f"{source.uri}/README.md").description == "Charts"
    assert resources_by_uri(source)["file:///charts/README.md"].description == "Charts"


def test_the_cache_of_headings_is_bounded(source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "MAX_HEADINGS", 3)
    for number in range(5):
        (charts / f"{number}.md").write_text(f"# Page {number}\n")
    descriptions = [resource.description for resource in source.page(None, 100)[0] if resource.description is not UNSET]
    assert descriptions == [*(f"Page {number}" for number in range(5)), "Charts"]
    assert source.files._headings is not None and len(source.files._headings._texts) == 3


def test_annotations_give_important_files_a_higher_priority(source: Folder, charts: Path) -> None:
    for name in ("package-lock.json", "harbours/readme.txt", "harbours/app.min.js", "harbours/old.zip"):
        (charts / name).write_text("{}")
    annotations = {
        resource.uri.removeprefix("file:///charts"): (resource.annotations.priority, resource.annotations.audience)
        for resource in source.page(None, 100)[0]
        if resource.annotations is not UNSET
    }
    assert annotations == {
        "": (UNSET, UNSET),
        "/README.md": (1.0, UNSET),
        "/empty.txt": (0.7, UNSET),
        "/package-lock.json": (0.1, UNSET),
        "/tides.csv": (0.7, UNSET),
        "/harbours": (0.7, UNSET),
        "/harbours/app.min.js": (0.1, UNSET),
        "/harbours/hull.ts": (UNSET, UNSET),
        "/harbours/old.zip": (UNSET, ["user"]),
        "/harbours/readme.txt": (0.8, UNSET),
        "/harbours/north": (UNSET, UNSET),
        "/harbours/north/buoy.png": (UNSET, UNSET),
    }


def test_the_type_of_a_name_without_a_known_suffix_comes_from_its_first_bytes(source: Folder, charts: Path) -> None:
    (charts / "picture").write_bytes(b"\x89PNG\r\n\x1a\n")
    (charts / "script").write_text("#!/bin/sh\n")
    (charts / "noise").write_bytes(b"\xff\0")
    assert [source.stat(f"{source.uri}/{name}").mime_type for name in ("picture", "script", "noise")] == [
        "image/png",
        "text/x-shellscript",
        "application/octet-stream",
    ]


def test_stat_returns_the_listed_resource(source: Folder) -> None:
    for resource in source.page(None, 100)[0]:
        found = source.stat(resource.uri)
        assert version_of(found)
        if resource.mime_type == "inode/directory":  # its version depends on its content
            found.meta = UNSET
        assert found == resource


def test_the_last_page_has_no_key(source: Folder) -> None:
    page, key = source.page(None, 8)
    assert (len(page), key) == (8, None)
    page, key = source.page(None, 7)
    assert key is not None
    assert [resource.name for resource in source.page(key, 7)[0]] == ["buoy.png"]


def test_an_invalid_key_is_an_invalid_argument(source: Folder) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        source.page("nonsense", 5)
    with pytest.raises(InvalidArgument, match="cursor"):
        source.children(source.uri, "nonsense")


def test_names_that_are_not_utf8_are_listed_and_read(source: Folder, charts: Path) -> None:
    with open(os.fsencode(charts) + b"/\xff\n\x1b.md", "w") as file:
        file.write("odd")
    odd = next(resource for resource in source.page(None, 100)[0] if "%FF" in resource.uri)
    assert (odd.uri, odd.name) == ("file:///charts/%FF%0A%1B.md", "\\xff\\x0a\\x1b.md")
    assert source.read(odd.uri).contents[0].text == "odd"
    msgspec.json.encode(source.page(None, 100)[0])
    msgspec.json.encode(source.read(source.uri))


def test_absolute_uris_contain_the_real_path(charts: Path) -> None:
    source = files(charts, absolute_uris=True)
    assert source.uri == charts.as_uri()
    assert source.read((charts / "tides.csv").as_uri()).contents[0].mime_type == "text/csv"
    assert source.template == charts.as_uri() + "/{+path}"


def test_the_label_is_percent_encoded_in_uris(charts: Path) -> None:
    source = files(charts, label="Nord {see}")
    assert source.uri == "file:///Nord%20%7Bsee%7D"
    assert source.read(source.uri + "/README.md").contents[0].text
    assert files("/").label == "root"


def test_the_template_matches_every_file(source: Folder) -> None:
    assert [template.uri_template for template in source.templates] == [
        "file:///charts/{+path}",
        "file:///charts/{+path}{?pages}",
    ]
    template = UriTemplate(source.template)
    for resource in source.page(None, 100)[0][1:]:
        values = template.match(resource.uri)
        assert values is not None
        assert template.expand(values) == resource.uri


# Reading


@pytest.mark.parametrize(
    ("name", "data", "text", "mime_type"),
    [
        ("crlf.txt", b"a\r\nb\rc\n", "a\r\nb\rc\n", "text/plain"),
        ("mark.txt", b"\xef\xbb\xbfa", "\ufeffa", "text/plain"),
        ("empty.json", b"", "", "application/json"),
        ("main.rs", b"fn main() {}", "fn main() {}", "text/x-rust"),
        ("fake.png", b"text", "text", "text/plain"),
    ],
)
def test_text_is_served_unchanged(
    source: Folder, charts: Path, name: str, data: bytes, text: str, mime_type: str
) -> None:
    (charts / name).write_bytes(data)
    assert content(source, name) == t.ResourceContents(uri=f"{source.uri}/{name}", mime_type=mime_type, text=text)


@pytest.mark.parametrize(
    ("name", "data", "mime_type"),
    [
        ("a.txt", b"\x89PNG\r\n\x1a\n", "image/png"),
        ("nul.txt", b"a\0b", "application/octet-stream"),
        ("cyrillic.csv", "Паром".encode("koi8-r"), "text/csv"),
        ("a.pdf", b"%PDF-1.4\n%%EOF", "application/pdf"),
        ("a.bin", bytes(range(256)), "application/octet-stream"),
    ],
)
def test_other_files_are_served_as_blobs(source: Folder, charts: Path, name: str, data: bytes, mime_type: str) -> None:
    (charts / name).write_bytes(data)
    assert content(source, name) == t.ResourceContents(uri=f"{source.uri}/{name}", mime_type=mime_type, blob=data)


def test_utf16_is_decoded_and_reported(source: Folder, charts: Path) -> None:
    (charts / "wide.csv").write_bytes("port,höhe\r\n".encode("utf-16"))
    read = content(source, "wide.csv")
    assert (read.text, read.mime_type, read.meta) == ("port,höhe\r\n", "text/csv", {ENCODING: "utf-16-le"})


def test_legacy_encodings_are_decoded_and_reported_as_a_guess(source: Folder, charts: Path) -> None:
    (charts / "old.csv").write_bytes("port,höhe\r\n".encode("latin-1"))
    read = content(source, "old.csv")
    assert (read.text, read.mime_type) == ("port,höhe\r\n", "text/csv")
    assert read.meta == {ENCODING: "windows-1252", GUESSED: True}
    window = source.read(f"{source.uri}/old.csv?bytes=5-8").contents[0]
    assert window.text == "höhe" and window.meta is not UNSET and window.meta[GUESSED] is True


def test_the_answer_has_the_requested_uri(source: Folder) -> None:
    uri = f"{source.uri}/%52EADME.md"
    assert source.read(uri).contents[0].uri == uri
    assert source.stat(uri).uri == uri


def test_a_file_above_the_limit_is_read_as_its_first_window(charts: Path) -> None:
    source = files(charts, max_size=10)
    (charts / "ten.txt").write_text("0123456789")
    assert content(source, "ten.txt").text == "0123456789"
    (charts / "more.txt").write_text("0123\n" * 500_000)
    first, next_window = source.read(f"{source.uri}/more.txt").contents
    assert (first.text, first.uri) == ("0123\n" * 2_000, f"{source.uri}/more.txt")
    assert first.meta is not UNSET and first.meta[NEXT] == next_window.uri == f"{source.uri}/more.txt?bytes=10000-"
    assert source.read(next_window.uri).contents[0].text == "0123\n" * 2_000
    assert source.matches(next_window.uri)


def test_a_large_sparse_file_is_not_loaded(source: Folder, charts: Path) -> None:
    with (charts / "huge.bin").open("wb") as file:
        file.truncate(1 << 40)
    first = source.read(f"{source.uri}/huge.bin").contents[0]
    assert first.blob == bytes(256 << 10)
    assert first.meta is not UNSET
    assert first.meta[WINDOW] == {"begin": 0, "end": 256 << 10, "size": 1 << 40}
    assert source.stat(f"{source.uri}/huge.bin").size == 1 << 40
    assert source.read(f"{source.uri}/huge.bin?bytes={1 << 39}-{(1 << 39) + 9}").contents[0].blob == bytes(10)


@pytest.mark.parametrize(
    ("query", "text"), [("lines=2-2", "port\n"), ("bytes=2-5", "a\npo"), ("tail=1", "quay"), ("lines=3-", "quay")]
)
def test_a_file_is_read_in_windows_of_lines_bytes_and_tail(source: Folder, charts: Path, query: str, text: str) -> None:
    (charts / "a b?.txt").write_text("a a\nport\nquay")
    uri = f"{source.uri}/a%20b%3F.txt?{query}"
    assert source.read(uri).contents[0].text == text
    stat = source.stat(uri)
    assert (stat.uri, stat.size, stat.name) == (uri, UNSET, "a b?.txt")
    assert source.version(uri) == source.version(f"{source.uri}/a%20b%3F.txt")


@pytest.mark.parametrize("query", ["", "lines", "lines=2-1", "rows=1-2", "lines=9-", "bytes=99-"])
def test_an_invalid_window_is_refused(source: Folder, charts: Path, query: str) -> None:
    with pytest.raises(InvalidArgument, match=r"lines=|lines|bytes"):
        source.read(f"{source.uri}/README.md?{query}")


def test_windows_of_folders_and_missing_files_are_refused(source: Folder) -> None:
    with pytest.raises(InvalidArgument, match="folder"):
        source.read(f"{source.uri}/harbours?lines=1-2")
    for path in ("none.md", ".git/config", "../charts/README.md"):
        with pytest.raises(ResourceNotFound):
            source.read(f"{source.uri}/{path}?lines=1-2")


def test_a_large_blob_stays_in_its_file_until_it_is_sent(source: Folder, charts: Path) -> None:
    data = os.urandom(3 << 20)
    (charts / "large.bin").write_bytes(data)
    contents = source.read(f"{source.uri}/large.bin").contents[0]
    stored = t.find_stored_blob(contents)
    assert stored is not None
    assert len(stored) == len(data)
    (charts / "large.bin").unlink()
    assert stored.read(1_000_000, 5) == data[1_000_000:1_000_005]
    assert isinstance(stored.content, DuplicatedFile)
    descriptor = stored.content.descriptor
    os.fstat(descriptor)
    del stored
    contents.blob = UNSET
    gc.collect()
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(descriptor)


def test_the_version_changes_with_the_modification_time_and_the_content(source: Folder, charts: Path) -> None:
    uri = f"{source.uri}/README.md"
    before = source.version(uri)
    assert before == source.version(uri) == version_of(resources_by_uri(source)[uri])
    os.utime(charts / "README.md", (MODIFIED, MODIFIED))
    old = source.version(uri)
    (charts / "README.md").write_text("x" * (charts / "README.md").stat().st_size)
    os.utime(charts / "README.md", (MODIFIED, MODIFIED))
    assert len({before, old, source.version(uri)}) == 3  # the same size and time: ctime differs


def test_only_a_file_that_changed_long_ago_may_be_cached(source: Folder, charts: Path) -> None:
    os.utime(charts / "README.md", (MODIFIED, MODIFIED))
    old = source.read(f"{source.uri}/README.md")
    assert (old.ttl_ms, old.cache_scope) == (60_000, "public")
    (charts / "README.md").write_text("new")
    new = source.read(f"{source.uri}/README.md").ttl_ms
    assert new is not UNSET and new < 5_000
    directory = source.read(source.uri).ttl_ms
    assert directory is not UNSET and directory < 5_000


def test_the_line_index_of_a_file_that_grows_is_extended(source: Folder, charts: Path) -> None:
    line = b"2026-07-01 a line of a log that is not short\n"
    number = 100_000
    with (charts / "tides.log").open("wb") as file:
        file.write(line * number)
    uri = f"{source.uri}/tides.log"
    assert source.read(f"{uri}?lines={number}-").contents[0].text == line.decode()
    index = index_of(source, "tides.log")
    assert index.scanned > 3 << 20
    with (charts / "tides.log").open("ab") as file:
        file.write(b"last\n")
    assert source.read(f"{uri}?lines={number + 1}-").contents[0].text == "last\n"
    assert index_of(source, "tides.log") is index
    (charts / "tides.log").write_bytes(b"another\n" * 600_000)
    assert source.read(f"{uri}?lines=600000-").contents[0].text == "another\n"
    assert index_of(source, "tides.log") is not index


# Search


def test_documents_are_all_files_in_pages(source: Folder, charts: Path) -> None:
    found = []
    after: str | None = None
    while True:
        page, after = source.documents(after, 2)
        found += page
        if after is None:
            break
    assert [document.title for document in found] == [
        "README.md",
        "empty.txt",
        "tides.csv",
        "harbours/hull.ts",
        "harbours/north/buoy.png",
    ]
    for document in found:
        assert document.version == source.version(document.uri)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("höhe\n".encode(), "höhe\n"),
        ("höhe\n".encode("utf-16"), "höhe\n"),
        (b"a" * 300_000 + "é".encode() * 300_000, "a" * 300_000 + "é" * 300_000),
        (b"a" * 300_000 + b"\xff\0b", "a" * 300_000 + "\ufffd b"),
        (b"\x89PNG\r\n\x1a\n\0\0", ""),
        (b"%PDF-1.4\n", ""),
        (b"", ""),
    ],
)
def test_text_to_search_is_decoded_in_pieces(source: Folder, charts: Path, data: bytes, text: str) -> None:
    (charts / "x.txt").write_bytes(data)
    pieces = list(source.text(f"{source.uri}/x.txt"))
    assert "".join(pieces) == text
    assert all(len(piece) <= 300_000 for piece in pieces)


def test_the_text_of_a_missing_file_is_not_found(source: Folder) -> None:
    with pytest.raises(ResourceNotFound):
        list(source.text(f"{source.uri}/none"))


def test_describe_reports_the_number_of_files_and_how_they_are_watched(source: Folder, charts: Path) -> None:
    assert source.describe().startswith("5 files, ")
    assert "watched by" in source.describe()
    assert (source.name, source.uri, source.location) == ("charts", "file:///charts", str(charts))


def test_a_file_that_reports_a_wrong_size_is_read_to_its_end() -> None:
    source = files("/proc/self", label="proc", max_size=1 << 20)
    assert b"Name:" in (content(source, "status").text or "").encode()


def test_a_file_that_changes_during_a_read_is_read_or_not_found(charts: Path) -> None:
    source = files(charts, max_size=100_000)
    path = charts / "live.txt"
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            path.write_text("a" * 50_000)
            with path.open("a") as file:
                file.write("b" * 100_000)
            os.truncate(path, 10)
            path.unlink()

    writer = threading.Thread(target=write)
    writer.start()
    answers: set[str] = set()
    try:
        for _ in range(3_000):
            try:
                answers.add("text" if content(source, "live.txt").text is not UNSET else "blob")
            except (ResourceNotFound, InvalidArgument) as error:
                answers.add(type(error).__name__)
            source.page(None, 100)
            if len(answers) == 3:
                break
    finally:
        stop.set()
        writer.join()
    # It is a blob if the system returned zeros for the part that was being truncated.
    assert answers <= {"text", "blob", "ResourceNotFound", "InvalidArgument"}


# Directories


def test_a_directory_is_read_as_a_listing_and_one_content_for_each_child(source: Folder, charts: Path) -> None:
    for path in (charts / "harbours" / "hull.ts", charts / "harbours" / "north"):
        os.utime(path, (MODIFIED, MODIFIED))
    uri = f"{source.uri}/harbours"
    first, *others = source.read(uri).contents
    assert [without_version(first), *others] == [
        t.ResourceContents(
            uri=uri,
            mime_type="text/plain",
            text=(
                "charts/harbours/ holds 1 folder and 1 file.\n"
                "\n"
                f"north/  {uri}/north\n"
                f"hull.ts  (24 B, text/x-typescript, {MODIFIED_TEXT})  {uri}/hull.ts\n"
            ),
        ),
        t.ResourceContents(uri=f"{uri}/north", mime_type="inode/directory", text="", meta={SUMMARY: True}),
        t.ResourceContents(
            uri=f"{uri}/hull.ts", mime_type="text/plain", text="24 B text/x-typescript", meta={SUMMARY: True}
        ),
    ]


def list_like_vscode(source: Folder, directory: str) -> dict[str, str]:
    """List a directory as VS Code's file system does (its mcpResourceFilesystem: `_decodeURI`, `_readURI`, `readdir`).

    VS Code reads the URI without its trailing slash and skips contents that are not below it. Contents that are deeper
    or empty count as directories.
    """
    uri = directory.rstrip("/")
    parent = urlsplit(uri).path.split("/")
    entries: dict[str, str] = {}
    for part in source.read(uri).contents:
        path = unquote(urlsplit(part.uri).path).split("/")
        if len(path) <= len(parent) or [name.lower() for name in path[: len(parent)]] != [
            name.lower() for name in parent
        ]:
            continue
        size = len((part.text or "").encode() if part.text is not UNSET else part.blob or b"")
        name = path[len(parent)]
        entries[name] = "directory" if len(path) > len(parent) + 1 or not size else "file"
    return entries


def test_vscode_shows_a_large_file_with_the_notice_of_the_next_window(charts: Path) -> None:
    """The `_readURI` of VS Code joins all contents that have the path of the URI, with any query."""
    (charts / "tides.log").write_text("high\n" * 100_000)
    source = files(charts, max_size=100_000)
    uri = f"{source.uri}/tides.log"
    parts = [part for part in source.read(uri).contents if urlsplit(part.uri).path == urlsplit(uri).path]
    text = "".join(str(part.text) for part in parts)
    assert text == "high\n" * 2_000 + (
        f"\n[Bytes 0-9,999 of 500,000, lines 1-2,000. To continue, read {uri}?bytes=10000-]\n"
    )


def test_vscode_distinguishes_files_and_directories(source: Folder, charts: Path) -> None:
    assert list_like_vscode(source, f"{source.uri}/") == {
        "harbours": "directory", "README.md": "file", "empty.txt": "file", "tides.csv": "file",
    }  # fmt: skip
    assert list_like_vscode(source, f"{source.uri}/harbours/") == {"north": "directory", "hull.ts": "file"}


def test_vscode_can_open_a_directory_as_a_document(source: Folder) -> None:
    """The `_readFile` of VS Code uses the first content with the requested URI."""
    uri = f"{source.uri}/harbours"
    assert [part.uri for part in source.read(uri).contents].count(uri) == 1
    assert [part.uri for part in source.read(uri + "/").contents].count(uri + "/") == 1


def test_a_trailing_slash_changes_only_the_uri(source: Folder) -> None:
    for path in ("", "/harbours"):
        plain, slashed = source.read(source.uri + path).contents, source.read(f"{source.uri}{path}/").contents
        assert slashed[0].uri == f"{source.uri}{path}/"
        assert [part.text for part in slashed] == [part.text for part in plain]
        assert slashed[1:] == plain[1:]


def test_a_directory_with_too_many_entries_is_truncated_and_reported(source: Folder, charts: Path) -> None:
    many = charts / "many"
    many.mkdir()
    create_files(many, [f"{number:04d}.txt" for number in range(MAX_CHILDREN + 5)])
    contents = source.read(f"{source.uri}/many").contents
    assert len(contents) == MAX_CHILDREN + 1
    assert "Only the first 1,000 entries follow." in str(contents[0].text)


def test_an_empty_directory_has_a_nonempty_answer(source: Folder, charts: Path) -> None:
    (charts / "void").mkdir()
    assert [part.text for part in source.read(f"{source.uri}/void").contents] == [
        "charts/void/ holds 0 folders and 0 files.\n"
    ]


def test_children_are_paged_with_directories_first(source: Folder) -> None:
    names, key = [], None
    while True:
        page, key = source.children(source.uri, key, 1)
        names += [resource.name for resource in page]
        if key is None:
            break
    assert names == ["harbours", "README.md", "empty.txt", "tides.csv"]
    with pytest.raises(ResourceNotFound):
        source.children(f"{source.uri}/README.md")


def test_a_root_that_vanished_is_unavailable_and_not_empty(source: Folder, charts: Path) -> None:
    charts.rename(charts.with_name("moved"))
    for call in (
        lambda: source.page(None, 10),
        lambda: source.documents(None, 10),
        lambda: source.read(source.uri),
        lambda: source.stat(f"{source.uri}/README.md"),
        lambda: source.children(source.uri),
        source.describe,
    ):
        with pytest.raises(SourceUnavailable, match="The folder 'charts' was moved or removed"):
            call()
    charts.with_name("moved").rename(charts)
    assert source.read(source.uri).contents


# Completion


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ["harbours/", "README.md", "empty.txt", "tides.csv"]),
        ("h", ["harbours/", "harbours/hull.ts", "harbours/north/"]),
        ("READ", ["README.md"]),
        ("read", ["README.md"]),
        ("ides", ["tides.csv"]),
        ("harbours/", ["harbours/north/", "harbours/hull.ts"]),
        ("harbours/nor", ["harbours/north/"]),
        ("harbours/buoy", ["harbours/north/buoy.png"]),
        ("buoy", ["harbours/north/buoy.png"]),
        ("nothing", []),
        ("nowhere/x", []),
        ("../", []),
        ("%zz/x", []),
        ("%zz", []),
    ],
)
def test_paths_are_completed_by_directory_and_then_by_any_part_of_the_name(
    source: Folder, value: str, expected: list[str]
) -> None:
    assert source.complete(source.template, "path", value, {}) == expected


def test_a_completion_expands_to_a_readable_uri(source: Folder, charts: Path) -> None:
    for name in ("a b?.txt", "100%41.txt", "ü#.txt"):
        (charts / name).write_text(name)
    for value in source.complete(source.template, "path", "", {})[1:]:
        uri = UriTemplate(source.template).expand({"path": value})
        assert source.read(uri).contents
    assert source.complete(source.template, "path", "a b", {}) == ["a%20b%3F.txt"]
    assert source.complete(source.template, "path", "a%20b", {}) == ["a%20b%3F.txt"]


def test_completions_are_bounded_and_only_for_the_path(source: Folder, charts: Path) -> None:
    create_files(charts, [f"n{number:03d}.txt" for number in range(150)])
    assert len(source.complete(source.template, "path", "n", {})) == 101  # one more than the server returns
    assert len(source.complete(source.template, "path", ".txt", {})) == 101
    assert source.complete(source.template, "other", "n", {}) == []


@given(st.text(max_size=20))
def test_completion_accepts_any_text(value: str) -> None:
    source = files(Path(__file__).parent)
    source.complete(source.template, "path", value, {})


# Counting


def test_a_count_reports_published_and_unpublished_files(publish: Callable[..., Folder], charts: Path) -> None:
    (charts / ".gitignore").write_text("*.log\nout/\n")
    (charts / "a.log").touch()
    (charts / "out").mkdir()
    (charts / "out" / "b.txt").touch()
    (charts / ".hidden").touch()
    (charts / "id_rsa").touch()
    count = publish(charts, exclude=["tides.*"]).count()
    assert (count.files, count.directories, count.complete) == (4, 3, True)
    assert str(count) == "4 files, 72 B (2 ignored by .gitignore, 2 hidden, 1 credential-like, 1 excluded)"


def test_a_count_that_exceeds_its_time_is_reported_as_incomplete(source: Folder, charts: Path) -> None:
    create_files(charts, [f"{number}.txt" for number in range(300)])
    count = source.count(seconds=-1)
    assert not count.complete
    assert str(count).startswith("more than 254 files, ")  # the 256th entry; the others are the folder and this one


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (2150, "2.1 KiB"), (38 << 20, "38 MiB"), (1 << 50, "1024 TiB")]
)
def test_sizes_are_formatted_with_units(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("seconds", [1e30, -1e30, float(1 << 62)])
def test_an_invalid_time_is_formatted_as_empty(seconds: float) -> None:
    assert iso(seconds) == ""
