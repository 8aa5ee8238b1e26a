"""A client of FastMCP 4.x that uses the skills extension: it lists skills, gets one, reads it and hashes its text."""

import asyncio
import hashlib

import client_tour
import common
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension


async def main():
    visit = common.read_input()
    command = visit.get("command")
    server = StdioTransport(command[0], command[1:]) if command else visit["url"]
    async with Client(server, extensions=[SkillsClientExtension()]) as client:
        skills = await client.list_skills()
        seen = {"revision": client.protocol_version, "skills": [client_tour.as_json(skill) for skill in skills]}
        seen["skill"] = client_tour.as_json(await client.get_skill_mcp(seen["skills"][0]["uri"]))
        (text,) = await client.read_resource(seen["skills"][0]["uri"])
        seen["text"], seen["digest"] = text.text, hashlib.sha256(text.text.encode()).hexdigest()
    common.report(seen)


asyncio.run(main())
