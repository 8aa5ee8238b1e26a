"""`serve` and `run` write an audit log and serve metrics, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, ENVIRONMENT
from tests.conftest import free_port
from tests.waiting import wait_until_listening
from wharfinger import Client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "docs"
    path.mkdir()
    (path / "tides.md").write_text("high at noon")
    return path


@contextmanager
def run_server(*arguments: str, token: str = "") -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a server over HTTP. Yields its URL and process."""
    port = free_port()
    command = [*COMMAND, *arguments, "--http", f"127.0.0.1:{port}"]
    environment = {**ENVIRONMENT, "RECORD_TOKEN": token}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment)  # fmt: skip

    def errors() -> bytes:
        process.kill()
        return process.communicate()[1]

    try:
        wait_until_listening(process, port, errors)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.communicate()


def read(target: Any, uri: str, **options: Any) -> str:
    async def read_text() -> str:
        async with Client(target, **options) as client:
            return (await client.read_resource(uri)).text

    return asyncio.run(read_text())


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_server_over_stdio_records_its_reads(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    command = [*COMMAND, "serve", "--stdio", "--audit", str(path), str(folder)]
    assert read(command, uri_of(command)) == "high at noon"
    (found,) = [line for line in lines(path.read_bytes()) if line["action"] == "read"]
    assert found["target"].endswith("tides.md")
    assert (found["subject"], found["outcome"]) == ("local", "allowed")


def uri_of(command: list[str]) -> str:
    async def find_uri() -> str:
        async with Client(command) as client:
            return next(resource.uri for resource in await client.list_resources() if resource.uri.endswith("tides.md"))

    return asyncio.run(find_uri())


def test_a_server_over_http_records_refusals_serves_metrics_and_ends_with_a_complete_record(
    folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("prometheus_client")
    for number in range(20):
        (folder / f"berth{number}.md").write_text("free")
    path, token, port = tmp_path / "audit.jsonl", "a-token-of-some-length", free_port()
    options = ["--audit", str(path), "--metrics", f"127.0.0.1:{port}", "--token-env", "RECORD_TOKEN"]
    with run_server("serve", str(folder), *options, token=token) as (url, process):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, data=b"{}", timeout=40)

        async def read_berths() -> None:
            async with Client(url, headers={"Authorization": f"Bearer {token}"}) as client:
                uris = [resource.uri for resource in await client.list_resources() if "berth" in resource.uri]
                for uri in uris:
                    await client.read_resource(uri)

        asyncio.run(read_berths())
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=40) as answer:
            text = answer.read().decode()
        assert 'wharfinger_requests_total{method="resources/read",outcome="allowed"} 20.0' in text
        assert 'wharfinger_refusals_total{status="401"} 1.0' in text
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
    found = lines(path.read_bytes())
    assert [line["status"] for line in found if line["outcome"] == "refused"] == [401]
    assert len([line for line in found if line["action"] == "read"]) == 20
    assert token not in path.read_text()


def test_an_audit_log_on_stdout_is_the_only_output(folder: Path) -> None:
    with run_server("serve", str(folder), "--audit", "-") as (url, process):
        asyncio.run(list_resources(url))
        os.kill(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
    assert "list" in {line["action"] for line in lines(out)}


async def list_resources(target: Any) -> None:
    async with Client(target) as client:
        await client.list_resources()


def test_the_audit_log_of_a_stdio_server_goes_to_stderr(folder: Path) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"_meta": meta}}
    completed = subprocess.run(
        [*COMMAND, "serve", "--stdio", "--audit", "-", str(folder)], input=json.dumps(message).encode() + b"\n",
        capture_output=True, env=ENVIRONMENT, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(completed.stdout)["id"] == 1
    assert "list" in {json.loads(line)["action"] for line in completed.stderr.splitlines() if line.startswith(b"{")}


def test_run_writes_an_audit_log(tmp_path: Path) -> None:
    file, path = tmp_path / "server.py", tmp_path / "audit.jsonl"
    file.write_text(
        "from wharfinger import Server\nserver = Server('s')\n"
        "@server.resource('notes://today')\ndef today() -> str: return 'calm'\n"
    )
    command = [sys.executable, "-m", "wharfinger", "run", "--stdio", "--audit", str(path), str(file)]
    assert read(command, "notes://today") == "calm"
    assert [line["target"] for line in lines(path.read_bytes()) if line["action"] == "read"] == ["notes://today"]


def test_the_audit_log_of_a_server_file_is_relative_to_that_file(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "wharfinger.toml"
    file.write_text('sources = ["docs"]\naudit = "record.jsonl"\naudit_max_bytes = "1MiB"\naudit_keep = 3\n')
    command = [*COMMAND, "serve", "--stdio", "-f", str(file)]
    assert read(command, uri_of(command)) == "high at noon"
    assert [
        line["outcome"] for line in lines((tmp_path / "record.jsonl").read_bytes()) if line["action"] == "read"
    ] == ["allowed"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--audit-queries"], "--audit-queries is for the record: add --audit FILE"),
     (["--audit-keep", "3"], "add --audit FILE"),
     (["--audit", "log", "--audit-max-bytes", "1KiB"], "max_bytes=1024: write at least 65536"),
     (["--audit", "log", "--audit-max-bytes", "big"], "write a number"),
     (["--audit", "log", "--audit-on-error", "panic"], "'panic' is not one of"),
     (["--audit", "/nowhere/log"], "The audit log /nowhere/log cannot be written: no such file or directory"),
     (["--metrics", "9464"], "is not HOST:PORT: write 127.0.0.1:9464")],
)  # fmt: skip
def test_a_mistake_in_the_options_is_reported_without_a_traceback(
    folder: Path, arguments: list[str], message: str
) -> None:
    completed = subprocess.run(
        [*COMMAND, "serve", "--stdio", str(folder), *arguments], capture_output=True, text=True, env=ENVIRONMENT,
        stdin=subprocess.DEVNULL, cwd=folder.parent, timeout=60, check=False,
    )  # fmt: skip
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
