"""The screens of this machine as pictures, taken when they are read (extra `screen`). Each one is logged.

Refuses to know what is shown: nothing is searched, and nothing is kept.
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
from wharfinger.sources.page_keys import bad_cursor, need_no_cursor
from wharfinger.sources.polling import Polling

__all__ = ["Screen", "screen"]

TOP = "screen:///"
EVERY = 2.0  # seconds between looks at what is watched
LARGEST = 64_000_000  # pixels that are taken at all: four bytes each
PIXELS = 2_400_000  # of a picture that is given; of a larger screen only each second, third, … line and column is
BYTES = 1 << 20  # of a picture that is given, if thinning it out can do that
THINNEST = 8
THUMBNAIL = 40_000  # pixels that are compared to see a change

log = logging.getLogger("wharfinger.sources.screens")


def screen() -> Screen:
    """Publish what the screens show: `server.include(screen())`.

    Raises:
        MissingExtra: mss is not installed.
        UnusableSource: there is no display, or none that may be looked at.
    """
    source = Screen()
    try:
        source.monitors()
    except InternalError as error:
        raise UnusableSource(f"{error} `screen:` needs one: set DISPLAY, or leave it out.") from None
    return source


class Screen(Source):
    """The source that `screen()` makes. Its methods may be called from several threads at once."""

    name = "screen"
    cache_scope = "private"
    place = "the screens of this machine"

    def __init__(self) -> None:
        try:
            mss: Any = import_module("mss")
            import_module("mss.tools")
        except ImportError:
            raise MissingExtra("screen", "Publishing the screen") from None
        self._mss = mss
        self._one_at_a_time = threading.Lock()
        self._polling = Polling("screen", self._look, every=EVERY)

    @contextmanager
    def _display(self) -> Generator[Any]:
        """A connection to the display for one look: what came or went since the last one is seen."""
        with self._one_at_a_time:
            try:
                with getattr(self._mss, "MSS", self._mss.mss)() as display:  # `MSS` since 10.2
                    yield display
            except (self._mss.exception.ScreenShotError, OSError) as error:
                raise InternalError(f"There is no display to look at: {str(error).rstrip('.')}.") from None

    def monitors(self) -> dict[str, dict[str, int]]:
        """Each screen by its name, `all` first; left, top, width and height in pixels."""
        with self._display() as display:
            return {str(number or "all"): monitor for number, monitor in enumerate(display.monitors)}

    def matches(self, uri: str) -> bool:
        """Whether this URI is that of a screen."""
        return uri.startswith(TOP)

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """All screens as one, and each; nothing while there is no display, so that other sources are listed."""
        try:
            monitors = list(self.monitors().items())
        except InternalError as error:
            log.warning("no screen is listed: %s", error)
            return [], None
        if after is not None and not (after.isdecimal() and len(after) <= 4):
            raise bad_cursor()
        behind = int(after or 0) + limit
        shown = [_described(name, monitor) for name, monitor in monitors[behind - limit : behind]]
        return shown, str(behind) if behind < len(monitors) else None

    def stat(self, uri: str) -> t.Resource:
        """The resource of a screen.

        Raises:
            ResourceNotFound: there is none of this number.
        """
        name = uri.removeprefix(TOP)
        monitor = self.monitors().get(name)
        if monitor is None:
            raise ResourceNotFound(uri)
        return _described(name, monitor)

    def read(self, uri: str) -> t.ReadResourceResult:
        """A picture of now as PNG; of a large screen a smaller one.

        Raises:
            ResourceNotFound: there is no such screen.
            InvalidArgument: it has more pixels than are taken.
        """
        size, pixels = self._grab(uri)
        step = max(1, math.ceil(math.sqrt(size[0] * size[1] / PIXELS)))
        picture = self._png(pixels, size, step)
        while len(picture) > BYTES and step < THINNEST:
            step += 1
            picture = self._png(pixels, size, step)
        log.info("captured %s: %d x %d pixels, %d bytes, each %d", uri, *size, len(picture), step)
        shown = t.ResourceContents(uri=uri, mime_type="image/png", blob=picture)
        return t.ReadResourceResult(contents=[shown], ttl_ms=0, cache_scope=self.cache_scope)

    def _grab(self, uri: str) -> tuple[tuple[int, int], bytes]:
        """Width and height, and four bytes of each pixel: blue, green, red, nothing."""
        with self._display() as display:
            named = {str(number or "all"): monitor for number, monitor in enumerate(display.monitors)}
            monitor = named.get(uri.removeprefix(TOP))
            if monitor is None or not uri.startswith(TOP):
                raise ResourceNotFound(uri)
            if monitor["width"] * monitor["height"] > LARGEST:
                raise InvalidArgument(f"{uri} has more than {LARGEST:,} pixels: read one screen alone.")
            shot = display.grab(monitor)
            return (shot.width, shot.height), bytes(shot.bgra)

    def _png(self, pixels: bytes, size: tuple[int, int], step: int) -> bytes:
        (width, height), thin = _thinned(pixels, size, step)
        colours = bytearray(width * height * 3)
        for place in range(3):
            colours[place::3] = thin[2 - place :: 4]
        return bytes(self._mss.tools.to_png(bytes(colours), (width, height)))

    def documents(self, after: str | None, limit: int) -> tuple[list[Any], str | None]:
        """None: pictures are not searched."""
        need_no_cursor(after)
        return [], None

    def describe(self) -> str:
        """What is published, for a person."""
        sizes = [f"{monitor['width']} x {monitor['height']}" for monitor in self.monitors().values()][1:]
        return f"{many(len(sizes), 'screen')} ({', '.join(sizes)}), watched by {self._polling.means}"

    def _look(self, uri: str | None) -> str:
        if uri is None:
            return repr(self.monitors())
        size, pixels = self._grab(uri)
        step = max(1, math.ceil(math.sqrt(size[0] * size[1] / THUMBNAIL)))
        return hashlib.blake2b(repr(size).encode() + _thinned(pixels, size, step)[1]).hexdigest()

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Tell `changed` when the screen shows something else, at most each two seconds."""
        log.info("watching %s from now on", uri or "which screens there are")
        self._polling.watch(uri, changed)

    def unwatch(self, uri: str | None) -> None:
        """Stop telling."""
        log.info("watching %s no more", uri or "which screens there are")
        self._polling.unwatch(uri)

    async def close(self) -> None:
        """Stop looking."""
        self._polling.close()


def _thinned(pixels: bytes, size: tuple[int, int], step: int) -> tuple[tuple[int, int], bytes]:
    """Each `step`-th pixel of each `step`-th line, and how many there are in a line, and lines."""
    width, height = size
    if step == 1:
        return size, pixels
    words = memoryview(pixels).cast("I")
    lines = [words[line * width : (line + 1) * width : step].tobytes() for line in range(0, height, step)]
    return (math.ceil(width / step), len(lines)), b"".join(lines)


def _described(name: str, monitor: dict[str, int]) -> t.Resource:
    title = ("All screens" if name == "all" else f"Screen {name}") + f" ({monitor['width']} x {monitor['height']})"
    return t.Resource(
        uri=TOP + name, name=name, title=title, mime_type="image/png", annotations=t.Annotations(priority=0.0)
    )
