"""The read tool: text, images, linked parts, queries, and the size of an answer."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sources.resource_tool_set.conftest import Runner, call, runner_of
from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.server import Content
from wharfinger.sources import Folder, files, logs, sql
from wharfinger.sources.resource_tool_set import read_tool, resource_tools
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS, Budget
from wharfinger.sources.windows.window import NEXT, PREVIOUS, REMARK, SUMMARY, WINDOW


def serve(*parts: Any) -> Runner:
    """Return a function that runs code with a client of a server with these parts and the resource tools."""
    server = Server("asked")
    for part in (*parts, resource_tools(allow_query=True)):
        server.include(part)
    return runner_of(server)


def texts(run: Runner, tool: str, **arguments: Any) -> list[str]:
    """Call a tool, and return the texts of its answer, which must be within the budget."""
    _, blocks = call(run, tool, **arguments)
    found = [block.text for block in blocks if isinstance(block, t.TextContent)]
    assert sum(map(len, found)) <= 4 * arguments.get("max_tokens", DEFAULT_TOKENS)
    assert all(found), "an answer has an empty text"
    return found


NEXT_CALL = re.compile(r"To continue, call (\w+) with (.*?)\.?\]?$")


def next_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Return the tool and the arguments of the next call that the end of an answer gives, or None."""
    found = NEXT_CALL.search(text)
    if found is None:
        return None
    pairs = (pair.partition("=") for pair in found[2].split(" and "))
    return found[1], {name: int(value) if name in ("start", "max_tokens") else value for name, _, value in pairs}


def read_all_parts(run: Runner, uri: str, **arguments: Any) -> list[str]:
    """Return all parts of a resource, by the next call that each part gives."""
    parts: list[str] = []
    following: Any = ("read_resource", {"uri": uri, **arguments})
    while following:
        part, *notes = texts(run, following[0], **following[1])
        parts.append(part)
        following = next_call(notes[0]) if notes else None
        assert len(parts) < 200
    return parts


def test_fetching_binary_data_returns_a_hint(run: Runner, source: Folder) -> None:
    fetched, _ = call(run, "fetch", id=f"{source.uri}/harbours/north/buoy.png")
    assert fetched["metadata"] == {"mimeType": "image/png", "size": "16"}
    assert "read_resource" in fetched["text"]


def test_text_and_images_are_returned_and_other_data_only_on_request(run: Runner, source: Folder, charts: Path) -> None:
    (charts / "a.zip").write_bytes(b"PK\x03\x04\xff")
    assert call(run, "read_resource", uri=f"{source.uri}/README.md")[1] == [
        t.TextContent(text="# Charts\n\nSoundings in fathoms.\n")
    ]
    assert call(run, "read_resource", uri=f"{source.uri}/harbours/north/buoy.png")[1] == [
        t.ImageContent(data=b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", mime_type="image/png")
    ]
    assert call(run, "read_resource", uri=f"{source.uri}/a.zip")[1] == [
        t.TextContent(text="This is application/zip, 5 B: call read_resource with binary=true to get it.")
    ]
    (zipped,) = call(run, "read_resource", uri=f"{source.uri}/a.zip", binary=True)[1]
    assert isinstance(zipped, t.EmbeddedResource)
    assert (zipped.resource.mime_type, zipped.resource.blob) == ("application/zip", b"PK\x03\x04\xff")


@pytest.mark.parametrize(("excess_bytes", "block_type"), [(0, t.ImageContent), (1, t.TextContent)])
def test_a_large_image_is_returned_only_on_request(
    run: Runner, source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch, excess_bytes: int, block_type: type
) -> None:
    monkeypatch.setattr(read_tool, "MAX_IMAGE_BYTES", 1_000)
    (charts / "chart.png").write_bytes(b"\x89PNG\r\n\x1a\n".ljust(1_000 + excess_bytes, b"\0"))
    uri = f"{source.uri}/chart.png"
    assert [type(block) for block in call(run, "read_resource", uri=uri)[1]] == [block_type]
    assert [type(block) for block in call(run, "read_resource", uri=uri, binary=True)[1]] == [t.ImageContent]


def test_a_directory_is_read_as_a_listing_with_a_hint_about_queries(run: Runner, source: Folder) -> None:
    listing, hint = texts(run, "read_resource", uri=f"{source.uri}/harbours")
    assert listing.startswith("charts/harbours/ holds 1 folder and 1 file.")
    assert hint == "[You can also read file:///charts/…?lines=1-200 ?tail=200 ?bytes=0-65535]"


def test_an_empty_resource_is_reported_as_empty(run: Runner, source: Folder) -> None:
    uri = f"{source.uri}/empty.txt"
    assert texts(run, "read_resource", uri=uri) == [f"[{uri} is empty: it has 0 characters.]"]
    assert call(run, "fetch", id=uri)[0]["text"] == f"[{uri} is empty: it has 0 characters.]"


# The budget


@pytest.mark.parametrize("lines", [1, 400])
def test_a_long_text_is_read_in_linked_parts(run: Runner, source: Folder, charts: Path, lines: int) -> None:
    whole = "".join(f"{'x' * 2_000}{number}{'' if lines == 1 else chr(10)}" for number in range(400))
    (charts / "long.txt").write_text(whole)
    parts = read_all_parts(run, f"{source.uri}/long.txt")
    assert len(parts) > 20
    assert "".join(parts) == whole


def test_a_part_reports_its_lines_and_the_queries_for_smaller_parts(run: Runner, source: Folder, charts: Path) -> None:
    (charts / "long.txt").write_text("a line of the log\n" * 20_000)
    text, note, hint = texts(run, "read_resource", uri=f"{source.uri}/long.txt")
    assert "lines 1-2,000" in note
    assert len(text) == 2_000 * 18
    assert note.endswith(f"To continue, call read_resource with uri={source.uri}/long.txt?lines=2001-]")
    assert hint.startswith("[Parts of it: ?lines=1-200: these lines; ?tail=200: the last lines;")


@pytest.mark.parametrize("excess", [0, 1])
def test_a_text_is_returned_whole_only_if_it_fits(run: Runner, source: Folder, charts: Path, excess: int) -> None:
    uri = f"{source.uri}/fits.txt"
    whole = "x" * (Budget().room(uri) + excess)
    (charts / "fits.txt").write_text(whole)
    found = texts(run, "read_resource", uri=uri)
    assert (found == [whole]) is (excess == 0)
    assert "".join(read_all_parts(run, uri)) == whole


@pytest.mark.parametrize("tokens", [500, 1_000, 100_000])
def test_max_tokens_sets_the_budget(run: Runner, source: Folder, charts: Path, tokens: int) -> None:
    whole = "".join(f"line {number}\n" for number in range(9_000))
    (charts / "long.txt").write_text(whole)
    parts = read_all_parts(run, f"{source.uri}/long.txt", max_tokens=tokens)
    assert "".join(parts) == whole
    assert len(parts) >= len(whole) // (tokens * 4)
    with pytest.raises(ToolError, match="max_tokens is 499: give a number from 500 to 100,000"):
        call(run, "fetch", id=f"{source.uri}/long.txt", max_tokens=499)


@pytest.mark.parametrize("tool", ["read_resource", "fetch"])
def test_a_long_text_of_a_function_is_continued_at_a_character(tool: str) -> None:
    server = Server("long")
    server.include(resource_tools())
    whole = '"quoted"\n\n' * 30_000
    reads: list[str] = []

    @server.resource("notes://long")
    def long() -> str:
        reads.append("notes://long")
        return whole

    run = runner_of(server)

    def part(**arguments: Any) -> str:
        if tool == "read_resource":
            return "".join(texts(run, tool, uri="notes://long", **arguments))
        texts(run, tool, id="notes://long", **arguments)
        return str(call(run, tool, id="notes://long", **arguments)[0]["text"])

    joined, following = "", {}
    while following is not None:
        text, mark, note = part(**following).partition("[Characters ")
        joined += text[:-1] if mark and tool == "fetch" else text
        found = next_call(mark + note)
        following = None if found is None else {"start": found[1]["start"]}
    assert joined == whole
    with pytest.raises(ToolError, match="start=300,000 is not within this text, which has 300,000 characters"):
        part(start=300_000)
    reads.clear()
    part()
    assert len(reads) == (1 if tool == "read_resource" else 2)


def test_an_empty_content_does_not_end_the_skipping_of_characters() -> None:
    """A bug: the contents after it were returned from their beginning."""
    server = Server("several")
    server.include(resource_tools())

    @server.resource("notes://several")
    def several() -> list[Content]:
        return [Content("abc"), Content(""), Content("defghi")]

    assert texts(runner_of(server), "read_resource", uri="notes://several", start=5) == ["fghi"]


def test_the_budget_applies_to_all_contents_together() -> None:
    server = Server("several")
    server.include(resource_tools())

    @server.resource("notes://several")
    def several() -> list[Content]:
        return [Content("a" * 30_000), Content(b"\0\1", mime_type="application/zip"), Content("b" * 30_000)]

    run = runner_of(server)
    first = texts(run, "read_resource", uri="notes://several")
    assert [len(text) for text in first[:1]] == [30_000]
    assert first[1].startswith("This is application/zip, 2 B")
    start = next_call(first[-1])[1]["start"]  # type: ignore[index]
    second = texts(run, "read_resource", uri="notes://several", start=start)
    assert first[2] + second[0] == "b" * 30_000
    assert len(second) == 1


def test_the_budget_of_fetch_counts_its_json(run: Runner, source: Folder, charts: Path) -> None:
    """Quotes and line ends have two characters in JSON."""
    whole = '"\n' * 60_000
    (charts / "quotes.txt").write_text(whole)
    uri: str | None = f"{source.uri}/quotes.txt"
    joined = ""
    while uri:
        texts(run, "fetch", id=uri)
        fetched, _ = call(run, "fetch", id=uri)
        text, _, note = fetched["text"].partition("\n[Bytes ")
        joined += text
        following = next_call(note)
        uri = following[1]["id"] if following else None
        assert fetched["metadata"].get("next") == uri
    assert joined == whole


# Contents of other servers


@pytest.mark.parametrize("tool", ["read_resource", "fetch"])
@pytest.mark.parametrize(
    "meta",
    [
        {WINDOW: "x"},
        {WINDOW: {"end": "a", "size": []}, NEXT: "notes://next"},
        {WINDOW: {"end": 0, "size": 9}, NEXT: "n" * 1_000_000, PREVIOUS: ["x"]},
        {f"key {number}": f"notes://{number}" for number in range(30_000)},
    ],
    ids=["text", "types", "long", "many"],
)
def test_meta_of_any_form_costs_little_time_and_room(tool: str, meta: dict[str, Any]) -> None:
    """A bug: the call failed, took minutes, or returned a megabyte."""
    server = Server("gateway")
    server.include(resource_tools())
    remarks = [{SUMMARY: True, REMARK: "r" * 1_000_000}] * 3

    @server.resource("notes://all{?lines}")
    def notes(lines: str = "") -> t.ReadResourceResult:
        uri = "notes://all?lines=1-2"
        return t.ReadResourceResult(
            contents=[t.ResourceContents(uri=uri, text="calm", meta=each) for each in (meta, *remarks)]
        )

    began = time.process_time()
    found = texts(runner_of(server), tool, **{"uri" if tool == "read_resource" else "id": "notes://all?lines=1-2"})
    assert time.process_time() - began < 5
    assert "calm" in found[0]
    assert len("".join(found)) < 2_000


def test_contents_that_are_not_text_are_limited() -> None:
    """A bug: each of 100,000 contents of another server had a line in the answer."""
    server = Server("files")
    server.include(resource_tools())
    contents = [t.ResourceContents(uri=f"notes://{number}", blob=b"\0") for number in range(2_000)]
    server.resource("notes://all")(lambda: t.ReadResourceResult(contents=contents))
    found = texts(runner_of(server), "read_resource", uri="notes://all")
    assert found[-1] == "[1,950 contents left out: an answer has at most 50 that are not text.]"
    assert len(found) == 51


@pytest.mark.parametrize("tool", ["read_resource", "fetch"])
def test_a_resource_without_contents_is_empty(tool: str) -> None:
    """A bug: the call failed with an internal error."""
    server = Server("empty")
    server.include(resource_tools())
    server.resource("notes://none")(lambda: t.ReadResourceResult(contents=[]))
    (text,) = texts(runner_of(server), tool, **{"uri" if tool == "read_resource" else "id": "notes://none"})
    assert "notes://none is empty: it has 0 characters." in text


def test_fetching_data_without_a_type_says_that_it_is_data() -> None:
    server = Server("data")
    server.include(resource_tools())
    contents = [t.ResourceContents(uri="notes://data", blob=b"\0")]
    server.resource("notes://data")(lambda: t.ReadResourceResult(contents=contents))
    fetched, _ = call(runner_of(server), "fetch", id="notes://data")
    assert fetched["text"].startswith("This is not text: data, 1 bytes.")


# Large logs and databases


@pytest.fixture
def large_server(tmp_path: Path) -> Runner:
    """Serve a log of 2 MB, and a table with long texts and binary data."""
    (tmp_path / "app.log").write_text(
        "".join(f"2026-11-20T10:{n // 1000:02}:00Z INFO request {n} was served\n" for n in range(40_000))
    )
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT, picture BLOB)")
        picture = b"\x89PNG\r\n\x1a\n" + bytes(50_000)
        connection.executemany(
            "INSERT INTO notes VALUES (?, ?, ?)", [(n, "x" * 51_000, picture if n == 1 else None) for n in range(3)]
        )
        connection.executemany("INSERT INTO notes VALUES (?, ?, NULL)", [(n, "y" * 900) for n in range(3, 200)])
    connection.close()
    return serve(logs(tmp_path / "*.log", label="app"), sql(f"sqlite:///{tmp_path}/shop.db", label="shop"))


def test_a_log_is_read_from_its_end_within_the_budget(large_server: Runner) -> None:
    text, back, parts = texts(large_server, "read_resource", uri="log://app/app.log")
    assert text.endswith("request 39999 was served\n")
    assert back.startswith("[For earlier lines, call read_resource with uri=log://app/app.log?before=")
    assert "?level=error" in parts
    earlier = back.partition("uri=")[2].removesuffix("]")
    before = texts(large_server, "read_resource", uri=earlier)[0]
    first = int(re.findall(r"request (\d+)", text)[0])
    assert before.endswith(f"request {first - 1} was served\n")


def test_a_window_of_a_log_is_cut_to_the_budget(large_server: Runner) -> None:
    uri = "log://app/app.log?bytes=0-262143"
    text, note = texts(large_server, "read_resource", uri=uri)
    assert text.startswith("2026-11-20T10:00:00Z INFO request 0 was served\n")
    assert text.endswith("was served\n")
    assert next_call(note)[1]["uri"] == f"log://app/app.log?bytes={len(text)}-{len(text) + 262_143}"  # type: ignore[index]
    texts(large_server, "fetch", id=uri)


def test_a_filter_without_matches_is_reported(large_server: Runner) -> None:
    found = " ".join(texts(large_server, "read_resource", uri="log://app/app.log?level=error"))
    assert "level=error" in found


def test_rows_with_long_values_and_bytes_are_shortened(large_server: Runner) -> None:
    text, note = texts(large_server, "read_resource", uri="sqlite://shop/notes/rows?limit=3")
    assert len(text) < 10_000
    assert text.count('"cut":true,"characters":51000,"read":"sqlite://shop/notes/rows/') == 3
    assert '"picture":{"type":"image/png","bytes":50008' in text
    assert next_call(note)[1]["uri"] == "sqlite://shop/notes/rows?after=2&limit=3"  # type: ignore[index]


def test_all_rows_are_read_by_following_the_next_calls(large_server: Runner) -> None:
    parts = read_all_parts(large_server, "sqlite://shop/notes/rows")
    ids = [int(found) for found in re.findall(r'\{"id":(\d+)', "".join(parts))]
    assert ids == list(range(200))
    assert len(parts) > 4


def test_a_long_value_is_read_whole_in_parts(large_server: Runner) -> None:
    assert "".join(read_all_parts(large_server, "sqlite://shop/notes/rows/2/body")) == "x" * 51_000


def test_every_tool_reports_a_database_that_is_down(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE ports (name TEXT)")
    connection.close()
    run = serve(sql(f"sqlite:///{tmp_path}/shop.db", label="shop"))
    (tmp_path / "shop.db").unlink()

    async def collect_errors(client: Client) -> list[str]:
        messages = []
        for tool, arguments in (
            ("query", {"statement": "SELECT * FROM ports"}),
            ("read_resource", {"uri": "sqlite://shop/ports/rows"}),
            ("fetch", {"id": "sqlite://shop/ports"}),
            ("read_directory", {"uri": "sqlite://shop"}),
        ):
            with pytest.raises(ToolError) as caught:
                await client.call_tool(tool, arguments)
            assert caught.value.result.is_error is True
            messages.append(str(caught.value))
        return messages

    assert all("shop.db cannot be read" in text for text in run(collect_errors))


def test_a_large_folder_is_listed_in_parts(tmp_path: Path) -> None:
    for number in range(900):
        (tmp_path / f"a-rather-long-name-of-a-file-{number:04}.txt").touch()
    parts = read_all_parts(serve(files(tmp_path, label="many")), "file:///many")
    assert len(parts) > 2
    assert len(set(re.findall(r"file:///many/(\S+)", "".join(parts)))) == 900
