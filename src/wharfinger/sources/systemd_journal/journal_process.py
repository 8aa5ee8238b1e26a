"""Runs journalctl within bounds: without a shell, a pager or the server's environment.

It never gets free text from a client: units, boots and cursors are checked, and the server itself searches for `text=`.
Every run is ended after `RUN_SECONDS`, or as soon as its reader has enough.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument, Overloaded
from wharfinger.source import SourceUnavailable, UnusableSource
from wharfinger.sources.program_path import program_path
from wharfinger.sources.systemd_journal.export_format import ExportedEntry, read_entries

__all__ = ["RUN_SECONDS", "JournalRun", "Journalctl"]

RUN_SECONDS = 10.0
"""Longest time of a run. Its reader gets the entries up to then."""
MAX_RUNS = 4
"""Maximum number of simultaneous runs of one source. Others wait, for at most `RUN_SECONDS`."""
MAX_VALUES_BYTES = 1 << 20
"""Maximum bytes of the list of a field's values."""
STDERR_BYTES = 4_096

_ENVIRONMENT = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": "", "SYSTEMD_LOG_LEVEL": "warning"}
_DENIED = re.compile(r"insufficient permissions|Permission denied|not seeing messages").search


class JournalRun:
    """One run of journalctl. `timed_out` is True if it was ended because it took too long."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Callable[[], str]) -> None:
        assert process.stdout is not None
        self.output = process.stdout
        self.errors = errors
        self.timed_out = False
        self._process = process

    def entries(self) -> Iterator[ExportedEntry]:
        """Yield the entries, up to the end of the time for the run (see `timed_out`).

        Raises:
            SourceUnavailable: the journal cannot be read; the message says why.
            InvalidArgument: the requested boot is not in the journal.
        """
        yield from read_entries(self.output)
        self.check()

    def first_entry(self) -> ExportedEntry | None:
        """Return the first entry, or None if there is none.

        Raises:
            SourceUnavailable, InvalidArgument: as for `entries`.
            Overloaded: the time for the run ended before.
        """
        entry = next(self.entries(), None)
        if entry is None:
            self.refuse_end()
        return entry

    def refuse_end(self) -> None:
        """Raise Overloaded if the time for the run ended before it was complete."""
        if self.timed_out:
            raise Overloaded(f"Reading the journal took longer than {RUN_SECONDS:g} s: try again later.")

    def end(self) -> None:
        """End the process because its time is over."""
        self.timed_out = True
        self.kill()

    def kill(self) -> None:
        """End the process and those that it started, which could keep the pipe open."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def check(self) -> None:
        """Wait for the end of the process, and raise an error if it failed before its time was over."""
        code = self._process.wait()
        if self.timed_out or not code:
            return
        stderr = self.errors()
        if _DENIED(stderr):
            raise SourceUnavailable(
                "This account may not read the journal: add it to the group systemd-journal, as in "
                "`usermod -aG systemd-journal USER`, and start the server again."
            )
        if "boot" in stderr.lower():
            raise InvalidArgument(
                "That boot is not in the journal: ask for boot=0 (the latest) or boot=-1 (the one before), or omit it."
            )
        raise SourceUnavailable(
            f"The journal cannot be read: {shown(stderr)[:300] or f'journalctl ended with {code}'}."
        )


class Journalctl:
    """The program journalctl, for the journal in a directory or, if `directory` is empty, of this machine."""

    def __init__(self, directory: str) -> None:
        program = program_path("journalctl")
        if program is None:
            raise UnusableSource(
                "Publishing the journal needs journalctl, which is part of systemd: it is not in PATH."
            )
        self.directory = directory
        location = [f"--directory={directory}"] if directory else []
        self._command = [program, "--no-pager", "--quiet", *location]
        self._runs = threading.BoundedSemaphore(MAX_RUNS)

    @contextmanager
    def run(self, arguments: Sequence[str], fields: Sequence[str] = ()) -> Generator[JournalRun, None, None]:
        """Run journalctl, which writes these fields of each entry (default: all). It ends with the `with` block.

        Raises:
            Overloaded: `MAX_RUNS` others ran for all of `RUN_SECONDS`.
        """
        output_fields = [f"--output-fields={','.join(fields)}"] if fields else []
        with self._start([*self._command, "--output=export", *output_fields, *arguments]) as run:
            yield run

    def values(self, field: str) -> list[str]:
        """Return the sorted values that a field has in all entries, as far as they fit into `MAX_VALUES_BYTES`.

        Raises:
            SourceUnavailable: the journal cannot be read; the message says why.
            Overloaded: the time for the run ended before, or others took all of it.
        """
        with self._start([*self._command, f"--field={field}"]) as run:
            output = run.output.read(MAX_VALUES_BYTES)
            if len(output) < MAX_VALUES_BYTES:
                run.check()
                run.refuse_end()
            else:
                output = output[: output.rfind(b"\n") + 1]  # the last value may be cut
        return sorted({line.decode("utf-8", "replace") for line in output.split(b"\n") if line})

    def hides_entries(self) -> bool:
        """Return whether this account may read only a part of the journal.

        Raises:
            SourceUnavailable: this account may not read the journal at all; the message says what to change.
        """
        command = [word for word in self._command if word != "--quiet"]
        with self._start([*command, "--output=export", "--lines=1"]) as run:
            for _ in run.entries():
                pass
            return bool(_DENIED(run.errors()))

    @contextmanager
    def _start(self, command: Sequence[str]) -> Generator[JournalRun, None, None]:
        if not self._runs.acquire(timeout=RUN_SECONDS):
            raise Overloaded("The journal is being read by too many others: try again in a few seconds.")
        try:
            with tempfile.TemporaryFile() as stderr:
                process = _start_process(command, stderr)

                def errors() -> str:
                    stderr.seek(0)
                    return stderr.read(STDERR_BYTES).decode("utf-8", "replace").strip()

                run = JournalRun(process, errors)
                timer = threading.Timer(RUN_SECONDS, run.end)
                timer.daemon = True
                timer.start()
                try:
                    yield run
                finally:
                    timer.cancel()
                    run.kill()
                    run.output.close()
                    process.wait()
        finally:
            self._runs.release()


def _start_process(command: Sequence[str], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - fixed arguments, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
    except OSError as error:  # it was removed, or there are too many processes
        raise SourceUnavailable(f"journalctl cannot be started: {error.strerror}.") from None
