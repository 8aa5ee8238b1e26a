"""Record what published servers answer to `tools/list`: `python -m tests.host.model_apis.record_servers [NAME…]`.

Each server is installed in a folder of its own, from npm or PyPI, and started without credentials. Those that have
new tools in another version change the files in recorded/, and the tests check the new ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from wharfinger import Client
from wharfinger import types as t

RECORDED = Path(__file__).resolve().parent / "recorded"


class Published(NamedTuple):
    """A published server: its package, the program in it, its arguments and variables."""

    registry: str
    package: str
    program: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


SERVERS = {
    "everything": Published("npm", "@modelcontextprotocol/server-everything", "mcp-server-everything", ("stdio",)),
    "filesystem": Published("npm", "@modelcontextprotocol/server-filesystem", "mcp-server-filesystem", (".",)),
    "memory": Published("npm", "@modelcontextprotocol/server-memory", "mcp-server-memory"),
    "sequential-thinking": Published(
        "npm", "@modelcontextprotocol/server-sequential-thinking", "mcp-server-sequential-thinking"
    ),
    "notion": Published("npm", "@notionhq/notion-mcp-server", "notion-mcp-server", (), (("NOTION_TOKEN", "ntn_none"),)),
    "playwright": Published("npm", "@playwright/mcp", "playwright-mcp", ("--headless",)),
    "firecrawl": Published("npm", "firecrawl-mcp", "firecrawl-mcp", (), (("FIRECRAWL_API_KEY", "fc-none"),)),
    "context7": Published("npm", "@upstash/context7-mcp", "context7-mcp"),
    "kubernetes": Published("npm", "mcp-server-kubernetes", "mcp-server-kubernetes"),
    "git": Published("pypi", "mcp-server-git", "mcp-server-git"),
    "time": Published("pypi", "mcp-server-time", "mcp-server-time"),
    "fetch": Published("pypi", "mcp-server-fetch", "mcp-server-fetch"),
    "sqlite": Published("pypi", "mcp-server-sqlite", "mcp-server-sqlite"),
    "arxiv": Published("pypi", "arxiv-mcp-server", "arxiv-mcp-server"),
    "duckduckgo": Published("pypi", "duckduckgo-mcp-server", "duckduckgo-mcp-server"),
}


def install(server: Published, folder: Path) -> list[str]:
    """Install a server in a folder. Returns the command that starts it."""
    if server.registry == "npm":
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", server.package]
        subprocess.run(command, cwd=folder, check=True)
        program = folder / "node_modules" / ".bin" / server.program
    else:
        subprocess.run([sys.executable, "-m", "venv", "venv"], cwd=folder, check=True)
        subprocess.run([folder / "venv/bin/pip", "install", "--quiet", server.package], cwd=folder, check=True)
        program = folder / "venv" / "bin" / server.program
    return [str(program), *server.arguments]


async def record(name: str, command: list[str], folder: Path) -> int:
    """Write the tools of a server. Returns how many there are."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), **dict(SERVERS[name].variables)}
    async with Client(command, cwd=folder, env=variables, probe_timeout=20, open_timeout=120) as client:
        tools = await client.list_tools()
        info = client.server_info
    answer = {
        "package": SERVERS[name].package,
        "server": None if info is None else f"{info.name} {info.version}",
        "tools": tools,
    }
    RECORDED.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(answer), indent=1).decode()
    (RECORDED / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return len(tools)


def recorded_tools(path: Path) -> list[t.Tool]:
    """Return the tools in a recorded file."""
    return msgspec.json.decode(path.read_bytes(), type=_Recorded).tools


class _Recorded(msgspec.Struct):
    tools: list[t.Tool]


if __name__ == "__main__":
    for wanted in sys.argv[1:] or SERVERS:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            print(wanted, asyncio.run(record(wanted, install(SERVERS[wanted], place), place)))
