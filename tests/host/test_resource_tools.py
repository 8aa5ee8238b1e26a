"""The tools of a host that search, read and list the resources of all its servers."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from wharfinger import Server
from wharfinger.host import Host

LINE_COUNT = 3_000


def folder_server(folder: Path) -> list[str]:
    return [sys.executable, "-m", "wharfinger", "serve", "--stdio", str(folder)]


async def call_tool(host: Host, name: str, **arguments: Any) -> str:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    (message,) = await host.call(call)
    return str(message["content"])


def test_search_resources_finds_contents_on_every_server(tmp_path: Path) -> None:
    lines = [f"entry {number}" for number in range(1, LINE_COUNT + 1)]
    lines[1_999] += " the pilot boarded"
    (tmp_path / "log.txt").write_text("\n".join(lines))
    notes = Server("notes")

    @notes.resource("note://one", title="A note")
    def one() -> str:
        return "Nobody saw the pilot."

    @notes.resource("note://two", title="Another note")
    def two() -> str:
        return "Calm."

    async def run() -> None:
        dead = [sys.executable, "-c", "raise SystemExit(3)"]
        async with Host({"logs": folder_server(tmp_path), "notes": notes, "dead": dead}) as host:
            await host.ready(30)
            results = await call_tool(host, "search_resources", query="pilot")
            rows = {row.split()[0].partition("?")[0]: row for row in results.splitlines()}
            assert "note://two" not in rows
            assert "server notes" in rows["note://one"] and "Nobody saw the pilot." in rows["note://one"]
            log = rows[(tmp_path / "log.txt").as_uri().replace(str(tmp_path.parent), "")]
            assert "server logs" in log and "2000: entry 2000 the pilot boarded" in log
            assert "[dead: it cannot be reached: " in results and "exit code 3" in results
            window = await call_tool(host, "read_resource", uri=log.split()[0])
            assert "entry 2000 the pilot boarded" in window and len(window) < 5_000
            no_results = await call_tool(host, "search_resources", query="submarine")
            assert no_results.startswith("Nothing was found for 'submarine'. Try other words")
            assert (await call_tool(host, "search_resources", query="x" * 5_000)).startswith(
                "Error: Search for at most"
            )

    asyncio.run(asyncio.wait_for(run(), 60))


def test_list_resources_returns_pages_and_names_the_servers_that_are_down() -> None:
    server = Server("ships")
    for number in range(150):
        server.resource(f"ship://{number:03}", name=f"Ship {number}")(lambda: "at sea")

    async def run() -> None:
        async with Host({"ships": server, "dead": [sys.executable, "-c", "raise SystemExit(3)"]}) as host:
            await host.ready(30)
            *rows, next_page, unreachable = (await call_tool(host, "list_resources")).splitlines()
            assert [row.split()[0] for row in rows] == [f"ship://{number:03}" for number in range(100)]
            assert next_page == "[1 to 100 of 150. Continue with page 2.]"
            assert unreachable.startswith("[dead: it cannot be reached: ")
            second = (await call_tool(host, "list_resources", page=2, server="ships")).splitlines()
            assert [row.split()[0] for row in second] == [f"ship://{number:03}" for number in range(100, 150)]
            assert await call_tool(host, "list_resources", page=3, server="ships") == "There are only 150 resources."
            assert (await call_tool(host, "list_resources", under="ship://14", server="ships")).count("\n") == 9
            assert "no server 'x'" in await call_tool(host, "list_resources", server="x")

    asyncio.run(asyncio.wait_for(run(), 60))
