"""A client of the official Python SDK 2.x. It reads every kind of source and prints the results."""

import asyncio
import base64
import hashlib

import common
from mcp import Client

MEMBERS = {"uri": "uri", "mime_type": "mimeType", "text": "text", "meta": "_meta"}


def content_summary(content):
    members = {name: getattr(content, attribute, None) for attribute, name in MEMBERS.items()}
    members["uri"] = str(members["uri"])
    if getattr(content, "blob", None) is not None:
        members["sha256"] = hashlib.sha256(base64.b64decode(content.blob)).hexdigest()
    return {name: value for name, value in members.items() if value is not None}


def block_summary(content):
    return {"type": content.type, **({"uri": str(content.uri)} if content.type == "resource_link" else {})}


async def main():
    visit, seen = common.read_input(), {"reads": {}, "tool_reads": {}, "searches": {}}
    mode = "auto" if visit["revision"] == "2026-07-28" else "legacy"
    async with Client(visit["url"], mode=mode) as client:
        seen["revision"] = client.protocol_version
        seen["uris"], cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            seen["uris"] += [str(resource.uri) for resource in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        seen["templates"] = [t.uri_template for t in (await client.list_resource_templates()).resource_templates]
        for uri in visit["reads"]:
            seen["reads"][uri] = [content_summary(content) for content in (await client.read_resource(uri)).contents]
            result = await client.call_tool("read_resource", {"uri": uri})
            seen["tool_reads"][uri] = [block_summary(content) for content in result.content]
        for query in visit["searches"]:
            result = await client.call_tool("search", {"query": query})
            ids = [found["id"] for found in result.structured_content["results"]]
            seen["searches"][query] = {"ids": ids, "blocks": [block_summary(content) for content in result.content]}
    common.report(seen)


asyncio.run(main())
