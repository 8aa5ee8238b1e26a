"""One command that serves every kind of source, over stdio and HTTP, to clients of both protocol eras."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.cli.commands.test_serve import address
from tests.cli.everything import Case, Everything
from tests.conftest import absent
from tests.sources.object_store.conftest import endpoint
from tests.sources.sql_database.conftest import PostgresServer, mariadb, postgres
from tests.sources.sql_database.mariadb_server import PASSWORD, MariaDBServer
from tests.sources.systemd_journal.conftest import CAN_WRITE
from tests.waiting import wait_until_async
from wharfinger import Client
from wharfinger import types as t
from wharfinger.cli.doctor.checks import MAX_INSTRUCTIONS_CHARACTERS
from wharfinger.server.source_calls import MISSING_META_KEY
from wharfinger.sources.registry import make_sources

__all__ = ["endpoint", "mariadb", "postgres"]

# The package of the database server warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR is not set")

COMMAND = [sys.executable, "-m", "wharfinger"]
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
OPTIONS = ("--allow-query", "--allow-command", "--every", "1", "--allow-private-networks")
TIMEOUT_SECONDS = 20.0  # long enough for a busy machine


@pytest.fixture(scope="module")
def credentials(endpoint: str) -> dict[str, str]:
    """Environment variables with the credentials of the bucket and of MariaDB."""
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
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    mariadb: MariaDBServer,
    credentials: dict[str, str],
) -> Iterator[Everything]:
    s3 = boto3.client(
        "s3",
        endpoint_url=credentials["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="harbourmaster",
        aws_secret_access_key="secretfathoms",
    )
    folder = tmp_path_factory.mktemp("all")
    (folder / "far").mkdir()
    (folder / "far" / "beacon.md").write_text("beaconlight\n")
    with serve([str(folder / "far")], {}) as upstream:
        sources = Everything(folder, postgres, mariadb, s3, upstream)
        yield sources
        sources.close()


@pytest.fixture(scope="module")
def url(everything: Everything, credentials: dict[str, str]) -> Iterator[str]:
    """The URL of a server that all tests share."""
    with serve([*OPTIONS, *everything.arguments], credentials) as url:
        yield url


@contextmanager
def serve(arguments: list[str], env: dict[str, str]) -> Iterator[str]:
    """Run `wharfinger serve` over HTTP, and yield its URL."""
    command = [*COMMAND, "serve", "--http", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **env}
    )
    try:
        yield address(process)
    finally:
        process.terminate()
        process.communicate(timeout=20)


Connect = Callable[[], Any]


@pytest.fixture(params=[(transport, era) for transport in ("stdio", "http") for era in ERAS], ids="-".join)
def connect(
    request: pytest.FixtureRequest, everything: Everything, credentials: dict[str, str], tmp_path: Path
) -> Connect:
    """A function that opens a client of one era over one transport, when all sources have answered their server."""
    transport, era = request.param
    target: Any = [*COMMAND, "serve", "--stdio", *OPTIONS, *everything.arguments]
    if transport == "http":
        target = request.getfixturevalue("url")

    @asynccontextmanager
    async def open_client() -> AsyncIterator[Client]:
        env = {**credentials, "XDG_CACHE_HOME": str(tmp_path)} if transport == "stdio" else {}
        async with Client(target, revision=era, env=env, cache=False, timeout=TIMEOUT_SECONDS) as client:

            async def is_complete() -> bool:
                return MISSING_META_KEY not in ((await client.request("resources/list")).meta or {})

            await wait_until_async(is_complete, "all sources are listed", seconds=TIMEOUT_SECONDS)
            yield client

    return open_client


async def test_every_source_is_listed_and_read(connect: Connect, everything: Everything) -> None:
    async with connect() as client:
        uris = {resource.uri async for resource in client.list_resources()}
        for kind, case in everything.cases.items():
            assert case.listed_uri in uris, (kind, sorted(uris))
            text = "".join([str(content.text) for content in (await client.read_resource(case.read_uri)).contents])
            assert case.expected_text in text, kind


async def test_variables_of_every_source_are_completed(connect: Connect, everything: Everything) -> None:
    async with connect() as client:
        templates = [template.uri_template for template in await client.list_resource_templates()]
        for kind, case in everything.cases.items():
            if case.completion is None:
                continue
            beginning, variable, value = case.completion
            matching = [text for text in templates if text.startswith(beginning) and "{" in text and variable in text]
            assert matching, (kind, templates)
            completions = [
                word
                for text in matching
                for word in (await client.complete(t.ResourceTemplateReference(uri=text), variable, value[:1])).values
            ]
            assert value in completions, (kind, matching, completions)


async def test_every_source_is_searched(connect: Connect, everything: Everything) -> None:
    async with connect() as client:
        for kind, case in everything.cases.items():
            if not case.search_word:
                continue

            async def is_found(case: Case = case) -> bool:
                result = await client.call_tool("search", {"query": case.search_word})
                uris = [hit["id"] for hit in result.structured["results"]]
                return any(uri.startswith(case.found_uri or case.read_uri) for uri in uris)

            await wait_until_async(is_found, f"a search finds {case.search_word} in {kind}")


async def test_watchers_are_notified_of_a_change_in_every_source(connect: Connect, everything: Everything) -> None:
    changes = {kind: (case.read_uri, case.change) for kind, case in everything.cases.items() if case.change is not None}
    assert set(changes) == set(KINDS) - {"system"}
    if not CAN_WRITE:
        absent("systemd-journal-remote (apt-get install systemd-journal-remote)")

    async def notified_uri(client: Client, uri: str, change: Callable[[], object]) -> str | None:
        async with client.watch(uri) as watch:
            await asyncio.to_thread(change)
            with suppress(TimeoutError):
                return (await asyncio.wait_for(anext(aiter(watch)), 45)).uri
        return None

    async with connect() as client:
        uris = await asyncio.gather(*[notified_uri(client, uri, change) for uri, change in changes.values()])
    assert dict(zip(changes, uris, strict=True)) == {kind: uri for kind, (uri, _) in changes.items()}


async def test_the_instructions_have_a_line_for_each_source(
    connect: Connect, everything: Everything, credentials: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of a scheme name each parameter that the sources declare."""
    for name, value in credentials.items():
        monkeypatch.setenv(name, value)
    arguments = [case.argument for kind, case in everything.cases.items() if kind != "upstream"]
    prepared_sources = make_sources(arguments, {"allow_command": True})

    async with connect() as client:
        lines = (client.instructions or "").splitlines()
        assert len(client.instructions or "") < MAX_INSTRUCTIONS_CHARACTERS
        for prepared in prepared_sources:
            source = prepared.source
            scheme = source.uri.partition(":")[0]
            source_lines = [line for line in lines if line.startswith(f"- {source.uri}")]
            assert len(source_lines) == 1, (source.uri, lines)
            scheme_lines = " ".join([line for line in lines if line.startswith(f"- {scheme}:")])
            missing = [name for name in source.parameters if not re.search(rf"[?&]{re.escape(name)}\b", scheme_lines)]
            assert not missing, (source.uri, missing, source_lines)


async def test_every_source_is_read_with_tools(connect: Connect, everything: Everything) -> None:
    async with connect() as client:
        folders = (await client.call_tool("read_directory")).structured["entries"]
        assert len(folders) >= len(KINDS) - 2  # a command and an upstream have no folder
        for folder in folders:
            assert (await client.call_tool("read_directory", {"uri": folder["uri"]})).structured["entries"]
        for kind, case in everything.cases.items():
            result = await client.call_tool("read_resource", {"uri": case.read_uri})
            assert case.expected_text in result.text, kind


async def test_databases_are_queried(connect: Connect) -> None:
    async with connect() as client:
        for name in ("shop", "pg"):
            arguments = {"statement": "SELECT count(*) FROM orders", "source": name}
            assert (await client.call_tool("query", arguments)).structured["rows"] == [[3]]
