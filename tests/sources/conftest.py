"""A small folder on disk, a recorder of its changes, and policies for its callers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.policy.policy import Policy
from wharfinger.protocol.principal import LOCAL
from wharfinger.sources.folder.source import Folder, files
from wharfinger.testing.source_suite import suite_helpers, watch_tests
from wharfinger.testing.source_suite.driver import ChangeRecorder


def create_files(directory: Path, names: list[str], content: bytes = b"") -> None:
    """Create files with these names. All but one in a thousand are hard links, which are faster to create."""
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
    """Become an unprivileged user within the block, since root may read everything."""
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
    folder._watches.close()
    folder._watches.join()


@pytest.fixture(autouse=True)
def patient_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `SourceContract` wait as long for a change as a `ChangeRecorder` does."""
    for module in (suite_helpers, watch_tests):
        monkeypatch.setattr(module, "DEADLINE_SECONDS", 40.0)


@pytest.fixture
def recorder() -> ChangeRecorder:
    return ChangeRecorder()


@pytest.fixture
def publish() -> Iterator[Callable[..., Folder]]:
    """The function `files`. The watchers of its folders are closed after the test."""
    folders: list[Folder] = []

    def publish_folder(*arguments: object, **options: object) -> Folder:
        folders.append(files(*arguments, **options))  # type: ignore[arg-type]
        return folders[-1]

    yield publish_folder
    for folder in folders:
        folder._watches.close()
        folder._watches.join()


Permit = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def permit() -> Permit:
    """`with permit("file:///docs/**", deny=["file:///docs/private/**"]):` runs code for a caller with these rules."""

    @contextmanager
    def apply_rules(*allow: str, deny: Sequence[str] = (), query: Sequence[str] = ()) -> Iterator[None]:
        rules = [("allow", ["read"], list(allow)), ("allow", ["query"], list(query)), ("deny", ["read"], list(deny))]
        text = "".join(
            f'[[{kind}]]\nwho = "anyone"\ndo = {do}\nwhat = {json.dumps(what)}\n' for kind, do, what in rules if what
        )
        token = CURRENT_ACCESS.set(Policy.from_toml(text).access(LOCAL))
        try:
            yield
        finally:
            CURRENT_ACCESS.reset(token)

    return apply_rules
