"""A small real folder, and a recorder of its changes."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.policy.policy import Policy
from wharfinger.protocol.principal import LOCAL
from wharfinger.sources.folder.source import Folder, files


class ChangeRecorder:
    """Collects the changes that a source reports, and waits for them."""

    def __init__(self) -> None:
        self.changes: list[str | None] = []
        self._more = threading.Condition()

    def __call__(self, uri: str | None) -> None:
        with self._more:
            self.changes.append(uri)
            self._more.notify_all()

    def wait_for(self, *uris: str | None, timeout: float = 10) -> None:
        """Wait until all of these were reported, and forget all earlier reports."""
        with self._more:
            reported = self._more.wait_for(lambda: set(uris) <= set(self.changes), timeout)
            assert reported, f"{uris} were not reported: {self.changes}"
            self.changes.clear()


def many_names(directory: Path, names: list[str], content: bytes = b"") -> None:
    """Create files with these names: one new file in a thousand, and the others as hard links, which are cheap."""
    handle = os.open(directory, os.O_RDONLY)
    for number, name in enumerate(names):
        if number % 1000 == 0:
            (directory / name).write_bytes(content)
            first = name
        else:
            os.link(first, name, src_dir_fd=handle, dst_dir_fd=handle)
    os.close(handle)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything, so become another user for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def charts(tmp_path: Path) -> Path:
    """A folder with a few files of each kind that is published."""
    root = tmp_path / "charts"
    (root / "harbours" / "north").mkdir(parents=True)
    (root / "README.md").write_text("# Charts\n\nSoundings in fathoms.\n")
    (root / "empty.txt").write_text("")
    (root / "tides.csv").write_text("port,high\nHull,6.1\n")
    (root / "harbours" / "hull.ts").write_text("export const depth = 4;\n")
    (root / "harbours" / "north" / "buoy.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    return root


@pytest.fixture
def source(charts: Path) -> Iterator[Folder]:
    folder = files(charts)
    yield folder
    folder._watch.close()
    folder._watch.join()


@pytest.fixture
def recorder() -> ChangeRecorder:
    return ChangeRecorder()


@pytest.fixture
def publish() -> Iterator[Callable[..., Folder]]:
    """`files()`, with what it makes closed at the end."""
    made: list[Folder] = []

    def make(*arguments: object, **options: object) -> Folder:
        made.append(files(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for folder in made:
        folder._watch.close()
        folder._watch.join()


Permit = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def permit() -> Permit:
    """`with permit("file:///docs/**", deny=["file:///docs/private/**"]):` runs code for a caller with these rules."""

    @contextmanager
    def permitted(*allow: str, deny: Sequence[str] = (), query: Sequence[str] = ()) -> Iterator[None]:
        rules = [("allow", ["read"], list(allow)), ("allow", ["query"], list(query)), ("deny", ["read"], list(deny))]
        text = "".join(
            f'[[{kind}]]\nwho = "anyone"\ndo = {do}\nwhat = {json.dumps(what)}\n' for kind, do, what in rules if what
        )
        token = CURRENT_ACCESS.set(Policy.from_toml(text).access(LOCAL))
        try:
            yield
        finally:
            CURRENT_ACCESS.reset(token)

    return permitted
