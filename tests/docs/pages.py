"""The code blocks of Markdown pages, and how each kind of block is run.

The blocks of a page run in order, in one temporary folder that starts with a copy of `examples/`. The language of a
block decides how it runs:

    python              runs as a separate script; `continued` runs it after the code of the python block before it
    console             types the lines that begin with `$ ` at a real terminal (a pty), and compares the lines that
                        follow with the output; `…` matches any text, and any lines if it is alone on a line; a command
                        without lines may print anything; `$ export NAME=VALUE` is valid for the rest of the page
    sh, bash            runs as one script with `set -e`
    json, toml          must parse (`jsonc`: with comments)
    text, mermaid       is not run
    dockerfile, ini,    is not run here: test_deploy.py runs the programs that read it
    nginx
    text printed        is compared with the next output of the last `background` command

A time of day such as `10:31:07` matches any other, and so does a duration such as `0.4 ms`.

Words after the language, which readers of the page do not see, change that:

    file=NAME           the block is first written to this file; a python block is then not run unless it says `run`
    background          (console) the last command runs until the end of the page
    exit=N              the exit code must be N instead of 0
    norun="REASON"      the block is only parsed, for this reason

Setup that readers do not need is in a comment: `<!-- run: sh` (or python), lines, `-->`.
Port 8000 is replaced by a free port everywhere in the page, and `/home/me` by the page's folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
import textwrap
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "PageRun", "blocks_of"]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`]*)$")
HIDDEN = re.compile(r"^<!-- run: (?P<info>.+)$")
SERVES = re.compile(r"(wharfinger (serve|run)|make serve)\b")
SHELL = ("console", "sh", "bash")
PICTURES = ("text", "mermaid", "")
CONFIGURATIONS = ("dockerfile", "ini", "nginx")
TIMEOUT_SECONDS = 30.0


@dataclass
class Block:
    """One block of a page. `words` are the words after the language, and `options` those with a value."""

    page: Path
    line: int
    language: str
    text: str
    words: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield every fenced block and every hidden one of a page, in order."""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        fence, hidden = FENCE.match(line), HIDDEN.match(line)
        if not fence and not hidden:
            continue
        closing = fence["ticks"] if fence else "-->"
        info = (fence or hidden)["info"]  # type: ignore[index]
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == closing:
                break
            body.append(inner)
        else:
            raise ValueError(f"{page.name}:{number}: the block is not closed")
        language, *rest = shlex.split(info) or [""]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        words = frozenset(word for word in rest if "=" not in word)
        yield Block(page, number, language, textwrap.dedent("\n".join(body)) + "\n", words, options)


def check_syntax(block: Block) -> None:
    """Raise unless the block is well-formed in its language."""
    if block.language == "python":
        compile(block.text, block.place, "exec")
    elif block.language in ("json", "jsonc"):
        text = re.sub(r"^\s*//.*$", "", block.text, flags=re.MULTILINE) if block.language == "jsonc" else block.text
        json.loads(text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language not in (*SHELL, *PICTURES, *CONFIGURATIONS):
        raise ValueError(f"{block.place}: {block.language!r} is not a known language of blocks")


def expected_pattern(lines: list[str]) -> re.Pattern[str]:
    """Return a pattern that matches the expected output of a console block."""
    parts = [
        r"(?:.*\n)*?" if line.strip() in ("…", "...") else line_pattern(line.rstrip()) + r"[ ]*\n" for line in lines
    ]
    return re.compile("".join(parts))


def line_pattern(line: str) -> str:
    """Return a pattern that matches one expected line."""
    pattern = re.escape(line).replace("…", ".*?")
    pattern = re.sub(r"\b\d\d:\d\d:\d\d\b", r"\\d\\d:\\d\\d:\\d\\d", pattern)
    return re.sub(r"\b\d+(?:\\\.\d+)?\\ ms\b", r"\\d+(?:\\.\\d+)?\\ ms", pattern)


def steps_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a console block, each with its expected output lines."""
    command: str | None = None
    printed: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command, printed
            command, printed = line[2:], []
        elif command is None:
            raise ValueError(f"a console block begins with `$ `, not {line!r}")
        elif command.endswith("\\") and not printed:
            command += "\n" + line.removeprefix("> ")
        else:
            printed.append(line)
    if command is not None:
        while printed and not printed[-1].strip():
            printed.pop()
        yield command, printed


class Terminal:
    """A command on a pseudo-terminal of 200 columns."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self.command = command
        self.seen = ""
        self.fd, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def read(self, seconds: float) -> bool:
        """Read output for up to `seconds`. Return False at its end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # Linux returns EIO when the last process at this terminal has ended
            return False
        self.seen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def wait(self) -> int:
        """Read to the end of the output. Return the exit code."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while self.read(0.2) and time.monotonic() < until:
            if self.process.poll() is not None and not select.select([self.fd], [], [], 0)[0]:
                break
        return self.process.wait(max(0.1, until - time.monotonic()))

    def wait_for(self, pattern: re.Pattern[str]) -> bool:
        """Read until `pattern` appears. Return whether it did."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while not pattern.search(self.seen):
            if time.monotonic() > until or not self.read(0.2):
                return bool(pattern.search(self.seen))
        return True

    def close(self) -> None:
        """Send SIGINT, and SIGKILL if the process does not end."""
        for number in (signal.SIGINT, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                try:
                    until = time.monotonic() + 5
                    while self.process.poll() is None and time.monotonic() < until:
                        self.read(0.1)
                except OSError:
                    pass
        self.process.wait()
        os.close(self.fd)


_EXPORT = re.compile(r"export( [A-Z_]+=[^\s;$`]+)+").fullmatch
"""A command that only sets variables, to values that need no expansion by the shell."""


class PageRun:
    """Runs the blocks of one page in one folder. `close` ends its background processes."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder = folder
        self.project = project
        self.port = free_port()
        self.previous_python = ""
        self.background: list[Terminal] = []
        venv = Path(sys.executable).parent
        self.environment = {
            "PATH": f"{venv}:{os.environ.get('PATH', '')}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "NO_COLOR": "1",
            "VENV": str(venv.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def local(self, text: str) -> str:
        return text.replace("8000", str(self.port)).replace("/home/me", str(self.folder))

    def address(self, command: str) -> dict[str, str]:
        """Return the environment variables that make a server with the default port use this page's port."""
        if "--stdio" in command or "--http" in command:
            return {}
        listen = f"127.0.0.1:{self.port}"
        if not SERVES.match(command):
            return {}
        return {"WHARFINGER_SERVE_HTTP": listen, "WHARFINGER_RUN_HTTP": listen, "ARGS": f"--http {listen}"}

    def run(self, block: Block) -> None:
        """Run one block. Raises AssertionError with the difference if it does not work as the page shows."""
        check_syntax(block)
        text = self.local(block.text)
        name = block.options.get("file")
        if name:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        if "norun" in block.options or (name and "run" not in block.words):
            return
        if block.language == "python":
            self.run_python(block, text, name)
        elif block.language == "console":
            self.run_console(block, text)
        elif "printed" in block.words:
            self.wait_printed(block, text)
        elif block.language in SHELL:
            self.finish(block, Terminal(f"set -e\n{text}", self.folder, self.environment))

    def run_python(self, block: Block, text: str, name: str | None) -> None:
        if "continued" in block.words:
            text = self.previous_python + "\n" + text
        self.previous_python = text
        script = self.folder / (name or f"block_{block.line}.py")
        script.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, script.name], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        wanted = int(block.options.get("exit", "0"))
        assert done.returncode == wanted, f"{block.place}: exit code {done.returncode}\n{done.stdout}{done.stderr}"

    def run_console(self, block: Block, text: str) -> None:
        steps = list(steps_of(text))
        for number, (command, printed) in enumerate(steps, 1):
            if _EXPORT(command):
                self.environment |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
                continue
            directory = self.project if command.startswith("make") else self.folder
            terminal = Terminal(command, directory, self.environment | self.address(command))
            if "background" in block.words and number == len(steps):
                self.background.append(terminal)
                found = terminal.wait_for(expected_pattern(printed))
                assert found, f"{block.place}: `{command}` printed\n{terminal.seen}\nand not\n" + "\n".join(printed)
            else:
                self.finish(block, terminal, printed, last=number == len(steps))

    def wait_printed(self, block: Block, text: str) -> None:
        terminal = self.background[-1]
        found = terminal.wait_for(expected_pattern(text.splitlines()))
        assert found, f"{block.place}: `{terminal.command}` printed\n{terminal.seen}\nand not\n{text}"

    def finish(self, block: Block, terminal: Terminal, printed: list[str] | None = None, last: bool = True) -> None:
        try:
            code = terminal.wait()
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            terminal.close()
        wanted = int(block.options.get("exit", "0")) if last else 0
        assert code == wanted, f"{block.place}: `{terminal.command}` ended with {code}, not {wanted}\n{terminal.seen}"
        if printed and not expected_pattern(printed).fullmatch(terminal.seen.rstrip("\n") + "\n"):
            raise AssertionError(
                f"{block.place}: `{terminal.command}` printed\n{terminal.seen}\nand not\n" + "\n".join(printed)
            )

    def close(self) -> None:
        """End the background processes."""
        for terminal in self.background:
            terminal.close()


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
