"""Entries that are not files are neither listed nor read, and the files are still served."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from tests.sources.conftest import without_privileges
from wharfinger import Client, Server
from wharfinger.errors import ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import Source
from wharfinger.sources.folder.source import Folder, files
from wharfinger.sources.windows.window import WINDOW

CreateEntry = Callable[[Path], None]


def create_fifo(path: Path) -> None:
    os.mkfifo(path)


def create_socket(path: Path) -> None:
    previous_directory = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    try:
        with closing(socket.socket(socket.AF_UNIX)) as server:
            server.bind(path.name)
    finally:
        os.chdir(previous_directory)


def create_device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("only root can create devices")


def create_loop(path: Path) -> None:
    path.symlink_to(path.parent)


def create_dangling_link(path: Path) -> None:
    path.symlink_to("nothing")


def listed_paths(source: Folder) -> set[str]:
    return {resource.uri.removeprefix(f"{source.uri}/") for resource in source.page(None, 1_000)[0]}


@pytest.mark.parametrize("create", [create_fifo, create_socket, create_device, create_loop, create_dangling_link])
@pytest.mark.parametrize("name", ["odd.md", "aaa", ".gitignore"])
def test_an_entry_that_is_not_a_file_is_neither_listed_nor_read(
    source: Folder, charts: Path, create: CreateEntry, name: str
) -> None:
    """Among the names are a Markdown file, whose heading a list would read, and an ignore file."""
    before = listed_paths(source)
    create(charts / name)
    assert listed_paths(source) == before
    assert [child.name for child in source.children(source.uri)[0]] == [
        "harbours", "README.md", "empty.txt", "tides.csv"
    ]  # fmt: skip
    for request in (source.read, source.stat, source.children, lambda uri: list(source.text(uri))):
        with pytest.raises(ResourceNotFound):
            request(f"{source.uri}/{name}")
    assert source.read(f"{source.uri}/README.md").contents[0].text
    assert source.read(source.uri).contents[0].text
    assert source.count().files == 5
    assert [hit.title for hit in search_documents(source, "fathoms", 5)] == ["README.md"]
    assert source.complete(source.template, "path", name, {}) == []


def test_a_file_of_ten_gib_is_listed_described_searched_and_read_in_windows(source: Folder, charts: Path) -> None:
    size = 10 << 30
    with (charts / "huge.md").open("wb") as file:
        file.write(b"# Huge\n\nfathoms\n")
        file.truncate(size)
    resource = source.stat(f"{source.uri}/huge.md")
    assert resource.size == size
    assert resource in source.page(None, 100)[0]
    contents = source.read(f"{source.uri}/huge.md").contents[0]
    assert contents.meta is not msgspec.UNSET
    assert contents.meta[WINDOW] == {"begin": 0, "end": 256 << 10, "size": size}
    assert source.read(f"{source.uri}/huge.md?bytes={size - 4}-{size + 9}").contents[0].blob == bytes(4)
    (charts / "huge.txt").write_bytes(b"fathoms " * 8)
    os.truncate(charts / "huge.txt", size)
    assert "README.md" in [hit.title for hit in search_documents(source, "fathoms", 5)]


@pytest.mark.parametrize(
    "name", [b"\xff\xfe.md", b"\xc3.md", b"a\nb.md", b"\x1b[31m.md", "\N{RIGHT-TO-LEFT OVERRIDE}.md".encode()]
)
def test_a_file_with_an_unprintable_name_is_listed_described_read_and_found(
    source: Folder, charts: Path, name: bytes
) -> None:
    with open(os.path.join(os.fsencode(charts), name), "wb") as file:
        file.write(b"# Odd\n\nquoins\n")
    (odd,) = [resource for resource in source.page(None, 100)[0] if resource.description == "Odd"]
    assert odd.name.isprintable() and odd.uri.isascii()
    assert source.read(odd.uri).contents[0].text == "# Odd\n\nquoins\n"
    msgspec.json.encode((source.page(None, 100)[0], source.read(source.uri)))
    assert [hit.uri for hit in search_documents(source, "quoins", 5)] == [odd.uri]


@pytest.fixture
def open_charts(charts: Path) -> Path:
    """The folder, readable for everyone."""
    for directory in (charts, *charts.parents):
        with suppress(PermissionError):
            directory.chmod(directory.stat().st_mode | 0o555)
    return charts


@pytest.mark.parametrize("mode", [0, 0o111, 0o444])
def test_a_directory_without_permissions_does_not_hide_other_files(open_charts: Path, mode: int) -> None:
    """The modes allow nothing, only entering, and only listing."""
    closed = open_charts / "closed"
    closed.mkdir()
    (closed / "in.md").write_text("# In\n")
    (open_charts / "locked.md").write_text("# Locked\n")
    (open_charts / "locked.md").chmod(0)
    source = files(open_charts)
    closed.chmod(mode)
    try:
        with without_privileges():
            names = {path for path in listed_paths(source) if path != "locked.md"}
            assert names - {"closed", "closed/in.md"} == {
                source.uri, "README.md", "empty.txt", "tides.csv", "harbours", "harbours/hull.ts", "harbours/north",
                "harbours/north/buoy.png",
            }  # fmt: skip
            with pytest.raises(ResourceNotFound):
                source.read(f"{source.uri}/locked.md")
            if mode != 0o111:
                with pytest.raises(ResourceNotFound):
                    source.read(f"{source.uri}/closed/in.md")
            assert source.read(source.uri).contents[0].text
            assert [hit.title for hit in search_documents(source, "fathoms", 5)] == ["README.md"]
    finally:
        closed.chmod(0o755)


def test_a_folder_that_became_unreadable_is_empty_and_its_files_are_not_found(open_charts: Path) -> None:
    source = files(open_charts)
    open_charts.chmod(0)
    try:
        with without_privileges():
            assert source.page(None, 10) == ([], None)
            for uri in (source.uri, f"{source.uri}/README.md"):
                with pytest.raises(ResourceNotFound):
                    source.read(uri)
    finally:
        open_charts.chmod(0o755)
    assert source.read(f"{source.uri}/README.md").contents[0].text


class FailingSource(Source):
    """A source whose methods all fail, as on a damaged disk."""

    name, uri = "broken", "broken://disk"

    def matches(self, uri: str) -> bool:
        return uri.startswith(self.uri)

    def page(self, after: str | None, limit: int) -> object:  # type: ignore[override]
        raise OSError(5, "Input/output error")

    read = stat = children = search = page  # type: ignore[assignment]


async def test_a_failing_source_does_not_affect_other_sources(charts: Path) -> None:
    server = Server("harbour")
    server.include(FailingSource())
    server.include(files(charts))
    async with Client(server) as client:
        uris = [resource.uri async for resource in client.list_resources()]
        assert "file:///charts/README.md" in uris
        assert (await client.read_resource("file:///charts/README.md")).text == "# Charts\n\nSoundings in fathoms.\n"
