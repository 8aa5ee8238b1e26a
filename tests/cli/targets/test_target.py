"""What a TARGET may be: folders, servers of a file, and sockets."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Say


@pytest.mark.parametrize("folder", ["charts", "."])
def test_a_folder_is_a_target_too(say: Say, charts: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(charts.parent if folder == "charts" else charts)
    assert say("read", folder, "file:///charts/notes.md")[:2] == (0, "# Notes\n")


def test_one_of_the_servers_of_a_file_is_a_target_too(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    two = "one, two = Server('one'), Server('two')"
    Path("tides.py").write_text(f"from wharfinger import Server\n{two}\n@two.tool\ndef lower(): return 'low'\n")
    assert say("ls", "--tools", "tides.py:two")[1].split() == ["lower"]
    assert "tides.py has several servers (one, two): choose one, such as" in say("ls", "tides.py")[2]
    code, _, err = say("ls", "tide.py:two")
    assert code == 2
    assert "tide.py: no such file. Did you mean tides.py?" in err


@pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")
def test_a_server_on_a_unix_socket_is_a_target(say: Say, tmp_path: Path) -> None:
    place = tmp_path / "s"
    script = "from wharfinger import Server\nimport sys\nServer('quay').run(unix=sys.argv[1])"
    process = subprocess.Popen([sys.executable, "-c", script, str(place)], env=ENVIRONMENT)
    try:
        for _ in range(400):
            if place.exists():
                break
            time.sleep(0.05)
        found = json.loads(say("inspect", "--json", "--no-probe", f"unix:{place}")[1])
        assert (found["transport"], found["server"]["name"]) == ("unix socket", "quay")
        assert say("ls", "--tree", str(place)) == (0, "quay 0\n", "")
        code, _, err = say("ls", str(place))
        assert (code, err) == (1, "wharfinger: The server has no resources, no tools and no prompts.\n")
        assert say("ls", f"unix:{tmp_path}/none")[0] == 3
    finally:
        process.terminate()
        process.wait(20)
