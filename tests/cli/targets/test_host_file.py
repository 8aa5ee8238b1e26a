"""A host's configuration file is replaced whole, or left as it was."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from wharfinger.cli.error_report import CommandError
from wharfinger.cli.targets.host_file import HostFile
from wharfinger.upstreams.host_formats import HOSTS

WRITER = """
import resource, sys
from pathlib import Path
from wharfinger.cli.targets.host_file import HostFile
from wharfinger.upstreams.host_formats import HOSTS

file = HostFile(Path(sys.argv[1]), HOSTS["claude-desktop"])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    file.write("secret" * 100)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of a file's size is that of POSIX")
def test_a_file_that_cannot_be_written_leaves_no_temporary_file(tmp_path: Path) -> None:
    """Regression: when the disk was full, the temporary file stayed, with the secrets of the entries.

    `RLIMIT_FSIZE` fails the write as a full disk does.
    """
    path = tmp_path / "hosts.json"
    path.write_text("{}")
    done = subprocess.run([sys.executable, "-c", WRITER, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["hosts.json", "hosts.json.wharfinger.bak"]
    assert path.read_text() == "{}"


@pytest.mark.skipif(sys.platform == "win32", reason="modes are those of POSIX")
def test_nobody_else_may_read_the_backup_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the backup had the mode of a new file until its content was complete."""
    path = tmp_path / "hosts.json"
    path.write_text('{"token": "secret"}')
    path.chmod(0o600)
    modes: list[int] = []
    copystat = shutil.copystat

    def record_mode(source: Any, target: Any, **options: Any) -> None:
        modes.append(Path(target).stat().st_mode & 0o777)
        copystat(source, target, **options)

    monkeypatch.setattr(shutil, "copystat", record_mode)
    backup = HostFile(path, HOSTS["claude-desktop"]).write("{}")
    assert backup is not None
    modes.append(backup.stat().st_mode & 0o777)
    assert modes == [0o600, 0o600]


def test_the_entry_to_add_by_hand_to_a_toml_file_is_toml(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[mcp_servers")
    entry = {"command": "wharfinger", "args": ["serve", "charts"]}
    with pytest.raises(CommandError, match="by hand") as raised:
        HostFile(path, HOSTS["codex"]).find("charts", entry)
    shown = str(raised.value).partition("by hand:\n")[2]
    assert tomllib.loads(shown) == {HOSTS["codex"].table: {"charts": entry}}
