"""The published folder of a server process, which may change during requests (R rows)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.security.server_processes import (
    MIB,
    HttpProcess,
    StdioProcess,
    heavy,
    read_file,
    read_over_http,
    stateless_request,
)


@contextmanager
def repeat_in_thread(change: Callable[[], None]) -> Iterator[None]:
    """Repeat an action in a thread until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            with suppress(OSError):
                change()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_no_spelling_of_a_path_leaves_the_folder_and_all_errors_are_the_same(charts: Path) -> None:
    """R01 to R18, R20, R21, R27: also next to existing files."""
    (charts / "out").symlink_to(charts.parent / "charts-evil")
    (charts / "zero").symlink_to("/dev/zero")
    paths = (
        "none", "a.txt/", "a.txt/x", "../charts-evil/b.txt", "%2e%2e/charts-evil/b.txt", "..%2fcharts-evil%2fb.txt",
        "%252e%252e/charts-evil/b.txt", "sub/../a.txt", "sub%2fb.txt", "..\\charts-evil\\b.txt", "/etc/passwd",
        "a.txt%00",
        "%c0%ae%c0%ae/charts-evil/b.txt", "out/b.txt", "out", "zero", "fifo", "~", "$HOME", "*", "a.txt#x",
    )  # fmt: skip
    with StdioProcess("serve", str(charts)) as server:
        shapes = set()
        for path in (*paths, *["fifo"] * 45):
            uri = f"file:///charts/{path}"
            error = read_file(server, uri)
            message, _, advice = error["message"].replace(uri, "").partition(". Did you mean ")
            shapes.add((error["code"], message))
            assert set(advice.rstrip("?").split(" or ")) <= {"", "file:///charts/a.txt", "file:///charts/sub/b.txt"}
        assert shapes == {(-32602, "Resource not found: ")}
        windows = [
            read_file(server, f"file:///charts/{path}?{bad}") for path in ("a.txt", "none") for bad in ("x", "x=1")
        ]
        assert windows[:2] == windows[2:]
        hidden, none = (read_file(server, f"file:///charts/{name}/b.txt?bytes=0-1") for name in ("out", "none"))
        assert hidden["message"] == none["message"].replace("none", "out")
        assert hidden["message"].startswith("Resource not found: file:///charts/out/b.txt?bytes=0-1")
        assert read_file(server, "file:///charts/%zz")["code"] == -32602
        assert len(str(read_file(server, "file:///charts/" + "a" * 2 * MIB))) < 1_000
        assert read_file(server, "file:///charts/a.txt")[0]["text"] == "a"


def test_undecodable_names_are_listed_and_read(charts: Path) -> None:
    """H32: they are listed, read and found, and shown without control characters."""
    with StdioProcess("serve", str(charts)) as server:
        (undecodable,) = [r for r in server.request("resources/list")["result"]["resources"] if "caf" in r["uri"]]
        assert undecodable["uri"] == "file:///charts/caf%E9%20%1B%5B31m%0A.txt"
        assert undecodable["name"] == "caf\\xe9 \\x1b[31m\\x0a.txt"
        assert read_file(server, undecodable["uri"])[0]["text"] == "latin"
        found = server.call_tool("search", query="caf")["result"]["structuredContent"]["results"]
        assert [hit["id"] for hit in found] == [undecodable["uri"]]


def test_content_has_its_real_mime_type(charts: Path) -> None:
    """R23, R24, R25, R26."""
    (charts / "latin.txt").write_bytes(b"caf\xe9")
    (charts / "other.txt").write_bytes("Паром".encode("koi8-r"))
    (charts / "lines.txt").write_bytes(b"a\r\nb\r")
    (charts / "png.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    (charts / "large.bin").touch()
    os.truncate(charts / "large.bin", 64 * MIB)
    with StdioProcess("serve", str(charts)) as server:
        (latin,) = read_file(server, "file:///charts/latin.txt")
        assert (latin["text"], latin["_meta"]["wharfinger/encoding"]) == ("café", "windows-1252")
        assert read_file(server, "file:///charts/other.txt")[0]["blob"] == "8MHSz80="
        assert read_file(server, "file:///charts/lines.txt")[0]["text"] == "a\r\nb\r"
        assert read_file(server, "file:///charts/png.txt")[0]["mimeType"] == "image/png"
        base = server.reset_peak()
        large = read_file(server, "file:///charts/large.bin")
        assert large[0]["_meta"]["wharfinger/window"] == {"begin": 0, "end": MIB // 4, "size": 64 * MIB}
        assert large[1]["uri"] == large[0]["_meta"]["wharfinger/next"] == "file:///charts/large.bin?bytes=262144-"
        assert server.peak - base < 8 * MIB


def test_a_directory_swapped_for_a_link_is_never_followed(charts: Path) -> None:
    """R19, over HTTP, during searches."""
    with HttpProcess("serve", str(charts)) as server, server.connect() as client:

        def swap() -> None:
            os.rename(charts / "sub", charts / "aside")
            os.symlink(charts.parent / "charts-evil", charts / "sub")
            os.unlink(charts / "sub")
            os.rename(charts / "aside", charts / "sub")

        seen = set()
        with repeat_in_thread(swap):
            for number in range(200):
                _, found = read_over_http(client, "file:///charts/sub/b.txt")
                seen.add(found[0]["text"] if isinstance(found, list) else found["code"])
                if number % 50 == 0:
                    assert (
                        b"private"
                        not in client.call(
                            "tools/call", {"name": "search", "arguments": {"query": "b"}}, mcp_name="search"
                        ).body
                    )
        assert seen <= {"inside", -32602}
        assert read_over_http(client, "file:///charts/sub/b.txt")[1][0]["text"] == "inside"


def test_every_read_of_a_file_that_changes_is_answered(charts: Path) -> None:
    """R28: truncated, replaced, removed, made unreadable, a directory and a FIFO, during reads and watches."""
    path = charts / "grow.bin"

    def change() -> None:
        path.write_bytes(bytes(MIB))
        os.truncate(path, 10)
        (charts / "new").write_bytes(b"x" * 1000)
        os.replace(charts / "new", path)
        path.chmod(0)
        path.unlink()
        path.mkdir()
        path.rmdir()
        os.mkfifo(path)
        path.unlink()

    with HttpProcess("serve", str(charts)) as server, server.connect() as client, server.connect() as listener:
        path.write_text("x")
        listener.listen("file:///charts/grow.bin")
        with repeat_in_thread(change):
            for _ in range(60):
                status, found = read_over_http(client, "file:///charts/grow.bin")
                assert status == 200
                assert isinstance(found, list) or found["code"] == -32602
        assert listener.event()["params"]["uri"] == "file:///charts/grow.bin"
        assert b"Traceback" not in server.errors


@heavy
def test_2_000_concurrent_reads_are_answered_or_refused_in_bounded_memory(charts: Path) -> None:
    """R31."""
    (charts / "middle.txt").write_text("x" * 10_000)
    with StdioProcess("serve", str(charts)) as server:
        assert server.request("server/discover")
        base = server.reset_peak()
        server.send(
            *[stateless_request(n, "resources/read", {"uri": "file:///charts/middle.txt"}) for n in range(2_000)]
        )
        assert {server.receive()["id"] for _ in range(2_000)} == set(range(2_000))
        assert server.peak - base < 128 * MIB


def test_large_answers_to_a_slow_reader_are_refused_and_the_connection_stays_open(charts: Path) -> None:
    """S06, R31: a client that pipelines 60 reads of 3 MiB gets an answer to each."""
    (charts / "large.bin").write_bytes(os.urandom(3 * MIB))
    with StdioProcess("serve", str(charts)) as server:
        assert server.request("server/discover")
        base = server.reset_peak()
        server.send(*[stateless_request(n, "resources/read", {"uri": "file:///charts/large.bin"}) for n in range(60)])
        answers = [server.read_line() for _ in range(60)]
        results = [line for line in answers if b'"result"' in line[:100]]
        assert len(results) >= 10
        assert all(b"-32603" in line for line in answers if line not in results)
        assert server.peak - base < 256 * MIB
        assert read_file(server, "file:///charts/a.txt")[0]["text"] == "a"


@pytest.mark.parametrize("cursor", ["", "x", "../../etc", "\0", "A" * 3 * MIB, 5, {}])
def test_invalid_cursors_are_invalid_params(stdio: StdioProcess, cursor: object) -> None:
    """R29, R32."""
    assert stdio.request("resources/list", {"cursor": cursor})["error"]["code"] == -32602


@pytest.mark.parametrize("uri", [5, None, {}, "", "no uri", "fix://any/" + "a" * 3 * MIB])
def test_invalid_uris_are_invalid_params_and_not_repeated(stdio: StdioProcess, uri: object) -> None:
    """R18, R29, R30."""
    answer = stdio.request("resources/read", {"uri": uri})
    assert answer["error"]["code"] == -32602
    assert len(str(answer)) < 500


def test_a_hard_link_is_published(charts: Path) -> None:
    """R34, as documented: a user who may create hard links in the folder publishes their targets."""
    os.link(charts.parent / "charts-evil" / "b.txt", charts / "linked.txt")
    with StdioProcess("serve", str(charts)) as server:
        assert read_file(server, "file:///charts/linked.txt")[0]["text"] == "private"


def test_a_path_outside_the_folder_is_not_passed_to_a_template_handler(tmp_path: Path) -> None:
    """Regression: `{name}` matched an escaped separator, so a handler could be made to read any file."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "server.py").write_text(
        "from pathlib import Path\n"
        "from wharfinger import Server\n"
        "server = Server('notes')\n"
        f"NOTES = Path({str(tmp_path / 'notes')!r})\n"
        "@server.resource('notes://{name}')\n"
        "def note(name: str) -> str:\n"
        "    return (NOTES / name).read_text()\n"
        "@server.resource('tree://{+path}')\n"
        "def tree(path: str) -> str:\n"
        "    return (NOTES / path).read_text()\n"
    )
    program = str(tmp_path / "server.py")
    paths = (
        "..%2Fsecret",
        "%2E%2E%2fsecret",
        "%2Fetc%2Fhostname",
        "..",
        "../secret",
        "/etc/hostname",
        "a.md%00",
        "x%5Ca",
    )
    with StdioProcess("run", program) as stdio, HttpProcess("run", program) as http, http.connect() as client:
        for prefix in ("notes://", "tree://"):
            assert read_file(stdio, prefix + "a.md")[0]["text"] == "inside"
            for path in paths:
                uri = prefix + path
                error = read_file(stdio, uri)
                assert (error["code"], error["message"]) == (-32602, f"Resource not found: {uri}")
                assert read_over_http(client, uri)[1] == error
