"""Functions in child processes: replies, refusals, and each limit at and above its value."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import wait_until
from wharfinger.sources.child_process import ChildBounds, ChildClosed, ChildProcesses, ChildRefused, ChildStopped

BOUNDS = ChildBounds(40.0, 512 << 20, 1 << 20)
MODULE = """
import json, os, signal, sys, time
from wharfinger.sources.child_process import ChildRefused


def main(data):
    operation, _, argument = data.decode().partition(" ")
    if operation == "echo":
        return argument.encode()
    if operation == "refuse":
        raise ChildRefused(argument)
    if operation == "size":
        return bytes(int(argument))
    if operation == "memory":
        return str(len(bytearray(int(argument)))).encode()
    if operation == "spin":
        while True:
            pass
    if operation == "sleep":
        time.sleep(60)
    if operation == "signal":
        signal.signal(int(argument), signal.SIG_DFL)
        os.kill(os.getpid(), int(argument))
    if operation == "read":
        return os.read(int(argument), 100)
    if operation == "environment":
        return json.dumps([dict(os.environ), os.getsid(0) == os.getpid(), os.listdir("/proc/self/fd")]).encode()
    raise ValueError(operation)
"""


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChildProcesses]:
    (tmp_path / "called_in_child.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    processes = ChildProcesses()
    yield processes
    processes.close()


def call(children: ChildProcesses, request: str, bounds: ChildBounds = BOUNDS, *files: int) -> bytes:
    return children.run("called_in_child", request.encode(), bounds, files)


def test_replies_and_refusals_reach_the_parent(children: ChildProcesses) -> None:
    assert call(children, "echo Ünï") == "Ünï".encode()
    assert call(children, "echo ") == b""
    with pytest.raises(ChildRefused, match="the sheet Ü is empty"):
        call(children, "refuse the sheet Ü is empty")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_inherits_no_variables_and_only_the_files_passed_to_it(
    children: ChildProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "fathoms")
    (tmp_path / "data").write_text("content")
    passed, other = (os.open(tmp_path / "data", os.O_RDONLY) for _ in range(2))
    os.set_inheritable(other, False)
    try:
        assert call(children, f"read {passed}", BOUNDS, passed) == b"content"
        found = call(children, "environment", BOUNDS, passed).decode()
        assert "fathoms" not in found and "PATH" not in found and "true" in found
        assert f'"{passed}"' in found and f'"{other}"' not in found
    finally:
        os.close(passed)
        os.close(other)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not have all limits")
def test_limits_are_lowered_and_never_raised() -> None:
    code = (
        "import resource; from wharfinger.sources.child_main import set_limits; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 30)); "
        "set_limits({'RLIMIT_NOFILE': 25, 'RLIMIT_CORE': 0, 'RLIMIT_AS': 1 << 30, 'RLIMIT_UNKNOWN': 1}); "
        "print(*map(resource.getrlimit, (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS)))"
    )
    completed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert completed.stdout.strip() == f"(20, 20) (0, 0) ({1 << 30}, {1 << 30})"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not have all limits")
def test_a_process_over_its_limit_of_processor_time_ends_by_the_signal_that_says_so() -> None:
    """A bug: it ended by SIGKILL, and so was reported as crashed."""
    code = (
        "import resource; from wharfinger.sources.child_main import set_limits; "
        "set_limits({'RLIMIT_CPU': 1}); print(resource.getrlimit(resource.RLIMIT_CPU), flush=True)\nwhile True: pass"
    )
    completed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert completed.stdout.strip() == "(1, 2)"
    assert completed.returncode == -signal.SIGXCPU


def test_relative_import_paths_are_resolved_in_the_folder_of_the_parent(
    children: ChildProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "called_elsewhere.py").write_text("def main(data):\n    return data\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("lib")
    assert children.run("called_elsewhere", b"reply", BOUNDS) == b"reply"


def test_the_reply_is_bounded(children: ChildProcesses) -> None:
    assert len(call(children, f"size {(1 << 20) - 1}")) == (1 << 20) - 1  # another byte marks it as a reply
    with pytest.raises(ChildStopped, match="more than 1 MiB"):
        call(children, f"size {1 << 20}")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_memory_is_bounded(children: ChildProcesses) -> None:
    assert call(children, f"memory {100 << 20}") == str(100 << 20).encode()
    with pytest.raises(ChildStopped, match="more than 512 MiB of memory"):
        call(children, f"memory {600 << 20}")


@pytest.mark.parametrize("operation", ["spin", "sleep"])
def test_time_is_bounded(children: ChildProcesses, operation: str) -> None:
    started = time.monotonic()
    with pytest.raises(ChildStopped, match=r"longer than 0\.5 s"):
        call(children, operation, BOUNDS._replace(seconds=0.5))
    assert time.monotonic() - started < 30


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(
    ("number", "reason"),
    [(6, "memory"), (11, "memory"), (14, "longer"), (24, "longer"), (9, "crashed")],
)
def test_a_child_that_crashes_is_reported(children: ChildProcesses, number: int, reason: str) -> None:
    with pytest.raises(ChildStopped, match=reason):
        call(children, f"signal {number}")


def test_an_unexpected_exception_is_reported_without_its_message(children: ChildProcesses) -> None:
    with pytest.raises(ChildStopped, match="crashed"):
        call(children, "unknown secret")


def test_close_ends_all_children(children: ChildProcesses) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call(children, "sleep")
        except ChildClosed as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(children._running) == 2, "two children run")
    children.close()
    for thread in threads:
        thread.join(20)
    assert [str(error) for error in errors] == ["its source was closed"] * 2
    assert not children._running


def test_a_child_that_waits_for_its_start_is_not_started_after_close(children: ChildProcesses) -> None:
    """A bug: `close` ended only the children that ran, and so the next ones could start."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call(children, "sleep")
        except ChildStopped as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(children._running) == 2, "two children run")
    wait_until(lambda: len(children._slots._cond._waiters) == 1, "the third waits")  # type: ignore[attr-defined]
    children.close()
    for thread in threads:
        thread.join(20)
    assert [type(error) for error in errors] == [ChildClosed] * 3
    assert call(children, "echo x") == b"x"


def test_a_call_fails_if_no_child_process_is_free_in_time(children: ChildProcesses) -> None:
    def sleep() -> None:
        with suppress(ChildStopped):
            call(children, "sleep")

    threads = [threading.Thread(target=sleep) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(children._running) == 2, "two children run")
    with pytest.raises(ChildStopped, match="too much else"):
        call(children, "echo x", BOUNDS._replace(seconds=0.2))
    children.close()
    for thread in threads:
        thread.join(20)
    assert call(children, "echo x") == b"x"
