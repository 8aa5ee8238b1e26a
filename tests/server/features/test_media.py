"""`Image`, `Audio` and `File` in results of tools and prompts, and replacements for revisions that lack them."""

from __future__ import annotations

import base64
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import ALL, ask
from wharfinger import Audio, File, Image, Server
from wharfinger import types as t
from wharfinger.protocol.limits import Limits

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
WAV = b"RIFF\x24\0\0\0WAVEfmt "
LINK = t.ResourceLink(uri="notes://today", name="today", title="Today", description="Notes of today.")


async def content(value: Any, revision: str = "2026-07-28", **options: Any) -> Any:
    server = Server("s", **options)

    @server.tool
    def show():  # type: ignore[no-untyped-def]
        return value

    answer = await ask(server, "tools/call", {"name": "show"}, revision)
    return answer["result"]["content"] if "result" in answer else answer["error"]


@pytest.mark.parametrize(
    ("media", "kind", "mime_type"),
    [
        (Image(data=PNG, format="png"), "image", "image/png"),
        (Image(data=PNG, format="jpg"), "image", "image/jpeg"),
        (Image(data=PNG), "image", "image/png"),
        (Image(PNG), "image", "image/png"),
        (Image(data=PNG, mime_type="image/x-own"), "image", "image/x-own"),
        (Audio(data=WAV, format="wav"), "audio", "audio/wav"),
        (Audio(data=WAV, format="mp3"), "audio", "audio/mpeg"),
        (Audio(data=WAV), "audio", "audio/wav"),
    ],
)
async def test_bytes_become_blocks_of_their_type(media: Any, kind: str, mime_type: str) -> None:
    data = base64.b64encode(media.data).decode()
    assert await content(media) == [{"type": kind, "data": data, "mimeType": mime_type}]


async def test_files_are_read_when_the_result_is_sent(tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_bytes(PNG)
    (tmp_path / "log of today.txt").write_text("calm", encoding="utf-8")
    (tmp_path / "blob.bin").write_bytes(b"\xff\0")
    server = Server("s")

    @server.tool
    async def show() -> list[Any]:
        return ["Here:", Image(tmp_path / "chart.png"), File(str(tmp_path / "log of today.txt"))]

    blocks = (await ask(server, "tools/call", {"name": "show"}))["result"]["content"]
    assert [block["type"] for block in blocks] == ["text", "image", "resource"]
    assert blocks[2]["resource"] == {"uri": "file:///log%20of%20today.txt", "mimeType": "text/plain", "text": "calm"}
    assert any(thread.name.startswith("wharfinger-") for thread in threading.enumerate())
    (block,) = await content(File(tmp_path / "blob.bin", uri="quay://blob"))
    assert block["resource"]["uri"] == "quay://blob"
    assert block["resource"]["blob"] == base64.b64encode(b"\xff\0").decode()


async def test_a_missing_or_too_large_file_is_an_error_of_its_call(tmp_path: Path) -> None:
    for image, limits in ((Image(tmp_path / "gone.png"), Limits()), (Image(PNG), Limits(content=8))):
        (block,) = await content(image, limits=limits)
        assert "Internal error (reference " in block["text"]


def test_text_is_refused_as_data() -> None:
    text: Any = "iVBORw0KGgo="
    with pytest.raises(TypeError, match=r"Image\(data=…\) takes bytes, not text"):
        Image(data=text)


def test_media_have_exactly_one_of_path_and_data() -> None:
    for make in (lambda: Image(), lambda: Image("x.png", data=b"")):
        with pytest.raises(TypeError, match="either a path or data"):
            make()


async def test_a_block_has_annotations_and_meta() -> None:
    image = Image(PNG, annotations=t.Annotations(priority=1.0), meta={"k": 1})
    (block,) = await content(image)
    assert (block["annotations"], block["_meta"]) == ({"priority": 1.0}, {"k": 1})


async def test_prompts_may_return_media() -> None:
    server = Server("s")

    @server.prompt
    def look() -> list[Any]:
        return [
            "Look:",
            Image(PNG),
            t.PromptMessage(role="assistant", content=Audio(WAV)),  # type: ignore[arg-type]
            {"role": "assistant", "content": "Nice."},
            LINK,
            File(data=b"calm", format="txt"),
        ]

    messages = (await ask(server, "prompts/get", {"name": "look"}))["result"]["messages"]
    assert [(m["role"], m["content"]["type"]) for m in messages] == [
        ("user", "text"),
        ("user", "image"),
        ("assistant", "audio"),
        ("assistant", "text"),
        ("user", "resource_link"),
        ("user", "resource"),
    ]


@pytest.mark.parametrize("revision", ALL)
async def test_blocks_unknown_to_a_revision_are_sent_as_text(revision: str) -> None:
    blocks = await content(["Here:", Audio(WAV), LINK, Image(PNG), File(data=b"calm", format="txt")], revision)
    known = {"2024-11-05": {"image", "resource"}, "2025-03-26": {"image", "resource", "audio"}}
    kinds = ["text", "audio", "resource_link", "image", "resource"]
    assert [block["type"] for block in blocks] == [
        kind if revision not in known or kind in known[revision] else "text" for kind in kinds
    ]
    if blocks[1]["type"] == "text":
        assert blocks[1]["text"].startswith("[Sound (audio/wav, 16 bytes)")
    if blocks[2]["type"] == "text":
        assert blocks[2]["text"] == "[Today](notes://today): Notes of today."


async def test_unknown_blocks_of_prompts_are_sent_as_text() -> None:
    server = Server("s")

    @server.prompt
    def look() -> list[Any]:
        return [LINK, "x"]

    first, second = (await ask(server, "prompts/get", {"name": "look"}, "2025-03-26"))["result"]["messages"]
    assert first["content"]["type"] == second["content"]["type"] == "text"


@pytest.mark.parametrize(
    ("make", "mime_type"),
    [
        (lambda: Image(data=PNG, format=".PNG"), "image/png"),
        (lambda: Image(data=PNG, format="image/x-own"), "image/x-own"),
        (lambda: Image(data=PNG, format="svg"), "image/svg+xml"),
        (lambda: Image(data=PNG, format="tif"), "image/tiff"),
        (lambda: Audio(data=WAV, format="m4a"), "audio/mp4"),
        (lambda: Image(data=PNG, format="png", mime_type="image/own"), "image/own"),
        (lambda: File(data=b"\xff", format="pdf"), "application/pdf"),
        (lambda: File(data=b"\xff", format="own"), "application/own"),
        (lambda: File(data=b"\xff", format="font/ttf"), "font/ttf"),
        (lambda: File(data=b"\xff", mime_type="a/b"), "a/b"),
    ],
)
async def test_a_format_is_a_short_name_or_a_media_type(make: Any, mime_type: str) -> None:
    (block,) = await content(make())
    assert (block.get("mimeType") or block["resource"]["mimeType"]) == mime_type


async def test_media_may_reach_but_not_exceed_the_content_limit(tmp_path: Path) -> None:
    for size, fits in ((20, True), (21, False)):
        (tmp_path / "x.png").write_bytes(b"x" * size)
        for media in (Image(tmp_path / "x.png"), Image(data=b"x" * size, format="png")):
            blocks = await content(media, limits=Limits(content=20))
            assert (blocks[0]["type"] == "image") is fits


async def test_a_file_has_a_uri_annotations_and_meta(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("calm", encoding="utf-8")
    annotations = t.Annotations(priority=0.5)
    (block,) = await content(File(tmp_path / "a b.txt", annotations=annotations, meta={"k": 1}))
    assert block == {
        "type": "resource",
        "resource": {"uri": "file:///a%20b.txt", "mimeType": "text/plain", "text": "calm"},
        "annotations": {"priority": 0.5},
        "_meta": {"k": 1},
    }
    for media, uri in (
        (File(data=b"x", name="n.txt"), "file:///n.txt"),
        (File(data=b"x", format="txt"), "file:///file.txt"),
        (File(data=b"x", format=".txt"), "file:///file.txt"),
        (File(data=b"x", format="image/png"), "file:///file"),
        (File(data=b"x"), "file:///file"),
        (File(data=b"x", uri="a:b"), "a:b"),
    ):
        assert (await content(media))[0]["resource"]["uri"] == uri
    (image,) = await content(Image(data=PNG, annotations=annotations, meta={"k": 1}))
    assert (image["annotations"], image["_meta"]) == ({"priority": 0.5}, {"k": 1})


def test_media_take_either_a_path_or_bytes() -> None:
    for make in (lambda: Image(), lambda: Image("x", data=b"x"), lambda: Image(b"x", data=b"y")):
        with pytest.raises(TypeError, match=r"Image\(\) takes either a path or data"):
            make()
    with pytest.raises(TypeError, match="takes bytes, not text"):
        Image(data="text")  # type: ignore[arg-type]
    assert Image(bytearray(b"x")).data == Image(memoryview(b"x")).data == b"x"


async def test_files_are_read_in_a_thread_and_bytes_are_not(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG)
    in_main_thread: list[bool] = []

    class RecordingImage(Image):
        __slots__ = ()

        def read(self, most: int) -> bytes:
            in_main_thread.append(threading.current_thread() is threading.main_thread())
            return super().read(most)

    await content([RecordingImage(tmp_path / "x.png"), RecordingImage(data=PNG)])
    await content(RecordingImage(tmp_path / "x.png"))
    assert in_main_thread == [False, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text")
def test_the_uri_of_a_file_whose_name_is_not_utf8_has_its_bytes(tmp_path: Path) -> None:
    """A bug: it ended in a UnicodeEncodeError."""
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text("crème")
    block: Any = File(path).block(100)
    assert (block.resource.uri, block.resource.text) == ("file:///caf%E9.txt", "crème")
