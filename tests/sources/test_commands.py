"""Commands as resources: they run without a shell and with bounded output, and end with their child processes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.server.document_search import search_documents
from wharfinger.source import UnusableSource
from wharfinger.sources import commands
from wharfinger.sources.commands import EXIT, Command, command
from wharfinger.testing import SourceContract

posix = pytest.mark.skipif(sys.platform == "win32", reason="only POSIX has process groups")


def python_command(code: str, **options: Any) -> Command:
    return command([sys.executable, "-c", code], label="it", **options)


def read(source: Command) -> tuple[Any, dict[str, Any], str]:
    """Return the content, the exit report, and the message to the model about a failure."""
    contents = source.read(source.uri).contents
    meta = contents[0].meta
    assert isinstance(meta, dict)
    exit_report: Any = meta[EXIT]
    return contents[0], exit_report, str(contents[1].text) if len(contents) > 1 else ""


def test_standard_output_is_the_content() -> None:
    content, exit_report, message = read(python_command("print('high water 6.1')"))
    assert content.text.split() == ["high", "water", "6.1"]
    assert content.mime_type == "text/plain"
    assert (exit_report["code"], exit_report["cut"], message) == (0, "", "")


def test_a_failure_is_reported_with_its_standard_error() -> None:
    content, exit_report, message = read(
        python_command("import sys; print('some'); print('no boat', file=sys.stderr); sys.exit(3)")
    )
    assert content.text.strip() == "some"
    assert exit_report["code"] == 3
    assert "Exit code 3" in message
    assert "no boat" in message


def test_arguments_are_not_interpreted_by_a_shell(tmp_path: Path) -> None:
    code = "import sys; print(sys.argv[1:])"
    source = command(f"{sys.executable} -c '{code}' '$HOME' ';' touch '{tmp_path}/x' '*' '`id`'", label="it")
    assert read(source)[0].text.strip() == repr(["$HOME", ";", "touch", f"{tmp_path}/x", "*", "`id`"])
    assert not (tmp_path / "x").exists()


def test_a_command_runs_in_its_folder_without_input_or_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    code = "import os, sys; print(sorted(os.environ), os.getcwd(), repr(sys.stdin.read()))"
    text = read(python_command(code, cwd=tmp_path))[0].text
    assert "AWS" not in text
    assert "PATH" in text
    assert str(tmp_path) in text
    assert text.strip().endswith("''")


@posix
def test_a_program_in_a_relative_folder_of_path_is_found_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug: the program was looked for in the folder in which the command runs."""
    program = tmp_path / "bin" / "tide"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho high water 6.1\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"bin{os.pathsep}{os.environ['PATH']}")
    source = command(["tide"], cwd=tmp_path / "bin")
    assert read(source)[0].text == "high water 6.1\n"


def test_binary_output_is_a_blob() -> None:
    content, _, _ = read(python_command(r"import sys; sys.stdout.buffer.write(b'\x89PNG\r\n\x1a\n\0\0\0\rIHDR')"))
    assert content.mime_type == "image/png"
    assert content.blob == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def test_endless_output_is_cut() -> None:
    content, exit_report, message = read(python_command("while True: print('høvel' * 100)", max_bytes=10_001))
    assert 9_990 <= len(content.text.encode()) <= 10_001
    assert exit_report["code"] is None
    assert "10,001 bytes" in message


@posix
@pytest.mark.parametrize("prelude", ["pass;", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"])
def test_an_endless_command_is_ended_with_its_child_processes(tmp_path: Path, prelude: str) -> None:
    child = f"{prelude} import os, time; open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    code = (
        f"import subprocess, sys; {prelude} print('up', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    )
    started = time.monotonic()
    content, exit_report, message = read(python_command(code, timeout=5))
    assert time.monotonic() - started < 30
    assert content.text == "up\n"
    assert exit_report["code"] is None
    assert "after 5 s" in message
    pid = int((tmp_path / "child").read_text())
    wait_until(lambda: has_ended(pid), "the child of the command ends")


@posix
@pytest.mark.parametrize("collect", [commands._collect, commands._collect_in_threads])
@pytest.mark.parametrize(
    ("code", "seconds", "expected"),
    [
        ("print('high'); print('low', file=sys.stderr)", 40, (b"high\n", b"low\n", "")),
        ("print('a' * 999_999)", 40, (b"a" * 100, b"", "long")),
        ("os.close(1); time.sleep(60)", 0.1, (b"", b"", "late")),
        ("print('high', flush=True); subprocess.Popen(['sleep', '60'])", 40, (b"high\n", b"", "")),
    ],
)
def test_threads_collect_the_same_output_for_windows(
    collect: Any, code: str, seconds: float, expected: tuple[bytes, bytes, str]
) -> None:
    """A bug: the pipes of a command were selected, which Windows refuses, so that no command could be read."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import os, subprocess, sys, time; {code}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    ) as process:
        try:
            assert collect(process, time.monotonic() + seconds, 100) == expected
        finally:
            commands._end(process)


@posix
def test_child_processes_that_outlive_the_command_are_ended(tmp_path: Path) -> None:
    child = f"import os, time; open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid())); time.sleep(99)"
    code = (
        f"import os, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); print('up')\n"
        f"while not os.path.exists({str(tmp_path / 'child')!r}) or not open({str(tmp_path / 'child')!r}).read():"
        " time.sleep(0.01)"
    )
    started = time.monotonic()
    content, exit_report, _ = read(python_command(code, timeout=50))
    assert time.monotonic() - started < 30
    assert (content.text, exit_report["code"]) == ("up\n", 0)
    pid = int((tmp_path / "child").read_text())
    wait_until(lambda: has_ended(pid), "the child of the command ends")


def has_ended(pid: int) -> bool:
    """Return whether a killed process has ended or become a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with suppress(FileNotFoundError, ProcessLookupError):  # macOS has no /proc
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def test_concurrent_reads_share_one_run(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    code = f"import os, time; open({runs!r}, 'a').write('x'); time.sleep(3 * (os.stat({runs!r}).st_size == 1))"
    source = python_command(f"{code}; print('done')")  # the first run lasts until all threads have begun to read
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(read(source)[0].text)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [text.strip() for text in found] == ["done"] * 5
    assert (tmp_path / "runs").read_text() == "x"
    read(source)
    assert (tmp_path / "runs").read_text() == "xx"


def test_the_output_of_a_repeated_command_is_cached_until_the_next_run(tmp_path: Path) -> None:
    source = python_command(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')", every=60)
    assert source.read(source.uri).ttl_ms == 60_000
    assert source.read(source.uri).contents[0].text == ""
    assert (tmp_path / "runs").read_text() == "x"


def test_a_watched_command_runs_at_each_interval_if_it_takes_less_than_half_of_it(
    tmp_path: Path, recorder: Any
) -> None:
    """A bug: a run was reused after its end, so only each second poll ran a command that took a tenth of `every`."""
    begins = tmp_path / "begins"
    source = python_command(
        f"import time; open({str(begins)!r}, 'a').write(str(time.time()) + '\\n'); time.sleep(0.2)", every=0.5
    )
    source.watch(source.uri, recorder)
    wait_until(lambda: begins.exists() and begins.read_text().count("\n") == 5, "five runs")
    source.unwatch(source.uri)
    times = [float(line) for line in begins.read_text().split()]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) < 0.9


def test_watches_and_searches_do_not_run_a_command_without_an_interval(tmp_path: Path, recorder: Any) -> None:
    source = python_command(f"open({str(tmp_path / 'runs')!r}, 'a').write('x')")
    source.watch(source.uri, recorder)
    source.page(None, 10)
    source.stat(source.uri)
    assert [hit.uri for hit in search_documents(source, "it", 5)] == ["command://it"]
    assert list(source.text(source.uri)) == []
    source.unwatch(source.uri)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("argv", ["", [], "no-such-program-here", "'unclosed", ["echo", "\0"], "/"])
def test_commands_that_cannot_run_are_refused(argv: Any) -> None:
    with pytest.raises(UnusableSource):
        command(argv)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"max_bytes": 0}, {"every": 0}, {"cwd": "/no/such/folder"}])
def test_invalid_options_are_refused(options: Any) -> None:
    with pytest.raises(UnusableSource):
        command([sys.executable], **options)


def test_a_password_in_the_arguments_is_never_shown() -> None:
    """It is passed to the process, but is in no resource, repr, search result or error."""
    source = command([sys.executable, "-c", "print(1)", "--password", "swordfish", "API_TOKEN=swordfish"])
    resource, _ = source.page(None, 1)
    found = search_documents(source, "print", 5)
    assert "swordfish" not in repr((source, source.location, resource, found, source.stat(source.uri)))
    assert search_documents(source, "swordfish", 5) == []
    assert source.argv[-2:] == ["swordfish", "API_TOKEN=swordfish"]
    with pytest.raises(UnusableSource) as caught:
        command("df --password swordfish 'x")
    assert "swordfish" not in str(caught.value)


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "boat"
    program.write_text("#!/bin/sh\necho afloat\n")
    program.chmod(0o755)
    source = command([str(program)])
    if sys.platform != "win32":
        assert read(source)[0].text == "afloat\n"
    program.unlink()
    with pytest.raises(InvalidArgument, match="could not be run"):
        source.read(source.uri)


def test_other_uris_are_not_found() -> None:
    source = command([sys.executable], label="a b")
    assert source.uri == "command://a%20b"
    with pytest.raises(ResourceNotFound):
        source.read("command://a%20b/x")
    with pytest.raises(InvalidArgument, match="no windows"):
        source.read("command://a%20b?tail=1")


class TestCommand(SourceContract):
    missing = "command://it/none"

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[Command]:
        self.path = tmp_path / "boats.txt"
        self.path.write_text("one boat\n")
        yield python_command(f"print(open({str(self.path)!r}).read())", every=0.3)

    def change(self, source: Any) -> str | None:
        with self.path.open("a") as file:
            file.write("one more boat\n")
        return "command://it"
