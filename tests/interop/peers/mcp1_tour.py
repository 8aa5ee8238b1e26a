"""A client of the official Python SDK 1.x that makes the calls of client_tour.py."""

import asyncio
import sys

import client_tour
import common
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl


class ClientAdapter(client_tour.ClientAdapter):
    session: ClientSession

    async def call(self, name, arguments, on_progress=None):
        return client_tour.as_json(await self.session.call_tool(name, arguments, progress_callback=on_progress))

    async def cancelled_call(self, name, arguments, started):
        # This SDK cannot cancel a call: its users send the notification.
        number = self.session._request_id

        async def on_progress(done, total=None, message=None):
            started.set()

        task = asyncio.create_task(self.call(name, arguments, on_progress))
        await asyncio.wait_for(started.wait(), 30)
        params = types.CancelledNotificationParams(requestId=number, reason="no longer wanted")
        await self.session.send_notification(
            types.ClientNotification(types.CancelledNotification(method="notifications/cancelled", params=params))
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def set_level(self, level):
        await self.session.set_logging_level(level)

    async def list_tools(self):
        return await self.session.list_tools()

    async def list_prompts(self):
        return await self.session.list_prompts()

    async def get_prompt(self, name, arguments):
        return await self.session.get_prompt(name, arguments)

    async def complete(self, prompt, name, value):
        ref = types.PromptReference(type="ref/prompt", name=prompt)
        return (await self.session.complete(ref, {"name": name, "value": value})).completion.values

    async def log(self, params):
        self.logs.append([params.level, params.logger, params.data])

    async def elicit(self, context, params):
        self.input_requests.append(client_tour.as_json(params))
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="accept")
        action, content = client_tour.answer_form(params.message)
        return types.ElicitResult(action=action, content=content)

    async def sample(self, context, params):
        self.input_requests.append(client_tour.as_json(params))
        text = types.TextContent(type="text", text=client_tour.REPLY)
        return types.CreateMessageResult(role="assistant", model="parrot-1", content=text, stopReason="endTurn")

    async def roots(self, context):
        self.input_requests.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(uri), name=name) for uri, name in client_tour.ROOTS])


async def main():
    visit, seen, adapter = common.read_input(), {}, ClientAdapter()
    types.LATEST_PROTOCOL_VERSION = visit["revision"]  # this SDK has no setting for the requested revision
    if command := visit.get("command"):
        transport = stdio_client(StdioServerParameters(command=command[0], args=command[1:]), sys.stderr)
    elif visit.get("sse"):
        transport = sse_client(visit["sse"])
    else:
        transport = streamable_http_client(visit["url"])
    async with (
        transport as streams,
        ClientSession(
            streams[0],
            streams[1],
            logging_callback=adapter.log,
            elicitation_callback=adapter.elicit,
            sampling_callback=adapter.sample,
            list_roots_callback=adapter.roots,
        ) as adapter.session,
    ):
        seen["revision"] = (await adapter.session.initialize()).protocolVersion
        await client_tour.tour(adapter, visit, seen)
    common.report(seen)


asyncio.run(main())
