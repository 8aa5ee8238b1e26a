"""The output of a command as a resource.

The command runs without a shell, bounded in output and time. The processes that it started are ended with it, unless
they left its process group. Everyone who may read the resource can run the command.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.redaction import redacted_command
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import VERSION, Changed, Document, Source, UnusableSource, document_of
from wharfinger.sources.etag import digest
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.labels import usable_label
from wharfinger.sources.page_keys import refuse_cursor
from wharfinger.sources.polling import Polling
from wharfinger.sources.watched import Watched
from wharfinger.sources.windows.window import ENCODING, remark

__all__ = ["EXIT", "TIMEOUT_SECONDS", "Command", "Run", "command", "find_program", "split_command"]

EXIT = "wharfinger/exit"
"""The key in `_meta` of the contents. Its value has the members `code`, `cut` and `seconds` of the `Run`."""
MAX_BYTES = 1 << 20
MAX_STDERR_BYTES = 16 << 10
TIMEOUT_SECONDS = 10.0
MIN_INTERVAL_SECONDS = 0.2
"""The smallest value of `every`."""
REUSE_RATIO = 0.9
"""The fraction of `every` for which a run is reused, from its beginning: below 1, so that each poll starts a run."""
GRACE_SECONDS = 0.5
"""Time between SIGTERM and SIGKILL."""
END_CHECK_SECONDS = 0.05
"""Time between two checks whether the command has ended, since processes that it started may keep its pipes open."""
ENVIRONMENT = ("PATH", "HOME", "LANG")
"""Variables that a command inherits. On Windows, those below are added."""
_ENVIRONMENT_ON_WINDOWS = ("SYSTEMROOT", "PATHEXT", "TEMP")


class Run(NamedTuple):
    """The result of a run. `code` is the exit code, or the negative number of the signal that ended the command.

    `output` is from stdout, `errors` from stderr. If the source ended the command, `code` is None, and `cut` is a
    sentence that says why; otherwise `cut` is empty.
    """

    output: bytes
    errors: bytes
    code: int | None
    cut: str
    seconds: float


def command(
    argv: str | Sequence[str],
    *,
    label: str | None = None,
    every: float | None = None,
    timeout: float = TIMEOUT_SECONDS,
    max_bytes: int = MAX_BYTES,
    cwd: str | os.PathLike[str] | None = None,
) -> Command:
    """Publish the output of a command: `server.include(command(["df", "-h"], every=5))`.

    The command runs for each read (see also `every`), without a shell and without input. Simultaneous reads share one
    run. Of the environment, the command inherits only PATH, HOME and LANG, and on Windows also SYSTEMROOT, PATHEXT and
    TEMP.

    Args:
        argv: The program and its arguments. A string is split as in a shell, but nothing in it is expanded.
        label: The name in the URI, `command://<label>`. Default: the name of the program.
        every: Seconds between runs while a client watches (more if a run takes over half of this time). In the first
            90 % of this time after a run began, reads return its result and do not run the command. Without `every`,
            the resource cannot be watched.
        timeout: Seconds after which the command is ended, with its process group.
        max_bytes: Bytes of output after which the command is ended.
        cwd: The folder in which the command runs. Default: the current one.

    Raises:
        UnusableSource: the command cannot be split or is empty, there is no such program or folder, a number is out of
            bounds, or the label cannot be part of a URI.
    """
    parts = split_command(argv)
    if not timeout > 0 or max_bytes < 1 or (every is not None and every < MIN_INTERVAL_SECONDS):
        raise UnusableSource(f"timeout and max_bytes must be positive, and every at least {MIN_INTERVAL_SECONDS:g} s.")
    program, folder = find_program(parts, cwd)
    return Command([program, *parts[1:]], parts, label, every, timeout, max_bytes, folder)


def find_program(parts: Sequence[str], cwd: str | os.PathLike[str] | None) -> tuple[str, str]:
    """Resolve the program of a command and the folder in which it runs to absolute paths.

    Raises:
        UnusableSource: there is no such program or folder.
    """
    folder = os.path.realpath(os.fsdecode(os.fspath(cwd)) if cwd is not None else os.curdir)
    if not os.path.isdir(folder):
        raise UnusableSource(f"There is no folder {folder} to run {parts[0]} in.")
    program = os.path.join(folder, parts[0]) if os.sep in parts[0] else shutil.which(parts[0]) or ""
    program = os.path.abspath(program) if program else ""  # a folder in PATH may be relative to the current one
    if not program or not os.access(program, os.X_OK) or os.path.isdir(program):
        raise UnusableSource(f"There is no program {parts[0]!r}: give its path, or add its folder to PATH.")
    return program, folder


def split_command(argv: str | Sequence[str]) -> list[str]:
    """Split a command into the program and its arguments, as a shell would.

    Raises:
        UnusableSource: it cannot be split, is empty, or contains a null character.
    """
    try:
        parts = shlex.split(argv) if isinstance(argv, str) else list(argv)
    except ValueError as error:
        raise UnusableSource(f"The command cannot be split into a program and its arguments: {error}.") from None
    if not parts or not parts[0] or any("\0" in part for part in parts):
        raise UnusableSource('Give a program and its arguments, such as ["df", "-h"].')
    return parts


class Command(Watched[Polling], Source):
    """The source that `command()` returns. Its methods may be called from several threads at once."""

    def __init__(
        self, argv: list[str], original_argv: list[str], label: str | None, every: float | None, timeout: float,
        max_bytes: int, cwd: str,
    ) -> None:  # fmt: skip
        self.argv = argv
        self.original_argv = original_argv
        self.every = every
        self.timeout = timeout
        self.max_bytes = max_bytes
        self.cwd = cwd
        self.name = usable_label(label or os.path.basename(argv[0]))
        self.uri = f"command://{quote(self.name)}"
        self.location = redacted_command(original_argv)
        self._lock = threading.Lock()
        self._running: _SharedRun | None = None
        self._last_run: tuple[float, Run] | None = None
        """The last run, after the monotonic time at which it began."""
        self._watches = Polling(f"wharfinger-command-{self.name}", self._look, every=every or 1.0, sleep_ratio=1)

    def __repr__(self) -> str:
        return f"command({self.location!r}, label={self.name!r})"

    def matches(self, uri: str) -> bool:
        """Return whether this URI belongs to this command."""
        return uri == self.uri or uri.startswith((self.uri + "?", self.uri + "/"))

    def _check(self, uri: str) -> None:
        if uri.startswith(self.uri + "?"):
            raise InvalidArgument(f"The output of a command has no windows: read {self.uri}.")
        if uri != self.uri:
            raise ResourceNotFound(uri)

    def page(self, after: str | None, limit: int) -> tuple[list[t.Resource], str | None]:
        """List the only resource."""
        refuse_cursor(after)
        return [self._resource()], None

    def _resource(self) -> t.Resource:
        return t.Resource(
            uri=self.uri,
            name=self.name,
            title=self.location,
            description="The output of a command.",
            mime_type=mime.TEXT,
        )

    def stat(self, uri: str) -> t.Resource:
        """Describe the command as a resource. If `every` is set, it may run, to add the output's version.

        Raises:
            ResourceNotFound: this is not the URI of the command.
            InvalidArgument: the URI has a query, or the command could not be run.
        """
        self._check(uri)
        resource = self._resource()
        if self.every is not None:
            version = self._look(uri)
            self._watches.record(uri, version)
            resource.meta = {VERSION: version}
        return resource

    def read(self, uri: str) -> t.ReadResourceResult:
        """Run the command and return its output. A second content reports a failure, a cut, or the text on stderr.

        Raises:
            ResourceNotFound: this is not the URI of the command.
            InvalidArgument: the URI has a query, or the command could not be run.
        """
        self._check(uri)
        run = self.run()
        decoded = _decode_output(run)
        meta: dict[str, object] = {EXIT: {"code": run.code, "cut": run.cut, "seconds": round(run.seconds, 3)}}
        if self.every is not None:
            meta[VERSION] = _version(run)
        kind = mime.classify("", run.output[: mime.SNIFFED_BYTES], decoded is not None)
        if decoded is None:
            content = t.ResourceContents(uri=uri, mime_type=kind, blob=run.output, meta=meta)
        else:
            text, encoding = decoded
            if encoding != "utf-8":
                meta[ENCODING] = encoding
            content = t.ResourceContents(uri=uri, mime_type=kind, text=text, meta=meta)
        contents = [content]
        if text := _remark_on(run):
            contents.append(remark(uri, text))
        ttl = int(self.every * 1000) if self.every else 0
        return t.ReadResourceResult(contents=contents, ttl_ms=ttl, cache_scope=self.cache_scope)

    def run(self) -> Run:
        """Return a result that is still valid, or that of a run that has already started, or run the command.

        Raises:
            InvalidArgument: the command could not be run.
        """
        with self._lock:
            if self.every and self._last_run and time.monotonic() - self._last_run[0] < REUSE_RATIO * self.every:
                return self._last_run[1]
            shared_run, is_first = self._running, self._running is None
            if shared_run is None:
                shared_run = self._running = _SharedRun()
        if is_first:
            began = time.monotonic()
            try:
                shared_run.run = _run(self.argv, self.cwd, self.timeout, self.max_bytes)
            except BaseException as error:
                shared_run.error = error
            finally:
                with self._lock:
                    self._running = None
                    if shared_run.run is not None:
                        self._last_run = began, shared_run.run
                shared_run.done.set()
        else:
            shared_run.done.wait()
        if shared_run.run is None:
            raise InvalidArgument(f"{self.original_argv[0]} could not be run: {shared_run.error}.")
        return shared_run.run

    def _look(self, uri: str | None) -> str:
        return _version(self.run()) if uri is not None else ""

    def documents(self, after: str | None, limit: int) -> tuple[list[Document], str | None]:
        """Return the command without its output: a search does not run it."""
        refuse_cursor(after)
        return [document_of(self._resource())], None

    def text(self, uri: str) -> Sequence[str]:
        """Return no text: a search does not run the command.

        Raises:
            ResourceNotFound: this is not the URI of the command.
            InvalidArgument: the URI has a query.
        """
        self._check(uri)
        return ()

    def describe(self) -> str:
        """Return a text that says how often the command runs."""
        return f"runs every {self.every:g} s while watched" if self.every else "runs for each read"

    def watch(self, uri: str | None, changed: Changed) -> None:
        """Run the command every `every` seconds (if set), and call `changed` when its result differs."""
        if uri == self.uri and self.every is not None:
            super().watch(uri, changed)


class _SharedRun:
    """A run that several callers wait for."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.run: Run | None = None
        self.error: BaseException | None = None


def _decode_output(run: Run) -> mime.Decoded | None:
    """Decode the output as text. If it was cut within a character, that character is dropped."""
    max_dropped = min(3, len(run.output)) if run.cut else 0  # a character has at most four bytes
    for dropped in range(max_dropped + 1):
        if decoded := mime.decode_text(run.output[: len(run.output) - dropped]):
            return decoded
    return None


def _version(run: Run) -> str:
    return digest(repr((run.output, run.errors, run.code, run.cut)))


def _remark_on(run: Run) -> str:
    """Return a remark about a run that failed, was cut or wrote to stderr."""
    parts: list[str] = []
    if run.cut:
        parts.append(run.cut)
    elif run.code:
        parts.append(f"Ended by signal {-run.code}" if run.code < 0 else f"Exit code {run.code}")
    if run.errors:
        parts.append("stderr: " + run.errors.decode("utf-8", "backslashreplace").strip())
    return ". ".join(parts)


def _run(argv: list[str], cwd: str, timeout: float, max_bytes: int) -> Run:
    """Run a command in its own process group, which is ended before this returns."""
    began = time.monotonic()
    names = (*ENVIRONMENT, *(_ENVIRONMENT_ON_WINDOWS if sys.platform == "win32" else ()))
    with subprocess.Popen(  # noqa: S603 - the operator published it; there is no shell
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={name: os.environ[name] for name in names if name in os.environ},
        bufsize=0,
        start_new_session=True,
    ) as process:
        try:
            output, errors, bound = _collect(process, began + timeout, max_bytes)
            bound = bound or _wait(process, began + timeout)
        finally:
            _end(process)
    cut = ""
    if bound == _TOO_LATE:
        cut = f"Ended after {timeout:g} s; the output may be incomplete"
    elif bound == _TOO_LONG:
        cut = f"Ended after {max_bytes:,} bytes of output"
    return Run(output, errors, None if cut else process.returncode, cut, time.monotonic() - began)


_TOO_LATE = "late"
_TOO_LONG = "long"


def _collect(process: subprocess.Popen[bytes], deadline: float, max_bytes: int) -> tuple[bytes, bytes, str]:
    """Read stdout and stderr until the process closes them or ends, or a bound is reached.

    The third item of the result is `_TOO_LATE` or `_TOO_LONG` if a bound was reached, otherwise an empty string.
    """
    if sys.platform == "win32":
        return _collect_in_threads(process, deadline, max_bytes)
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, target in ((process.stdout, output), (process.stderr, errors)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, target)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return bytes(output), bytes(errors), _TOO_LATE
            has_ended = _has_ended(process)
            ready = selector.select(0 if has_ended else min(remaining, END_CHECK_SECONDS))
            if has_ended and not ready:
                break
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.data is output:
                    output += data
                else:
                    errors += data[: MAX_STDERR_BYTES - len(errors)]
            if len(output) > max_bytes:
                return bytes(output[:max_bytes]), bytes(errors), _TOO_LONG
    return bytes(output), bytes(errors), ""


def _collect_in_threads(process: subprocess.Popen[bytes], deadline: float, max_bytes: int) -> tuple[bytes, bytes, str]:
    """Do the work of `_collect` on Windows, where a selector cannot wait for pipes."""
    output, errors = bytearray(), bytearray()

    def copy(stream: IO[bytes], target: bytearray, limit: int) -> None:
        with contextlib.suppress(OSError, ValueError):  # the stream was closed
            while data := stream.read(1 << 16):
                target += data[: max(0, limit - len(target))]

    assert process.stdout is not None and process.stderr is not None
    jobs = ((process.stdout, output, max_bytes + 1), (process.stderr, errors, MAX_STDERR_BYTES))
    threads = [threading.Thread(target=copy, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    while running := [thread for thread in threads if thread.is_alive()]:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return bytes(output), bytes(errors), _TOO_LATE
        if len(output) > max_bytes:
            break
        has_ended, size_before = _has_ended(process), len(output) + len(errors)
        running[0].join(min(remaining, END_CHECK_SECONDS))
        if has_ended and size_before == len(output) + len(errors):
            break
    return bytes(output[:max_bytes]), bytes(errors), _TOO_LONG if len(output) > max_bytes else ""


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended. It is not reaped, so that no other process group can get its id."""
    if sys.platform == "win32":
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _wait(process: subprocess.Popen[bytes], deadline: float) -> str:
    """Wait until a process has ended. Returns `_TOO_LATE` if it has not ended by the deadline, else an empty string."""
    while not _has_ended(process):
        if time.monotonic() > deadline:
            return _TOO_LATE
        time.sleep(0.01)
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group: with SIGTERM if its first process still runs, and in any case with SIGKILL."""
    if sys.platform == "win32":
        with contextlib.suppress(OSError):
            subprocess.run(  # noqa: S603 - the system's own tool to end a process tree
                ["taskkill", "/T", "/F", "/PID", str(process.pid)],  # noqa: S607
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
        return
    if not _has_ended(process):
        _signal(process.pid, signal.SIGTERM)
        _wait(process, time.monotonic() + GRACE_SECONDS)
    _signal(process.pid, signal.SIGKILL)
    process.wait()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
