"""The client that the official conformance suite runs, written with the public interface only.

The suite runs `python tests/conformance/client.py URL` once for each scenario and names it in the environment; a
scenario is a row of `SCENARIOS`. What each has to show is judged by the suite's server, so nothing is checked here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from wharfinger import Client, types
from wharfinger.auth import ClientCredentials, SignIn
from wharfinger.errors import WharfingerError

__all__ = ["SCENARIOS"]

Scenario = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Takes the server's URL, and what the suite tells of the scenario."""


def connect(url: str, **options: Any) -> Client:
    """Return a client with long timeouts: the suite starts all its scenarios at once, on any machine."""
    return Client(url, probe_timeout=30.0, **options)


async def look_around(url: str, _: dict[str, Any]) -> None:
    """Open, list the tools, and close."""
    async with connect(url) as client:
        await client.list_tools()


async def declare_everything(url: str, _: dict[str, Any]) -> None:
    """List everything, as a client with all capabilities."""

    async def answer(question: types.ElicitRequestParams) -> dict[str, Any]:
        return {}

    async def say(params: types.CreateMessageRequestParams) -> str:
        return "Nothing."

    async with connect(url, elicitation=answer, consent=answer, sampling=say, roots=["file:///"]) as client:
        await client.list_tools()


async def add_numbers(url: str, _: dict[str, Any]) -> None:
    """Call a tool with two numbers."""
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def take_defaults(url: str, _: dict[str, Any]) -> None:
    """Accept a form unchanged: the client fills in the form's defaults."""

    async def accept(question: types.ElicitRequestParams) -> dict[str, Any]:
        return {}

    async with connect(url, elicitation=accept) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {})


async def confirm(url: str, _: dict[str, Any]) -> None:
    """Answer questions that come as results, several calls at once."""

    async def yes(question: types.ElicitRequestParams) -> dict[str, Any]:
        return {"confirmed": True}

    async with connect(url, elicitation=yes) as client:
        await asyncio.gather(*[client.call_tool(tool.name, {}) async for tool in client.list_tools()])


async def reconnect(url: str, _: dict[str, Any]) -> None:
    """Make a call whose stream ends early and is resumed after a pause."""
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("test_reconnection", {})


async def use_everything(url: str, _: dict[str, Any]) -> None:
    """List and use all tools, resources and prompts."""
    async with connect(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {})
        for resource in await client.list_resources():
            await client.read_resource(resource.uri)
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt.name)


async def make_call(url: str, context: dict[str, Any]) -> None:
    """Make the calls that the suite asks for."""
    async with connect(url) as client:
        await client.list_tools()
        for call in context["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def call_what_is_usable(url: str, _: dict[str, Any]) -> None:
    """Call each tool that the client lists; it leaves out those that it must not use."""
    async with connect(url) as client:
        for tool in await client.list_tools():
            properties = tool.input_schema.get("properties", {})
            await client.call_tool(tool.name, dict.fromkeys(properties, "value"))


async def give_back_the_schema(url: str, _: dict[str, Any]) -> None:
    """Send a tool's schema back as it was listed."""
    async with connect(url) as client:
        schemas = {tool.name: tool.input_schema async for tool in client.list_tools()}
        await client.call_tool("json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]})


async def list_skills(url: str, _: dict[str, Any]) -> None:
    """Declare skills, and load none."""
    async with connect(url) as client:
        await client.list_skills()


async def load_skills(url: str, _: dict[str, Any]) -> None:
    """Read every file of every skill, until one differs from its manifest."""
    async with connect(url) as client:
        for skill in await client.list_skills():
            for file in skill.resources:
                await client.read_skill_file(skill, file.uri)


DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client's own document, as the suite expects it."""


async def agree(url: str) -> str | None:
    """Act as a user who agrees at once: the redirect of the browser is the answer."""
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
        return response.headers.get("Location")


async def sign_in(url: str, _: dict[str, Any]) -> None:
    """Sign in, list the tools, and call them."""
    await list_and_call(url, SignIn(open_browser=agree, client_metadata_url=DOCUMENT))


async def sign_in_as_registered(url: str, context: dict[str, Any]) -> None:
    """Sign in as a client that was registered before."""
    identity = {"client_id": context["client_id"], "client_secret": context["client_secret"]}
    await list_and_call(url, SignIn(open_browser=agree, issuer=context.get("issuer"), **identity))


async def get_in_by_key(url: str, context: dict[str, Any]) -> None:
    """Get a token by signing with a private key."""
    key, algorithm = context["private_key_pem"], context["signing_algorithm"]
    await list_and_call(url, ClientCredentials(context["client_id"], private_key=key, algorithm=algorithm))


async def get_in_by_secret(url: str, context: dict[str, Any]) -> None:
    """Get a token with a secret."""
    await list_and_call(url, ClientCredentials(context["client_id"], secret=context["client_secret"]))


async def list_and_call(url: str, auth: SignIn | ClientCredentials) -> None:
    """List the tools and call each."""
    async with connect(url, auth=auth) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {})


SIGNING_IN = """
auth/2025-03-26-oauth-endpoint-fallback auth/2025-03-26-oauth-metadata-backcompat
auth/authorization-server-migration auth/basic-cimd auth/iss-normalized auth/iss-not-advertised auth/iss-supported
auth/iss-supported-missing auth/iss-unexpected auth/iss-wrong-issuer auth/metadata-default
auth/metadata-issuer-mismatch auth/metadata-var1 auth/metadata-var2 auth/metadata-var3
auth/offline-access-not-supported auth/offline-access-scope auth/resource-mismatch
auth/scope-from-scopes-supported auth/scope-from-www-authenticate auth/scope-omitted-when-undefined
auth/scope-retry-limit auth/scope-step-up auth/token-endpoint-auth-basic auth/token-endpoint-auth-none
auth/token-endpoint-auth-post
"""

SCENARIOS: dict[str, Scenario] = {
    **dict.fromkeys(SIGNING_IN.split(), sign_in),
    "auth/client-credentials-basic": get_in_by_secret,
    "auth/client-credentials-jwt": get_in_by_key,
    "auth/pre-registration": sign_in_as_registered,
    "initialize": look_around,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": take_defaults,
    "sse-retry": reconnect,
    "request-metadata": declare_everything,
    "sep-2322-client-request-state": confirm,
    "http-standard-headers": use_everything,
    "http-custom-headers": make_call,
    "http-invalid-tool-headers": call_what_is_usable,
    "json-schema-ref-no-deref": look_around,
    "json-schema-2020-12-preservation": give_back_the_schema,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": load_skills,
    "sep-2640-client-verify-size": load_skills,
    "sep-2640-client-verify-frontmatter": load_skills,
}


def main() -> int:
    """Run the scenario that the environment names. An error of the library is printed as one line."""
    scenario = SCENARIOS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    try:
        asyncio.run(scenario(sys.argv[1], context))
    except WharfingerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
