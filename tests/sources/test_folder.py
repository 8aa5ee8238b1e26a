"""A folder as resources: what is listed, read, completed and counted."""

from __future__ import annotations

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

from tests.sources.conftest import many_names
from wharfinger import types as t
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.uri_template import UriTemplate
from wharfinger.sources import folder
from wharfinger.sources.folder import CHILDREN, ENCODING, SUMMARY, Folder, files, size_text

MODIFIED = 1_700_000_000
AS_TEXT = "2023-11-14T22:13:20Z"


def content(source: Folder, path: str) -> t.ResourceContents:
    return source.read(f"{source.uri}/{path}").contents[0]


# Listing


def test_a_file_is_listed_with_all_that_is_known_of_it(source: Folder, charts: Path) -> None:
    os.utime(charts / "harbours" / "hull.ts", (MODIFIED, MODIFIED))
    os.utime(charts / "harbours", (MODIFIED, MODIFIED))
    listed = {resource.uri: resource for resource in source.page(None, 100)[0]}
    assert listed["file:///charts/harbours/hull.ts"] == t.Resource(
        uri="file:///charts/harbours/hull.ts",
        name="hull.ts",
        title="harbours/hull.ts",
        mime_type="text/x-typescript",
        size=24,
        annotations=t.Annotations(last_modified=AS_TEXT),
    )
    assert listed["file:///charts/harbours"] == t.Resource(
        uri="file:///charts/harbours",
        name="harbours",
        title="harbours",
        mime_type="inode/directory",
        annotations=t.Annotations(last_modified=AS_TEXT),
    )
    assert listed["file:///charts"].name == "charts"
    assert len(listed) == 8


def test_a_name_without_a_known_ending_is_listed_by_its_first_bytes(source: Folder, charts: Path) -> None:
    (charts / "picture").write_bytes(b"\x89PNG\r\n\x1a\n")
    (charts / "script").write_text("#!/bin/sh\n")
    (charts / "noise").write_bytes(b"\xff\0")
    assert [source.stat(f"{source.uri}/{name}").mime_type for name in ("picture", "script", "noise")] == [
        "image/png",
        "text/x-shellscript",
        "application/octet-stream",
    ]


def test_stat_tells_what_the_list_tells(source: Folder) -> None:
    for resource in source.page(None, 100)[0]:
        assert source.stat(resource.uri) == resource


def test_pages_end_with_the_last_resource(source: Folder) -> None:
    page, key = source.page(None, 8)
    assert (len(page), key) == (8, None)
    page, key = source.page(None, 7)
    assert key is not None
    assert [resource.name for resource in source.page(key, 7)[0]] == ["buoy.png"]


def test_a_key_that_is_none_is_an_invalid_argument(source: Folder) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        source.page("nonsense", 5)
    with pytest.raises(InvalidArgument, match="cursor"):
        source.children(source.uri, "nonsense")


def test_names_that_are_not_text_are_listed_read_and_shown(source: Folder, charts: Path) -> None:
    with open(os.fsencode(charts) + b"/\xff\n\x1b.md", "w") as file:
        file.write("odd")
    odd = next(resource for resource in source.page(None, 100)[0] if "%FF" in resource.uri)
    assert (odd.uri, odd.name) == ("file:///charts/%FF%0A%1B.md", "\\xff\\x0a\\x1b.md")
    assert source.read(odd.uri).contents[0].text == "odd"
    msgspec.json.encode(source.page(None, 100)[0])
    msgspec.json.encode(source.read(source.uri))


def test_uris_may_be_the_real_paths(charts: Path) -> None:
    source = files(charts, absolute_uris=True)
    assert source.uri == charts.as_uri()
    assert source.read((charts / "tides.csv").as_uri()).contents[0].mime_type == "text/csv"
    assert source.template == charts.as_uri() + "/{+path}"


def test_the_label_is_written_as_a_uri_wants(charts: Path) -> None:
    source = files(charts, label="Nord {see}")
    assert source.uri == "file:///Nord%20%7Bsee%7D"
    assert source.read(source.uri + "/README.md").contents[0].text
    assert files("/").label == "root"


def test_a_template_reaches_every_file(source: Folder) -> None:
    assert [template.uri_template for template in source.templates] == ["file:///charts/{+path}"]
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
        ("latin.csv", b"F\xe4hre", "text/csv"),
        ("a.pdf", b"%PDF-1.4\n%%EOF", "application/pdf"),
        ("a.bin", bytes(range(256)), "application/octet-stream"),
    ],
)
def test_anything_else_is_served_as_its_bytes(
    source: Folder, charts: Path, name: str, data: bytes, mime_type: str
) -> None:
    (charts / name).write_bytes(data)
    assert content(source, name) == t.ResourceContents(uri=f"{source.uri}/{name}", mime_type=mime_type, blob=data)


def test_utf16_is_decoded_and_told(source: Folder, charts: Path) -> None:
    (charts / "wide.csv").write_bytes("port,höhe\r\n".encode("utf-16"))
    read = content(source, "wide.csv")
    assert (read.text, read.mime_type, read.meta) == ("port,höhe\r\n", "text/csv", {ENCODING: "utf-16-le"})


def test_the_answer_carries_the_uri_that_was_asked_for(source: Folder) -> None:
    uri = f"{source.uri}/%52EADME.md"
    assert source.read(uri).contents[0].uri == uri
    assert source.stat(uri).uri == uri


def test_a_file_above_the_limit_is_refused_with_the_limit_and_the_setting(charts: Path) -> None:
    source = files(charts, max_size=10)
    (charts / "ten.txt").write_text("0123456789")
    assert content(source, "ten.txt").text == "0123456789"
    (charts / "eleven.txt").write_text("0123456789x")
    with pytest.raises(InvalidArgument, match=r"11 B.*10 B.*max_size=10") as caught:
        content(source, "eleven.txt")
    assert caught.value.data == {"uri": f"{source.uri}/eleven.txt", "size": 11, "limit": 10}


def test_a_large_sparse_file_is_refused_without_being_read(source: Folder, charts: Path) -> None:
    with (charts / "huge.bin").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidArgument, match=r"1\.0 TiB"):
        content(source, "huge.bin")
    assert source.stat(f"{source.uri}/huge.bin").size == 1 << 40


def test_a_file_whose_size_is_a_lie_is_read_to_its_end() -> None:
    source = files("/proc/self", label="proc", max_size=1 << 20)
    assert b"Name:" in (content(source, "status").text or "").encode()


def test_a_file_that_grows_shrinks_and_vanishes_while_it_is_read_is_answered(charts: Path) -> None:
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
    assert answers <= {"text", "ResourceNotFound", "InvalidArgument"}


# Directories


def test_a_directory_is_read_as_a_listing_and_one_content_for_each_child(source: Folder, charts: Path) -> None:
    for path in (charts / "harbours" / "hull.ts", charts / "harbours" / "north"):
        os.utime(path, (MODIFIED, MODIFIED))
    uri = f"{source.uri}/harbours"
    assert source.read(uri).contents == [
        t.ResourceContents(
            uri=uri,
            mime_type="text/plain",
            text=(
                "charts/harbours/ holds 1 folder and 1 file.\n"
                "\n"
                f"north/  {uri}/north\n"
                f"hull.ts  (24 B, text/x-typescript, {AS_TEXT})  {uri}/hull.ts\n"
            ),
        ),
        t.ResourceContents(uri=f"{uri}/north", mime_type="inode/directory", text="", meta={SUMMARY: True}),
        t.ResourceContents(
            uri=f"{uri}/hull.ts", mime_type="text/plain", text="24 B text/x-typescript", meta={SUMMARY: True}
        ),
    ]


def as_vscode(source: Folder, directory: str) -> dict[str, str]:
    """What VS Code's file system makes of a directory (its mcpResourceFilesystem: `_decodeURI`, `_readURI`, `readdir`).

    It reads without the slash at the end, skips what is not below, and takes what is deeper or has no bytes for a
    directory.
    """
    asked = directory.rstrip("/")
    above = urlsplit(asked).path.split("/")
    entries: dict[str, str] = {}
    for part in source.read(asked).contents:
        path = unquote(urlsplit(part.uri).path).split("/")
        if len(path) <= len(above) or [name.lower() for name in path[: len(above)]] != [name.lower() for name in above]:
            continue
        size = len((part.text or "").encode() if part.text is not UNSET else part.blob or b"")
        name = path[len(above)]
        entries[name] = "directory" if len(path) > len(above) + 1 or not size else "file"
    return entries


def test_vscode_sees_files_and_directories_as_what_they_are(source: Folder, charts: Path) -> None:
    assert as_vscode(source, f"{source.uri}/") == {
        "harbours": "directory", "README.md": "file", "empty.txt": "file", "tides.csv": "file",
    }  # fmt: skip
    assert as_vscode(source, f"{source.uri}/harbours/") == {"north": "directory", "hull.ts": "file"}


def test_vscode_can_open_a_directory_as_a_document(source: Folder) -> None:
    """Its `_readFile` takes the first content of the URI it asked for."""
    uri = f"{source.uri}/harbours"
    assert [part.uri for part in source.read(uri).contents].count(uri) == 1
    assert [part.uri for part in source.read(uri + "/").contents].count(uri + "/") == 1


def test_a_slash_at_the_end_changes_nothing_but_the_uri(source: Folder) -> None:
    for path in ("", "/harbours"):
        plain, slashed = source.read(source.uri + path).contents, source.read(f"{source.uri}{path}/").contents
        assert slashed[0].uri == f"{source.uri}{path}/"
        assert [part.text for part in slashed] == [part.text for part in plain]
        assert slashed[1:] == plain[1:]


def test_a_directory_with_too_many_entries_says_so(source: Folder, charts: Path) -> None:
    many = charts / "many"
    many.mkdir()
    many_names(many, [f"{number:04d}.txt" for number in range(CHILDREN + 5)])
    contents = source.read(f"{source.uri}/many").contents
    assert len(contents) == CHILDREN + 1
    assert "Only the first 1,000 of 1,005 entries follow." in str(contents[0].text)


def test_an_empty_directory_is_no_empty_answer(source: Folder, charts: Path) -> None:
    (charts / "void").mkdir()
    assert [part.text for part in source.read(f"{source.uri}/void").contents] == [
        "charts/void/ holds 0 folders and 0 files.\n"
    ]


def test_children_come_in_pages_directories_first(source: Folder) -> None:
    names, key = [], None
    while True:
        page, key = source.children(source.uri, key, 1)
        names += [resource.name for resource in page]
        if key is None:
            break
    assert names == ["harbours", "README.md", "empty.txt", "tides.csv"]
    with pytest.raises(ResourceNotFound):
        source.children(f"{source.uri}/README.md")


def test_a_root_that_vanished_is_not_found_and_lists_nothing(source: Folder, charts: Path) -> None:
    charts.rename(charts.with_name("moved"))
    assert source.page(None, 10) == ([], None)
    with pytest.raises(ResourceNotFound):
        source.read(source.uri)
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
def test_paths_complete_by_directory_then_by_any_part_of_the_name(
    source: Folder, value: str, expected: list[str]
) -> None:
    assert source.complete(source.template, "path", value, {}) == expected


def test_a_completion_can_be_put_into_the_template(source: Folder, charts: Path) -> None:
    for name in ("a b?.txt", "100%41.txt", "ü#.txt"):
        (charts / name).write_text(name)
    for value in source.complete(source.template, "path", "", {})[1:]:
        uri = UriTemplate(source.template).expand({"path": value})
        assert source.read(uri).contents
    assert source.complete(source.template, "path", "a b", {}) == ["a%20b%3F.txt"]
    assert source.complete(source.template, "path", "a%20b", {}) == ["a%20b%3F.txt"]


def test_completions_are_bounded_and_only_for_the_path(source: Folder, charts: Path) -> None:
    many_names(charts, [f"n{number:03d}.txt" for number in range(150)])
    assert len(source.complete(source.template, "path", "n", {})) == 100
    assert len(source.complete(source.template, "path", ".txt", {})) == 100
    assert source.complete(source.template, "other", "n", {}) == []


@given(st.text(max_size=20))
def test_completion_survives_whatever_is_typed(value: str) -> None:
    source = files(Path(__file__).parent)
    source.complete(source.template, "path", value, {})


# Counting


def test_a_count_tells_what_is_published_and_what_is_not(publish: Callable[..., Folder], charts: Path) -> None:
    (charts / ".gitignore").write_text("*.log\nout/\n")
    (charts / "a.log").touch()
    (charts / "out").mkdir()
    (charts / "out" / "b.txt").touch()
    (charts / ".hidden").touch()
    (charts / "id_rsa").touch()
    counted = publish(charts, exclude=["tides.*"]).count()
    assert (counted.files, counted.directories, counted.complete) == (4, 3, True)
    assert str(counted) == "4 files, 72 B (2 ignored by .gitignore, 2 hidden, 1 like credentials, 1 excluded)"


def test_a_count_that_ran_out_of_time_says_so(source: Folder, charts: Path) -> None:
    many_names(charts, [f"{number}.txt" for number in range(300)])
    counted = source.count(seconds=-1)
    assert not counted.complete
    assert str(counted).startswith("more than 256 files, ")


@pytest.mark.parametrize(
    ("octets", "text"), [(0, "0 B"), (1023, "1023 B"), (2150, "2.1 KiB"), (38 << 20, "38 MiB"), (1 << 50, "1024 TiB")]
)
def test_sizes_are_written_for_people(octets: int, text: str) -> None:
    assert size_text(octets) == text


@pytest.mark.parametrize("seconds", [1e30, -1e30, float(1 << 62)])
def test_a_time_that_is_none_is_left_out(seconds: float) -> None:
    assert folder._iso(seconds) == ""
