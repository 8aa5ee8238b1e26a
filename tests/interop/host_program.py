"""A host that serves two servers as one over HTTP: `python host_program.py PORT FOLDER`."""

from __future__ import annotations

import asyncio
import sys

import uvicorn

from tests.interop.programs import FEATURE_SERVER, wharfinger_command
from wharfinger.host import Host


async def main(port: int, folder: str) -> None:
    servers = {
        "features": [sys.executable, str(FEATURE_SERVER), "stdio"],
        "papers": [*wharfinger_command(), "serve", "--stdio", folder],
    }
    async with Host(servers) as host:
        await host.ready(60)
        config = uvicorn.Config(host.as_server("all").asgi(), host="127.0.0.1", port=port, log_level="warning")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
