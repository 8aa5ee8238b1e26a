"""The client that the official conformance suite runs, written with the public interface only.

The suite runs `python tests/conformance/client.py URL` once for each scenario and names it in the environment; a
scenario is a row of `SCENARIOS`. The suite's server judges what it receives, so nothing is checked here.
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
"""Takes the server's URL and the suite's parameters of the scenario."""


def connect(url: str, **options: Any) -> Client:
    """Return a client with long timeouts: the suite starts all its scenarios at once, on any machine."""
    return Client(url, probe_timeout=30.0, **options)


async def list_tools(url: str, _: dict[str, Any]) -> None:
    """Connect, list the tools, and close."""
    async with connect(url) as client:
        await client.list_tools()


async def declare_all_capabilities(url: str, _: dict[str, Any]) -> None:
    """List the tools as a client with all capabilities."""

    async def answer(params: types.ElicitRequestParams) -> dict[str, Any]:
        return {}

    async def sample(params: types.CreateMessageRequestParams) -> str:
        return "Nothing."

    async with connect(url, elicitation=answer, consent=answer, sampling=sample, roots=["file:///"]) as client:
        await client.list_tools()


async def add_numbers(url: str, _: dict[str, Any]) -> None:
    """Call a tool with two numbers."""
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def accept_defaults(url: str, _: dict[str, Any]) -> None:
    """Accept a form unchanged: the client fills in the form's defaults."""

    async def accept(params: types.ElicitRequestParams) -> dict[str, Any]:
        return {}

    async with connect(url, elicitation=accept) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {})


async def answer_input_requests(url: str, _: dict[str, Any]) -> None:
    """Answer the input requests of several parallel calls."""

    async def yes(params: types.ElicitRequestParams) -> dict[str, Any]:
        return {"confirmed": True}

    async with connect(url, elicitation=yes) as client:
        await asyncio.gather(*[client.call_tool(tool.name, {}) async for tool in client.list_tools()])


async def resume_a_stream(url: str, _: dict[str, Any]) -> None:
    """Make a call whose stream ends early and is resumed after a pause."""
    async with connect(url) as client:
        await client.list_tools()
        await client.call_tool("test_reconnection", {})


async def use_all_features(url: str, _: dict[str, Any]) -> None:
    """List and use all tools, resources and prompts."""
    async with connect(url) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {})
        for resource in await client.list_resources():
            await client.read_resource(resource.uri)
        for prompt in await client.list_prompts():
            await client.get_prompt(prompt.name)


async def make_given_calls(url: str, context: dict[str, Any]) -> None:
    """Make the calls that the suite names."""
    async with connect(url) as client:
        await client.list_tools()
        for call in context["toolCalls"]:
            await client.call_tool(call["name"], call["arguments"])


async def call_listed_tools(url: str, _: dict[str, Any]) -> None:
    """Call each tool that the client lists. It leaves out those that it must not use."""
    async with connect(url) as client:
        for tool in await client.list_tools():
            properties = tool.input_schema.get("properties", {})
            await client.call_tool(tool.name, dict.fromkeys(properties, "value"))


async def echo_the_schema(url: str, _: dict[str, Any]) -> None:
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
"""The client ID metadata document that the suite expects."""


async def consent_at_once(url: str) -> str | None:
    """Act as a user who consents at once. Return the URL of the redirect."""
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
        return response.headers.get("Location")


async def sign_in(url: str, _: dict[str, Any]) -> None:
    """Sign in, list the tools, and call them."""
    await list_and_call(url, SignIn(open_browser=consent_at_once, client_metadata_url=DOCUMENT))


async def sign_in_as_registered(url: str, context: dict[str, Any]) -> None:
    """Sign in as a client that was registered before."""
    identity = {"client_id": context["client_id"], "client_secret": context["client_secret"]}
    await list_and_call(url, SignIn(open_browser=consent_at_once, issuer=context.get("issuer"), **identity))


async def get_token_by_key(url: str, context: dict[str, Any]) -> None:
    """Get a token with a signed JWT."""
    key, algorithm = context["private_key_pem"], context["signing_algorithm"]
    await list_and_call(url, ClientCredentials(context["client_id"], private_key=key, algorithm=algorithm))


async def get_token_by_secret(url: str, context: dict[str, Any]) -> None:
    """Get a token with a client secret."""
    await list_and_call(url, ClientCredentials(context["client_id"], secret=context["client_secret"]))


async def list_and_call(url: str, auth: SignIn | ClientCredentials) -> None:
    """List the tools and call each."""
    async with connect(url, auth=auth) as client:
        for tool in await client.list_tools():
            await client.call_tool(tool.name, {})


SIGN_IN_SCENARIOS = """
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
    **dict.fromkeys(SIGN_IN_SCENARIOS.split(), sign_in),
    "auth/client-credentials-basic": get_token_by_secret,
    "auth/client-credentials-jwt": get_token_by_key,
    "auth/pre-registration": sign_in_as_registered,
    "initialize": list_tools,
    "tools_call": add_numbers,
    "elicitation-sep1034-client-defaults": accept_defaults,
    "sse-retry": resume_a_stream,
    "request-metadata": declare_all_capabilities,
    "sep-2322-client-request-state": answer_input_requests,
    "http-standard-headers": use_all_features,
    "http-custom-headers": make_given_calls,
    "http-invalid-tool-headers": call_listed_tools,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": echo_the_schema,
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
