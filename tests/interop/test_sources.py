"""The official SDKs, the Inspector's command line and VS Code's file system read every kind of source."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.commands.test_serve_everything import KINDS, credentials, endpoint, everything, mariadb, postgres, url
from tests.cli.everything import Everything
from tests.interop.programs import HANDSHAKE, STATELESS, node, run_client
from wharfinger import Client

__all__ = ["credentials", "endpoint", "everything", "mariadb", "postgres", "url"]  # fixtures

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR is not set"),  # required by the database server's package
]

PEERS = [("mcp2", HANDSHAKE), ("mcp2", STATELESS), ("ts2", HANDSHAKE), ("ts2", STATELESS)]


@pytest.mark.parametrize(("peer", "revision"), PEERS)
def test_every_source_is_listed_read_and_found_by_their_clients(
    peer: str, revision: str, url: str, everything: Everything
) -> None:
    cases = everything.cases
    searches = [case.search_word for case in cases.values() if case.search_word]
    visit = {
        "url": url,
        "revision": revision,
        "reads": [case.read_uri for case in cases.values()],
        "searches": searches,
    }
    seen = run_client(peer, visit, "sources")
    assert seen["revision"] == revision
    assert {case.listed_uri for case in cases.values()} <= set(seen["uris"])
    for kind, case in cases.items():
        content = seen["reads"][case.read_uri][0]
        assert case.expected_text in content["text"], (kind, content)
        assert content["uri"] == case.read_uri
        if kind != "skills":  # the `_meta` of their files belongs to the extension
            assert content["_meta"]["wharfinger/version"], kind
        assert seen["tool_reads"][case.read_uri][0]["type"] == "text", kind
    for case in cases.values():
        if case.search_word:
            found = seen["searches"][case.search_word]
            assert [block["type"] for block in found["blocks"]] == ["text"]
            prefix = (case.found_uri or case.read_uri).partition("?")[0]
            assert any(uri.startswith(prefix) for uri in found["ids"]), (case, found)


def inspector(url: str, *arguments: str) -> Any:
    """Run the Inspector's command line and return its output."""
    command = [*node("inspector", ".bin/mcp-inspector"), "--cli", url, *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def test_the_inspector_lists_every_source(url: str, everything: Everything) -> None:
    listed = {resource["uri"] for resource in inspector(url, "--method", "resources/list")["resources"]}
    assert {case.listed_uri for case in everything.cases.values()} <= listed


@pytest.mark.parametrize("kind", KINDS)
def test_the_inspector_reads_every_source(kind: str, url: str, everything: Everything) -> None:
    case = everything.cases[kind]
    contents = inspector(url, "--method", "resources/read", "--uri", case.read_uri)["contents"]
    assert contents[0]["uri"] == case.read_uri
    assert case.expected_text in contents[0]["text"]


# VS Code shows resources as a read-only file system (its mcpResourceFilesystem). It reads a directory at a URI with
# a final slash. Contents with the path of the request are the file itself, and all others are entries of the directory.


def same_path(one: str, other: str) -> bool:
    return urlsplit(one).path.casefold() == urlsplit(other).path.casefold()


async def entries(client: Client, uri: str) -> list[tuple[str, bool]]:
    """Return `(URI, whether it is a directory)` of each entry that VS Code would show in a directory."""
    directory_uri = uri if uri.endswith("/") else uri + "/"
    contents = (await client.read_resource(directory_uri)).contents
    below = [content for content in contents if not same_path(content.uri, directory_uri)]
    return [
        (content.uri, not (content.text or content.blob)) for content in below if is_child(content.uri, directory_uri)
    ]


def is_child(uri: str, directory: str) -> bool:
    parent = urlsplit(directory).path.rstrip("/")
    path = urlsplit(uri).path.rstrip("/")
    return path.rpartition("/")[0] == parent and path != parent


TOP_URIS = {
    "folder": "file:///docs",
    "git": "git://code/tree/main",
    "log": "log://logs",
    "s3": "s3://bucket/prefix",
    "table": "table://data",
    "zip": "zip://old.zip",
}


@pytest.mark.parametrize("kind", TOP_URIS)
def test_vs_code_lists_the_entries_of_a_directory(kind: str, url: str, everything: Everything) -> None:
    case = everything.cases[kind]

    async def walk() -> list[str]:
        async with Client(url) as client:
            found: list[str] = []
            pending = [TOP_URIS[kind]]
            while pending:
                for uri, directory in await entries(client, pending.pop()):
                    if directory:
                        pending.append(uri)
                    else:
                        found.append(uri)
            for uri in found:
                contents = (await client.read_resource(uri)).contents
                assert any(same_path(content.uri, uri) for content in contents), uri
            return found

    expected_uri = case.read_uri.replace("/HEAD/", "/main/")
    assert any(same_path(uri, expected_uri) for uri in asyncio.run(walk())), expected_uri
