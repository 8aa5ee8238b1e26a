"""The processes that parse documents: a few, started when they are needed, and ended when they are idle.

Each process parses documents of one format, one after another (`child_program`). If a document crashes or hangs its
process, only the caller for this document fails: the process is ended, and the next document gets another one. Callers
are threads, which wait if all processes are busy.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, cast

import msgspec

from wharfinger.errors import Overloaded
from wharfinger.sources.document_text.child_program import LENGTH_BYTES, MEMORY_BYTES, PARSE_SECONDS
from wharfinger.sources.document_text.page_list import MAX_TEXT_CHARACTERS, ExtractedText
from wharfinger.sources.windows.line_index import RandomAccess

__all__ = ["IDLE_SECONDS", "MAX_PROCESSES", "MAX_WAITING", "ContentChanged", "ParserPool", "shared_pool"]

MAX_PROCESSES = max(2, min(4, os.cpu_count() or 2))
"""Maximum number of processes at a time."""
MAX_WAITING = 16
"""Maximum number of callers that wait for a process; more are refused."""
IDLE_SECONDS = 30.0
"""Time without documents after which a process ends."""
PIECE_BYTES = 1 << 20
"""Bytes of a document that are read at a time."""
MAX_ANSWER_BYTES = 6 * MAX_TEXT_CHARACTERS
"""Maximum size of an answer: at most four bytes for a character, and room for the rest of the structure."""

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from wharfinger.sources.document_text.child_program import main; main(sys.argv[1])"
)


class ContentChanged(OSError):
    """The document became shorter while it was read."""


class _Parser:
    """A child process that parses documents of one format."""

    def __init__(self, format_name: str) -> None:
        self.format_name = format_name
        self.owner: object = None
        self.reused = False
        """Whether it has parsed another document before. Since then, something else may have killed it."""
        self.timed_out = False
        self.cancelled = False
        self.idle_since = 0.0
        # Isolated mode ignores the environment and the current folder; relative entries of the path are left out too.
        path = json.dumps([entry for entry in sys.path if os.path.isabs(entry)])
        environment: dict[str, str] = {}
        if sys.platform == "win32":
            environment["SYSTEMROOT"] = os.environ.get("SYSTEMROOT", "")
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-B", "-c", _PROGRAM, format_name, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=os.path.abspath(os.sep),
            start_new_session=True,  # Ctrl-C is for the server, which ends this process when it ends itself
        )

    def parse(self, content: RandomAccess) -> ExtractedText | None:
        """Return the answer for a document; None if the process ended without one, or its answer is not valid.

        Raises:
            OSError: the document cannot be read.
        """
        stdin, stdout = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)
        size = content.size
        offset = 0
        self.timed_out = False  # the timer of the previous document may have fired after its answer
        timer = threading.Timer(PARSE_SECONDS, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            if not _write(stdin, size.to_bytes(LENGTH_BYTES, "big")):
                return None
            while offset < size:
                piece = content.read(offset, min(PIECE_BYTES, size - offset))
                if not piece:
                    raise ContentChanged
                if not _write(stdin, piece):
                    return None
                offset += len(piece)
            try:
                stdin.flush()
                head = stdout.read(LENGTH_BYTES)
                length = int.from_bytes(head, "big")
                if len(head) < LENGTH_BYTES or length > MAX_ANSWER_BYTES:
                    return None
                return msgspec.msgpack.decode(stdout.read(length), type=ExtractedText)
            except (OSError, ValueError, msgspec.MsgspecError):
                return None
        finally:
            timer.cancel()

    def _time_out(self) -> None:
        self.timed_out = True
        self.process.kill()

    def end(self) -> None:
        """End the process, and wait until it has ended."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                cast("IO[bytes]", stream).close()
        self.process.wait()

    def failure(self) -> str:
        """Return why the process ended without an answer, and what to do."""
        code = self.process.wait()
        if self.timed_out or (sys.platform != "win32" and -code == signal.SIGXCPU):
            return f"parsing it took longer than {PARSE_SECONDS} s: split it"
        return f"its parser crashed: it is damaged, or needs more than {MEMORY_BYTES >> 20} MiB of memory"


def _write(stdin: IO[bytes], data: bytes) -> bool:
    """Write to a process, and return whether it still reads."""
    try:
        stdin.write(data)
    except (OSError, ValueError):
        return False
    return True


class ParserPool:
    """Parses documents in at most `max_processes` processes. Its methods may be called from several threads."""

    def __init__(
        self,
        max_processes: int = MAX_PROCESSES,
        max_waiting: int = MAX_WAITING,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._max_processes = max_processes
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._idle: list[_Parser] = []
        self._busy: set[_Parser] = set()
        self._starting = 0
        self._waiting = 0
        self._timer: threading.Timer | None = None

    @property
    def process_ids(self) -> list[int]:
        """The ids of all processes."""
        with self._changed:
            return [parser.process.pid for parser in (*self._idle, *self._busy)]

    def extract(self, format_name: str, content: RandomAccess, owner: object, patience: float) -> ExtractedText:
        """Parse a document, and return its pages or the failure. Blocks.

        Args:
            format_name: The format: `pdf`, `docx`, `pptx` or `epub`.
            content: The bytes. They are read again if the process that was chosen had already ended.
            owner: The object to pass to `cancel`.
            patience: Seconds to wait for a free process.

        Raises:
            Overloaded: too many documents wait, no process was free in time, or `cancel` was called with this owner.
            OSError: the document cannot be read, or no process can be started.
        """
        while True:
            parser = self._take(format_name, owner, patience)
            reusable = False
            try:
                extracted = parser.parse(content)
                # PDFium keeps an error until the next one, and could report it for another document.
                reusable = extracted is not None and not extracted.failure
            finally:
                self._give_back(parser, reusable)
            if parser.cancelled:
                raise Overloaded("The server is closing: try again later.")
            if extracted is not None:
                return extracted
            if not parser.reused or parser.timed_out:  # otherwise try again: it may have ended before this document
                return ExtractedText(failure=parser.failure())

    def _take(self, format_name: str, owner: object, patience: float) -> _Parser:
        surplus: _Parser | None = None
        with self._changed:
            if not self._has_free_process():
                if self._waiting >= self._max_waiting:
                    raise Overloaded("Too many documents wait to be parsed: try again later.")
                self._waiting += 1
                try:
                    if not self._changed.wait_for(self._has_free_process, patience):
                        raise Overloaded("Other documents take long to parse: try again later.")
                finally:
                    self._waiting -= 1
            for parser in reversed(self._idle):
                if parser.format_name == format_name:
                    self._idle.remove(parser)
                    parser.owner, parser.reused = owner, True
                    self._busy.add(parser)
                    return parser
            if self._idle and len(self._idle) + len(self._busy) + self._starting >= self._max_processes:
                surplus = self._idle.pop(0)
            self._starting += 1
        try:
            if surplus is not None:
                surplus.end()
            started = _Parser(format_name)
        except BaseException:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
            raise
        with self._changed:
            self._starting -= 1
            started.owner = owner
            self._busy.add(started)
        return started

    def _has_free_process(self) -> bool:
        return len(self._busy) + self._starting < self._max_processes

    def _give_back(self, parser: _Parser, reusable: bool) -> None:
        reusable = reusable and not parser.cancelled
        if not reusable:
            parser.end()
        with self._changed:
            self._busy.discard(parser)
            parser.owner = None
            if reusable:
                parser.idle_since = time.monotonic()
                self._idle.append(parser)
                self._start_timer()
            self._changed.notify()

    def _start_timer(self) -> None:
        if self._timer is None and self._idle:
            seconds = max(0.0, self._idle[0].idle_since + self._idle_seconds - time.monotonic())
            self._timer = threading.Timer(seconds, self._end_idle)
            self._timer.daemon = True
            self._timer.start()

    def _end_idle(self) -> None:
        with self._changed:
            self._timer = None
            oldest = time.monotonic() - self._idle_seconds
            ended = [parser for parser in self._idle if parser.idle_since <= oldest]
            self._idle = [parser for parser in self._idle if parser.idle_since > oldest]
            self._start_timer()
        for parser in ended:
            parser.end()

    def cancel(self, owner: object) -> None:
        """End the processes that parse documents of this owner, and those that are idle."""
        with self._changed:
            busy = [parser for parser in self._busy if parser.owner is owner]
            idle, self._idle = self._idle, []
            for parser in busy:
                parser.cancelled = True
        for parser in busy:
            parser.process.kill()  # its thread waits for it
        for parser in idle:
            parser.end()

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            owners = {id(parser.owner): parser.owner for parser in self._busy}
        for owner in [*owners.values(), None]:
            self.cancel(owner)


_SHARED: list[ParserPool] = []
_LOCK = threading.Lock()


def shared_pool() -> ParserPool:
    """Return the pool of this process. Its children end with the process."""
    with _LOCK:
        if not _SHARED:
            _SHARED.append(ParserPool())
            atexit.register(_SHARED[0].close)
    return _SHARED[0]
