"""`wharfinger serve` as a process: transports, ports, access, and imported modules."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Terminal
from tests.conftest import free_port
from wharfinger import Client
from wharfinger.cli import main
from wharfinger.errors import NotAuthorized

Start = Callable[..., "subprocess.Popen[str]"]

HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
)


def address(process: subprocess.Popen[str]) -> str:
    """Read the banner up to the address."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"MCP  (\S+)", line)
        if found:
            return found[1]
    raise AssertionError(process.communicate()[1])


def test_serve_uses_stdio_on_pipes_and_writes_only_messages_to_stdout(start: Start, charts: Path) -> None:
    process = start("serve", str(charts))
    out, err = process.communicate(HELLO + "\n", timeout=20)
    assert (process.returncode, err) == (0, "")
    (answer,) = out.splitlines()
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "charts"


def test_stdio_can_be_forced_at_a_terminal(terminal: Callable[..., Terminal], charts: Path) -> None:
    session = terminal("serve", "--stdio", str(charts))
    session.press(HELLO + "\n")
    assert '"serverInfo"' in session.wait_for('"serverInfo"')
    assert "Publishing" not in session.output
    session.press("\x03")
    assert session.wait_for_exit() == 130
    assert "Traceback" not in session.output


def test_the_next_port_is_used_and_reported_if_the_default_is_in_use(start: Start, charts: Path) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", 8000))
            listener.listen(1)
        except OSError:
            pass  # another process uses it already
        process = start("serve", "--http", str(charts))
        port = int(address(process).split(":")[2].split("/")[0])
        assert port > 8000
        process.terminate()
        assert "Port 8000 is in use: trying 8001." in process.communicate(timeout=20)[1]
        assert process.returncode == 0


def test_a_chosen_port_in_use_is_an_error(charts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        assert main(["serve", "--http", f"127.0.0.1:{port}", str(charts)]) == 3
    message = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in message
    assert message.count("\n") == 1


def test_a_public_address_requires_a_token(
    charts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["serve", "--http", "0.0.0.0:0", str(charts)]) == 2
    assert "--token-env NAME" in capsys.readouterr().err
    assert main(["serve", "--http", "0.0.0.0:0", "--token-env", "CHARTS_TOKEN", str(charts)]) == 2
    assert "CHARTS_TOKEN is not set" in capsys.readouterr().err
    monkeypatch.setenv("CHARTS_TOKEN", "short")
    assert main(["serve", "--http", "0.0.0.0:0", "--token-env", "CHARTS_TOKEN", str(charts)]) == 2
    assert "at least 16" in capsys.readouterr().err


def test_requests_without_the_token_are_refused(start: Start, charts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "0123456789abcdef0123"
    process = start("serve", "--http", "0.0.0.0:0", "--token-env", "T", str(charts), env={"T": token})
    url = address(process)
    assert url.startswith("http://127.0.0.1:")

    async def connect(**headers: str) -> str | None:
        async with Client(url, headers=headers) as client:
            return client.server_info.name if client.server_info else None

    assert asyncio.run(connect(Authorization=f"Bearer {token}")) == "charts"
    with pytest.raises(NotAuthorized):
        asyncio.run(connect())
    monkeypatch.setenv("OTHER", "0123456789abcdef0124")
    assert main(["ls", "--token-env", "OTHER", url]) == 4


@pytest.mark.parametrize(
    ("host", "options", "hinted"),
    [
        ("0.0.0.0", (), True),
        ("0.0.0.0", ("--allow-host", "charts.test"), False),
        ("0.0.0.0", ("--public-url", "https://charts.test"), False),
        ("127.0.0.1", (), False),
    ],
)
def test_a_server_at_all_addresses_says_which_option_lets_other_machines_connect(
    host: str, options: tuple[str, ...], hinted: bool, start: Start, charts: Path
) -> None:
    arguments = ("serve", "--http", f"{host}:0", "--token-env", "T", *options, str(charts))
    process = start(*arguments, env={"T": "0123456789abcdef0123"})
    address(process)
    process.terminate()
    error = process.communicate(timeout=20)[1]
    assert error.startswith("Requests to another host than localhost are refused.") == hinted
    assert ("--allow-host NAME or --public-url URL" in error) == hinted


@pytest.mark.parametrize(("path", "expected"), [("nowhere", "{here}/nowhere"), (".", "the full path")])
def test_a_target_that_cannot_be_published_is_reported_with_its_full_path(
    path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--stdio", path]) == 2
    message = capsys.readouterr().err
    assert expected.format(here=tmp_path) in message
    assert str(tmp_path) in message


def test_several_folders_are_one_server_with_a_label_each(charts: Path, executable: str) -> None:
    async def list_uris() -> tuple[str, set[str]]:
        async with Client([executable, "serve", str(charts), f"old={charts / 'sub'}"]) as client:
            assert client.server_info is not None
            return client.server_info.name, {resource.uri for resource in await client.list_resources()}

    name, uris = asyncio.run(list_uris())
    assert name == "charts-old"
    assert {"file:///charts/sub/b.py", "file:///old/b.py"} <= uris


def test_options_apply_to_the_folder_and_are_in_the_command_for_hosts(start: Start, charts: Path) -> None:
    process = start("serve", "--http", "127.0.0.1:0", "--include", "*.md", "--no-tools", str(charts))
    url = address(process)

    async def list_files() -> tuple[set[str], bool]:
        async with Client(url) as client:
            files = {r.uri for r in await client.list_resources() if r.mime_type != "inode/directory"}
            return files, client.capabilities.tools is not None and bool(client.capabilities.tools)

    assert asyncio.run(list_files())[0] == {"file:///charts/notes.md"}
    assert process.stdout is not None
    card = [next(process.stdout) for _ in range(5)]
    assert "add claude-desktop --name charts -- " in card[3]
    assert f"serve --stdio --include '*.md' --no-tools {charts}" in card[3]


def test_the_demo_is_a_copy_with_a_log(start: Start, charts: Path) -> None:
    process = start("serve", "--http", "127.0.0.1:0", "--demo", str(charts))
    assert process.stdout is not None
    copy = Path(process.stdout.readline().split("  ")[0].removeprefix("Publishing "))
    assert copy != charts
    assert (copy / "notes.md").exists()
    address(process)
    process.terminate()
    process.communicate(timeout=20)
    assert not copy.exists()


@pytest.mark.parametrize("answers", [True, False])
def test_unused_modules_are_not_imported_on_stdio(charts: Path, answers: bool) -> None:
    """The budget from the start to the first answer is 150 ms, and each of these modules takes a large part of it."""
    code = (
        "import sys; from wharfinger.cli import main; code = main(['serve', sys.argv[1]]);"
        "heavy = {'rich', 'uvicorn', 'aiohttp', 'watchfiles', 'httptools', 'uvloop', 'wharfinger.client', 'html'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, str(charts)],
        input=HELLO + "\n" if answers else "",
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert completed.stderr == "[]\n"
    assert bool(completed.stdout) is answers


def test_quiet_prints_only_errors(start: Start, charts: Path) -> None:
    port = free_port()
    process = start("serve", "-q", "--http", f"127.0.0.1:{port}", str(charts))

    async def wait_until_ready() -> None:
        while True:
            try:
                async with Client(f"http://127.0.0.1:{port}/mcp") as client:
                    await client.ping()
                return
            except ConnectionError:
                assert process.poll() is None

    asyncio.run(wait_until_ready())
    process.terminate()
    assert process.communicate(timeout=20) == ("", "")


def test_unix_socket_is_served_until_a_signal(start: Start, charts: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    process = start("serve", "--unix", str(path), str(charts))
    assert process.stdout is not None
    assert process.stdout.readline() == f"Serving charts at unix:{path}\n"

    async def visit() -> int:
        async with Client(f"unix:{path}") as client:
            return len(await client.list_resources())

    assert asyncio.run(visit())
    process.terminate()
    assert (process.wait(20), path.exists()) == (0, False)


@pytest.mark.parametrize("other", ["--stdio", "--http=127.0.0.1:1", "--token-env=X"])
def test_unix_socket_excludes_other_transports(
    other: str, charts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--unix", str(tmp_path / "s"), other, str(charts)]) == 2
    assert other.partition("=")[0] in capsys.readouterr().err
