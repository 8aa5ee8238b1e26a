"""stdio with real processes: pipes, sockets, files, the null device and a terminal. Only messages are on stdout."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wharfinger.transports.stdio_server import READ_BYTES

FIXTURE = [sys.executable, str(Path(__file__).with_name("stdio_fixture.py"))]
SHORT_TIMEOUTS = [*FIXTURE, "short-timeouts"]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def read_request(id: Any, uri: str) -> bytes:
    params = {"uri": uri, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params}).encode() + b"\n"


def messages_by_id(data: bytes) -> dict[Any, Any]:
    """Return the messages by their ids."""
    return {message.get("id"): message for message in map(json.loads, data.splitlines())}


def text(message: Any) -> str:
    return str(message["result"]["contents"][0]["text"])


@contextlib.contextmanager
def start_server() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(FIXTURE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A server that the test may end."""
    with start_server() as process:
        yield process


@pytest.fixture(scope="module")
def shared_process() -> Iterator[subprocess.Popen[bytes]]:
    """A server of all tests that do not end it."""
    with start_server() as process:
        yield process


def read_resource(process: subprocess.Popen[bytes], id: Any, uri: str) -> Any:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(read_request(id, uri))
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_at_the_end_of_input_pending_requests_are_answered_and_the_process_exits() -> None:
    completed = subprocess.run(
        FIXTURE, input=read_request(1, "fix://plain") + read_request(2, "fix://slow"), capture_output=True, timeout=10
    )
    assert {id: text(m) for id, m in messages_by_id(completed.stdout).items()} == {1: "plain", 2: "slow"}
    assert completed.returncode == 0


def test_an_endless_request_does_not_delay_the_exit_after_the_end_of_input() -> None:
    completed = subprocess.run(
        SHORT_TIMEOUTS,
        input=read_request(1, "fix://never") + read_request(2, "fix://plain"),
        capture_output=True,
        timeout=40,
    )
    assert set(messages_by_id(completed.stdout)) == {2}
    assert completed.returncode == 0


def test_a_blocked_thread_does_not_delay_the_exit_after_the_end_of_input() -> None:
    """Security L18."""
    completed = subprocess.run(SHORT_TIMEOUTS, input=read_request(1, "fix://blocks"), capture_output=True, timeout=40)
    assert (completed.stdout, completed.returncode) == (b"", 0)


def test_an_incomplete_message_at_the_end_is_ignored() -> None:
    """Security S03."""
    completed = subprocess.run(
        FIXTURE,
        input=read_request(1, "fix://plain") + read_request(2, "fix://plain")[:-3],
        capture_output=True,
        timeout=40,
    )
    assert set(messages_by_id(completed.stdout)) == {1}


def test_stdin_and_stdout_may_be_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        process = subprocess.Popen(FIXTURE, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        ours.sendall(read_request(1, "fix://plain"))
        assert text(json.loads(ours.makefile().readline())) == "plain"
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(10) == 0


def test_stdin_and_stdout_may_be_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(read_request(1, "fix://plain") + read_request(2, "fix://blob/300000"))
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("wb") as stdout:
        assert (
            subprocess.run(FIXTURE, stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL, timeout=40).returncode == 0
        )
    received = messages_by_id((tmp_path / "out").read_bytes())
    assert text(received[1]) == "plain"
    assert base64.b64decode(received[2]["result"]["contents"][0]["blob"]) == b"\xff" * 300_000


def test_a_file_as_stdin_is_read_as_fast_as_the_server_handles_it(tmp_path: Path) -> None:
    """A bug: a thread read the whole file, and queued it in the event loop."""
    code = """
import os, sys, time
from wharfinger import Server
server = Server("x")
descriptor, size = map(int, sys.argv[1:])

@server.resource("fix://offset")
async def offset() -> str:
    end = time.monotonic() + 0.5
    while (at := os.lseek(descriptor, 0, os.SEEK_CUR)) < size and time.monotonic() < end:
        time.sleep(0.001)  # blocks the event loop: it takes nothing from its queue
    return str(at)

server.run()
"""
    size = 100 * READ_BYTES
    first, last = read_request(1, "fix://offset"), read_request(2, "fix://offset")
    path = tmp_path / "in"
    path.write_bytes(first + b"\n" * (size - len(first) - len(last)) + last)
    with path.open("rb") as stdin:
        command = [sys.executable, "-c", code, str(stdin.fileno()), str(size)]
        completed = subprocess.run(
            command, stdin=stdin, stdout=subprocess.PIPE, pass_fds=(stdin.fileno(),), timeout=40, check=True
        )
    received = messages_by_id(completed.stdout)
    assert int(text(received[1])) <= 5 * READ_BYTES
    assert int(text(received[2])) == size


def test_the_thread_that_writes_to_a_file_ends_with_the_server(tmp_path: Path) -> None:
    code = """
import sys, threading
from wharfinger import Server
Server("x").run()
for thread in threading.enumerate():
    if thread.name == "wharfinger-stdout":
        thread.join(5)
        print(thread.is_alive(), file=sys.stderr)
"""
    with (tmp_path / "out").open("wb") as stdout:
        command = [sys.executable, "-c", code]
        completed = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=20)
    assert completed.returncode == 0
    assert b"True" not in completed.stderr


def test_a_server_with_the_null_device_as_stdin_ends_at_once() -> None:
    completed = subprocess.run(FIXTURE, stdin=subprocess.DEVNULL, capture_output=True, timeout=40)
    assert (completed.returncode, completed.stdout) == (0, b"")


def test_stdin_and_stdout_may_be_a_terminal() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(FIXTURE, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    os.write(ours, read_request(1, "fix://plain"))
    received = b""
    while b'"text":"plain"' not in received:
        received += os.read(ours, 65536)
    os.write(ours, b"\x04")  # Ctrl-D
    assert process.wait(10) == 0
    os.close(ours)
    process.communicate()


def test_one_ctrl_c_ends_the_server_without_a_traceback(process: subprocess.Popen[bytes]) -> None:
    read_resource(process, 1, "fix://plain")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert errors == b"started\n"


def test_ctrl_c_ends_the_server_while_a_thread_blocks(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(read_request(1, "fix://blocks"))
    read_resource(process, 2, "fix://plain")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=40)


def test_sigterm_ends_the_server_after_pending_requests_are_answered(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(read_request(1, "fix://slow"))
    read_resource(process, 2, "fix://plain")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=40)
    assert text(messages_by_id(out)[1]) == "slow"
    assert process.returncode == 0


def test_the_server_ends_when_its_parent_dies(tmp_path: Path) -> None:
    """Security S10: another process keeps the pipe open, so the input does not end."""
    reader, writer = os.pipe()
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({SHORT_TIMEOUTS!r}, stdin={reader}, stderr=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[reader]
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.write(writer, read_request(1, "fix://plain"))
    assert text(json.loads(parent.stdout.readline())) == "plain"
    pidfd = os.pidfd_open(pid)
    parent.kill()
    assert select.select([pidfd], [], [], 10)[0]
    os.close(pidfd)
    os.close(reader)
    os.close(writer)
    parent.communicate()


@pytest.mark.parametrize("uri", ["fix://prints", "fix://child"])
def test_output_of_handlers_is_not_written_to_the_stream(shared_process: subprocess.Popen[bytes], uri: str) -> None:
    """Security S01, S02: print, a write to descriptor 1, a child that prints and one that reads."""
    assert "result" in read_resource(shared_process, 1, uri)
    assert text(read_resource(shared_process, 2, "fix://plain")) == "plain"


@pytest.mark.parametrize(
    "uri",
    [
        "fix://exits",
        "fix://exits-in-thread",
        "fix://recursion",
        "fix://surrogate",
        "fix://raises",
        "fix://cancels-itself",
    ],
)
def test_no_handler_can_end_the_server(shared_process: subprocess.Popen[bytes], uri: str) -> None:
    """Security F05, F06, F07, S07: only the call gets an error, with a reference."""
    failed = read_resource(shared_process, 1, uri)
    assert failed["error"]["code"] == -32603
    assert "hunter2" not in json.dumps(failed)
    assert text(read_resource(shared_process, 2, "fix://plain")) == "plain"
    reference = failed["error"]["message"].split("reference ")[1][:8]
    assert shared_process.stderr is not None
    errors = b""
    while reference.encode() not in errors:
        errors += os.read(shared_process.stderr.fileno(), 65_536)


def test_a_slow_reader_gets_all_answers_in_order(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(
        b"".join(
            read_request(n, f"fix://blob/{n * 100_000}") + read_request(1000 + n, "fix://plain") for n in range(1, 20)
        )
    )
    process.stdin.flush()
    process.stdin.close()
    process.stdin = None
    received = messages_by_id(process.stdout.read())
    assert [len(base64.b64decode(received[n]["result"]["contents"][0]["blob"])) for n in range(1, 20)] == [
        n * 100_000 for n in range(1, 20)
    ]
    assert all(text(received[1000 + n]) == "plain" for n in range(1, 20))


def test_a_message_over_the_limit_is_refused_and_the_next_one_is_served(
    shared_process: subprocess.Popen[bytes],
) -> None:
    assert shared_process.stdin is not None and shared_process.stdout is not None
    shared_process.stdin.write(b"x" * (3 << 20) + b"\n" + read_request(1, "fix://plain"))
    shared_process.stdin.flush()
    assert json.loads(shared_process.stdout.readline())["error"]["code"] == -32600
    assert text(json.loads(shared_process.stdout.readline())) == "plain"


def test_messages_may_arrive_one_byte_at_a_time(shared_process: subprocess.Popen[bytes]) -> None:
    assert shared_process.stdin is not None and shared_process.stdout is not None
    for byte in read_request(1, "fix://plain"):
        shared_process.stdin.write(bytes([byte]))
        shared_process.stdin.flush()
    assert text(json.loads(shared_process.stdout.readline())) == "plain"


def test_two_thousand_concurrent_calls_are_each_answered_once(process: subprocess.Popen[bytes]) -> None:
    """Security L21."""
    assert process.stdin is not None
    process.stdin.write(b"".join(read_request(n, "fix://plain") for n in range(2000)))
    process.stdin.close()
    process.stdin = None
    assert process.stdout is not None
    lines = process.stdout.read().splitlines()
    assert len(lines) == 2000
    assert set(messages_by_id(b"\n".join(lines))) == set(range(2000))


def test_a_broken_output_pipe_ends_the_server(process: subprocess.Popen[bytes]) -> None:
    """Security S05."""
    assert process.stdin is not None and process.stdout is not None
    read_resource(process, 1, "fix://plain")
    process.stdout.close()
    with contextlib.suppress(BrokenPipeError):  # the server may have ended already
        process.stdin.write(read_request(2, "fix://plain"))
        process.stdin.flush()
    process.wait(10)
    process.stdout = None
