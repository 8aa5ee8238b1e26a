"""A link to a child process, with real children that behave well or badly (security: C01-C24)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from tests.waiting import wait_until
from wharfinger import types as t
from wharfinger.errors import ConnectionFailed, ConnectionLost, InvalidResponse, RequestTimeout, WharfingerError
from wharfinger.protocol.jsonrpc import Message
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.transports import stdio_client, stream_client
from wharfinger.transports.stdio_client import StdioLink, child_environment

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups and signals")

LIMITS = Limits(message=1024 * 1024, depth=64)

PRELUDE = """
import json, os, signal, subprocess, sys, time
def read():
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)
def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def send(**members):
    raw(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\\n")
def answer(message, **result):
    send(id=message["id"], result=result)
"""
ECHO = "while True:\n    m = read()\n    if 'id' in m: answer(m, got=m['method'])\n"


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


@contextlib.asynccontextmanager
async def open_link(code: str, limits: Limits = LIMITS, env: dict[str, str] | None = None) -> AsyncIterator[StdioLink]:
    """Open a link to a child that runs `code` after the prelude."""
    link = StdioLink([sys.executable, "-I", "-S", "-c", PRELUDE + code], limits)
    await link.open(env)
    try:
        yield link
    finally:
        await link.close()


def send_request(link: StdioLink, method: str = "x/y", timeout: float | None = 10.0) -> Coroutine[Any, Any, Message]:
    return link.request(method, t.RequestParams(), timeout=timeout)


def is_alive(pid: int) -> bool:
    """Return whether the process runs and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def result_of(message: Message) -> bytes:
    """Return the result of an answer."""
    assert isinstance(message.result, Raw)
    return bytes(message.result)


def test_concurrent_requests_get_their_own_answers() -> None:
    async def test() -> None:
        async with open_link(ECHO) as link:
            messages = await asyncio.gather(*(send_request(link, f"m/{n}") for n in range(100)))
            assert [result_of(message) for message in messages] == [b'{"got": "m/%d"}' % n for n in range(100)]

    run(test())


def test_a_missing_command_is_reported() -> None:
    async def test() -> None:
        link = StdioLink(["/no/such/server", "--x"], LIMITS)
        with pytest.raises(ConnectionFailed, match=r"^Cannot start /no/such/server --x: no such command\.$"):
            await link.open()
        await link.close()

    run(test())


def test_a_missing_folder_is_reported() -> None:
    async def test() -> None:
        with pytest.raises(ConnectionFailed, match="no such folder: /no/such/folder"):
            await StdioLink([sys.executable], LIMITS).open(cwd="/no/such/folder")

    run(test())


@pytest.mark.skipif(os.name != "posix", reason="Windows runs no scripts")
@pytest.mark.parametrize("program", ["{}/server", "./server", "server"])
def test_a_script_without_its_interpreter_is_reported(tmp_path: Path, program: str) -> None:
    """A bug: it was "no such command". Environments of Python that were moved have such scripts."""
    script = tmp_path / "server"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)

    async def test() -> None:
        link = StdioLink([program.format(tmp_path)], LIMITS)
        with pytest.raises(ConnectionFailed, match=r"the interpreter in the first line of .*server does not exist"):
            await link.open({"PATH": str(tmp_path)}, cwd=tmp_path)

    run(test())


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def test() -> None:
        with pytest.raises(ConnectionFailed, match=r"Not a directory: .*file"):
            await StdioLink([sys.executable], LIMITS).open(cwd=tmp_path / "file")

    run(test())


def test_a_request_to_a_silent_server_times_out_and_is_cancelled() -> None:
    """Security C01, C02: the request is cancelled at the server."""

    async def test() -> None:
        code = "m = read()\nc = read()\nm = read()\nanswer(m, method=c['method'], id=c['params']['requestId'])\nread()"
        async with open_link(code) as link:
            with pytest.raises(RequestTimeout, match=r"x/y: no answer from .* within 0.05 s"):
                await send_request(link, timeout=0.05)
            message = await send_request(link)
            assert result_of(message) == b'{"method": "notifications/cancelled", "id": 1}'

    run(test())


def test_errors_without_an_id_do_not_fail_a_pending_request() -> None:
    """The errors may be stray or an attack. The pending request still gets its own late answer."""
    code = """
m = read()
for code in (-32700, -32600, -32601, -32603):
    send(error={"code": code, "message": "no"})
    send(id=None, error={"code": code, "message": "no"})
time.sleep(0.3)
answer(m, late=1)
read()
"""

    async def test() -> None:
        async with open_link(code) as link:
            assert result_of(await send_request(link)) == b'{"late": 1}'

    run(test())


def test_an_error_without_an_id_fails_a_request_that_the_server_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has answered all other requests, so the error belongs to the pending one."""
    monkeypatch.setattr(stream_client, "TENTATIVE_ERROR_SECONDS", 0.2)
    code = """
answer(read())
read()
send(error={"code": -32600, "message": "too large"})
read()
send(error={"code": -32603, "message": "no"})
read()
"""

    async def test() -> None:
        async with open_link(code) as link:
            await send_request(link)
            message = await send_request(link, timeout=60)
            assert isinstance(message.error, Raw)
            assert json.loads(bytes(message.error)) == {"code": -32600, "message": "too large"}
            with pytest.raises(RequestTimeout):
                await send_request(link, timeout=0.5)

    run(test())


def test_a_request_with_progress_ignores_an_error_without_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_client, "TENTATIVE_ERROR_SECONDS", 0.2)
    code = """
m = read()
send(error={"code": -32700, "message": "no"})
send(method="notifications/progress", params={"progressToken": m["id"], "progress": 1})
time.sleep(0.6)
answer(m, late=1)
read()
"""

    async def test() -> None:
        async with open_link(code) as link:
            message = await link.request("x/y", t.RequestParams(), timeout=40, on_notification=lambda _: None)
            assert result_of(message) == b'{"late": 1}'

    run(test())


def test_a_flood_of_errors_without_an_id_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    code = """
m = read()
raw((b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"' + b"x" * 5000 + b'"}}\\n') * 1000)
answer(m)
read()
"""

    async def test() -> None:
        async with open_link(code) as link:
            link.rules = REVISIONS["2025-11-25"]
            await send_request(link)

    with caplog.at_level("INFO"):
        run(test())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert len(caplog.records[0].getMessage()) < 1000


def test_each_request_has_its_own_deadline() -> None:
    async def test() -> None:
        async with open_link("while True: read()") as link:
            pending = asyncio.ensure_future(send_request(link, timeout=60))
            requests = [asyncio.ensure_future(send_request(link, timeout=seconds)) for seconds in (0.06, 0.02, 0.04)]
            start = time.monotonic()
            await asyncio.wait(requests)
            assert all(isinstance(request.exception(), RequestTimeout) for request in requests)
            assert time.monotonic() - start < 30
            assert not pending.done()
            pending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pending

    run(test())


def test_cancelling_the_caller_cancels_the_request() -> None:
    async def test() -> None:
        code = (
            "m = read()\nc = read()\nn = read()\nanswer(m)\nanswer(n, told=c['params']['requestId'] == m['id'])\nread()"
        )
        async with open_link(code) as link:
            task = asyncio.ensure_future(send_request(link))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert result_of(await send_request(link)) == b'{"told": true}'

    run(test())


def test_output_that_is_not_a_message_is_skipped() -> None:
    """Security C03, C04: log lines in any encoding, blank lines, and lines of other protocols."""

    async def test() -> None:
        noise = r"raw(b'INFO starting\n\n\xff\xfe\n[]\n{\"a\":1}\r\n')"
        code = noise + r"; m = read(); raw(b'debug\n'); answer(m, ok=1); read()"
        async with open_link(code) as link:
            assert result_of(await send_request(link)) == b'{"ok": 1}'
            assert link.garbage == b"INFO starting"

    run(test())


def test_a_line_over_the_limit_fails_only_its_request() -> None:
    """Security C05, C06: memory is bounded and the connection stays usable."""

    async def test() -> None:
        code = "m = read(); raw(b'x' * 3_000_000 + b'\\n'); m = read(); answer(m, ok=1); read()"
        async with open_link(code) as link:
            with pytest.raises(InvalidResponse, match="limit of 1048576 bytes"):
                await send_request(link)
            assert result_of(await send_request(link)) == b'{"ok": 1}'

    run(test())


def test_a_large_line_is_read_in_linear_time() -> None:
    """Security C05: for a line of 50 MiB the reader of asyncio takes half a minute."""

    async def test() -> None:
        code = (
            'm = read(); raw(b\'{"jsonrpc":"2.0","id":1,"result":{"t":"\' + b\'x\' * (50 << 20) + b\'"}}\\n\'); read()'
        )
        async with open_link(code, Limits(message=128 << 20, depth=64)) as link:
            start = time.process_time()
            message = await send_request(link, timeout=40)
            assert len(result_of(message)) > 50 << 20
            assert time.process_time() - start < 3

    run(test())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("read(); print('no disk', file=sys.stderr); sys.exit(3)", "ended with exit code 3"),
        ("read(); os.kill(os.getpid(), signal.SIGKILL)", "ended with signal SIGKILL"),
        ('m = read(); raw(b\'{"jsonrpc":"2.0","id":1,"res\'); sys.exit(0)', "ended with exit code 0"),
        ("read(); os.close(1); time.sleep(9)", "closed its output"),
    ],
)
def test_a_server_that_exits_or_closes_its_output_fails_every_request_at_once(
    code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Security C07, C08: the error names the command and its last output."""
    monkeypatch.setattr(stdio_client, "GRACE_SECONDS", 0.1)
    if reason == "closed its output":  # no exit follows
        monkeypatch.setattr(stdio_client, "OUTPUT_GRACE_SECONDS", 0.05)

    async def test() -> None:
        async with open_link(code) as link:
            errors = await asyncio.gather(send_request(link), send_request(link), return_exceptions=True)
            assert [type(error) for error in errors] == [ConnectionLost, ConnectionLost]
            assert reason in str(errors[0])
            assert "-I -S -c" in str(errors[0])
            if "no disk" in code:
                assert str(errors[0]).endswith("\nno disk")
            with pytest.raises(ConnectionLost, match=reason):
                await send_request(link)

    run(test())


def test_the_exit_of_the_server_is_reported_once() -> None:
    async def test() -> None:
        lost: list[WharfingerError] = []
        async with open_link("read()") as link:
            link.events.on_lost = lambda _, error: lost.append(error)
            with pytest.raises(ConnectionLost):
                await send_request(link)
        assert len(lost) == 1

    run(test())


def test_a_grandchild_with_open_pipes_does_not_delay_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Security C07, C10: the grandchild keeps the output of the server open."""
    monkeypatch.setattr(stdio_client, "OUTPUT_GRACE_SECONDS", 0.05)
    monkeypatch.setattr(stdio_client, "GRACE_SECONDS", 0.1)

    async def test() -> None:
        code = "read(); subprocess.Popen(['sleep', '60']); sys.exit(5)"
        async with open_link(code) as link:
            with pytest.raises(ConnectionLost, match="exit code 5"):
                await send_request(link)

    run(test())


def test_a_server_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Security C09: the client ends the input, then sends SIGTERM, then SIGKILL."""
    monkeypatch.setattr(stdio_client, "GRACE_SECONDS", 0.1)

    async def test() -> None:
        code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); m = read(); answer(m)\nwhile True: time.sleep(9)"
        async with open_link(code) as link:
            await send_request(link)
            pid = link.pid
        assert pid is not None
        assert not is_alive(pid)

    run(test())


def test_a_server_that_ignores_sigterm_is_killed_when_the_loop_ends() -> None:
    """Even if its close was cancelled, no process is left."""
    code = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stdin.read(); print('eof', file=sys.stderr)\ntime.sleep(60)"
    )

    async def test() -> int:
        input_ended = asyncio.Event()
        link = StdioLink(
            [sys.executable, "-I", "-S", "-u", "-c", PRELUDE + code], LIMITS, lambda line: input_ended.set()
        )
        await link.open()
        closing = asyncio.ensure_future(link.close())
        await asyncio.wait_for(input_ended.wait(), 10)
        closing.cancel()
        assert link.pid is not None
        assert is_alive(link.pid)
        return link.pid

    pid = asyncio.run(test())
    wait_until(lambda: not is_alive(pid), "the process ends")  # the signal was sent, but the kernel may take a moment


def test_the_process_group_is_killed_at_close() -> None:
    """Security C10: child processes of the server do not outlive it."""

    async def test() -> None:
        code = "p = subprocess.Popen(['sleep', '60'], stdout=2); m = read(); answer(m, pid=p.pid); read()"
        async with open_link(code) as link:
            result = result_of(await send_request(link))
            pid = int(result.split(b":")[1].rstrip(b"}"))
            assert is_alive(pid)
        assert not is_alive(pid)

    run(test())


def test_the_process_group_is_killed_when_the_server_dies() -> None:
    """The group is killed at once, since its id may be reused before the close."""

    async def test() -> None:
        code = "p = subprocess.Popen(['sleep', '60'], stdout=2); m = read(); answer(m, pid=p.pid); os._exit(3)"
        async with open_link(code) as link:
            result = result_of(await send_request(link))
            pid = int(result.split(b":")[1].rstrip(b"}"))
            with pytest.raises(ConnectionLost, match="exit code 3"):
                await send_request(link)
            ending = link._child._ending_group
            assert ending is not None
            await ending
            assert not is_alive(pid)

    run(test())


def test_close_from_another_task_fails_pending_requests() -> None:
    async def test() -> None:
        async with open_link("while True: read()") as link:
            call = asyncio.ensure_future(send_request(link))
            await asyncio.sleep(0)
            await asyncio.gather(link.close(), asyncio.create_task(link.close()))
            with pytest.raises(ConnectionLost, match="closed by this client"):
                await call
            await link.close()

    run(test())


def test_messages_sent_before_close_arrive(tmp_path: Path) -> None:
    async def test() -> None:
        code = "m = read(); answer(m); n = read(); open(os.environ['OUT'], 'w').write(n['method'])"
        path = tmp_path / "received"
        async with open_link(code, env={"OUT": str(path)}) as link:
            await send_request(link)
            link.notify("notifications/x", t.UNSET)
        assert path.read_text() == "notifications/x"

    run(test())


def test_answers_with_unknown_ids_and_second_answers_are_ignored() -> None:
    """Security C11, C12, C13."""

    async def test() -> None:
        code = """
m = read()
for id in (99, "1", None): send(id=id, result={"wrong": 1})
send(id="s", method="sampling/createMessage", params={})
send(id="p", method="ping")
answers = [read(), read()]
answer(m, got=[a.get("error", {}).get("code", 0) for a in answers]); answer(m, again=1)
answer(read(), last=1); read()
"""
        async with open_link(code) as link:
            assert result_of(await send_request(link)) == b'{"got": [-32601, 0]}'
            assert result_of(await send_request(link)) == b'{"last": 1}'

    run(test())


def test_progress_notifications_are_sent_to_their_requests() -> None:
    async def test() -> None:
        code = """
m = read()
token = m["params"]["_meta"]["progressToken"]
send(method="notifications/progress", params={"progressToken": token, "progress": 1})
send(method="notifications/progress", params={"progressToken": "other", "progress": 2})
send(method="notifications/resources/updated", params={"uri": "a:b"})
answer(m); read()
"""
        request_notifications: list[Any] = []
        other_notifications: list[Any] = []
        async with open_link(code) as link:
            link.events.on_notification = lambda _, message: other_notifications.append(message.method)
            await link.request(
                "x/y",
                t.RequestParams(),
                timeout=40,
                on_notification=lambda message: request_notifications.append(message.method),
            )
        assert request_notifications == ["notifications/progress"]
        assert other_notifications == ["notifications/resources/updated"]

    run(test())


def test_all_of_stderr_is_read_and_its_end_is_kept() -> None:
    """Security C23: 4 MiB of stderr do not block the server, and only the end is kept."""

    async def test() -> None:
        code = "m = read(); os.write(2, b'y' * (4 << 20)); print('\\nlast words', file=sys.stderr); answer(m); read()"
        async with open_link(code) as link:
            await send_request(link)
        assert link.stderr.endswith("last words")
        assert len(link.stderr) <= stdio_client.STDERR_LINES * (stdio_client.MAX_STDERR_LINE_BYTES + 1)

    run(test())


def test_every_line_of_stderr_is_forwarded() -> None:
    """Lines after the end of the input are forwarded too. An exception of the function has no effect."""

    async def test() -> None:
        code = """
m = read(); os.write(2, b'one\\ntw'); answer(m)
while os.read(0, 99): pass
os.write(2, b'o\\r\\n' + b'x' * 9999 + b'\\nend')
"""
        lines: list[str] = []

        def forward(line: str) -> None:
            lines.append(line)
            raise RuntimeError("a bug of the function")

        link = StdioLink([sys.executable, "-I", "-S", "-c", PRELUDE + code], LIMITS, forward)
        await link.open()
        await send_request(link)
        await link.close()
        assert lines == ["one", "two", "x" * stdio_client.MAX_FORWARDED_LINE_BYTES, "end"]

    run(test())


def test_answers_to_a_flood_of_pings_are_dropped_if_the_server_does_not_read() -> None:
    """Security C14."""

    async def test() -> None:
        code = """
m = read()
block = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\\n' % n for n in range(100_000))
raw(block)
answer(m); time.sleep(60)
"""
        async with open_link(code) as link:
            await send_request(link)
            transport = link._child.stdin
            assert transport.get_write_buffer_size() < 3 * 1024 * 1024
            with pytest.raises(RequestTimeout, match="has not read earlier messages"):
                await send_request(link, timeout=0.05)
            os.killpg(link.pid or 0, signal.SIGKILL)

    run(test())


def test_the_environment_and_open_files_of_the_host_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Security C21: the child gets a few standard variables, those of `env`, and no open file."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("HOME", "() { evil; }")
    assert "AWS_SECRET_ACCESS_KEY" not in child_environment()
    assert "HOME" not in child_environment()

    async def test() -> None:
        with open(__file__, encoding="utf-8") as file:
            os.set_inheritable(file.fileno(), True)
            code = "m = read(); answer(m, env=sorted(os.environ), fds=sorted(os.listdir('/proc/self/fd'))); read()"
            async with open_link(code, env={"MINE": "1"}) as link:
                result = json.loads(result_of(await send_request(link)))
        names = set(result["env"])
        assert {"MINE", "LC_TIME", "PATH"} <= names
        assert names <= {*stdio_client.INHERITED_VARIABLES, "MINE"} | {name for name in names if name.startswith("LC_")}
        assert len(result["fds"]) == 4

    run(test())


def test_repeated_connections_leak_no_descriptors() -> None:
    async def test() -> None:
        async def connect_once() -> None:
            async with open_link(ECHO) as link:
                await send_request(link)

        await connect_once()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            await connect_once()
        assert len(os.listdir("/proc/self/fd")) <= before

    run(test())


# Requests from the server (handshake era).


def test_a_request_from_the_server_is_answered() -> None:
    """Without a handler it is refused."""
    code = "m = read(); send(id=1, method='roots/list'); a = read(); answer(m, told=a)\n"

    async def test() -> None:
        async def list_roots(message: Message) -> Any:
            assert (message.id, message.method) == (1, "roots/list")
            return t.ListRootsResult(roots=[])

        async with open_link(code + code) as link:
            assert b"-32601" in result_of(await send_request(link))
            link.events.on_request = list_roots
            assert b'"result": {"roots": []}' in result_of(await send_request(link))

    run(test())


def test_a_cancelled_request_from_the_server_is_not_answered() -> None:
    code = """
m = read()
send(id=1, method="elicitation/create")
read()
send(method="notifications/cancelled", params={"requestId": 1})
send(id=2, method="ping")
answer(m, next=read()["id"])
"""

    async def test() -> None:
        stopped = asyncio.Event()

        async with open_link(code) as link:

            async def answer_slowly(message: Message) -> Any:
                link.notify("begun", {})
                try:
                    await asyncio.sleep(30)
                finally:
                    stopped.set()

            link.events.on_request = answer_slowly
            assert result_of(await send_request(link)) == b'{"next": 2}'
            assert stopped.is_set()

    run(test())


def test_concurrent_requests_from_the_server_are_bounded() -> None:
    code = """
m = read()
for n in range(40): send(id=n, method="roots/list")
refused = [read() for n in range(8)]
send(method="now")
answer(m, ids=sorted(read()["id"] for n in range(32)), codes=sorted({a["error"]["code"] for a in refused}))
"""

    async def test() -> None:
        gate = asyncio.Event()

        async def answer_slowly(message: Message) -> Any:
            await gate.wait()
            return {}

        async with open_link(code) as link:
            link.events.on_request = answer_slowly
            link.events.on_notification = lambda _, message: gate.set()
            assert json.loads(result_of(await send_request(link))) == {"ids": list(range(32)), "codes": [-32603]}

    run(test())


def test_an_answer_waits_for_a_server_that_does_not_read() -> None:
    """Unlike a refusal, the answer to a request is not dropped."""
    code = """
m = read()
send(id=1, method="sampling/createMessage")
time.sleep(0.3)
while True:
    a = read()
    if a.get("id") == 1 and "result" in a: break
answer(m, size=len(a["result"]["text"]))
"""

    async def test() -> None:
        async def sample(message: Message) -> Any:
            for _ in range(8):
                link.notify("notifications/x", {"filling": "x" * 300_000})
            await asyncio.sleep(0)
            return {"text": "y" * 500_000}

        async with open_link(code) as link:
            link.events.on_request = sample
            assert result_of(await send_request(link)) == b'{"size": 500000}'

    run(test())


# Large and invalid lines.


def test_a_line_of_50_mib_is_read_within_five_seconds() -> None:
    code = (
        'm = read()\nraw(b\'{"jsonrpc":"2.0","id":1,"result":{"x":"\' + b\'x\' * 52428800 + b\'"}}\\n\')\ntime.sleep(9)'
    )

    async def test() -> None:
        async with open_link(code, Limits(message=128 * 1024 * 1024)) as link:
            before = time.perf_counter()
            assert len(result_of(await send_request(link))) == 52428800 + 8
            assert time.perf_counter() - before < 15  # less than 1 s on an idle machine

    run(test())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"x":"\xff"}}\n', InvalidResponse),
        (b'{"jsonrpc":"2.0","id":1,"result":{"x', ConnectionLost),
        (b'{"jsonrpc":"2.0","id":1,"resu\n', InvalidResponse),
    ],
)
def test_an_invalid_line_raises_an_error(data: bytes, error: type[Exception]) -> None:
    """The line is not UTF-8, is cut off by the end of the output, or holds an incomplete message."""
    code = f"m = read(); raw({data!r})"

    async def test() -> None:
        async with open_link(code) as link:
            with pytest.raises(error):
                await send_request(link)

    run(test())
