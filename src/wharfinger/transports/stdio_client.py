"""A client's connection to a server that it starts as a child process.

The child gets its own process group. `close` closes its standard input, and waits; then it sends SIGTERM to the group,
and waits; then SIGKILL. It also ends the processes that the child has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from wharfinger.content.redaction import HIDDEN, redacted_command, redacted_text
from wharfinger.errors import ConnectionFailed, ConnectionLost, NotMCP, WharfingerError
from wharfinger.protocol.interfaces import LinkEvents
from wharfinger.protocol.limits import Limits
from wharfinger.transports.stream_client import BLOCKED_BYTES, StreamLink, show_bytes

__all__ = ["StdioLink", "child_environment"]

log = logging.getLogger("wharfinger.transports.stdio_client")

_POSIX_NAMES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "LANGUAGE", "TZ", "TMPDIR")
_WINDOWS_NAMES = (
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
)
INHERITED_VARIABLES = frozenset(_POSIX_NAMES + _WINDOWS_NAMES)
"""The environment variables that any program needs. All others may be secrets of the host."""

READ_BYTES = 64 * 1024
"""Bytes read at once: the capacity of a pipe. With asyncio's 256 KiB the C library may return the memory to the system
after each read and allocate it again for the next one, which costs 20 µs a request (measured)."""
MAX_SHOWN_WORDS = MAX_SHOWN_CHARACTERS = 120
"""The maximum numbers of words and of characters of a command in error messages."""
MIN_SECRET_CHARACTERS = 4
"""The minimum length of a secret that is hidden in a child's output: shorter ones may be parts of words."""
STDERR_LINES = 20
MAX_STDERR_LINE_BYTES = 500
"""The maximum number of lines of the child's standard error that are kept, and of bytes of each."""
MAX_FORWARDED_LINE_BYTES = 4096
"""The maximum number of bytes of a line that are passed to `stderr_line`."""
OUTPUT_GRACE_SECONDS = 0.3
"""Seconds after the child's exit, or the end of its standard output, in which the rest of both outputs is read."""
GRACE_SECONDS = 2.0
"""Seconds to wait after the child's input is closed, and again after SIGTERM."""

_POSIX = os.name == "posix"


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child: the variables that every program needs, and `extra`."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if (name.upper() in INHERITED_VARIABLES or name.startswith("LC_"))
        and not value.startswith("()")  # an exported function of a shell
    }
    return variables | dict(extra or {})


class StdioLink(StreamLink):
    """A `Link` to a server that this process starts, and ends with its whole process group."""

    transport = "stdio"

    def __init__(
        self,
        command: Sequence[str],
        limits: Limits,
        stderr_line: Callable[[str], object] | None = None,
        events: LinkEvents | None = None,
    ) -> None:
        super().__init__(_shorten_command(command), limits, events)
        self.stderr_line = stderr_line
        """Called with each line that the child writes to its standard error."""
        self._command = list(command)
        self._child = _Child(self)

    @property
    def stderr(self) -> str:
        """The last lines that the child wrote to its standard error, without passwords and tokens."""
        text = redacted_text(self._child.stderr)
        for secret in _secrets(self._command):
            text = text.replace(secret, HIDDEN)
        return text

    @property
    def pid(self) -> int | None:
        """The child's process id, or None before it was started."""
        return self._child.pid

    async def open(self, env: Mapping[str, str] | None = None, cwd: str | os.PathLike[str] | None = None) -> None:
        """Start the child with `env` in addition to what every program needs.

        Raises:
            ConnectionFailed: there is no such command or folder, or the command cannot be run.
        """
        flags: dict[str, Any] = {"start_new_session": True} if _POSIX else {"creationflags": _NEW_GROUP}
        variables = child_environment(env)
        try:
            await self._loop.subprocess_exec(
                lambda: self._child,
                *self._command,
                env=variables,
                cwd=cwd,
                close_fds=True,
                **flags,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            missing = isinstance(error, FileNotFoundError)
            if cwd is not None and getattr(error, "filename", None) == cwd:
                reason = f"{'no such folder' if missing else reason}: {cwd}"
            elif missing:
                reason = _missing_file(self._command[0], cwd, variables.get("PATH"))
            raise ConnectionFailed(f"Cannot start {self.name}: {reason}.") from None
        self.write = self._child.stdin.write

    async def disconnect(self) -> None:
        """Close the child's input, and wait. If it still runs, send SIGTERM to its group, and wait; then SIGKILL."""
        await self._child.end()

    def why_lost(self) -> WharfingerError:
        """Return the error for the waiting requests after the child has ended, or has closed its output."""
        code = self._child.exit_code
        ended = "closed its output" if code is None else f"ended with {_describe_exit(code)}"
        if self.garbage and self.rules is None:
            return NotMCP(
                f"{self.name} {ended} and is not MCP: the first bytes were {show_bytes(self.garbage)}."
                + (f"\n{self.stderr}" if self.stderr else "")
            )
        return ConnectionLost(f"{self.name} {ended}.", stderr=self.stderr)


class _Child(asyncio.SubprocessProtocol):
    """The child's three pipes and its exit."""

    def __init__(self, link: StdioLink) -> None:
        self._link = link
        self._transport: asyncio.SubprocessTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._stderr_lines: deque[bytes] = deque(maxlen=STDERR_LINES)
        self._stderr_rest = b""
        """The beginning of the last line of standard error, which is incomplete."""
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._open_pipes = {1, 2}
        self._outputs_ended: asyncio.Future[None] = self._loop.create_future()
        self._end_timer: asyncio.TimerHandle | None = None
        self._ending_group: asyncio.Task[None] | None = None
        self.pid: int | None = None
        self.exit_code: int | None = None

    @property
    def stdin(self) -> asyncio.WriteTransport:
        assert self._transport is not None
        return cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    @property
    def stderr(self) -> str:
        lines = list(self._stderr_lines)
        if self._stderr_rest:
            lines.append(self._stderr_rest[:MAX_STDERR_LINE_BYTES])
        return b"\n".join(lines).decode("utf-8", "backslashreplace")

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
        self.stdin.set_write_buffer_limits(high=BLOCKED_BYTES)
        pipe: Any = self._transport.get_pipe_transport(1)
        if hasattr(pipe, "max_size"):
            pipe.max_size = READ_BYTES
        original = pipe.get_protocol()
        if original is not None:  # else the child has closed its output already
            pipe.set_protocol(_Output(self._link.feed, original))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:  # bytes that arrived before `connection_made`
            self._link.feed(data)
        else:
            self._receive_stderr(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if fd == 0:  # the child reads nothing more, but may still send responses
            self._link.resume_writing()
            self._link.write = _drop
            return
        if fd == 2 and self._stderr_rest:
            self._take_line(self._stderr_rest)
            self._stderr_rest = b""
        if not self._open_pipes and not self._outputs_ended.done():
            self._outputs_ended.set_result(None)
        self._lose_if_ended(after_seconds=OUTPUT_GRACE_SECONDS if fd == 1 else None)

    def process_exited(self) -> None:
        assert self._transport is not None
        self.exit_code = self._transport.get_returncode()
        if not self._exited.done():
            self._exited.set_result(None)
        # A grandchild may keep the pipes open for ever: only what was written until now is read.
        self._lose_if_ended(after_seconds=OUTPUT_GRACE_SECONDS)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    # Internal.

    def _lose_if_ended(self, after_seconds: float | None) -> None:
        """End the link if the child has exited and both outputs have ended, else after `after_seconds`, if given."""
        if self._link.is_lost:
            return
        if self.exit_code is not None and not self._open_pipes:
            self._lose_link()
        elif after_seconds is not None and self._end_timer is None:
            self._end_timer = self._loop.call_later(after_seconds, self._lose_link)

    def _lose_link(self) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._link.lose(self._link.why_lost)
        if self.exit_code is not None:  # at once: later the number of the group may be reused
            self._start_ending_group()

    def _receive_stderr(self, data: bytes) -> None:
        """Take the lines of standard error, in bounded memory and linear time."""
        *lines, rest = (self._stderr_rest + data).split(b"\n")
        self._stderr_rest = rest[:MAX_FORWARDED_LINE_BYTES]
        for line in lines:
            self._take_line(line)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "%s: %s",
                self._link.name,
                redacted_text(data[:MAX_STDERR_LINE_BYTES].decode("utf-8", "backslashreplace")),
            )

    def _take_line(self, line: bytes) -> None:
        line = line.rstrip(b"\r")
        self._stderr_lines.append(line[:MAX_STDERR_LINE_BYTES])
        if self._link.stderr_line is not None:
            try:
                self._link.stderr_line(line[:MAX_FORWARDED_LINE_BYTES].decode("utf-8", "backslashreplace"))
            except Exception:
                log.exception("The callback for lines of stderr failed")

    async def end(self) -> None:
        """End the child and every process of its group; at once if this task is cancelled because the loop ends."""
        if self._transport is None:
            return
        self.stdin.close()
        try:
            if not await self._wait_exited():
                self._signal("SIGTERM")
                if not await self._wait_exited():
                    await self._kill()
                    await self._wait_exited()
            await self._start_ending_group()
            # Its last output may still be in the pipes; a grandchild in another group may keep them open.
            await asyncio.wait((self._outputs_ended,), timeout=OUTPUT_GRACE_SECONDS)
        except asyncio.CancelledError:
            if self.exit_code is None:
                await (self._end_group() if _POSIX else self._kill())
            raise
        finally:
            self._transport.close()

    async def _wait_exited(self) -> bool:
        done, _ = await asyncio.wait((self._exited,), timeout=GRACE_SECONDS)
        return bool(done)

    def _start_ending_group(self) -> asyncio.Task[None]:
        if self._ending_group is None:
            self._ending_group = self._loop.create_task(self._end_group())
        return self._ending_group

    async def _kill(self) -> None:
        """Kill the child and everything that it has started."""
        if _POSIX:
            self._signal("SIGKILL")
            return
        # Windows has no signal for a tree of processes. This is not tested there.
        try:  # pragma: no cover
            killer = await asyncio.create_subprocess_exec(
                "taskkill", "/F", "/T", "/PID", str(self.pid), stdout=DEVNULL, stderr=DEVNULL
            )
            async with asyncio.timeout(GRACE_SECONDS):
                await killer.wait()
        except (OSError, TimeoutError):  # pragma: no cover
            self._signal("SIGKILL")

    async def _end_group(self) -> None:
        """End the processes that the child has started and left running: SIGTERM, and SIGKILL 0.2 s later."""
        if not _POSIX or not self._signal("SIGTERM"):
            return
        for _ in range(10):
            await asyncio.sleep(0.02)
            if not self._signal("0"):
                return
        self._signal("SIGKILL")

    def _signal(self, name: str) -> bool:
        """Signal the whole group, or with `"0"` only look for it. Returns False if no process of it is left."""
        assert self._transport is not None
        if not _POSIX:  # pragma: no cover  # not tested on Windows
            with contextlib.suppress(ProcessLookupError, OSError):
                if name == "SIGTERM":  # the nearest equivalent; works because the child has its own group
                    self._transport.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))
                else:
                    self._transport.kill()
            return False
        number = 0 if name == "0" else getattr(signal, name)
        try:
            os.killpg(cast("int", self.pid), number)
        except ProcessLookupError:
            return False
        except PermissionError:  # only zombies, or processes of other users, are left (macOS)
            return False
        return True


class _Output(asyncio.Protocol):
    """Reads the child's output, without the turn of the event loop that asyncio's own protocol takes for each chunk."""

    def __init__(self, feed: Callable[[bytes], None], original: asyncio.Protocol) -> None:
        self.data_received = feed  # type: ignore[assignment,method-assign]
        self.connection_lost = original.connection_lost  # type: ignore[method-assign]


def _shorten_command(command: Sequence[str]) -> str:
    """Return the beginning of a command for messages, in one line, without passwords and tokens."""
    text = " ".join(redacted_command(command[:MAX_SHOWN_WORDS]).split())
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[: MAX_SHOWN_CHARACTERS - 1]}…"


def _secrets(command: Sequence[str]) -> list[str]:
    """Return the secrets that `_shorten_command` hides, longest first: the child's output may repeat them."""
    shown = redacted_command(command[:MAX_SHOWN_WORDS])
    hidden = [word for word in command[:MAX_SHOWN_WORDS] if word not in shown and shlex.quote(word) not in shown]
    secrets = {part for word in hidden for part in (word, word.partition("=")[2], word.partition(": ")[2])}
    return sorted((part for part in secrets if len(part) >= MIN_SECRET_CHARACTERS), key=len, reverse=True)


def _missing_file(program: str, cwd: str | os.PathLike[str] | None, path: str | None) -> str:
    """Say which file does not exist: the program or, if it is a script, the interpreter in its first line."""
    if os.path.dirname(program) and cwd is not None:
        program = os.path.join(cwd, program)
    script = shutil.which(program, path=path) if _POSIX else None
    return "no such command" if script is None else f"the interpreter in the first line of {script} does not exist"


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


def _drop(data: bytes) -> None:
    """Discard the messages that the child does not read. The requests fail when its output ends."""


_NEW_GROUP = 0x00000200 if sys.platform == "win32" else 0
"""CREATE_NEW_PROCESS_GROUP."""
