"""The server that receives hostile input, with a feature for each part that processes it."""

from __future__ import annotations

from typing import Annotated, Any

from wharfinger import Complete, Context, Server

server = Server("growth")


def same(value: str) -> list[str]:
    return [value]


@server.tool
def take(values: list[int] | None = None, named: dict[str, int] | None = None, anything: Any = None) -> str:
    return "taken"


@server.tool(
    input_schema={
        "type": "object",
        "properties": {"words": {"type": "array", "items": {"type": "string", "pattern": "^(a|a)*$"}}},
        "additionalProperties": {"type": "integer"},
    }
)
def take_by_schema(**arguments: Any) -> str:
    return "taken"


@server.tool
async def ask(ctx: Context) -> str:
    return str(await ctx.elicit("Which port?", str))


@server.prompt
def plan(route: Annotated[str, Complete(same)] = "", ship: str = "") -> str:
    return "planned"


@server.resource("growth://{first}-{second}-{third}.{last}")
def parts(first: Annotated[str, Complete(same)], second: str, third: str, last: str) -> str:
    return "parts"


@server.resource("words://{a},{b},{c}/{+rest}")
def words(a: str, b: str, c: str, rest: str) -> str:
    return "words"


@server.resource("path://host{/steps*}")
def steps(steps: list[str]) -> str:
    return "steps"


@server.resource("query://host{?first,second}")
def query(first: str = "", second: str = "") -> str:
    return "query"


@server.resource("any://{+rest}")
def anything(rest: str) -> str:
    return "anything"
