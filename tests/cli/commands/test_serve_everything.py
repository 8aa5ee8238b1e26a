"""Every kind of data from one command at once, through stdio and HTTP, to clients of both eras and to tools."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.cli.commands.test_serve import address
from tests.cli.everything import Everything
from tests.conftest import absent
from tests.sources.object_store.conftest import endpoint
from tests.sources.sql_database.conftest import PostgresServer, mariadb, postgres
from tests.sources.sql_database.mariadb_server import PASSWORD, MariaDBServer
from tests.sources.systemd_journal.conftest import CAN_WRITE
from wharfinger import Client
from wharfinger import types as t
from wharfinger.cli.doctor.checks import MAX_INSTRUCTIONS_CHARACTERS
from wharfinger.sources.registry import make_sources

__all__ = ["endpoint", "mariadb", "postgres"]

pytestmark = pytest.mark.filterwarnings(
    "ignore:XDG_RUNTIME_DIR is not set"
)  # required by the database server's package

ERAS = ("2025-11-25", "2026-07-28")
KINDS = (
    "folder",
    "git",
    "git elsewhere",
    "skills",
    "sqlite",
    "postgres",
    "mariadb",
    "log",
    "s3",
    "table",
    "system",
    "zip",
    "tar",
    "journal",
    "command",
    "openapi",
    "web",
    "upstream",
)
ALLOWED = ("--allow-query", "--allow-command", "--every", "1", "--allow-private-networks")
TIME = 20.0
"""Seconds until something must have happened, on a busy machine."""


@pytest.fixture(scope="module")
def aws(endpoint: str) -> dict[str, str]:
    """The environment with the credentials of the bucket and of MariaDB."""
    return {
        "AWS_ACCESS_KEY_ID": "harbourmaster",
        "AWS_SECRET_ACCESS_KEY": "secretfathoms",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "MYSQL_PWD": PASSWORD,
    }


@pytest.fixture(scope="module")
def everything(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, mariadb: MariaDBServer, aws: dict[str, str]
) -> Iterator[Everything]:
    s3 = boto3.client(
        "s3",
        endpoint_url=aws["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="harbourmaster",
        aws_secret_access_key="secretfathoms",
    )
    here = tmp_path_factory.mktemp("all")
    (here / "far").mkdir()
    (here / "far" / "beacon.md").write_text("beaconlight\n")
    with serving([str(here / "far")], {}) as upstream:
        made = Everything(here, postgres, mariadb, s3, upstream)
        yield made
        made.close()


@pytest.fixture(scope="module")
def url(everything: Everything, aws: dict[str, str]) -> Iterator[str]:
    """The server over HTTP, for all tests."""
    with serving([*ALLOWED, *everything.words], aws) as url:
        yield url


@contextmanager
def serving(words: list[str], env: dict[str, str]) -> Iterator[str]:
    """A server over HTTP."""
    command = [*command_of(), "serve", "--http", "127.0.0.1:0", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env}
    )
    try:
        yield address(process)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def command_of() -> list[str]:
    return [sys.executable, "-m", "wharfinger"]


Connect = Callable[[], Any]


@pytest.fixture(params=[(how, era) for how in ("stdio", "http") for era in ERAS], ids="-".join)
def connect(request: pytest.FixtureRequest, everything: Everything, aws: dict[str, str], tmp_path: Path) -> Connect:
    """A client of one era, over one transport."""
    how, era = request.param
    target: Any = [*command_of(), "serve", "--stdio", *ALLOWED, *everything.words]
    if how == "http":
        target = request.getfixturevalue("url")

    @asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        env = {**aws, "XDG_CACHE_HOME": str(tmp_path)} if how == "stdio" else {}
        async with Client(target, revision=era, env=env, cache=False, timeout=TIME) as client:
            yield client

    return connected


def looped(work: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(work(), 55))


def test_all_of_it_is_listed_and_read(connect: Connect, everything: Everything) -> None:
    async def work() -> None:
        async with connect() as client:
            uris = {resource.uri async for resource in client.list_resources()}
            for kind, case in everything.cases.items():
                assert case.listed in uris, (kind, sorted(uris))
                text = "".join([str(content.text) for content in (await client.read_resource(case.read)).contents])
                assert case.has in text, kind

    looped(work)


def test_all_of_it_is_completed(connect: Connect, everything: Everything) -> None:
    async def work() -> None:
        async with connect() as client:
            templates = [template.uri_template for template in await client.list_resource_templates()]
            for kind, case in everything.cases.items():
                if case.complete is None:
                    continue
                part, variable, value = case.complete
                fits = [text for text in templates if text.startswith(part) and "{" in text and variable in text]
                assert fits, (kind, templates)
                found = [
                    word
                    for text in fits
                    for word in (
                        await client.complete(t.ResourceTemplateReference(uri=text), variable, value[:1])
                    ).values
                ]
                assert value in found, (kind, fits, found)

    looped(work)


def test_all_of_it_is_searched(connect: Connect, everything: Everything) -> None:
    async def work() -> None:
        async with connect() as client:
            for kind, case in everything.cases.items():
                if not case.search:
                    continue
                for _ in range(100):
                    result = await client.call_tool("search", {"query": case.search})
                    ids = [found["id"] for found in result.structured["results"]]
                    if any(uri.startswith(case.found or case.read) for uri in ids):
                        break
                    await asyncio.sleep(0.1)
                else:
                    raise AssertionError((kind, ids))

    looped(work)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "system"])
def test_a_change_of_any_source_reaches_its_watchers(kind: str, connect: Connect, everything: Everything) -> None:
    if kind == "journal" and not CAN_WRITE:
        absent("systemd-journal-remote (apt-get install systemd-journal-remote)")
    case = everything.cases[kind]
    assert case.change is not None
    change = case.change

    async def work() -> None:
        async with connect() as client, client.watch(case.read) as changes:
            await asyncio.to_thread(change)
            message = await asyncio.wait_for(anext(aiter(changes)), TIME)
            assert message.uri == case.read

    looped(work)


def test_a_line_of_the_instructions_explains_each_source(
    connect: Connect, everything: Everything, aws: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the scheme, and each parameter that the source declares."""
    for name, value in aws.items():
        monkeypatch.setenv(name, value)
    words = [case.word for kind, case in everything.cases.items() if kind != "upstream"]
    made = make_sources(words, {"allow_command": True})

    async def work() -> None:
        async with connect() as client:
            lines = (client.instructions or "").splitlines()
            assert len(client.instructions or "") < MAX_INSTRUCTIONS_CHARACTERS
            for prepared in made:
                source = prepared.source
                scheme = source.uri.partition(":")[0]
                own = [line for line in lines if line.startswith(f"- {source.uri}")]
                assert len(own) == 1, (source.uri, lines)
                family = " ".join([line for line in lines if line.startswith(f"- {scheme}:")])
                missing = [name for name in source.parameters if not re.search(rf"[?&]{re.escape(name)}\b", family)]
                assert not missing, (source.uri, missing, own)

    looped(work)


def test_tools_show_all_of_it(connect: Connect, everything: Everything) -> None:
    async def work() -> None:
        async with connect() as client:
            tops = (await client.call_tool("read_directory")).structured["entries"]
            assert len(tops) >= len(KINDS) - 2  # a command and an upstream have none
            for top in tops:
                assert (await client.call_tool("read_directory", {"uri": top["uri"]})).structured["entries"]
            for kind, case in everything.cases.items():
                result = await client.call_tool("read_resource", {"uri": case.read})
                assert case.has in result.text, kind

    looped(work)


def test_a_database_is_queried(connect: Connect) -> None:
    async def work() -> None:
        async with connect() as client:
            for name in ("shop", "pg"):
                arguments = {"statement": "SELECT count(*) FROM orders", "source": name}
                assert (await client.call_tool("query", arguments)).structured["rows"] == [[3]]

    looped(work)
