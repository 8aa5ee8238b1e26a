"""Runs the commands of git that reach the network, or write to a clone.

They differ from the commands that only read (`git_repository.git_process`): they start other programs of git itself,
write packs, and may take an hour. They are confined as follows:

- The environment contains only our own variables, the proxy, and the operator's certificates (`_PASSED`). Only the
  address that the operator gave is reached, without redirects. This also rules out alternates that the remote names
  (http-alternates), which git treats like redirects. No configuration of the system or the user, hook, credential
  helper, `.netrc`, submodule or filter is used.
- The address and the token are in variables of the process (git-config(1), GIT_CONFIG_COUNT): every user of the machine
  can read arguments. Processes that read the clone never get them.
- Except on Windows, each process starts through `sh`, which sets the limits of memory, processor time and the size of
  a file before git runs, so that the processes that git starts inherit them. prlimit(2) after the start would be too
  late for them.
- A command is a process group of its own. The group is killed at the deadline, if the clone grows beyond its bound, or
  if the mirror is closed.
- `transfer.fsckObjects` refuses malformed objects, except for harmless mistakes of old tools, such as times without a
  zone: well-known repositories have them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import IO

from wharfinger.content.redaction import redacted_text
from wharfinger.content.text import shown, size_text
from wharfinger.errors import ConnectionFailed
from wharfinger.net import proxy_for
from wharfinger.source import UnusableSource
from wharfinger.sources.git_remote.clone_folder import CloneFolder
from wharfinger.sources.git_remote.remote_address import RemoteAddress
from wharfinger.sources.git_repository.git_process import environment

__all__ = ["FetchFailed", "GitNetwork"]

MEMORY_BYTES = 2 << 30
"""Address space of each process. `index-pack` takes about 100 bytes for each object, and holds a delta and its base."""
ALLOCATION_BYTES = 1 << 30
"""Maximum bytes of a single allocation."""
STALLED_SECONDS = 60
"""Time after which git ends a transfer of less than `STALLED_BYTES` a second."""
STALLED_BYTES = 500
SMALL_BYTES = 64 << 10
"""The size of a file that may always be written, such as a reference."""
SIZE_CHECK_SECONDS = 0.5
STDERR_BYTES = 16_384
END_SECONDS = 5.0
"""Longest time to wait for a process that was killed."""

_PASSED = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY")
"""Variables of the operator that are passed on: the certificates that git trusts, and the one that it presents."""
_HARMLESS = (
    *("badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "emptyName", "missingAuthor"),
    *("missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail"),
    *("missingTaggerEntry", "multipleAuthors", "nulInCommit", "zeroPaddedDate", "zeroPaddedFilemode"),
)
"""Mistakes of old tools (git-fsck(1), FSCK MESSAGES). None of them misleads a reader of objects."""
_SETTINGS = {
    "core.askPass": "",
    "core.bigFileThreshold": "32m",
    "core.deltaBaseCacheLimit": "64m",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.packedGitLimit": "256m",
    "core.packedGitWindowSize": "32m",
    "credential.helper": "",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",
    "fetch.uriProtocols": "",
    "fetch.writeCommitGraph": "false",
    "gc.auto": "0",
    "http.followRedirects": "false",
    "http.lowSpeedLimit": str(STALLED_BYTES),
    "http.lowSpeedTime": str(STALLED_SECONDS),
    "maintenance.auto": "false",
    "pack.deltaCacheSize": "64m",
    "pack.threads": "1",
    "pack.windowMemory": "64m",
    "protocol.version": "2",
    "repack.writeBitmaps": "false",
    "submodule.recurse": "false",
    "transfer.bundleURI": "false",
    "transfer.fsckObjects": "true",
    **{f"fetch.fsck.{name}": "ignore" for name in _HARMLESS},
}
_LAUNCHER = (
    "trap '' XFSZ; umask 077; ulimit -c 0; "
    "ulimit -v {memory} 2>/dev/null; ulimit -t {seconds} 2>/dev/null; ulimit -f {blocks}; "
    'exec "$@"'
)
"""Sets the limits. XFSZ is ignored, so that git prints `File too large` instead of ending without a message."""
_PROGRESS = re.compile(
    r"(?:remote: )?([A-Z][a-z]+ (?:objects|deltas)): +(\d+%)(?: \(\d+/\d+\))?(?:, ([\d.]+ [KMG]iB))?"
)


class FetchFailed(Exception):
    """A command failed; the message says why, in a clause, without credentials. `stderr` is what git printed."""

    def __init__(self, message: str, stderr: str = "") -> None:
        super().__init__(message)
        self.stderr = stderr


class GitNetwork:
    """Runs git for one clone, as a `GitPlace`. `progress` is called with the progress that git reports."""

    def __init__(
        self, program: str, address: RemoteAddress, folder: CloneFolder, max_bytes: int, progress: Callable[[str], None]
    ) -> None:
        self.program = program
        self.path = str(folder.repository)
        self.address = address
        self.folder = folder
        self.max_bytes = max_bytes
        self._progress = progress

    async def run(
        self,
        *arguments: str,
        lock: int,
        seconds: float,
        network: bool = True,
        stdin: IO[bytes] | None = None,
        max_output_bytes: int = 64 << 20,
        replaced_bytes: int = 0,
    ) -> bytes:
        """Run one command, and return its output. `lock` is the lock of the folder, which git keeps open.

        `replaced_bytes` is the size of the objects that the command replaces. While it runs, the clone may exceed its
        bound by as many bytes.

        Raises:
            FetchFailed: it failed, or was ended: at the deadline, or because the clone or the output is too large.
        """
        bound = self.max_bytes + replaced_bytes
        room = bound - (await asyncio.to_thread(self.folder.size) if network else 0)
        command = [self.program, *arguments]
        if sys.platform != "win32":
            launcher = _LAUNCHER.format(
                memory=MEMORY_BYTES >> 10, seconds=int(seconds) + 1, blocks=max(room, SMALL_BYTES) // 512
            )
            command = ["/bin/sh", "-c", launcher, "sh", *command]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=self._environment(network),
                cwd=self.path,
                stdin=stdin or asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=() if sys.platform == "win32" else (lock,),
            )
        except OSError as error:
            raise FetchFailed(f"git cannot be started ({error.strerror})") from None
        exceeded = ""
        output, stderr = bytearray(), bytearray()
        assert process.stdout is not None and process.stderr is not None
        reading = asyncio.gather(
            _collect(process.stdout, output, max_output_bytes),
            self._collect_progress(process.stderr, stderr),
            process.wait(),
        )
        try:
            deadline = asyncio.get_running_loop().time() + seconds
            while not exceeded:
                done, _ = await asyncio.wait((reading,), timeout=SIZE_CHECK_SECONDS)
                if done:
                    reading.result()
                    break
                if asyncio.get_running_loop().time() > deadline:
                    exceeded = "time"
                elif len(output) > max_output_bytes:
                    exceeded = "output"
                elif network and await asyncio.to_thread(self.folder.size) > bound:
                    exceeded = "size"
        finally:
            _kill_group(process)
            await asyncio.wait((reading,), timeout=END_SECONDS)
            reading.cancel()
        if not exceeded and len(output) > max_output_bytes:
            exceeded = "output"
        if exceeded or process.returncode != 0:
            messages = stderr.decode("utf-8", "replace")
            raise FetchFailed(self._reason(arguments[0], seconds, exceeded, process.returncode, messages), messages)
        return bytes(output)

    def _environment(self, network: bool) -> dict[str, str]:
        """Return the whole environment of a process. Only one with `network` gets the address and the token."""
        address = self.address
        settings = dict(_SETTINGS)
        variables = environment(self)
        variables |= {
            "GIT_ALLOC_LIMIT": str(ALLOCATION_BYTES),
            "HOME": str(self.folder.path),  # not the user's, where libcurl would read a .netrc
            "TMPDIR": str(self.folder.path),
        }
        if network:
            settings["remote.origin.url"] = address.url
            try:
                header = address.authorization()
            except UnusableSource as error:  # the variables changed since the start
                raise FetchFailed(str(error).rstrip(".")) from None
            if header:
                settings[f"http.{address.origin}/.extraHeader"] = f"Authorization: {header}"
            variables["GIT_ALLOW_PROTOCOL"] = address.scheme
            variables |= {name: os.environ[name] for name in _PASSED if os.environ.get(name)}
            try:
                proxy = proxy_for(address.scheme, address.host)
            except ConnectionFailed as error:
                raise FetchFailed(str(error).rstrip(".")) from None
            if proxy is not None:
                variables[f"{address.scheme}_proxy"] = proxy
        variables["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (name, value) in enumerate(settings.items()):
            variables[f"GIT_CONFIG_KEY_{number}"] = name
            variables[f"GIT_CONFIG_VALUE_{number}"] = value
        return variables

    async def _collect_progress(self, stream: asyncio.StreamReader, kept: bytearray) -> None:
        while data := await stream.read(4_096):
            kept += data
            del kept[:-STDERR_BYTES]
            matches: list[tuple[str, str, str]] = _PROGRESS.findall(data.decode("utf-8", "replace"))
            if matches:
                phase, percent, size = matches[-1]
                self._progress(f"{phase.lower()} {percent}" + (f", {size}" if size else ""))

    def _reason(self, name: str, seconds: float, exceeded: str, code: int | None, stderr: str) -> str:
        """Return why a command failed, in a clause. `exceeded` is `time`, `output` or `size` if a bound ended it."""
        # Lines of the remote begin with `remote:`.
        problems = [line for line in re.split(r"[\r\n]+", stderr) if line.startswith(("fatal:", "error:"))]
        text, address = "\n".join(problems), self.address
        if exceeded == "size" or "File too large" in text:
            return f"it has more than {size_text(self.max_bytes)}, which is the bound of the clone"
        if exceeded == "time":
            return f"`git {name}` was ended after {seconds:g} s"
        if exceeded == "output":
            return "it has too many references"
        for pattern, clause in _REASONS:
            if re.search(pattern, text):
                return clause.format(variable=address.token_variable, host=address.host)
        # The first message is the cause; later ones only report that git stops.
        reason = re.sub(r"^(fatal|error): ", "", problems[0])[:300] if problems else f"exit code {code}"
        return f"`git {name}` failed: {shown(redacted_text(reason))}"


_REASONS = (
    (
        r"could not read (Username|Password)|Authentication failed|returned error: 401",
        "it requires a valid token (HTTP 401): set WHARFINGER_GIT_TOKEN or {variable}",
    ),
    (r"returned error: 403", "the token may not read it (HTTP 403)"),
    (
        r"repository '[^\n]*' not found|returned error: 404",
        "there is no such repository (HTTP 404), or it requires a token",
    ),
    (
        r"returned error: 30\d|unable to update url base",
        "the server redirects to another address: write that one, often with .git at its end",
    ),
    (r"Could not resolve host", "the host {host} is not known"),
    (r"Failed to connect|Connection refused|Couldn't connect", "{host} does not answer"),
    (r"returned error: (5\d\d)", "the server has a problem (HTTP 5xx)"),
    (
        r"[Cc]ertificate|SSL_connect|gnutls_handshake|SSL:",
        "the connection to {host} is not secure: its certificate cannot be verified",
    ),
    (r"Operation too slow|timed out", "{host} sends no data"),
    (r"No space left on device|Disk quota exceeded", "no space is left for the clone"),
    (r"mismatched algorithms", "it names objects by SHA-256, which is not supported for remote repositories"),
    (r"[Oo]ut of memory|attempting to allocate", "a part of it needs too much memory"),
)
"""Clauses for the messages of git, which are in English (LC_ALL=C)."""


async def _collect(stream: asyncio.StreamReader, kept: bytearray, max_output_bytes: int) -> None:
    while data := await stream.read(1 << 16):
        if len(kept) <= max_output_bytes:
            kept += data


def _kill_group(process: asyncio.subprocess.Process) -> None:
    """End a process and its group (on Windows, only the process), unless it succeeded."""
    if process.returncode == 0:
        return
    if sys.platform == "win32":
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
