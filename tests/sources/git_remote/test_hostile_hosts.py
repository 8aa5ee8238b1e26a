"""Hosts that are hostile, slow or impersonated cannot make a clone leave its bounds, its address, or its processes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.sources.git_remote.conftest import clone, complete, serving, text, until
from tests.sources.git_remote.git_host import TOKEN, GitHost
from tests.sources.git_repository.conftest import Work
from wharfinger.errors import RemoteError
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("cache")]

HULL = "git://harbour/tree/HEAD/hull.txt"
OID = "1" * 40


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


Answer = Callable[[BaseHTTPRequestHandler, bytes], None]


@contextmanager
def host_of(answer: Answer) -> Generator[tuple[str, list[str]]]:
    """A host that answers each request so; its address, and the paths that were requested."""
    requested: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            requested.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                answer(self, body)
            except OSError:
                self.close_connection = True

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requested
    finally:
        server.shutdown()
        server.server_close()


def packet(text: str) -> bytes:
    data = text.encode()
    return f"{len(data) + 4:04x}".encode() + data


def send(handler: BaseHTTPRequestHandler, kind: str, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
    handler.end_headers()
    handler.wfile.write(body)


def advertise(handler: BaseHTTPRequestHandler) -> None:
    lines = ["version 2\n", "agent=x\n", "ls-refs=unborn\n", "fetch=shallow filter\n", "object-format=sha1\n"]
    send(
        handler,
        "advertisement",
        b"".join([packet("# service=git-upload-pack\n"), b"0000", *map(packet, lines), b"0000"]),
    )


def listing(*names: str) -> bytes:
    return b"".join([packet(f"{OID} {name}\n") for name in names]) + b"0000"


def impostor(lists: bytes, packs: Callable[[BaseHTTPRequestHandler], None] | None = None) -> Answer:
    """A host that speaks protocol 2: it lists these references, and sends these packs."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "GET":
            advertise(handler)
        elif b"command=ls-refs" in body:
            send(handler, "result", lists)
        elif packs is not None:
            packs(handler)

    return answer


# Credentials


def environments() -> list[tuple[int, bytes, bytes]]:
    """The numbers, command lines and environments of the processes below this one."""
    found: list[tuple[int, bytes, bytes]] = []
    parents = {os.getpid()}
    for _ in range(4):
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in parents and int(path.name) not in parents:
                    parents.add(int(path.name))
                    entry = int(path.name), (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
                    found.append(entry)
            except (OSError, IndexError):
                continue
    return found


async def test_a_token_is_in_no_argument_file_log_or_reader(
    host: GitHost, history: Work, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host.add(history)
    url = f"{host.origin}/private/harbour.git"
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN", "wrong")
    wrong = clone(url)
    async with serving(wrong) as client:
        with pytest.raises(RemoteError, match="requires a valid token") as caught:
            await text(client, HULL)
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN", TOKEN)
    source = clone(url)
    header = source.mirror.address.authorization().removeprefix("Basic ")
    seen: list[tuple[int, bytes, bytes]] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.extend(environments())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        async with serving(source) as client:
            assert await text(client, HULL) == "five\nfathoms\n"
            await complete(source)
            assert "Add a buoy" in await text(client, "git://harbour/log/HEAD")
            history.commit("Dredge", hull__txt="six\n")
            history.git("push", "-q", "origin", "main")
            async with asyncio.timeout(50):
                while await text(client, HULL) != "six\n":
                    await asyncio.sleep(0.05)
            host.stop()
            await until(lambda: source.mirror.problem)
            shown = [source.describe(), repr(source), source.location, str(caught.value), caplog.text]
    finally:
        stop.set()
        looking.join()
    secrets = (TOKEN.encode(), header.encode())
    assert any(secrets[1] in environ for _, _, environ in seen), "the look would have found it"
    readers = [(command, environ) for _, command, environ in seen if b"cat-file" in command]
    assert readers
    for _, command, environ in seen:
        assert not any(secret in command for secret in secrets)
        if b"cat-file" in command:
            assert not any(secret in environ for secret in secrets) and host.origin.encode() not in environ
    for path in cache.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path
            assert not any(secret in path.read_bytes() for secret in secrets), path
        else:
            assert path.name == "wharfinger" or path.stat().st_mode & 0o077 == 0, path
    assert not any(secret.decode() in text for secret in secrets for text in shown)


async def test_configuration_of_the_user_is_ignored(
    host: GitHost, history: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another address, a program, nor a password of the user's is used."""
    trap = tmp_path / "trap"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {trap}\n")
    program.chmod(0o755)
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    for name in ("reference-transaction", "post-checkout", "pre-auto-gc", "post-merge"):
        (home / "hooks" / name).write_text(program.read_text())
        (home / "hooks" / name).chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[credential]\n\thelper = {program}\n[core]\n\taskPass = {program}\n\tfsmonitor = {program}\n"
        f"\thooksPath = {home}/hooks\n\talternateRefsCommand = {program}\n\tsshCommand = {program}\n"
        f'[url "http://127.0.0.1:1/"]\n\tinsteadOf = {host.origin}/\n[http]\n\tproxy = http://127.0.0.1:1\n'
    )
    (home / ".netrc").write_text(f"machine 127.0.0.1 login ada password {TOKEN}\n")
    url = host.add(history)
    for name in ("GIT_ASKPASS", "SSH_ASKPASS", "GIT_SSH_COMMAND", "GIT_PROXY_COMMAND", "GIT_EXTERNAL_DIFF"):
        monkeypatch.setenv(name, str(program))
    for name in (
        "GIT_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_TRACE",
        "GIT_TEMPLATE_DIR",
    ):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOME", str(home))
    source, other = clone(url), clone(f"{host.origin}/private/harbour.git", label="other")
    async with serving(source, other) as client:
        assert await text(client, HULL) == "five\nfathoms\n"
        with pytest.raises(RemoteError, match="requires a valid token"):
            await text(client, "git://other")
        history.commit("Dredge", hull__txt="six\n")
        for name in [key for key in os.environ if key.startswith("GIT_")]:
            monkeypatch.delenv(name)
        history.git("push", "-q", "origin", "main")
        async with asyncio.timeout(50):
            while await text(client, HULL) != "six\n":
                await asyncio.sleep(0.05)
    assert not trap.exists() and not (tmp_path / "elsewhere").exists()


# Transport


async def test_a_certificate_is_verified(
    tmp_path: Path, history: Work, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = GitHost(tmp_path / "host", certificate)
    try:
        url = host.add(history)
        monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
        source = clone(url)
        async with serving(source) as client:
            with pytest.raises(RemoteError, match="its certificate cannot be verified"):
                await text(client, HULL)
        assert "upload-pack" not in host.requests
        monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate[0]))
        source = clone(url)
        async with serving(source) as client:
            assert await text(client, HULL) == "five\nfathoms\n"
    finally:
        host.close()


async def test_no_other_address_is_reached(tmp_path: Path, history: Work) -> None:
    """Neither by a redirect, nor by the alternates of a host with plain files."""
    with host_of(lambda handler, body: send(handler, "result", b"")) as (elsewhere, requested):
        host = GitHost(tmp_path / "host", elsewhere=elsewhere)
        try:
            host.add(history)
            moved = clone(f"{host.origin}/moved/harbour.git", label="moved")
            plain = host.folder / "files" / "plain.git"
            history.git("clone", "-q", "--bare", str(history.path), str(plain), cwd=tmp_path)
            history.git("update-server-info", cwd=plain)
            for pack in (plain / "objects").glob("[0-9a-f][0-9a-f]/*"):
                pack.unlink()
            (plain / "objects" / "info" / "http-alternates").write_text(f"{elsewhere}/objects/\n")
            dumb = clone(f"{host.origin}/files/plain.git", label="dumb")
            async with serving(moved, dumb) as client:
                for label, reason in (("moved", "redirects"), ("dumb", "could not be cloned")):
                    with pytest.raises(RemoteError, match=reason):
                        await text(client, f"git://{label}")
        finally:
            host.close()
    assert requested == []


# Data


async def test_an_endless_pack_ends_at_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    sent = 0

    def endless(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        send(handler, "result", packet("packfile\n"))
        header = b"PACK" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
        # one large object that does not compress: type blob, a size of many bytes, stored blocks of zlib
        header += bytes([0x30 | 0x80 | 15, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]) + b"\x78\x01"
        handler.wfile.write(f"{len(header) + 5:04x}".encode() + b"\x01" + header)
        block = b"\x00" + (60_000).to_bytes(2, "little") + (60_000 ^ 0xFFFF).to_bytes(2, "little") + os.urandom(60_000)
        while True:
            handler.wfile.write(f"{len(block) + 5:04x}".encode() + b"\x01" + block)
            sent += len(block)

    with host_of(impostor(listing("refs/heads/main"), endless)) as (url, _):
        source = clone(f"{url}/harbour.git", max_clone_size=3_000_000)
        async with serving(source) as client:
            await until(lambda: source.mirror.problem)
            assert "the bound of the clone" in source.mirror.problem
            with pytest.raises(RemoteError, match="the bound of the clone"):
                await text(client, HULL)
    assert 2_000_000 < sent < 60_000_000
    assert source.mirror.folder.size() < 4_000_000


async def test_a_bomb_is_refused_within_the_bounds(host: GitHost, work: Work) -> None:
    """A delta that unpacks to more than the memory of the process."""
    work.commit("Begin", hull__txt="four\n")
    work.write("bomb.bin", b"\0" * (300 << 20))
    work.git("config", "core.bigFileThreshold", "2g")
    work.commit("A bomb")
    url = host.add(work)
    source = clone(url, max_clone_size=8 << 20)
    async with serving(source) as client:
        async with asyncio.timeout(50):
            while True:
                try:
                    assert "bomb.bin" in await text(client, "git://harbour/tree/HEAD")
                    break
                except RemoteError:
                    assert not source.mirror.problem
                    await asyncio.sleep(0.2)
        assert await text(client, "git://harbour/tree/HEAD/hull.txt") == "four\n"
    assert source.mirror.folder.size() < 8 << 20


async def test_names_that_lead_out_are_not_stored(host: GitHost, history: Work, cache: Path) -> None:
    names = ["refs/heads/../../escape", "refs/heads/..", "refs/heads/a.lock", "refs/heads/ok\x01", "refs/heads//x"]
    with host_of(impostor(listing("refs/heads/main", *names))) as (url, _):
        source = clone(f"{url}/harbour.git")
        async with serving(source):
            await until(lambda: source.mirror.problem)
        repository = source.mirror.folder.repository
        assert not list(cache.rglob("*escape*"))
        assert [path for path in (repository / "refs").rglob("*") if path.is_file()] == []


async def test_endless_references_are_refused() -> None:
    def many(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "GET":
            advertise(handler)
            return
        send(handler, "result", b"")
        number = 0
        while True:
            lines = b"".join(packet(f"{OID} refs/heads/{'x' * 900}{number + each}\n") for each in range(1_000))
            handler.wfile.write(lines)
            number += 1_000

    with host_of(many) as (url, _):
        source = clone(f"{url}/harbour.git")
        async with serving(source):
            await until(lambda: source.mirror.problem)
            assert "too many references" in source.mirror.problem or "memory" in source.mirror.problem


async def test_a_malformed_object_is_refused(host: GitHost, work: Work) -> None:
    work.commit("Begin", hull__txt="four\n")
    blob = work.git("rev-parse", "HEAD:hull.txt")
    tree = work.put("tree", b"100644 .git\0" + bytes.fromhex(blob))
    commit = work.git("commit-tree", "-m", "Trap", tree)
    work.git("update-ref", "refs/heads/main", commit)
    source = clone(host.add(work))
    async with serving(source):
        await until(lambda: source.mirror.problem)
        assert "hasDotgit" in source.mirror.problem
        assert not source.mirror.cloned


async def test_what_the_host_says_is_not_taken_for_a_message_of_git() -> None:
    def lie(handler: BaseHTTPRequestHandler) -> None:
        said = b"\x02fatal: No space left on device\x1b[31m\nerror: returned error: 401\n"
        handler_body = packet("packfile\n") + f"{len(said) + 4:04x}".encode() + said
        said = b"\x03go away \x1b[31m password=hunter2-hunter2\n"
        send(handler, "result", handler_body + f"{len(said) + 4:04x}".encode() + said)

    with host_of(impostor(listing("refs/heads/main"), lie)) as (url, _):
        source = clone(f"{url}/harbour.git")
        async with serving(source):
            await until(lambda: source.mirror.problem)
            problem = source.mirror.problem
    assert "no space" not in problem and "token" not in problem
    assert "\x1b" not in problem and "hunter2" not in problem


# Processes


async def test_the_end_of_a_server_ends_a_clone_at_once_and_the_next_start_works(
    host: GitHost, history: Work, cache: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        port = silent.getsockname()[1]
        source = clone(f"http://127.0.0.1:{port}/harbour.git")
        async with serving(source) as client:
            await until(lambda: any(b"git-remote-http" in command for _, command, _ in environments()))
            with pytest.raises(RemoteError, match="is being cloned for the first time"):
                await text(client, HULL)
            ended = time.monotonic()
        assert time.monotonic() - ended < 5
        assert not [command for _, command, _ in environments() if b"remote-http" in command or b"ls-remote" in command]
    assert source.mirror.folder.path.is_dir()
    again = clone(source.mirror.address.url)
    assert not again.mirror.cloned


async def test_what_a_killed_fetch_left_is_removed(host: GitHost, history: Work) -> None:
    url = host.add(history)
    source = clone(url)
    repository = source.mirror.folder.repository
    async with serving(source):
        await complete(source)
    left = [
        repository / name
        for name in (
            "packed-refs.lock", "HEAD.lock", "config.lock", "shallow.lock", "refs/heads/main.lock",
            "objects/pack/tmp_pack_x1", "objects/pack/tmp_idx_x1", "objects/pack/pack-0123.pack",
            "objects/tmp_objdir-incoming-x/pack/a",
        )
    ]  # fmt: skip
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    history.commit("Dredge", hull__txt="six\n")
    history.git("push", "-q", "origin", "main")
    source = clone(url)
    async with serving(source) as client:
        async with asyncio.timeout(50):
            while await text(client, HULL) != "six\n":
                await asyncio.sleep(0.05)
    assert not [path for path in left if path.exists()]


def test_a_half_made_folder_is_made_again(host: GitHost, history: Work) -> None:
    folder = clone(host.add(history)).mirror.folder
    (folder.repository / "HEAD").unlink()
    (folder.path / "state.json").write_text('{"fetched": 5')
    assert not clone(host.origin + "/harbour.git").mirror.cloned
    assert (folder.repository / "HEAD").exists()


def test_a_folder_that_others_may_enter_is_refused(host: GitHost, history: Work) -> None:
    url = host.add(history)
    folder = clone(url).mirror.folder.path
    folder.chmod(0o755)
    with pytest.raises(UnusableSource, match="others may enter it"):
        git(url)


def test_the_shortest_time_between_fetches_is_a_second(host: GitHost, history: Work) -> None:
    url = host.add(history)
    git(url, every=1)
    for every in (0.99, 0, -1, float("nan")):
        with pytest.raises(UnusableSource, match="at most once a second"):
            git(url, every=every)
