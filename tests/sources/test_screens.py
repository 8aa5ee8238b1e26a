"""Screens, tested with a virtual X server (Xvfb) on which libX11 draws."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import logging
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import absent
from tests.waiting import wait_until
from wharfinger import Client, Server
from wharfinger.errors import InternalError, InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.source import UnusableSource
from wharfinger.sources.screens import Screen, screen
from wharfinger.testing import SourceContract
from wharfinger.testing.source_suite.driver import ChangeRecorder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Xvfb")


class Display:
    """A virtual X server."""

    def __init__(self, size: str) -> None:
        read, write = os.pipe()
        self.process = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write), "-screen", "0", size, "-nolisten", "tcp", "-noreset"],
            pass_fds=[write],
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        with os.fdopen(read, "rb") as numbers:
            self.name = f":{numbers.readline().strip().decode()}"

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def paint(self, colour: int) -> None:
        """Paint a rectangle of 200 x 100 pixels at (40, 30) on the background."""
        x11 = ctypes.CDLL(ctypes.util.find_library("X11"))
        x11.XOpenDisplay.restype = ctypes.c_void_p
        x11.XDefaultRootWindow.restype = ctypes.c_ulong
        x11.XCreateGC.restype = ctypes.c_void_p
        display = ctypes.c_void_p(x11.XOpenDisplay(self.name.encode()))
        root = ctypes.c_ulong(x11.XDefaultRootWindow(display))
        pen = ctypes.c_void_p(x11.XCreateGC(display, root, ctypes.c_ulong(0), None))
        x11.XSetForeground(display, pen, ctypes.c_ulong(colour))
        x11.XFillRectangle(display, root, pen, 40, 30, 200, 100)
        x11.XSync(display, 0)
        x11.XFreeGC(display, pen)
        x11.XCloseDisplay(display)


@pytest.fixture
def start_display(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Display]]:
    pytest.importorskip("mss")
    if not shutil.which("Xvfb") or not ctypes.util.find_library("X11"):
        absent("Xvfb or libX11 (on Debian: apt-get install xvfb libx11-6)")
    displays: list[Display] = []

    def start(size: str = "640x480x24") -> Display:
        displays.append(Display(size))
        monkeypatch.setenv("DISPLAY", displays[-1].name)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        return displays[-1]

    yield start
    for display in displays:
        display.stop()


def decode_png(png: bytes) -> tuple[int, int, list[bytes]]:
    """Return the width, height and rows (three bytes per pixel) of a PNG without row filters, as mss writes it."""
    width, height = struct.unpack(">II", png[16:24])
    data, offset = b"", 8
    while offset < len(png):
        (length,) = struct.unpack(">I", png[offset : offset + 4])
        if png[offset + 4 : offset + 8] == b"IDAT":
            data += png[offset + 8 : offset + 8 + length]
        offset += length + 12
    raw = zlib.decompress(data)
    row_bytes = width * 3 + 1
    return width, height, [raw[row * row_bytes + 1 : (row + 1) * row_bytes] for row in range(height)]


def picture(source: Screen, uri: str = "screen:///1") -> bytes:
    (content,) = source.read(uri).contents
    assert content.mime_type == "image/png"
    assert isinstance(content.blob, bytes)
    return content.blob


def test_each_screen_and_the_combined_screen_are_listed(start_display: Callable[..., Display]) -> None:
    start_display()
    source = screen()
    resources, key = source.page(None, 10)
    assert [(resource.uri, resource.title) for resource in resources] == [
        ("screen:///all", "All screens (640 x 480)"),
        ("screen:///1", "Screen 1 (640 x 480)"),
    ]
    assert key is None
    first, key = source.page(None, 1)
    assert first + source.page(key, 1)[0] == resources
    assert source.describe() == "1 screen (640 x 480), watched by polling every 2 s"
    assert source.documents(None, 10) == ([], None)
    with pytest.raises(InvalidArgument, match="cursor"):
        source.page("x", 1)


def test_a_picture_shows_the_pixels_of_the_screen(start_display: Callable[..., Display]) -> None:
    start_display().paint(0x3366CC)
    width, height, rows = decode_png(picture(screen()))
    assert (width, height) == (640, 480)
    assert rows[80][3 * 100 : 3 * 101] == bytes((0x33, 0x66, 0xCC))
    assert rows[300][3 * 100 : 3 * 101] == b"\0\0\0"


def test_a_capture_is_logged_private_and_not_cacheable(
    start_display: Callable[..., Display], caplog: pytest.LogCaptureFixture
) -> None:
    start_display()
    with caplog.at_level(logging.INFO, "wharfinger.sources.screens"):
        result = screen().read("screen:///all")
    assert (result.cache_scope, result.ttl_ms) == ("private", 0)
    assert "Captured screen:///all: 640 x 480 pixels" in caplog.text


def test_a_large_screen_is_subsampled(start_display: Callable[..., Display]) -> None:
    start_display("2560x1440x24").paint(0x00FF00)
    width, height, rows = decode_png(picture(screen()))
    assert (width, height) == (1280, 720)
    assert rows[30][3 * 50 : 3 * 51] == b"\0\xff\0"


def test_a_picture_that_compresses_badly_is_subsampled(
    start_display: Callable[..., Display], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_display()
    full_size = picture(screen())
    monkeypatch.setattr(sys.modules[Screen.__module__], "TARGET_BYTES", len(full_size) - 1)
    assert decode_png(picture(screen()))[:2] == (320, 240)


def test_a_screen_that_is_too_large_is_refused_before_it_is_captured(
    start_display: Callable[..., Display], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_display()
    monkeypatch.setattr(sys.modules[Screen.__module__], "MAX_CAPTURED_PIXELS", 640 * 480 - 1)
    with pytest.raises(InvalidArgument, match="read a single screen"):
        screen().read("screen:///all")


@pytest.mark.parametrize("uri", ["screen:///9", "screen:///", "screen:///0", "screen:///1?x=1"])
def test_an_unknown_screen_is_not_found(start_display: Callable[..., Display], uri: str) -> None:
    start_display()
    source = screen()
    for method in (source.read, source.stat):
        with pytest.raises(ResourceNotFound):
            method(uri)


def test_drawing_notifies_watchers(start_display: Callable[..., Display], recorder: ChangeRecorder) -> None:
    display = start_display()
    source = screen()
    source._watches.every = 0.05
    source.watch("screen:///1", recorder)
    wait_until(lambda: source._watches._watched["screen:///1"].state == source._look("screen:///1"), "the first poll")
    display.paint(0xFFFFFF)
    recorder.wait_for("screen:///1")
    source.unwatch("screen:///1")
    source._watches.close()


def test_screens_are_polled_every_two_seconds(start_display: Callable[..., Display]) -> None:
    start_display()
    assert screen()._watches.every == 2.0


def test_without_a_display_no_screen_can_be_published(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mss")
    monkeypatch.delenv("DISPLAY", raising=False)
    with pytest.raises(UnusableSource, match=r"No display can be captured.*DISPLAY"):
        screen()


def test_reads_of_a_stopped_display_fail_and_its_list_is_empty(start_display: Callable[..., Display]) -> None:
    display = start_display()
    source = screen()
    display.stop()
    with pytest.raises(InternalError, match="No display can be captured"):
        source.read("screen:///1")
    assert source.page(None, 10) == ([], None)


def test_a_client_reads_a_screen_as_png(start_display: Callable[..., Display]) -> None:
    start_display()
    server = Server("bridge")
    server.include(screen())

    async def main() -> None:
        async with Client(server) as client:
            read = await client.read_resource("screen:///1")
            assert read.mime_type == "image/png" and read.bytes.startswith(b"\x89PNG")

    asyncio.run(main())


def test_a_missing_extra_is_reported_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mss", None)
    with pytest.raises(MissingExtra, match=r"wharfinger\[screen\]"):
        screen()


class TestScreenContract(SourceContract):
    missing = "screen:///9"
    live = True

    @pytest.fixture
    def source(self, start_display: Callable[..., Display]) -> Screen:
        start_display()
        return screen()
