"""The tools of the servers of the Python SDKs that send progress, logs and input requests."""

from pydantic import BaseModel


class Quay(BaseModel):
    name: str
    depth: int = 4


def add_tools(server, Context, types, warn):
    """Add the tools to a server. `types` has the SDK's types, and `warn(ctx, text)` logs a warning."""

    @server.tool()
    async def sound(ctx: Context) -> Quay:
        for step in (1, 2, 3):
            await ctx.report_progress(step, 3, f"cast {step}")
        await warn(ctx, "shoal ahead")
        return Quay(name="north", depth=7)

    @server.tool()
    async def choose(ctx: Context) -> str:
        answer = await ctx.elicit("Which quay?", Quay)
        return f"{answer.data.name} {answer.data.depth}" if answer.action == "accept" else answer.action

    @server.tool()
    async def advise(ctx: Context) -> str:
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="Where to?"))
        result = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
        return result.content.text

    @server.tool()
    async def charts(ctx: Context) -> str:
        return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)
