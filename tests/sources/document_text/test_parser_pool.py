"""The processes that parse documents: their number, their lifetime and their limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sources.document_text.document_builders import docx_of, pdf_of
from tests.waiting import wait_until
from wharfinger.errors import Overloaded
from wharfinger.sources.document_text import parser_pool
from wharfinger.sources.document_text.child_program import MEMORY_BYTES
from wharfinger.sources.document_text.page_list import ExtractedText
from wharfinger.sources.document_text.parser_pool import ContentChanged, ParserPool
from wharfinger.sources.windows.window import BytesContent

GOOD_PDF = pdf_of(["good"])
TIMEOUT_SECONDS = 60.0


@pytest.fixture
def pool() -> Iterator[ParserPool]:
    new_pool = ParserPool(max_processes=2, max_waiting=1, idle_seconds=60)
    yield new_pool
    new_pool.close()


def extract(
    pool: ParserPool, data: bytes = GOOD_PDF, kind: str = "pdf", patience: float = TIMEOUT_SECONDS
) -> ExtractedText:
    return pool.extract(kind, BytesContent(data), pool, patience)


def pause_processes(pool: ParserPool) -> list[int]:
    """Start a process for PDF and one for DOCX, pause both with SIGSTOP, and return their ids."""
    extract(pool, GOOD_PDF, "pdf")
    extract(pool, docx_of("good"), "docx")
    for process_id in pool.process_ids:
        os.kill(process_id, signal.SIGSTOP)
    return pool.process_ids


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def test_a_process_parses_several_documents_in_turn(pool: ParserPool) -> None:
    assert extract(pool).pages == ["good"]
    (process_id,) = pool.process_ids
    assert extract(pool, pdf_of(["one", "two"])).pages == ["one", "two"]
    assert pool.process_ids == [process_id]


def test_the_number_of_processes_is_bounded(pool: ParserPool) -> None:
    """An idle process of another format ends to make room for a new process."""
    for kind, data in (("pdf", GOOD_PDF), ("docx", docx_of("good")), ("pdf", GOOD_PDF), ("docx", docx_of("good"))):
        assert extract(pool, data, kind).pages == ["good"]
        assert len(pool.process_ids) <= 2
    extract(pool, b"", "epub")
    assert len(pool.process_ids) <= 2


@linux_only
def test_a_process_has_its_limits_and_no_environment(pool: ParserPool) -> None:
    extract(pool)
    (process_id,) = pool.process_ids
    proc = Path(f"/proc/{process_id}")
    limits = {line[:25].strip(): line[26:].split()[:2] for line in (proc / "limits").read_text().splitlines()}
    assert limits["Max address space"] == [str(MEMORY_BYTES)] * 2
    assert limits["Max file size"] == ["0", "0"]
    assert limits["Max processes"] == ["0", "0"]
    assert limits["Max open files"] == ["5", "5"]
    assert int(limits["Max cpu time"][0]) <= 25
    assert (proc / "environ").read_bytes() == b""
    assert sorted(os.listdir(proc / "fd"), key=int) == ["0", "1", "2", "3", "4"]


def test_an_idle_process_ends() -> None:
    pool = ParserPool(idle_seconds=10)
    extract(pool)
    (process_id,) = pool.process_ids
    wait_until(lambda: not pool.process_ids, "the pool lets the idle process go")
    wait_until(lambda: not is_running(process_id), "the process ends")
    assert extract(pool).pages == ["good"]
    pool.close()


def test_a_process_that_was_killed_while_idle_is_replaced(pool: ParserPool) -> None:
    extract(pool)
    os.kill(pool.process_ids[0], signal.SIGKILL)
    assert extract(pool).pages == ["good"]


def test_a_process_that_hangs_is_killed_after_the_time_limit(pool: ParserPool, monkeypatch: pytest.MonkeyPatch) -> None:
    extract(pool)
    (process_id,) = pool.process_ids
    os.kill(process_id, signal.SIGSTOP)
    monkeypatch.setattr(parser_pool, "PARSE_SECONDS", 0.3)
    assert extract(pool).failure == "parsing it took longer than 0.3 s: split it"
    wait_until(lambda: not is_running(process_id), "the process ends")
    monkeypatch.undo()
    assert extract(pool).pages == ["good"]


@linux_only
def test_a_process_ends_at_its_limit_of_processor_time(pool: ParserPool) -> None:
    import resource

    extract(pool)
    (process_id,) = pool.process_ids
    resource.prlimit(process_id, resource.RLIMIT_CPU, (1, 1))  # the hard limit: the process cannot raise it again
    document = pdf_of(["word " * 200] * 2_000)
    for _ in range(20):
        assert len(extract(pool, document).pages) == 2_000  # a new process parses the document if this one ends
        if process_id not in pool.process_ids:
            break
    assert not is_running(process_id)


def test_calls_beyond_max_waiting_are_refused(pool: ParserPool) -> None:
    """Two documents are parsed, one waits, and the next one is refused at once."""
    paused_ids = pause_processes(pool)
    with ThreadPoolExecutor(3) as threads:
        parsing = [threads.submit(extract, pool), threads.submit(extract, pool, docx_of("good"), "docx")]
        wait_until(lambda: len(pool._busy) == 2, "two documents are parsed")
        waiting = threads.submit(extract, pool)
        wait_until(lambda: pool._waiting == 1, "a document waits")
        with pytest.raises(Overloaded, match="Too many documents"):
            extract(pool)
        for process_id in paused_ids:
            os.kill(process_id, signal.SIGCONT)
        assert [answer.result(TIMEOUT_SECONDS).pages for answer in (*parsing, waiting)] == [["good"]] * 3


def test_a_waiting_call_is_refused_after_its_patience(pool: ParserPool) -> None:
    paused_ids = pause_processes(pool)
    with ThreadPoolExecutor(2) as threads:
        parsing = [threads.submit(extract, pool), threads.submit(extract, pool, docx_of("good"), "docx")]
        wait_until(lambda: len(pool._busy) == 2, "two documents are parsed")
        with pytest.raises(Overloaded, match="Other documents take long"):
            extract(pool, patience=0.05)
        for process_id in paused_ids:
            os.kill(process_id, signal.SIGCONT)
        assert [answer.result(TIMEOUT_SECONDS).pages for answer in parsing] == [["good"]] * 2


def test_close_ends_processes_that_are_parsing(pool: ParserPool) -> None:
    extract(pool)
    (process_id,) = pool.process_ids
    os.kill(process_id, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        parsing = threads.submit(extract, pool)
        wait_until(lambda: pool._busy, "the document is parsed")
        pool.close()
        with pytest.raises(Overloaded, match="The server is closing"):
            parsing.result(TIMEOUT_SECONDS)
    assert not is_running(process_id)
    assert not pool.process_ids


class ShorterContent(BytesContent):
    """A file that has become shorter since its size was read."""

    @property
    def size(self) -> int:
        return len(self.data) + 1


def test_a_file_that_became_shorter_raises_content_changed(pool: ParserPool) -> None:
    with pytest.raises(ContentChanged):
        pool.extract("pdf", ShorterContent(GOOD_PDF), pool, TIMEOUT_SECONDS)
    assert extract(pool).pages == ["good"]


@linux_only
@pytest.mark.parametrize("server_signal", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_parsing_ends_with_its_server(server_signal: signal.Signals) -> None:
    program = (
        "import os, signal, time\n"
        "from tests.sources.document_text.test_parser_pool import *\n"
        "pool = ParserPool()\n"
        "extract(pool)\n"
        "print(*pool.process_ids, flush=True)\n"
        "threading.Thread(target=extract, args=(pool, pdf_of(['word ' * 1_000] * 9_000)), daemon=True).start()\n"
        "wait_until(lambda: pool._busy, 'the document is parsed')\n"
        "print('parsing', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        process_ids = [int(word) for word in server.stdout.readline().split()]
        assert server.stdout.readline() == "parsing\n"
        assert all(map(is_running, process_ids))
        server.send_signal(server_signal)
        server.wait(TIMEOUT_SECONDS)
    assert process_ids
    wait_until(lambda: not any(map(is_running, process_ids)), "the processes end")


def test_threads_share_the_pool(pool: ParserPool) -> None:
    pool._max_waiting = 20
    before = threading.active_count()
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda number: extract(pool, pdf_of([f"page {number}"])), range(24)))
    assert [answer.pages for answer in answers] == [[f"page {number}"] for number in range(24)]
    assert len(pool.process_ids) <= 2
    assert threading.active_count() - before < 20
