"""Runs FastMCP's `from_openapi` on a document. Prints the times, the tools and the operations that work, as JSON.

python fastmcp4_openapi.py DOCUMENT.json
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx2
from documented_app import DocumentedApp, example_of
from fastmcp import Client, FastMCP


async def measure(root: dict[str, Any]) -> dict[str, Any]:
    app = DocumentedApp(root)
    transport = httpx2.ASGITransport(app=app)
    began = time.perf_counter()
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        server = FastMCP.from_openapi(root, client=http, validate_output=False)
        loaded = time.perf_counter() - began
        async with Client(server) as client:
            began = time.perf_counter()
            tools = await client.list_tools()
            listed = time.perf_counter() - began
            sizes = [len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools]
            works: list[str] = []
            failures: list[str] = []
            for tool in tools:
                schema = tool.input_schema
                required = schema.get("required", ())
                arguments = {name: example_of(schema, schema.get("properties", {}).get(name, {})) for name in required}
                before = len(app.hits)
                try:
                    result = await client.call_tool(tool.name, arguments)
                except Exception as error:  # an operation that does not work is a result
                    failures.append(f"{tool.name}: {error}")
                    continue
                if len(app.hits) == before + 1:
                    expected = app.answers[app.hits[-1]]
                    structured = getattr(result, "structured_content", None)
                    if structured == expected or structured == {"result": expected}:
                        works.append(app.hits[-1])
    if failures:
        print(f"{len(failures)} calls failed, such as {failures[0][:300]}", file=sys.stderr)
    return {
        "loaded": loaded,
        "listed": listed,
        "tools": len(tools),
        "characters": sum(sizes),
        "works": sorted(set(works)),
    }


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(measure(json.loads(Path(sys.argv[1]).read_text())))))
