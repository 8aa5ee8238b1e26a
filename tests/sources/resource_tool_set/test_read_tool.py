"""What is read by tools: text, pictures, windows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sources.resource_tool_set.conftest import Ask, call
from wharfinger import Client, Server
from wharfinger import types as t
from wharfinger.sources import Folder
from wharfinger.sources.resource_tool_set import read_tool, resource_tools


def test_what_is_no_text_is_fetched_as_a_hint(ask: Ask, source: Folder) -> None:
    fetched, _ = call(ask, "fetch", id=f"{source.uri}/harbours/north/buoy.png")
    assert fetched["metadata"] == {"mimeType": "image/png", "size": "16"}
    assert "read_resource" in fetched["text"]


def test_a_very_long_text_is_fetched_in_part_and_that_is_told(
    ask: Ask, source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_tool, "MAX_TEXT_LENGTH", 10)
    fetched, _ = call(ask, "fetch", id=f"{source.uri}/README.md")
    assert fetched["text"] == "# Charts\n\n"
    assert fetched["metadata"]["truncated"] == "the first 10 of 32 characters"


def test_reading_gives_text_pictures_and_whatever_else(ask: Ask, source: Folder, charts: Path) -> None:
    (charts / "a.zip").write_bytes(b"PK\x03\x04\xff")
    assert call(ask, "read_resource", uri=f"{source.uri}/README.md")[1] == [
        t.TextContent(text="# Charts\n\nSoundings in fathoms.\n")
    ]
    assert call(ask, "read_resource", uri=f"{source.uri}/harbours/north/buoy.png")[1] == [
        t.ImageContent(data=b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", mime_type="image/png")
    ]
    assert call(ask, "read_resource", uri=f"{source.uri}/a.zip")[1] == [
        t.TextContent(text="This is application/zip, 5 bytes: call read_resource with binary=true to get it.")
    ]
    (zipped,) = call(ask, "read_resource", uri=f"{source.uri}/a.zip", binary=True)[1]
    assert isinstance(zipped, t.EmbeddedResource)
    assert (zipped.resource.mime_type, zipped.resource.blob) == ("application/zip", b"PK\x03\x04\xff")


def test_a_directory_is_read_as_its_listing_once(ask: Ask, source: Folder) -> None:
    _, blocks = call(ask, "read_resource", uri=f"{source.uri}/harbours")
    assert len(blocks) == 1
    assert isinstance(blocks[0], t.TextContent)
    assert blocks[0].text.startswith("charts/harbours/ holds 1 folder and 1 file.")


def following(blocks: list[t.ContentBlock]) -> str:
    """The URI by which an answer says how to go on; empty if that is all."""
    assert all(isinstance(block, t.TextContent) for block in blocks)
    last = blocks[-1] if len(blocks) > 1 else None
    return last.text.partition("o go on, read ")[2].strip("]\n") if isinstance(last, t.TextContent) else ""


@pytest.mark.parametrize("lines", [1, 400])
def test_a_long_text_is_read_in_windows_that_are_linked(
    ask: Ask, source: Folder, charts: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """Joined, what the URIs lead to is the whole; also where it is one line."""
    monkeypatch.setattr(read_tool, "WINDOW_THRESHOLD", 1_000)
    whole = "".join(f"{'x' * 2_000}{number}{'' if lines == 1 else chr(10)}" for number in range(400))
    (charts / "long.txt").write_text(whole)
    uri = f"{source.uri}/long.txt"
    read: list[str] = []
    while uri:
        _, blocks = call(ask, "read_resource", uri=uri)
        assert isinstance(blocks[0], t.TextContent)
        read.append(blocks[0].text)
        uri = following(blocks)
    assert len(read) > 2
    assert "".join(read) == whole


def test_what_follows_is_named_with_how_much_was_read(ask: Ask, source: Folder, charts: Path) -> None:
    (charts / "long.txt").write_text("a line of the log\n" * 20_000)
    _, blocks = call(ask, "read_resource", uri=f"{source.uri}/long.txt")
    assert following(blocks) == f"{source.uri}/long.txt?lines=2001-"
    assert "lines 1-2,000" in blocks[1].text


def test_a_part_is_read_by_its_own_uri(ask: Ask, source: Folder) -> None:
    _, blocks = call(ask, "read_resource", uri=f"{source.uri}/README.md?lines=3-3")
    assert blocks == [t.TextContent(text="Soundings in fathoms.\n")]


def test_a_long_text_without_windows_is_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_tool, "WINDOW_THRESHOLD", 10)
    monkeypatch.setattr(read_tool, "MAX_TEXT_LENGTH", 20)
    server = Server("long")
    server.include(resource_tools())

    @server.resource("notes://long")
    def long() -> str:
        return "x" * 50

    async def main() -> list[t.ContentBlock]:
        async with Client(server) as client:
            return list((await client.call_tool("read_resource", {"uri": "notes://long"})).content)

    assert asyncio.run(main()) == [
        t.TextContent(text="x" * 20),
        t.TextContent(text="This is the first 20 of 50 characters."),
    ]
