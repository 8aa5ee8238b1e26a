"""The screens of this machine as pictures, taken when they are read (extra `screen`).

The log says when a screen is read or watched. No picture is stored, and none can be searched.
"""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from wharfinger import types as t
from wharfinger.content.text import many
from wharfinger.errors import InternalError, InvalidArgument, MissingExtra, ResourceNotFound
from wharfinger.source import Changed, Source, UnusableSource
from wharfinger.sources.page_keys import bad_cursor, refuse_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.watched import Watched

__all__ = ["Screen", "screen"]

TOP = "screen:///"
POLL_SECONDS = 2.0
"""Shortest time between two captures of a screen that is watched."""
MAX_CAPTURED_PIXELS = 64_000_000
"""Maximum number of pixels of a screen that is captured. Each takes four bytes."""
MAX_PIXELS = 2_400_000
"""Maximum number of pixels of a picture. Of a larger screen, only every second (third, …) line and column is kept."""
TARGET_BYTES = 1 << 20
"""Size above which a picture is scaled down further, until only every `MAX_STEP`-th line and column is left."""
MAX_STEP = 8
"""The largest step. A picture that was scaled down by this step may be larger than `TARGET_BYTES`."""
COMPARED_PIXELS = 40_000
"""Pixels of a screen that are compared to find a change."""

log = logging.getLogger("wharfinger.sources.screens")


def screen() -> Screen:
    """Publish the screens of this machine: `server.include(screen())`.

    Raises:
        MissingExtra: mss is not installed.
        UnusableSource: there is no display, or it cannot be captured.
    """
    source = Screen()
    try:
        source.monitors()
    except InternalError as error:
        raise UnusableSource(f"{error} Set DISPLAY, or leave out `screen:`.") from None
    return source


class Screen(Watched[Polling], Source):
    """The source that `screen()` returns. Its methods may be called from several threads at once."""

    name = "screen"
    cache_scope: t.CacheScope = "private"
    location = "the screens of this machine"

    def __init__(self) -> None:
        try:
            mss: Any = import_module("mss")
            import_module("mss.tools")
        except ImportError:
            raise MissingExtra("screen", "Publishing the screen") from None
        self._mss = mss
        self._display_lock = threading.Lock()
        self._watches = Polling("screen", self._look, every=POLL_SECONDS)

    @contextmanager
    def _display(self) -> Generator[Any]:
        """Open a connection to the display. A new connection knows which screens were added or removed."""
        with self._display_lock:
            try:
                with getattr(self._mss, "MSS", self._mss.mss)() as display:  # `MSS` since 10.2
                    yield display
            except (self._mss.exception.ScreenShotError, OSError) as error:
                raise InternalError(f"No display can be captured: {str(error).rstrip('.')}.") from None

    def monitors(self) -> dict[str, dict[str, int]]:
        """Return each screen by name, `all` first, with left, top, width and height in pixels.

        Raises:
            InternalError: no display can be captured.
        """
        with self._display() as display:
            return {str(number or "all"): monitor for number, monitor in enumerate(display.monitors)}

    def matches(self, uri: str) -> bool:
        """Return whether this is the URI of a screen."""
        return uri.startswith(TOP)

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List one resource for all screens together, and one for each. Without a display, the list is empty."""
        try:
            monitors = list(self.monitors().items())
        except InternalError as error:
            log.warning("No screen is listed: %s", error)
            return [], None
        if after is not None and not (after.isdecimal() and len(after) <= 4):
            raise bad_cursor()
        end = int(after or 0) + limit
        page = [_describe(name, monitor) for name, monitor in monitors[end - limit : end]]
        return page, str(end) if end < len(monitors) else None

    def stat(self, uri: str) -> t.Resource:
        """Describe a screen as a resource.

        Raises:
            ResourceNotFound: there is no such screen.
            InternalError: no display can be captured.
        """
        name = uri.removeprefix(TOP)
        monitor = self.monitors().get(name)
        if monitor is None:
            raise ResourceNotFound(uri)
        return _describe(name, monitor)

    def read(self, uri: str) -> t.ReadResourceResult:
        """Capture a screen as PNG, scaled down if it is large.

        Raises:
            ResourceNotFound: there is no such screen.
            InvalidArgument: it has more than `MAX_CAPTURED_PIXELS`.
            InternalError: no display can be captured.
        """
        size, pixels = self._grab(uri)
        step = max(1, math.ceil(math.sqrt(size[0] * size[1] / MAX_PIXELS)))
        picture = self._png(pixels, size, step)
        while len(picture) > TARGET_BYTES and step < MAX_STEP:
            step += 1
            picture = self._png(pixels, size, step)
        log.info("Captured %s: %d x %d pixels scaled down by %d, %d bytes", uri, *size, step, len(picture))
        contents = t.ResourceContents(uri=uri, mime_type="image/png", blob=picture)
        return t.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope=self.cache_scope)

    def _grab(self, uri: str) -> tuple[tuple[int, int], bytes]:
        """Capture a screen. Returns width and height, and four bytes of each pixel: blue, green, red and a filler."""
        with self._display() as display:
            monitors = {str(number or "all"): monitor for number, monitor in enumerate(display.monitors)}
            monitor = monitors.get(uri.removeprefix(TOP))
            if monitor is None or not uri.startswith(TOP):
                raise ResourceNotFound(uri)
            if monitor["width"] * monitor["height"] > MAX_CAPTURED_PIXELS:
                raise InvalidArgument(f"{uri} has more than {MAX_CAPTURED_PIXELS:,} pixels: read a single screen.")
            shot = display.grab(monitor)
            return (shot.width, shot.height), bytes(shot.bgra)

    def _png(self, pixels: bytes, size: tuple[int, int], step: int) -> bytes:
        (width, height), scaled = _scaled(pixels, size, step)
        colours = bytearray(width * height * 3)
        for channel in range(3):
            colours[channel::3] = scaled[2 - channel :: 4]
        return bytes(self._mss.tools.to_png(bytes(colours), (width, height)))

    def documents(self, after: str | None, limit: int) -> tuple[list[Any], str | None]:
        """Return no documents: pictures cannot be searched."""
        refuse_cursor(after)
        return [], None

    def describe(self) -> str:
        """Return the number and sizes of the screens, and how changes are found.

        Raises:
            InternalError: no display can be captured.
        """
        sizes = [f"{monitor['width']} x {monitor['height']}" for monitor in self.monitors().values()][1:]
        return f"{many(len(sizes), 'screen')} ({', '.join(sizes)}), watched by {self._watches.means}"

    def _look(self, uri: str | None) -> str:
        if uri is None:
            return repr(self.monitors())
        size, pixels = self._grab(uri)
        step = max(1, math.ceil(math.sqrt(size[0] * size[1] / COMPARED_PIXELS)))
        return hashlib.blake2b(repr(size).encode() + _scaled(pixels, size, step)[1]).hexdigest()

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Call `changed` when the screen has changed, at most every two seconds."""
        log.info("Started to watch %s", uri or "the list of screens")
        super().watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop watching a URI, or the list if `uri` is None."""
        log.info("Stopped watching %s", uri or "the list of screens")
        super().unwatch(uri)


def _scaled(pixels: bytes, size: tuple[int, int], step: int) -> tuple[tuple[int, int], bytes]:
    """Keep every `step`-th pixel of every `step`-th line. Returns width and height, and the pixels."""
    width, height = size
    if step == 1:
        return size, pixels
    words = memoryview(pixels).cast("I")
    lines = [words[line * width : (line + 1) * width : step].tobytes() for line in range(0, height, step)]
    return (math.ceil(width / step), len(lines)), b"".join(lines)


def _describe(name: str, monitor: dict[str, int]) -> t.Resource:
    title = ("All screens" if name == "all" else f"Screen {name}") + f" ({monitor['width']} x {monitor['height']})"
    return t.Resource(
        uri=TOP + name, name=name, title=title, mime_type="image/png", annotations=t.Annotations(priority=0.0)
    )
