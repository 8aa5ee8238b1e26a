"""`wharfinger doctor` against real servers: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from wharfinger.cli import main

FAULTY_SERVER = '''
from wharfinger import Server

server = Server("harbour")

@server.resource("tide://now", mime_type="text/plain", size=7)
def now() -> str:
    return "3 m"

@server.resource("tide://broken")
def broken() -> str:
    raise RuntimeError

@server.resource("tide://at/{place}")
def at(place: str) -> str:
    return place

@server.tool
def get(what):
    return what

@server.tool(meta={"ui": {"resourceUri": "ui://harbour/missing"}})
def show_tide() -> str:
    """Show the tide of the day, with its curve."""
    return "3 m"

@server.prompt
def briefing(vessel: str) -> str:
    return vessel
'''

GOOD_SERVER = '''
from typing import Annotated
import msgspec
from wharfinger import Server, types

server = Server("harbour", version="1.0", instructions="tide://now is the level of the water. find_berth names berths.")

@server.tool(title="Find a berth", annotations=types.ToolAnnotations(read_only_hint=True))
def find_berth(ship: Annotated[str, msgspec.Meta(description="Name of the ship.")]) -> str:
    """Find a berth that has enough water for a ship."""
    return ship

@server.resource("tide://now", title="The tide", mime_type="text/plain", size=3)
def now() -> str:
    return "3 m"
'''


def doctor(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "doctor", *args], capture_output=True, text=True, timeout=50, cwd=cwd, env=ENVIRONMENT, check=False
    )


@pytest.fixture
def faulty_server_file(tmp_path: Path) -> Path:
    file = tmp_path / "sick.py"
    file.write_text(FAULTY_SERVER)
    return file


def test_problems_are_shown_with_corrections_and_exit_code_1(faulty_server_file: Path) -> None:
    completed = doctor(str(faulty_server_file), cwd=faulty_server_file.parent)
    assert completed.returncode == 1, completed.stderr
    output = completed.stdout
    assert "harbour 0 at " in output
    assert "Supports 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05" in output
    assert "Offers 2 tools, 1 prompt, 2 resources, 1 template; 3 resources read" in output
    for line in (
        "Tools without a description: get",
        "Prompts without a description: briefing",
        "Resources cannot be read: tide://broken (Internal error",
        "Resources have a different size than the list says: tide://now (3 bytes, listed 7)",
        "Tools name a page that cannot be read: show_tide (ui://harbour/missing)",
        "Names of tools do not say what they do: get",
        "Arguments without a type: get.what",
        "The server has no instructions.",
    ):
        assert line in output, line
    assert output.index("Problems: ") < output.index("Tools without a description") < output.index("Advice: ")
    assert "Tokens of every conversation (4 characters each): " in output
    assert " for 2 tools, 0 for the instructions\n" in output
    assert completed.stderr == "" or "Traceback" not in completed.stderr


def test_a_good_server_has_no_problems_and_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "well.py").write_text(GOOD_SERVER)
    completed = doctor("well.py", "--no-probe", cwd=tmp_path)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "Problems: none" in completed.stdout
    assert "Advice: none" in completed.stdout


def test_json_is_one_object_with_everything(faulty_server_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--sample", "0", "--revision", "2025-06-18", str(faulty_server_file)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["server"] == {"name": "harbour", "version": "0"}
    assert found["revisions"] == ["2025-06-18"]
    assert found["offers"] == {"tools": 2, "prompts": 1, "resources": 2, "templates": 1}
    assert found["read"] == 0
    checks = {finding["check"]: finding for finding in found["findings"]}
    assert checks["no-description"]["severity"] in ("problem", "advice")
    assert "unreadable" not in checks
    assert set(found["tokens"]["by_tool"]) == {"get", "show_tide"}


def test_a_folder_is_published_without_problems(charts_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-probe", "--json", str(charts_folder)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [f for f in found["findings"] if f["severity"] == "problem"] == []
    assert found["read"] == 2


@pytest.fixture
def charts_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "charts"
    folder.mkdir()
    (folder / "a.md").write_text("# A")
    (folder / "wide.csv").write_bytes("a,b".encode("utf-16"))
    return folder


ONE_REVISION = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "old\\x1b[31m", "version": "9"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "x", "inputSchema": "not a schema"}]}
    elif id is None:
        continue
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"""


def test_a_server_of_one_revision_whose_list_fails_is_reported(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(ONE_REVISION)
    completed = doctor("--", sys.executable, "old.py", cwd=tmp_path)
    assert completed.returncode == 1, completed.stderr
    assert "Supports 2025-06-18\n" in completed.stdout
    assert "Lists fail: tools (" in completed.stdout
    assert "does not speak 2026-07-28" in completed.stdout
    assert "\x1b" not in completed.stdout


class StatelessServer(BaseHTTPRequestHandler):
    """A server with a tool whose `x-mcp-header` is invalid."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        schema = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
        result: dict[str, Any] = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "berth", "inputSchema": schema}]},
        }[message["method"]]
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_tool_that_clients_must_leave_out_is_examined_too(tmp_path: Path) -> None:
    """Over stateless HTTP the client itself does not list a tool with an invalid header."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StatelessServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        completed = doctor(f"http://127.0.0.1:{server.server_port}/mcp", "--no-probe", cwd=tmp_path)
        server.shutdown()
    assert "Tools have an invalid x-mcp-header: berth (" in completed.stdout, completed.stderr
    assert "Offers 1 tool," in completed.stdout


def test_an_unreachable_server_has_exit_code_3_and_bad_usage_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "http://127.0.0.1:9/mcp"]) == 3
    assert main(["doctor"]) == 2
    assert main(["doctor", "http://127.0.0.1:9/mcp", "more"]) == 2
    capsys.readouterr()
