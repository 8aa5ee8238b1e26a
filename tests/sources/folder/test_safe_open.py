"""Only regular files below the root are opened (security: R01 to R22)."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from tests.sources.conftest import without_privileges
from wharfinger.errors import ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.sources.folder.safe_open import (
    NotServed,
    missing_as_not_served,
    open_directory,
    open_root,
    open_with_status,
)
from wharfinger.sources.folder.source import Folder, files

SECRET = "outside the wharf"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory with a secret beside the folder. Its name begins with the name of the folder."""
    folder = tmp_path / "charts-private"
    folder.mkdir()
    (folder / "ledger.txt").write_text(SECRET)
    return folder


def assert_not_found(source: Folder, uri: str) -> None:
    """Assert that every request gets the same error as for a file that never existed."""
    for request in (source.read, source.stat, source.children):
        with pytest.raises(ResourceNotFound) as raised:
            request(uri)
        assert (str(raised.value), raised.value.uri) == (str(ResourceNotFound(uri)), uri)


@pytest.mark.parametrize(
    "path",
    [
        "../charts-private/ledger.txt", "%2e%2e/charts-private/ledger.txt", "..%2fcharts-private%2fledger.txt",
        "%252e%252e/charts-private/ledger.txt", "harbours/../../charts-private/ledger.txt",
        "..\\charts-private\\ledger.txt", "%5c..%5ccharts-private%5cledger.txt", "..%5ccharts-private/ledger.txt",
        "/etc/passwd", "//etc/passwd", "C:/Windows/win.ini", "C%3A%5CWindows", "\\\\host\\share", "file:///etc/passwd",
        "%2fetc%2fpasswd", "README.md%00.png", "README.md\0", "%c0%ae%c0%ae/charts-private/ledger.txt",
        "\uff0e\uff0e/charts-private/ledger.txt", "~/.bashrc", "$HOME", "*.md", "README.md/", "README.md/x",
        "README.md#x", "readme.md", "CON", "README.md.", "README.md::$DATA", "./README.md", "%zz",
        "README.md%", "x" * 300, "x/" * 5000, "a" * 40_000, "\ud800",
    ],
)  # fmt: skip
def test_no_manipulated_path_reads_outside_the_folder(source: Folder, outside: Path, path: str) -> None:
    assert_not_found(source, f"{source.uri}/{path}")


@pytest.mark.parametrize(
    "uri",
    [
        "file:///charts-private/ledger.txt", "file:///chartsREADME.md", "file://host/charts/README.md",
        "file://user@/charts/README.md", "FILE:///charts/README.md", "file:/charts/README.md", "http://charts/README.md",
        "file:///CHARTS/README.md", "file:///%63harts/README.md", "", "charts", "file:///",
    ],
)  # fmt: skip
def test_no_manipulated_uri_prefix_reads_outside_the_folder(source: Folder, outside: Path, uri: str) -> None:
    assert not source.matches(uri)
    assert_not_found(source, uri)


def test_symbolic_links_are_not_followed(source: Folder, charts: Path, outside: Path) -> None:
    (charts / "file").symlink_to(outside / "ledger.txt")
    (charts / "directory").symlink_to(outside)
    (charts / "inside.md").symlink_to("README.md")
    (charts / "loop").symlink_to("loop")
    (charts / "self").symlink_to(".")
    (charts / "zero").symlink_to("/dev/zero")
    (charts / "proc").symlink_to("/proc/self")
    for path in (
        "file",
        "directory",
        "directory/ledger.txt",
        "inside.md",
        "loop",
        "self",
        "self/README.md",
        "zero",
        "proc/environ",
    ):
        assert_not_found(source, f"{source.uri}/{path}")
    uris = [resource.uri for resource in source.page(None, 100)[0]]
    assert not [uri for uri in uris if uri.endswith(("file", "directory", "inside.md", "loop", "self", "zero", "proc"))]


def test_a_fifo_a_socket_and_a_device_are_refused_at_once(source: Folder, charts: Path) -> None:
    os.mkfifo(charts / "fifo")
    server = socket.socket(socket.AF_UNIX)
    previous_directory = os.getcwd()
    os.chdir(charts)  # the path of a socket has at most 107 bytes
    try:
        server.bind("socket")
    finally:
        os.chdir(previous_directory)
    with suppress(PermissionError):
        os.mknod(charts / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    for name in ("fifo", "socket", "device"):
        for _ in range(45):
            assert_not_found(source, f"{source.uri}/{name}")
    server.close()
    assert source.read(f"{source.uri}/README.md").contents[0].text


def test_a_fifo_that_replaces_a_file_does_not_hang(charts: Path) -> None:
    """A FIFO may replace the file after its type was checked. An open that waits for a writer would never return."""
    os.mkfifo(charts / "fifo")
    root = open_root(str(charts))
    for was_regular in (False, True):
        with pytest.raises(NotServed), missing_as_not_served():
            open_with_status(root, "fifo", was_regular=was_regular)
    assert isinstance(root, int)
    os.close(root)


def test_a_link_is_not_opened_as_a_directory(charts: Path, outside: Path) -> None:
    (charts / "link").symlink_to(outside)
    root = open_root(str(charts))
    assert isinstance(root, int)
    with pytest.raises(NotServed), missing_as_not_served():
        open_directory(root, "link")
    os.close(root)


@pytest.mark.parametrize("batched", [False, True])
def test_a_directory_swapped_for_a_link_during_reads_exposes_no_file_outside(
    charts: Path, outside: Path, batched: bool
) -> None:
    """Security: R19. The path is opened component by component without a prior check, so there is no race.

    This also holds for a batch of reads, which opens each directory once.
    """
    (charts / "swapped").mkdir()
    (charts / "swapped" / "ledger.txt").write_text("inside")
    source = files(charts)
    uri = f"{source.uri}/swapped/ledger.txt"
    stop, was_read = threading.Event(), threading.Semaphore(0)

    def swap() -> None:
        while not stop.is_set():
            for _ in range(20):
                os.rename(charts / "swapped", charts / "aside")
                os.symlink(outside, charts / "swapped")
                os.unlink(charts / "swapped")
                os.rename(charts / "aside", charts / "swapped")
            was_read.acquire()  # one read must succeed, however the threads are scheduled

    swapper = threading.Thread(target=swap, daemon=True)
    swapper.start()
    results: set[str] = set()
    try:
        for attempt in range(4_000):
            with source.batch() if batched else nullcontext():
                for _ in range(2 if batched else 1):
                    try:
                        results.add(str(source.read(uri).contents[0].text))
                        was_read.release()
                    except ResourceNotFound:
                        results.add("not found")
            if len(results) == 2 and attempt > 1_500:
                break
            for hit in source.page(None, 100)[0] if attempt % 50 == 0 else ():
                assert "private" not in hit.uri
    finally:
        stop.set()
        was_read.release()
        swapper.join(20)
    assert results <= {"inside", "not found"}
    assert "inside" in results


def test_files_without_permission_are_not_found() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        root.chmod(0o755)
        (root / "open.txt").write_text("x")
        (root / "locked.txt").write_text("x")
        (root / "closed").mkdir()
        (root / "closed" / "in.txt").write_text("x")
        (root / "locked.txt").chmod(0)
        (root / "closed").chmod(0)
        source = files(root)
        try:
            with without_privileges():
                assert_not_found(source, f"{source.uri}/locked.txt")
                assert_not_found(source, f"{source.uri}/closed")
                assert_not_found(source, f"{source.uri}/closed/in.txt")
                names = [resource.name for resource in source.page(None, 100)[0]]
                assert names == [source.label, "locked.txt", "open.txt"]
        finally:
            (root / "closed").chmod(0o700)


def test_an_unexpected_error_about_a_file_is_not_hidden() -> None:
    with pytest.raises(OSError, match="5"), missing_as_not_served():
        raise OSError(5, "5: the disk is broken")


def test_no_descriptor_is_left_open(source: Folder, charts: Path) -> None:
    (charts / "link").symlink_to("/")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("", "/README.md", "/harbours/north", "/nothing", "/link", "/harbours/nothing/x", "/README.md/x"):
        for request in (source.read, source.stat, source.children):
            with suppress(ResourceNotFound):
                request(source.uri + path)
            with suppress(ResourceNotFound), source.batch():
                request(source.uri + path)
                request(source.uri + path)
    source.page(None, 2)
    source.count()
    search_documents(source, "depth", 5)
    assert len(os.listdir("/proc/self/fd")) == before
