"""`wharfinger inspect` shows the revisions, capabilities and lists of a server."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli

WITHOUT_PING = """\
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
    elif "id" in message:
        error = {"code": -32601, "message": "no " + message["method"]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_inspect_prints_everything_as_json(run_cli: RunCli, harbour_url: str, revision: str) -> None:
    found = json.loads(run_cli("inspect", "--json", "--revision", revision, harbour_url)[1])
    assert (found["revision"], found["transport"], found["server"]["name"]) == (revision, "streamable http", "harbour")
    assert {kind: entries["count"] for kind, entries in found["lists"].items()} == {
        "resources": 1,
        "templates": 1,
        "tools": 1,
        "prompts": 1,
    }
    assert found["capabilities"]["completions"] == {}
    assert found["timings"]["connectMs"] > 0
    assert len(found["timings"]["roundTripMs"]) == 5


def test_inspect_shows_which_revisions_the_server_speaks(run_cli: RunCli, harbour_file: Path) -> None:
    code, out, err = run_cli("inspect", str(harbour_file))
    assert (code, err) == (0, "")
    reported = re.sub(r"  +", "  ", out)
    assert "Server  harbour 0\n" in reported
    assert "Transport  stdio\n" in reported
    assert "Supports  2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05\n" in reported
    assert "\nLists  1 resource in " in reported
    assert out.endswith("Instructions  Ships and tides.\n              See the log.\n")


def test_a_server_without_ping_is_shown_too(run_cli: RunCli) -> None:
    code, out, err = run_cli("inspect", "--no-probe", "--", sys.executable, "-c", WITHOUT_PING)
    assert (code, err) == (0, "")
    assert "Server      old 1\n" in out
    assert "Round trip  no ping (error -32601)\n" in out
    found = json.loads(run_cli("inspect", "--no-probe", "--json", "--", sys.executable, "-c", WITHOUT_PING)[1])
    assert (found["timings"]["roundTripMs"], found["timings"]["error"]) == ([], "no ping (error -32601)")
