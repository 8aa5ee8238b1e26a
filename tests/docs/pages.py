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
Ports 8000 and 8001 are replaced by free ports everywhere in the page, and `/home/me` by the page's folder.
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
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "PageRun", "blocks_of"]

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`]*)$")
HIDDEN_BLOCK = re.compile(r"^<!-- run: (?P<info>.+)$")
SERVE_COMMAND = re.compile(r"(wharfinger (serve|run)|make serve)\b")
EXPORT_COMMAND = re.compile(r"export( [A-Z_]+=[^\s;$`]+)+")
"""A command that only sets variables, to values that need no expansion by the shell."""
SHELL = ("console", "sh", "bash")
NOT_RUN = ("text", "mermaid", "")
CONFIGURATIONS = ("dockerfile", "ini", "nginx")
TIMEOUT_SECONDS = 60.0


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
        fence, hidden = FENCE.match(line), HIDDEN_BLOCK.match(line)
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
    elif block.language not in (*SHELL, *NOT_RUN, *CONFIGURATIONS):
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
        self.output = ""
        self.fd, child_fd = pty.openpty()
        fcntl.ioctl(child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=folder, env=environment, stdin=child_fd, stdout=child_fd, stderr=child_fd,
            start_new_session=True,
        )  # fmt: skip
        os.close(child_fd)

    def read(self, seconds: float) -> bool:
        """Read output for up to `seconds`. Return False at its end."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # Linux returns EIO when the last process at this terminal has ended
            return False
        self.output += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)

    def wait(self) -> int:
        """Read to the end of the output. Return the exit code."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self.read(0.2) and time.monotonic() < deadline:
            if self.process.poll() is not None and not select.select([self.fd], [], [], 0)[0]:
                break
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def wait_for(self, pattern: re.Pattern[str]) -> bool:
        """Read until `pattern` appears. Return whether it did."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not pattern.search(self.output):
            if time.monotonic() > deadline or not self.read(0.2):
                return bool(pattern.search(self.output))
        return True

    def close(self) -> None:
        """Send SIGINT, and SIGKILL if the process does not end."""
        for number in (signal.SIGINT, signal.SIGKILL):
            if self.process.poll() is None:
                os.killpg(self.process.pid, number)
                try:
                    deadline = time.monotonic() + 5
                    while self.process.poll() is None and time.monotonic() < deadline:
                        self.read(0.1)
                except OSError:
                    pass
        self.process.wait()
        os.close(self.fd)


class PageRun:
    """Runs the blocks of one page in one folder. `close` ends its background processes."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder = folder
        self.project = project
        self.port, self.second_port = free_ports(2)
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

    def with_local_addresses(self, text: str) -> str:
        ports = {"8000": str(self.port), "8001": str(self.second_port)}
        text = re.sub("8000|8001", lambda match: ports[match[0]], text)
        return text.replace("/home/me", str(self.folder))

    def port_variables(self, command: str) -> dict[str, str]:
        """Return the environment variables that make a server with the default port use this page's port."""
        if not SERVE_COMMAND.match(command) or "--stdio" in command or "--http" in command:
            return {}
        listen = f"127.0.0.1:{self.port}"
        return {"WHARFINGER_SERVE_HTTP": listen, "WHARFINGER_RUN_HTTP": listen, "ARGS": f"--http {listen}"}

    def run(self, block: Block) -> None:
        """Run one block. Raises AssertionError with the difference if it does not work as the page shows."""
        check_syntax(block)
        text = self.with_local_addresses(block.text)
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
            self.wait_for_output(block, text)
        elif block.language in SHELL:
            self.finish(block, Terminal(f"set -e\n{text}", self.folder, self.environment))

    def run_python(self, block: Block, text: str, name: str | None) -> None:
        if "continued" in block.words:
            text = self.previous_python + "\n" + text
        self.previous_python = text
        script = self.folder / (name or f"block_{block.line}.py")
        script.write_text(text, encoding="utf-8")
        result = subprocess.run(
            [sys.executable, script.name], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        expected = int(block.options.get("exit", "0"))
        assert result.returncode == expected, (
            f"{block.place}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
        )

    def run_console(self, block: Block, text: str) -> None:
        steps = list(steps_of(text))
        for number, (command, printed) in enumerate(steps, 1):
            if EXPORT_COMMAND.fullmatch(command):
                self.environment |= dict(word.split("=", 1) for word in shlex.split(command)[1:])
                continue
            directory = self.project if command.startswith("make") else self.folder
            terminal = Terminal(command, directory, self.environment | self.port_variables(command))
            if "background" in block.words and number == len(steps):
                self.background.append(terminal)
                found = terminal.wait_for(expected_pattern(printed))
                assert found, f"{block.place}: `{command}` printed\n{terminal.output}\nand not\n" + "\n".join(printed)
            else:
                self.finish(block, terminal, printed, last=number == len(steps))

    def wait_for_output(self, block: Block, text: str) -> None:
        terminal = self.background[-1]
        found = terminal.wait_for(expected_pattern(text.splitlines()))
        assert found, f"{block.place}: `{terminal.command}` printed\n{terminal.output}\nand not\n{text}"

    def finish(self, block: Block, terminal: Terminal, printed: list[str] | None = None, last: bool = True) -> None:
        try:
            code = terminal.wait()
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            terminal.close()
        expected = int(block.options.get("exit", "0")) if last else 0
        assert code == expected, (
            f"{block.place}: `{terminal.command}` ended with {code}, not {expected}\n{terminal.output}"
        )
        if printed and not expected_pattern(printed).fullmatch(terminal.output.rstrip("\n") + "\n"):
            raise AssertionError(
                f"{block.place}: `{terminal.command}` printed\n{terminal.output}\nand not\n" + "\n".join(printed)
            )

    def close(self) -> None:
        """End the background processes."""
        for terminal in self.background:
            terminal.close()


def free_ports(count: int) -> list[int]:
    """Return different ports without a listener."""
    with ExitStack() as open_sockets:
        listeners = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]
