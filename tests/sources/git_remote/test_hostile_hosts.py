"""A hostile, slow or impersonated host cannot exceed the limits of a clone, redirect it or leave processes behind."""

from __future__ import annotations

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

from tests.sources.git_remote.conftest import clone, read_text, serving, wait_for_text, wait_until_complete
from tests.sources.git_remote.git_host import TOKEN, GitHost
from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until_async
from wharfinger.errors import RemoteError
from wharfinger.source import UnusableSource
from wharfinger.sources.git_repository import git

pytestmark = pytest.mark.usefixtures("cache")

HULL = "git://harbour/tree/HEAD/hull.txt"
OID = "1" * 40


RequestHandler = Callable[[BaseHTTPRequestHandler, bytes], None]


@contextmanager
def fake_host(answer: RequestHandler) -> Generator[tuple[str, list[str]]]:
    """Run an HTTP server that answers with `answer`. Yield its URL and the list of requested paths."""
    requested_paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            requested_paths.append(self.path)
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
        yield f"http://127.0.0.1:{server.server_port}", requested_paths
    finally:
        server.shutdown()
        server.server_close()


def packet_line(text: str) -> bytes:
    data = text.encode()
    return f"{len(data) + 4:04x}".encode() + data


def send_response(handler: BaseHTTPRequestHandler, kind: str, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
    handler.end_headers()
    handler.wfile.write(body)


def send_capabilities(handler: BaseHTTPRequestHandler) -> None:
    lines = ["version 2\n", "agent=x\n", "ls-refs=unborn\n", "fetch=shallow filter\n", "object-format=sha1\n"]
    send_response(
        handler,
        "advertisement",
        b"".join([packet_line("# service=git-upload-pack\n"), b"0000", *map(packet_line, lines), b"0000"]),
    )


def reference_list(*names: str) -> bytes:
    return b"".join([packet_line(f"{OID} {name}\n") for name in names]) + b"0000"


def protocol_handler(
    references: bytes, send_pack: Callable[[BaseHTTPRequestHandler], None] | None = None
) -> RequestHandler:
    """Return a handler of git's protocol 2 that lists these references and sends packs with `send_pack`."""

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "GET":
            send_capabilities(handler)
        elif b"command=ls-refs" in body:
            send_response(handler, "result", references)
        elif send_pack is not None:
            send_pack(handler)

    return answer


# Credentials


def child_processes() -> list[tuple[int, bytes, bytes]]:
    """Return the ids, command lines and environments of the descendants of this process."""
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


async def test_a_token_is_in_no_argument_file_or_log_and_not_sent_to_object_readers(
    host: GitHost,
    history: GitRepository,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    host.add(history)
    url = f"{host.origin}/private/harbour.git"
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN", "wrong")
    async with serving(clone(url)) as client:
        with pytest.raises(RemoteError, match="requires a valid token") as caught:
            await read_text(client, HULL)
    monkeypatch.setenv("WHARFINGER_GIT_TOKEN", TOKEN)
    source = clone(url)
    header = source.mirror.address.authorization().removeprefix("Basic ")
    seen: list[tuple[int, bytes, bytes]] = []
    stop = threading.Event()

    def record_processes() -> None:
        while not stop.is_set():
            seen.extend(child_processes())

    recorder = threading.Thread(target=record_processes)
    recorder.start()
    try:
        async with serving(source) as client:
            assert await read_text(client, HULL) == "five\nfathoms\n"
            await wait_until_complete(source)
            assert "Add a buoy" in await read_text(client, "git://harbour/log/HEAD")
            history.commit("Dredge", hull__txt="six\n")
            history.git("push", "-q", "origin", "main")
            await wait_for_text(client, HULL, "six\n")
            host.stop()
            await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
            shown = [source.describe(), repr(source), source.location, str(caught.value), caplog.text]
    finally:
        stop.set()
        recorder.join()
    secrets = (TOKEN.encode(), header.encode())
    assert any(secrets[1] in environ for _, _, environ in seen), "the recorder finds a token in an environment"
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


async def test_the_git_configuration_of_the_user_is_ignored(
    host: GitHost, history: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No replaced address, program or password of the user is used."""
    marker = tmp_path / "marker"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
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
        assert await read_text(client, HULL) == "five\nfathoms\n"
        with pytest.raises(RemoteError, match="requires a valid token"):
            await read_text(client, "git://other")
        history.commit("Dredge", hull__txt="six\n")
        for name in [key for key in os.environ if key.startswith("GIT_")]:
            monkeypatch.delenv(name)
        history.git("push", "-q", "origin", "main")
        await wait_for_text(client, HULL, "six\n")
    assert not marker.exists() and not (tmp_path / "elsewhere").exists()


# Transport


async def test_the_certificate_of_the_host_is_verified(
    tmp_path: Path, history: GitRepository, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = GitHost(tmp_path / "host", certificate)
    try:
        url = host.add(history)
        monkeypatch.setenv("GIT_SSL_NO_VERIFY", "1")
        source = clone(url)
        async with serving(source) as client:
            with pytest.raises(RemoteError, match="its certificate cannot be verified"):
                await read_text(client, HULL)
        assert "upload-pack" not in host.requests
        monkeypatch.setenv("GIT_SSL_CAINFO", str(certificate[0]))
        source = clone(url)
        async with serving(source) as client:
            assert await read_text(client, HULL) == "five\nfathoms\n"
    finally:
        host.close()


async def test_redirects_and_alternates_are_not_followed(tmp_path: Path, history: GitRepository) -> None:
    with fake_host(lambda handler, body: send_response(handler, "result", b"")) as (elsewhere, requested_paths):
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
            plain_files = clone(f"{host.origin}/files/plain.git", label="dumb")
            async with serving(moved, plain_files) as client:
                for label, reason in (("moved", "redirects"), ("dumb", "could not be cloned")):
                    with pytest.raises(RemoteError, match=reason):
                        await read_text(client, f"git://{label}")
        finally:
            host.close()
    assert requested_paths == []


# Data


async def test_an_endless_pack_is_cut_off_at_the_size_limit(caplog: pytest.LogCaptureFixture) -> None:
    sent = 0

    def send_endless_pack(handler: BaseHTTPRequestHandler) -> None:
        nonlocal sent
        send_response(handler, "result", packet_line("packfile\n"))
        header = b"PACK" + (2).to_bytes(4, "big") + (2).to_bytes(4, "big")
        # one large blob in stored blocks of zlib, so that the received bytes grow as fast as the object
        header += bytes([0x30 | 0x80 | 15, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]) + b"\x78\x01"
        handler.wfile.write(f"{len(header) + 5:04x}".encode() + b"\x01" + header)
        block = b"\x00" + (60_000).to_bytes(2, "little") + (60_000 ^ 0xFFFF).to_bytes(2, "little") + os.urandom(60_000)
        while True:
            handler.wfile.write(f"{len(block) + 5:04x}".encode() + b"\x01" + block)
            sent += len(block)

    with fake_host(protocol_handler(reference_list("refs/heads/main"), send_endless_pack)) as (url, _):
        source = clone(f"{url}/harbour.git", max_clone_size=3_000_000)
        async with serving(source) as client:
            await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
            assert "the bound of the clone" in source.mirror.problem
            with pytest.raises(RemoteError, match="the bound of the clone"):
                await read_text(client, HULL)
    assert 2_000_000 < sent < 60_000_000
    assert source.mirror.folder.size() < 4_000_000


async def test_a_decompression_bomb_stays_compressed_in_the_clone(host: GitHost, work: GitRepository) -> None:
    """The blob of 100 MiB of zeros takes less than 8 MiB on disk, and other files can be read."""
    work.commit("Begin", hull__txt="four\n")
    work.write("bomb.bin", b"\0" * (100 << 20))
    work.git("config", "core.bigFileThreshold", "2g")
    work.commit("A bomb")
    url = host.add(work)
    source = clone(url, max_clone_size=8 << 20)
    async with serving(source) as client:

        async def list_files() -> str:
            assert not source.mirror.problem
            return await read_text(client, "git://harbour/tree/HEAD")

        assert "bomb.bin" in await wait_until_async(list_files, "the folder can be read", ignore=RemoteError)
        assert await read_text(client, "git://harbour/tree/HEAD/hull.txt") == "four\n"
    assert source.mirror.folder.size() < 8 << 20


async def test_invalid_reference_names_are_not_stored(host: GitHost, history: GitRepository, cache: Path) -> None:
    names = ["refs/heads/../../escape", "refs/heads/..", "refs/heads/a.lock", "refs/heads/ok\x01", "refs/heads//x"]
    with fake_host(protocol_handler(reference_list("refs/heads/main", *names))) as (url, _):
        source = clone(f"{url}/harbour.git")
        async with serving(source):
            await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
        repository = source.mirror.folder.repository
        assert not list(cache.rglob("*escape*"))
        assert [path for path in (repository / "refs").rglob("*") if path.is_file()] == []


async def test_an_endless_list_of_references_is_refused() -> None:
    def send_references(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.command == "GET":
            send_capabilities(handler)
            return
        send_response(handler, "result", b"")
        lines = b"".join(packet_line(f"{OID} refs/heads/{'x' * 60_000}{number}\n") for number in range(100))
        while True:
            handler.wfile.write(lines)

    with fake_host(send_references) as (url, _):
        source = clone(f"{url}/harbour.git")
        async with serving(source):
            await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
            assert "too many references" in source.mirror.problem or "memory" in source.mirror.problem


async def test_a_tree_that_contains_a_git_folder_is_refused(host: GitHost, work: GitRepository) -> None:
    work.commit("Begin", hull__txt="four\n")
    blob = work.git("rev-parse", "HEAD:hull.txt")
    tree = work.put("tree", b"100644 .git\0" + bytes.fromhex(blob))
    commit = work.git("commit-tree", "-m", "Trap", tree)
    work.git("update-ref", "refs/heads/main", commit)
    source = clone(host.add(work))
    async with serving(source):
        await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
        assert "hasDotgit" in source.mirror.problem
        assert not source.mirror.cloned


async def test_messages_of_the_host_are_neither_interpreted_nor_shown() -> None:
    def send_messages(handler: BaseHTTPRequestHandler) -> None:
        progress = b"\x02fatal: No space left on device\x1b[31m\nerror: returned error: 401\n"
        fatal_error = b"\x03go away \x1b[31m password=hunter2-hunter2\n"
        packets = [f"{len(message) + 4:04x}".encode() + message for message in (progress, fatal_error)]
        send_response(handler, "result", packet_line("packfile\n") + b"".join(packets))

    with fake_host(protocol_handler(reference_list("refs/heads/main"), send_messages)) as (url, _):
        source = clone(f"{url}/harbour.git")
        async with serving(source):
            await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
            problem = source.mirror.problem
    assert "no space" not in problem and "token" not in problem
    assert "\x1b" not in problem and "hunter2" not in problem


# Processes


async def test_a_server_that_stops_ends_its_clone_at_once_and_can_start_again(
    host: GitHost, history: GitRepository, cache: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never answers
        port = silent.getsockname()[1]
        source = clone(f"http://127.0.0.1:{port}/harbour.git")
        async with serving(source) as client:
            await wait_until_async(
                lambda: any(b"git-remote-http" in command for _, command, _ in child_processes()), "git connects"
            )
            with pytest.raises(RemoteError, match="is being cloned for the first time"):
                await read_text(client, HULL)
            closing = time.monotonic()
        assert time.monotonic() - closing < 20
        assert not [
            command for _, command, _ in child_processes() if b"remote-http" in command or b"ls-remote" in command
        ]
    assert source.mirror.folder.path.is_dir()
    again = clone(source.mirror.address.url)
    assert not again.mirror.cloned


async def test_files_of_a_killed_fetch_are_removed(host: GitHost, history: GitRepository) -> None:
    url = host.add(history)
    source = clone(url)
    repository = source.mirror.folder.repository
    async with serving(source):
        await wait_until_complete(source)
    leftovers = [
        repository / name
        for name in (
            "packed-refs.lock", "HEAD.lock", "config.lock", "shallow.lock", "refs/heads/main.lock",
            "objects/pack/tmp_pack_x1", "objects/pack/tmp_idx_x1", "objects/pack/pack-0123.pack",
            "objects/tmp_objdir-incoming-x/pack/a",
        )
    ]  # fmt: skip
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    history.commit("Dredge", hull__txt="six\n")
    history.git("push", "-q", "origin", "main")
    source = clone(url)
    async with serving(source) as client:
        await wait_for_text(client, HULL, "six\n")
    assert not [path for path in leftovers if path.exists()]


def test_an_incomplete_clone_is_initialised_again(host: GitHost, history: GitRepository) -> None:
    folder = clone(host.add(history)).mirror.folder
    (folder.repository / "HEAD").unlink()
    (folder.path / "state.json").write_text('{"fetched": 5')
    assert not clone(host.origin + "/harbour.git").mirror.cloned
    assert (folder.repository / "HEAD").exists()


def test_a_cache_folder_that_other_users_may_enter_is_refused(host: GitHost, history: GitRepository) -> None:
    url = host.add(history)
    folder = clone(url).mirror.folder.path
    folder.chmod(0o755)
    with pytest.raises(UnusableSource, match="others may enter it"):
        git(url)


def test_the_shortest_interval_between_fetches_is_one_second(host: GitHost, history: GitRepository) -> None:
    url = host.add(history)
    git(url, every=1)
    for every in (0.99, 0, -1, float("nan")):
        with pytest.raises(UnusableSource, match="at most once a second"):
            git(url, every=every)
