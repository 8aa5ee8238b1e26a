"""Runs git's plumbing on a repository within limits, and never a program that the repository names.

git never opens the repository's own directory, because no environment makes that safe: a configuration can name
programs for signatures, text conversion, filters and file monitors. It opens a `PrivateDirectory`, a bare GIT_DIR whose
configuration is ours, and which only links to the repository's references and objects (`private_directory`).

    output = await run_git(private_directory, "diff-tree", "-r", "-z", old, new)      # one command, one process
    info = await ObjectReader(private_directory).info(oid)                            # many objects (`object_reader`)

No process inherits the server's environment. Each has a deadline, a bound of its output, and GIT_ALLOC_LIMIT, which git
itself checks before each allocation. On Linux, a process also has limits of memory and processor time, can start no
process (unless it runs as root), and can write no file, unless its caller allows some bytes. prlimit(2) sets these
limits from outside, because code between fork and exec is not safe in a program with threads.

Text of a client may be passed only as an object name (40 or 64 digits; some commands take its first digits), as a path
after `--`, or as the value of an option, such as `-e`. Pathspecs are literal. A command that may show contents needs
`SAFE_DIFF`, one that shows commits `SAFE_LOG`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, NamedTuple, Protocol, cast
from weakref import WeakKeyDictionary

from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument, Overloaded
from wharfinger.source import UnusableSource
from wharfinger.sources.program_path import program_path

if sys.platform == "linux":
    import resource

__all__ = [
    "COMMAND_SECONDS",
    "QUICK_SECONDS",
    "SAFE_DIFF",
    "SAFE_LOG",
    "GitFailed",
    "GitOutput",
    "GitPlace",
    "environment",
    "find_git",
    "find_reason",
    "kill",
    "run_git",
    "set_limits",
]

MIN_GIT_VERSION = (2, 39, 5)
"""The git of Debian 12. It has NUL-terminated batch commands, and the security fixes of 2023 and early 2024."""
MEMORY_BYTES = 512 << 20
"""Address space of one process. A 207-byte pack makes an unlimited `cat-file` use 2 GiB."""
ALLOCATION_BYTES = 256 << 20
"""Maximum bytes of a single allocation."""
COMMAND_SECONDS = 20.0
"""Default maximum time, and also processor time, of a command."""
OUTPUT_BYTES = 64 << 20
"""Default maximum output of one command."""
QUICK_SECONDS = 5.0
"""A command with at most this timeout is quick: it does not wait for slower ones."""
MAX_COMMANDS = 8
"""Maximum number of quick commands, and of slower ones, that run at a time. Others wait up to `COMMAND_SECONDS`."""
STDERR_BYTES = 4_096

# A submodule is compared by the name of its commit. To compare a working tree, `--ignore-submodules=all` has to follow:
# otherwise git would look into the submodule.
SAFE_DIFF = ("--no-ext-diff", "--no-textconv", "--submodule=short", "--ignore-submodules=dirty")
SAFE_LOG = ("--no-show-signature", "--no-mailmap")

_ENVIRONMENT = {
    "GIT_ADVICE": "0",
    "GIT_ALLOC_LIMIT": str(ALLOCATION_BYTES),
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


class GitPlace(Protocol):
    """Where git runs: a directory that git may open, and the program."""

    program: str
    path: str


class GitFailed(InvalidArgument):
    """A command of git failed or was ended; the message says why.

    `why` is git's own message if the command failed, otherwise empty.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why


class GitOutput(NamedTuple):
    """The output of a command. `cut` is why it is incomplete: `time`, `size` or `failure`; else empty.

    `stderr` has git's warnings and errors, at most `STDERR_BYTES` of them.
    """

    data: bytes
    cut: str = ""
    stderr: bytes = b""


# The program


class GitProgram(NamedTuple):
    """An installed git."""

    path: str
    version: tuple[int, ...]


def find_git() -> GitProgram:
    """Return the git in PATH.

    Raises:
        UnusableSource: PATH has no git, or its version is unknown or older than `MIN_GIT_VERSION`.
    """
    path = program_path("git")
    if path is None:
        raise UnusableSource(
            f"Publishing a git repository needs git {_dotted(MIN_GIT_VERSION)} or newer: none is in PATH."
        )
    program = _program(path)
    if program.version < MIN_GIT_VERSION:
        raise UnusableSource(
            f"Publishing a git repository needs git {_dotted(MIN_GIT_VERSION)} or newer: "
            f"{path} is {_dotted(program.version)}."
        )
    return program


@functools.lru_cache(maxsize=8)
def _program(path: str) -> GitProgram:
    try:
        process = subprocess.run([path, "version"], env=_ENVIRONMENT, capture_output=True, timeout=10, check=False)  # noqa: S603
        match = re.match(rb"git version (\d+)\.(\d+)(?:\.(\d+))?", process.stdout)
    except (OSError, subprocess.TimeoutExpired):
        match = None
    if match is None:
        raise UnusableSource(f"{path} does not say its version: check `git version`.")
    return GitProgram(path, tuple(int(part or 0) for part in match.groups()))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def environment(place: GitPlace, work_tree: str = "", index: str = "") -> dict[str, str]:
    """Return the whole environment of a process that opens a private directory."""
    variables = {"GIT_DIR": place.path, "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
    if sys.platform == "win32":
        variables["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
    return _ENVIRONMENT | {name: value for name, value in variables.items() if value}


def set_limits(pid: int | None, max_file_bytes: int = 0, seconds: float = COMMAND_SECONDS) -> None:
    """Set the limits of a process that has just been started (Linux).

    git may already have begun to read the repository. The limits hold for every later allocation.
    """
    if sys.platform != "linux" or pid is None:
        return
    processor = int(seconds) + 1
    for kind, maximum in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, processor),
        (resource.RLIMIT_FSIZE, max_file_bytes),
        (resource.RLIMIT_NPROC, 0),  # it can start no other program, unless it runs as root
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError):  # it has ended, or this account may not set this limit
            hard = resource.prlimit(pid, kind)[1]  # a hard limit cannot be raised
            bound = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
            resource.prlimit(pid, kind, (bound, bound))


def kill(transport: asyncio.SubprocessTransport) -> None:
    """Kill a process, if it has not ended."""
    with contextlib.suppress(ProcessLookupError):
        transport.kill()


def find_reason(stderr: bytes) -> str:
    """Return why git failed, in its own words: the first line with `fatal:` or `error:`, else the first line."""
    lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    problems = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    return shown(re.sub(r"^(fatal|error): ", "", problems[0])[:300]) if problems else ""


# One command


async def run_git(
    place: GitPlace,
    *arguments: str | bytes,
    max_output_bytes: int = OUTPUT_BYTES,
    seconds: float = COMMAND_SECONDS,
    partial: bool = False,
    codes: Sequence[int] = (0,),
    work_tree: str = "",
    index: str = "",
    output: IO[bytes] | None = None,
    max_file_bytes: int = 0,
) -> GitOutput:
    """Run one command of git, and return its output.

    Args:
        place: The private directory.
        arguments: The command and its arguments. The module's docstring says what may come from a client.
        max_output_bytes: Bytes of output after which the command is ended.
        seconds: Time after which the command is ended.
        partial: Whether to return incomplete output if the command is ended, or if it fails after some output.
        codes: Exit codes that count as success.
        work_tree: The folder of a working tree, for commands that compare one.
        index: The path of a copy of the index, for the same commands.
        output: A file to which git prints instead.
        max_file_bytes: Maximum size of a file that git writes (Linux).

    Raises:
        GitFailed: the command cannot be started, failed, or was ended and `partial` is false.
        Overloaded: too many commands run.
    """
    name = os.fsdecode(arguments[2 if arguments[0] == "-c" else 0])
    loop = asyncio.get_running_loop()
    lanes = _lanes.setdefault(loop, (asyncio.Semaphore(MAX_COMMANDS), asyncio.Semaphore(MAX_COMMANDS)))
    slots = lanes[seconds <= QUICK_SECONDS]
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            await slots.acquire()
    except TimeoutError:
        raise Overloaded(f"Too many commands of git are running to start `git {name}`: try again later.") from None
    command = _Command(loop.create_future(), max_output_bytes)
    try:
        transport, _ = await loop.subprocess_exec(
            lambda: command, place.program, *arguments, env=environment(place, work_tree, index),
            cwd=work_tree or place.path, stdin=asyncio.subprocess.DEVNULL, stdout=output or asyncio.subprocess.PIPE,
        )  # fmt: skip
        set_limits(transport.get_pid(), max_file_bytes, seconds)
        ended, _ = await asyncio.wait((command.ended,), timeout=seconds)
        if not ended:
            command.end("time")
            await command.ended
    except OSError as error:
        raise GitFailed(f"git cannot be started ({error.strerror}): try again later.") from None
    finally:
        if not command.ended.done():  # the caller has given up
            command.end("time")
        slots.release()
    if command.cut and not partial:
        bound = f"{seconds:g} s" if command.cut == "time" else f"{max_output_bytes:,} bytes of output"
        raise GitFailed(f"`git {name}` was ended after {bound}: ask for less.")
    data = b"".join(command.parts)[:max_output_bytes]
    if not command.cut and command.code not in codes:
        if partial and data:
            return GitOutput(data, "failure")
        why = find_reason(bytes(command.stderr)).replace(os.path.join(place.path, ""), "")
        why = why or f"exit code {command.code}"
        if "out of memory" in why:
            raise GitFailed(f"`git {name}` needs more than {MEMORY_BYTES >> 20} MiB of memory: ask for less.", why)
        raise GitFailed(f"`git {name}` failed: {why}. See `git fsck`.", why)
    return GitOutput(data, command.cut, bytes(command.stderr))


_lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, asyncio.Semaphore]] = WeakKeyDictionary()
"""The slots of slow and of quick commands, for each event loop."""


class _Command(asyncio.SubprocessProtocol):
    """Collects the output of a process."""

    def __init__(self, ended: asyncio.Future[None], max_output_bytes: int) -> None:
        self.ended = ended
        self.parts: list[bytes] = []
        self.stderr = bytearray()
        self.cut = ""
        self.code: int | None = None
        self._bytes_left = max_output_bytes
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr += data[: STDERR_BYTES - len(self.stderr)]
        elif self._bytes_left >= 0:
            self.parts.append(data)
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                self.end("size")

    def end(self, cut: str) -> None:
        self.cut = self.cut or cut
        if self._transport is not None:
            kill(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self.code = self._transport.get_returncode()
            self._transport.close()  # an open transport warns when it is garbage-collected
        if not self.ended.done():
            self.ended.set_result(None)
