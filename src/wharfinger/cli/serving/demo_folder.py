"""A temporary folder for demonstrations, with a log that grows."""

from __future__ import annotations

import math
import shutil
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LOG", "demo_folder"]

LOG = "tides.log"
PERIOD_SECONDS = 5.0
"""Time between two lines of the log."""

EXAMPLE_FILES = {
    "README.md": "# Charts\n\nA folder to try wharfinger with: `tides.log` grows by a line every five seconds.\n",
    "berths.csv": "quay,ship,depth_m\nNorth,Mary,6.5\nSouth,,4.2\n",
}
"""The files of the folder that is published if none is given."""


@contextmanager
def demo_folder(source: str | None, period: float = PERIOD_SECONDS) -> Generator[str]:
    """Yield a temporary copy of `source` (or a small example folder) whose `tides.log` gets a line every `period` s."""
    with tempfile.TemporaryDirectory(prefix="wharfinger-") as root:
        folder = Path(root) / (Path(source).resolve().name if source else "charts")
        if source:
            shutil.copytree(source, folder, symlinks=True)
            folder.chmod(0o700)
            if (folder / LOG).is_file():  # it may be read-only, or a link to a file outside of the copy
                shutil.copyfile(folder / LOG, folder / f"{LOG}.new")
                (folder / f"{LOG}.new").replace(folder / LOG)
            elif (folder / LOG).is_symlink():  # appending would create the file that it leads to
                (folder / LOG).unlink()
        else:
            folder.mkdir()
            for file, text in EXAMPLE_FILES.items():
                (folder / file).write_text(text, encoding="utf-8")
        ended = threading.Event()
        append(folder)
        writer = threading.Thread(target=keep_writing, args=(folder, period, ended), daemon=True)
        writer.start()
        try:
            yield str(folder)
        finally:
            ended.set()
            writer.join(1.0)


def keep_writing(folder: Path, period: float, ended: threading.Event) -> None:
    """Append lines until `ended` is set, or the file cannot be written."""
    while not ended.wait(period):
        try:
            append(folder)
        except OSError:  # such as a folder that was removed
            return


def append(folder: Path) -> None:
    """Append the current height of an imaginary tide."""
    now = time.time()
    phase = 2 * math.pi * now / 44_714  # seconds from one high water to the next
    height, trend = 2.5 + 1.8 * math.sin(phase), "rising" if math.cos(phase) > 0 else "falling"
    with (folder / LOG).open("a", encoding="utf-8") as log:
        log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z', time.localtime(now))} {height:.3f} m {trend}\n")
