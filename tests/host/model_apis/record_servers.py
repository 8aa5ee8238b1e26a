"""Record the tools of published servers: `python -m tests.host.model_apis.record_servers [NAME…]`.

Each server is installed from npm or PyPI in its own folder, and started without credentials. If a new version has other
tools, its file in recorded/ changes, and the tests check the new tools.
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


class PublishedServer(NamedTuple):
    """A published server: its package, the program in the package, and its arguments and environment variables."""

    registry: str
    package: str
    program: str
    arguments: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


SERVERS = {
    "everything": PublishedServer(
        "npm", "@modelcontextprotocol/server-everything", "mcp-server-everything", ("stdio",)
    ),
    "filesystem": PublishedServer("npm", "@modelcontextprotocol/server-filesystem", "mcp-server-filesystem", (".",)),
    "memory": PublishedServer("npm", "@modelcontextprotocol/server-memory", "mcp-server-memory"),
    "sequential-thinking": PublishedServer(
        "npm", "@modelcontextprotocol/server-sequential-thinking", "mcp-server-sequential-thinking"
    ),
    "notion": PublishedServer(
        "npm", "@notionhq/notion-mcp-server", "notion-mcp-server", (), (("NOTION_TOKEN", "ntn_none"),)
    ),
    "playwright": PublishedServer("npm", "@playwright/mcp", "playwright-mcp", ("--headless",)),
    "firecrawl": PublishedServer("npm", "firecrawl-mcp", "firecrawl-mcp", (), (("FIRECRAWL_API_KEY", "fc-none"),)),
    "context7": PublishedServer("npm", "@upstash/context7-mcp", "context7-mcp"),
    "kubernetes": PublishedServer("npm", "mcp-server-kubernetes", "mcp-server-kubernetes"),
    "git": PublishedServer("pypi", "mcp-server-git", "mcp-server-git"),
    "time": PublishedServer("pypi", "mcp-server-time", "mcp-server-time"),
    "fetch": PublishedServer("pypi", "mcp-server-fetch", "mcp-server-fetch"),
    "sqlite": PublishedServer("pypi", "mcp-server-sqlite", "mcp-server-sqlite"),
    "arxiv": PublishedServer("pypi", "arxiv-mcp-server", "arxiv-mcp-server"),
    "duckduckgo": PublishedServer("pypi", "duckduckgo-mcp-server", "duckduckgo-mcp-server"),
}


def install(server: PublishedServer, folder: Path) -> list[str]:
    """Install a server in a folder, and return the command that starts it."""
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
    """Write the tools of a server to its file, and return their number."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), **dict(SERVERS[name].variables)}
    async with Client(command, cwd=folder, env=variables, probe_timeout=20, open_timeout=120) as client:
        tools = await client.list_tools()
        info = client.server_info
    recording = {
        "package": SERVERS[name].package,
        "server": None if info is None else f"{info.name} {info.version}",
        "tools": tools,
    }
    RECORDED.mkdir(exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1).decode()
    (RECORDED / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return len(tools)


def recorded_tools(path: Path) -> list[t.Tool]:
    """Return the tools in a recorded file."""
    return msgspec.json.decode(path.read_bytes(), type=Recording).tools


class Recording(msgspec.Struct):
    tools: list[t.Tool]


if __name__ == "__main__":
    for server_name in sys.argv[1:] or SERVERS:
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            command = install(SERVERS[server_name], folder)
            print(server_name, asyncio.run(record(server_name, command, folder)))
