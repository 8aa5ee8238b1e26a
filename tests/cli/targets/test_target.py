"""A TARGET may be a folder, a server in a file, or a socket."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, RunCli
from tests.waiting import connect_when_listening


@pytest.mark.parametrize("folder", ["charts", "."])
def test_a_folder_is_a_target_too(run_cli: RunCli, charts: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(charts.parent if folder == "charts" else charts)
    assert run_cli("read", folder, "file:///charts/notes.md")[:2] == (0, "# Notes\n")


def test_one_of_the_servers_of_a_file_is_a_target_too(
    run_cli: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "one, two = Server('one'), Server('two')"
    Path("tides.py").write_text(f"from wharfinger import Server\n{two}\n@two.tool\ndef lower(): return 'low'\n")
    assert run_cli("ls", "--tools", "tides.py:two")[1].split() == ["lower"]
    assert "tides.py has several servers (one, two): choose one, such as" in run_cli("ls", "tides.py")[2]
    code, _, err = run_cli("ls", "tide.py:two")
    assert code == 2
    assert "tide.py: no such file. Did you mean tides.py?" in err


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
def test_a_server_on_a_unix_socket_is_a_target(run_cli: RunCli, tmp_path: Path) -> None:
    socket_path = tmp_path / "s"
    script = "from wharfinger import Server\nimport sys\nServer('quay').run(unix=sys.argv[1])"
    process = subprocess.Popen([sys.executable, "-c", script, str(socket_path)], env=ENVIRONMENT)
    try:
        connect_when_listening(socket_path).close()
        found = json.loads(run_cli("inspect", "--json", "--no-probe", f"unix:{socket_path}")[1])
        assert (found["transport"], found["server"]["name"]) == ("unix socket", "quay")
        assert run_cli("ls", "--tree", str(socket_path)) == (0, "quay 0\n", "")
        code, _, err = run_cli("ls", str(socket_path))
        assert (code, err) == (1, "wharfinger: The server has no resources; it has nothing that can be listed.\n")
        code, _, err = run_cli("ls", "--tools", str(socket_path))
        assert (code, err) == (1, "wharfinger: The server has no tools; it has nothing that can be listed.\n")
        assert run_cli("ls", f"unix:{tmp_path}/none")[0] == 3
    finally:
        process.terminate()
        process.wait(20)


def test_a_long_argument_is_not_a_path(run_cli: RunCli, charts: Path, tmp_path: Path) -> None:
    """Regression: the check for paths with spaces failed with "File name too long"."""
    code, _, err = run_cli("call", str(charts), "search", f"query={'x ' * 3_000}")
    assert "too long" not in err
    assert code in (0, 1)
    code, _, err = run_cli("ls", "x" * 5_000)
    assert code == 2
    assert "too long" not in err


def test_a_file_of_another_type_is_not_a_target(run_cli: RunCli, charts: Path) -> None:
    code, _, err = run_cli("ls", str(charts / "notes.md"))
    assert code == 2
    assert "notes.md is not a Python file. If it is a program, put it after `--`: `-- " in err
