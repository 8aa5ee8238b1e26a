"""The clients of the official SDKs visit `wharfinger serve` with a copy of Python's standard library."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.conftest import free_port
from tests.interop.programs import (
    HANDSHAKE,
    PEERS,
    STATELESS,
    run_client,
    run_server,
    stop,
    wharfinger_command,
)
from tests.waiting import wait_until

CASES = [(peer, revision) for peer, revisions in PEERS.items() for revision in revisions]
BLOB = bytes(range(256)) * 4
NOT_FOUND = {HANDSHAKE: -32002, STATELESS: -32602}
RESOURCE_TOOLS = {"list_resources", "read_resource", "read_directory", "search", "fetch"}


@dataclass
class Tree:
    """A copy of the standard library with a binary file and a growing log. It counts the clients that visit it."""

    folder: Path
    uris: set[str]
    visits: int = 0

    def visit(self, revision: str, **server: Any) -> dict[str, Any]:
        """Return the input of a client's program."""
        self.visits += 1
        return {
            "revision": revision,
            "text": "file:///lib/this.py",
            "binary": "file:///lib/wharf.bin",
            "template": "file:///lib/{+path}",
            "template_uri": "file:///lib/json/decoder.py",
            "argument": {"name": "path", "value": "json/dec"},
            "search": "zen of python",
            "watched": "file:///lib/tides.log",
            "change": {"append": str(self.folder / "tides.log")},
            "grow": {"create": str(self.folder / f"new_{self.visits}.txt")},
            "missing": "file:///lib/no/such/file.py",
            **server,
        }


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("tree") / "lib"
    credentials = ("*.pem", "*.key", "id_*")  # files that `serve` hides
    skipped = shutil.ignore_patterns("site-packages", "dist-packages", "__pycache__", "*.so", "config-*", *credentials)
    shutil.copytree(sysconfig.get_path("stdlib"), folder, ignore=skipped, symlinks=True)
    (folder / "wharf.bin").write_bytes(BLOB)
    (folder / "tides.log").write_text("first\n")
    paths = [path.relative_to(folder) for path in folder.rglob("*") if not path.name.startswith(".")]
    return Tree(folder, {f"file:///lib/{path}" for path in paths})


@pytest.fixture(scope="module")
def http(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server over HTTP for all tests. At the end one Ctrl-C stops it, and it has logged no error."""
    port, log = free_port(), tmp_path_factory.mktemp("http") / "log"
    with run_server(
        [*wharfinger_command(), "serve", "--http", f"127.0.0.1:{port}", str(tree.folder)], port, log
    ) as process:
        yield f"http://127.0.0.1:{port}/mcp"
        assert stop(process, 20.0) in (0, 130), log.read_text(errors="replace")
    assert "Traceback" not in log.read_text(errors="replace")


def check_results(peer: str, seen: dict[str, Any], tree: Tree, revision: str) -> None:
    """Check the results that every client must have over every transport."""
    assert seen["revision"] == revision
    assert tree.uris - {unquote(uri) for uri in seen["uris"]} == set()
    assert len(seen["uris"]) == len(set(seen["uris"]))
    assert seen["pages"] > 1 or seen["pages_are_joined"]
    assert "file:///lib/{+path}" in seen["templates"]
    assert seen["text"] == (tree.folder / "this.py").read_text()
    assert seen["text_uri"] == "file:///lib/this.py"
    assert seen["text_type"] == "text/x-python"
    assert seen["binary"] == hashlib.sha256(BLOB).hexdigest()
    assert seen["template_text"] == (tree.folder / "json" / "decoder.py").read_text()
    assert "json/decoder.py" in seen["completion"]
    assert set(seen["tools"]) >= RESOURCE_TOOLS
    assert seen["search"] == seen["search_text"]
    assert {"id", "title", "url"} <= set(seen["search"]["results"][0])
    assert seen["fetch"] == seen["fetch_text"]
    assert {"id", "title", "text", "url"} <= set(seen["fetch"])
    assert seen["updated"] == "file:///lib/tides.log"
    assert seen["list_changed"] is True
    # The TypeScript SDK 2.x reports the newer code in both eras if the error names the URI.
    assert seen["not_found"]["code"] == NOT_FOUND[STATELESS if peer == "ts2" else revision]
    assert seen["not_found"]["data"]["uri"] == "file:///lib/no/such/file.py"
    assert seen["ended"] is True


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("peer", "revision"), CASES)
def test_a_client_over_stdio_sees_the_tree_and_its_changes(
    peer: str, revision: str, tree: Tree, tmp_path: Path
) -> None:
    """The server starts for one visit, and exits cleanly when its input ends."""
    ended, log = tmp_path / "ended", tmp_path / "log"
    command = shlex.join([*wharfinger_command(), "serve", "--stdio", str(tree.folder)])
    shell = ["bash", "-c", f"{command} 2> {shlex.quote(str(log))}; echo $? > {shlex.quote(str(ended))}"]
    check_results(peer, run_client(peer, tree.visit(revision, command=shell)), tree, revision)
    wait_until(lambda: ended.exists() and ended.read_text(), "the server exits", details=log.read_text)
    assert ended.read_text() == "0\n", log.read_text(errors="replace")
    assert "Traceback" not in log.read_text(errors="replace")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("peer", "revision"), CASES)
def test_a_client_over_http_sees_the_tree_and_its_changes(peer: str, revision: str, tree: Tree, http: str) -> None:
    check_results(peer, run_client(peer, tree.visit(revision, url=http)), tree, revision)
