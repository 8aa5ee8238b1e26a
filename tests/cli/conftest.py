"""Real processes for the command line: on a terminal of their own, or on pipes."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DEADLINE = 20.0
"""Seconds after which a test gives up waiting; reached only where something is broken."""

COMMAND = [sys.executable, "-m", "wharfinger"]

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("WHARFINGER_", "NO_COLOR", "XDG_CONFIG"))
}


class Terminal:
    """A process that believes a person sits before it."""

    def __init__(self, *args: str, cwd: Path, env: dict[str, str] | None = None) -> None:
        import pty

        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(sys.executable, [*COMMAND, *args], {**ENVIRONMENT, **(env or {})})
        self.shown = ""

    def wait_for(self, text: str) -> str:
        """Read until `text` was shown; return everything that was shown."""
        return self.wait_until(lambda: text in self.shown, text)

    def wait_until(self, done: Callable[[], bool], what: str) -> str:
        """Read until `done()`."""
        end = time.monotonic() + DEADLINE
        while not done():
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, end - time.monotonic()))
            data = self.read() if ready else b""
            if not data:
                raise AssertionError(f"{what!r} never came; shown:\n{self.shown}")
            self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return self.shown

    def read(self) -> bytes:
        """Read what is there; empty at the end."""
        try:
            return os.read(self.descriptor, 65536)
        except OSError:  # Linux says EIO when the other end is closed
            return b""

    def press(self, keys: str) -> None:
        """Press keys; "\\x03" is Ctrl-C."""
        os.write(self.descriptor, keys.encode())

    def end(self) -> int:
        """Read to the end and return the exit code."""
        while data := self.read():
            self.shown += data.decode("utf-8", "replace").replace("\r\n", "\n")
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        """End it whatever it does."""
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

    def start(*args: str, env: dict[str, str] | None = None) -> Terminal:
        started.append(Terminal(*args, cwd=tmp_path, env={"HOME": str(tmp_path), **(env or {})}))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start commands on pipes."""
    started: list[subprocess.Popen[str]] = []

    def begin(*args: str, command: list[str] | None = None, **options: object) -> subprocess.Popen[str]:
        env = {**ENVIRONMENT, "HOME": str(tmp_path), **(options.pop("env", None) or {})}  # type: ignore[dict-item]
        process = subprocess.Popen(  # type: ignore[call-overload]
            [*(command or COMMAND), *args],
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

    yield begin
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
