"""Journal files, which systemd-journal-remote writes from the Journal Export Format."""

from __future__ import annotations

import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.conftest import absent

REMOTE = "/lib/systemd/systemd-journal-remote"
BOOT = "a" * 32
CAN_WRITE = Path(REMOTE).exists() and shutil.which("journalctl") is not None
"""Whether the programs that write and read journals are installed."""
NOON = 1_795_003_200
"""2026-11-18T12:00:00Z."""


def export_entry(fields: dict[str, bytes | str | int]) -> bytes:
    """Return one entry in the Journal Export Format."""
    data = b""
    for name, value in fields.items():
        raw = value if isinstance(value, bytes) else str(value).encode()
        plain = raw.isascii() and raw.decode().isprintable()
        key = name.encode()
        data += b"%s=%s\n" % (key, raw) if plain else b"%s\n%s%s\n" % (key, struct.pack("<Q", len(raw)), raw)
    return data + b"\n"


class WrittenJournal:
    """A directory of journal files. Each new entry is one second later than the previous one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._seconds = itertools.count()

    def write(
        self,
        *messages: str | bytes,
        file: str = "system.journal",
        at: float | None = None,
        boot: str = BOOT,
        **fields: str | bytes | int,
    ) -> None:
        """Append one entry for each message, with these fields."""
        data = b""
        for message in messages:
            moment = NOON + next(self._seconds) if at is None else at
            entry: dict[str, bytes | str | int] = {
                "__REALTIME_TIMESTAMP": int(moment * 1e6),
                "__MONOTONIC_TIMESTAMP": int((moment - NOON) * 1e6),
                "_BOOT_ID": boot,
                "PRIORITY": 6,
                "_SYSTEMD_UNIT": "nginx.service",
                "SYSLOG_IDENTIFIER": "nginx",
                "_PID": 7,
                "_TRANSPORT": "journal",
                "MESSAGE": message,
                **fields,
            }
            data += export_entry({name: value for name, value in entry.items() if value != ""})
        process = subprocess.run([REMOTE, "-o", self.folder / file, "-"], input=data, capture_output=True, timeout=30)
        assert process.returncode == 0, process.stderr

    def read(self, *arguments: str) -> bytes:
        """Return the output of journalctl."""
        command = ["journalctl", "--no-pager", "--quiet", f"--directory={self.folder}", *arguments]
        return subprocess.run(command, capture_output=True, check=True, timeout=30).stdout


@pytest.fixture
def journal_files(tmp_path: Path) -> WrittenJournal:
    if not CAN_WRITE:
        absent("systemd-journal-remote (apt-get install systemd-journal-remote)")
    return WrittenJournal(tmp_path / "journal")
