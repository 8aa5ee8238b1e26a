"""Run the command line as a real process, on a pseudo-terminal or on pipes."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wharfinger.cli import main

TIMEOUT_SECONDS = 60.0
"""A test fails if it waits longer."""

COMMAND = [sys.executable, "-m", "wharfinger"]

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("WHARFINGER_", "NO_COLOR", "XDG_CONFIG"))
}


class Terminal:
    """A process on a pseudo-terminal."""

    def __init__(self, *arguments: str, cwd: Path, env: dict[str, str] | None = None) -> None:
        import pty

        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(sys.executable, [*COMMAND, *arguments], {**ENVIRONMENT, **(env or {})})
        self.output = ""

    def wait_for(self, text: str) -> str:
        """Read until `text` appears, and return all output."""
        return self.wait_until(lambda: text in self.output, text)

    def wait_until(self, condition: Callable[[], bool], description: str) -> str:
        """Read until `condition()` is true. The error contains `description`."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
            data = self.read() if ready else b""
            if not data:
                raise AssertionError(f"{description!r} was not printed. The output is:\n{self.output}")
            self.output += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return self.output

    def read(self) -> bytes:
        """Read the available output. Return b"" at its end."""
        try:
            return os.read(self.descriptor, 65536)
        except OSError:  # Linux returns EIO when the other end is closed
            return b""

    def press(self, keys: str) -> None:
        """Press keys, such as "\\x03" for Ctrl-C."""
        os.write(self.descriptor, keys.encode())

    def wait_for_exit(self) -> int:
        """Read to the end and return the exit code."""
        while data := self.read():
            self.output += data.decode("utf-8", "replace").replace("\r\n", "\n")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        os.close(self.descriptor)


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few files."""
    folder = tmp_path_factory.mktemp("root") / "charts"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "tides.log").write_text("low\n")
    (folder / "sub" / "b.py").write_text("pass\n")
    (folder / "map.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / ".hidden").write_text("x")
    (folder / "out.tmp").write_text("x")
    (folder / ".gitignore").write_text("*.tmp\n")
    return folder


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Start commands on terminals."""
    if sys.platform == "win32":
        pytest.skip("no pseudo-terminals here")
    started: list[Terminal] = []

    def start(*arguments: str, env: dict[str, str] | None = None) -> Terminal:
        started.append(Terminal(*arguments, cwd=tmp_path, env={"HOME": str(tmp_path), **(env or {})}))
        return started[-1]

    yield start
    for terminal in started:
        terminal.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands on pipes."""
    started: list[subprocess.Popen[str]] = []

    def start_command(*arguments: str, command: list[str] | None = None, **options: object) -> subprocess.Popen[str]:
        env = {**ENVIRONMENT, "HOME": str(tmp_path), **(options.pop("env", None) or {})}  # type: ignore[dict-item]
        process = subprocess.Popen(  # type: ignore[call-overload]
            [*(command or COMMAND), *arguments],
            **{
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "cwd": tmp_path,
                **options,
            },
            env=env,
            text=True,
        )
        started.append(process)
        return process  # type: ignore[no-any-return]

    yield start_command
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def executable() -> str:
    """The installed command."""
    found = shutil.which("wharfinger", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("the command is not installed")
    return found


# Servers that commands connect to.

TIDE_SERVER = '''
from wharfinger import Server, ToolError

server = Server("harbour")
height = 0

@server.resource("tide://now", mime_type="text/plain", title="The tide \\x1b[31mnow")
def now() -> str:
    """How high the water is."""
    return f"{height} m"

@server.resource("tide://map", mime_type="image/png")
def map() -> bytes:
    return b"\\x89PNG\\r\\n\\x1a\\n"

@server.resource("tide://at/{place}")
def at(place: str) -> str:
    return place

@server.tool
def rise(by: int, note: str = "") -> str:
    """Let the water rise.

    And tell everybody.
    """
    global height
    height += by
    server.resource_updated("tide://now")
    return f"{height} m{note}"

@server.tool
def sink() -> str:
    raise ToolError("it never sinks")
'''

HARBOUR_SERVER = '''
from typing import Annotated

from wharfinger import Complete, Server

server = Server("harbour", instructions="Ships and tides.\\nSee the log.")


def vessels(typed: str) -> list[str]:
    return [name for name in ("mary", "marta", "olga") if name.startswith(typed)]


@server.resource("log://{vessel}/today")
def log(vessel: Annotated[str, Complete(vessels)]) -> str:
    return vessel


@server.resource("log://all")
def everything() -> str:
    return ""


@server.tool
def berth(ship: str) -> str:
    """Assign a berth."""
    return ship


@server.prompt
def briefing(vessel: Annotated[str, Complete(vessels)], notes: str = "") -> str:
    return f"Brief me on {vessel}.\\x1b[31m{notes}"
'''

RunCli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_cli(capfd: pytest.CaptureFixture[str]) -> RunCli:
    """Run a command in this process. Return its exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run


@contextmanager
def run_server_file(file: Path) -> Iterator[str]:
    """Run the server of a file over HTTP, and yield its address."""
    command = [*COMMAND, "run", "--http", "127.0.0.1:0", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    yield next(found[1] for line in process.stdout if (found := re.search(r"MCP  (\S+)", line)))
    process.terminate()
    process.communicate()


@pytest.fixture(scope="module")
def tide_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose resource changes."""
    file = tmp_path_factory.mktemp("server") / "harbour.py"
    file.write_text(TIDE_SERVER)
    with run_server_file(file) as url:
        yield url


@pytest.fixture(scope="module")
def harbour_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a server that has completion and a prompt."""
    file = tmp_path_factory.mktemp("server") / "harbour.py"
    file.write_text(HARBOUR_SERVER)
    return file


@pytest.fixture(scope="module")
def harbour_url(harbour_file: Path) -> Iterator[str]:
    """The address of the server in `harbour_file`."""
    with run_server_file(harbour_file) as url:
        yield url
