"""`wharfinger serve FOLDER` as a process, with documents: reading, searching, and Ctrl-C during a parse."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.commands.test_serve import address
from tests.sources.document_text.document_builders import bomb_pdf, docx_of, encrypted_pdf, pdf_of
from tests.sources.document_text.test_parser_pool import is_running
from tests.waiting import wait_until
from wharfinger import Client
from wharfinger.errors import WharfingerError

TIMEOUT_SECONDS = 60.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def children_of(process_id: int) -> list[int]:
    """Return the running child processes of a process."""
    found: list[int] = []
    for children in Path(f"/proc/{process_id}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended in the meantime
            found += map(int, children.read_text().split())
    return [child for child in found if is_running(child)]


@pytest.fixture
def server(papers: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its URL. The parameter of the fixture has further command-line options."""
    (papers / "almanac.pdf").write_bytes(pdf_of(["cover", "spring tides"]))
    (papers / "rules.docx").write_bytes(docx_of("# Pilots", "compulsory"))
    command = [
        sys.executable,
        "-m",
        "wharfinger",
        "serve",
        "--http",
        "127.0.0.1:0",
        *getattr(request, "param", ()),
        str(papers),
    ]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as process:
        yield process, address(process)
        process.kill()


def test_documents_are_read_and_found_and_the_server_survives_a_decompression_bomb(
    server: tuple[subprocess.Popen[str], str], papers: Path
) -> None:
    (papers / "locked.pdf").write_bytes(encrypted_pdf())
    (papers / "bomb.pdf").write_bytes(bomb_pdf(3_000))

    async def main() -> None:
        async with Client(server[1], timeout=TIMEOUT_SECONDS) as client:
            uri = "file:///papers"
            assert f"{uri}/{{+path}}{{?pages}}" in [
                template.uri_template for template in await client.list_resource_templates()
            ]
            for name, reason in (
                ("locked.pdf", "it is encrypted"),
                ("bomb.pdf", "1024 MiB of memory|longer than 20 s"),
            ):
                with pytest.raises(WharfingerError, match=reason):
                    await client.read_resource(f"{uri}/{name}?text")
            page = await client.read_resource(f"{uri}/almanac.pdf?pages=2")
            assert page.contents[0].text == "[page 2 of 2]\nspring tides\n\n"
            while True:  # until the file is indexed
                found = (await client.call_tool("search", {"query": "compulsory"})).structured
                if found["results"]:
                    break
            assert found["results"][0]["id"] == f"{uri}/rules.docx?pages=1"
            assert found["results"][0]["text"].startswith("section 1\n")

    asyncio.run(asyncio.wait_for(main(), 50))


@pytest.mark.parametrize("server", [["--no-search"]], indirect=True)
def test_ctrl_c_during_a_parse_ends_the_server_and_its_children(
    server: tuple[subprocess.Popen[str], str], papers: Path
) -> None:
    process, url = server

    async def main() -> list[int]:
        async with Client(url, timeout=TIMEOUT_SECONDS) as client:
            await client.read_resource("file:///papers/almanac.pdf?text")
            children = children_of(process.pid)
            for child in children:
                os.kill(child, signal.SIGSTOP)
            (papers / "new.pdf").write_bytes(pdf_of(["new"]))
            reading = asyncio.ensure_future(client.read_resource("file:///papers/new.pdf?text"))
            await asyncio.sleep(0.3)  # the request reaches the stopped child, which cannot be observed from here
            assert not reading.done()
            process.send_signal(signal.SIGINT)
            await asyncio.wait({reading}, timeout=TIMEOUT_SECONDS)
            reading.cancel()
            return children

    children = asyncio.run(main())
    assert process.wait(TIMEOUT_SECONDS) in (0, 130, -signal.SIGINT)
    assert children
    wait_until(lambda: not any(map(is_running, children)), "the processes of the server end")
