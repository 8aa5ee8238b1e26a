"""The calls that each Python peer's client makes to the feature server (tests/interop/feature_server.py).

Each `…_tour.py` has a `ClientAdapter`, which makes the calls with its own library.

Results are reported as JSON with the names of the protocol. The message of an input request decides its answer.
"""

import asyncio

ROOTS = [("file:///home/mary/charts", "charts"), ("file:///home/mary/logs", "logs")]
REPLY = "Berth at the south quay."


def as_json(result):
    """Return a model of the SDK as JSON with the names of the protocol."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def answer_form(message):
    """Return `(action, content)` for a form. Its message decides the action."""
    if message.startswith("Decline"):
        return "decline", None
    if message.startswith("Cancel"):
        return "cancel", None
    return "accept", {"quay": "south", "hours": 3}


class ClientAdapter:
    """The calls of a client, for subclasses to implement."""

    def __init__(self):
        self.logs, self.input_requests = [], []

    async def call(self, name, arguments, on_progress=None):
        """Return the result of `tools/call` as JSON, after the SDK has checked it with the tool's output schema."""
        raise NotImplementedError

    async def cancelled_call(self, name, arguments, started):
        """Call a tool whose first progress sets `started`, then cancel it."""

        async def on_progress(done, total=None, message=None):
            started.set()

        task = asyncio.create_task(self.call(name, arguments, on_progress))
        await asyncio.wait_for(started.wait(), 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def tour(adapter, visit, seen):
    """Use every feature of the server that `visit` names."""
    seen["schemas"] = {
        tool["name"]: tool.get("outputSchema")
        for tool in [as_json(tool) for tool in (await adapter.list_tools()).tools]
    }
    for name, arguments in visit["calls"]:
        seen.setdefault("results", []).append(await adapter.call(name, arguments))

    progress = []

    async def on_progress(done, total=None, message=None):
        progress.append([done, total, message])

    await adapter.set_level("info")
    seen["loaded"] = await adapter.call("load", {"steps": 3}, on_progress)
    seen["progress"], seen["logs"] = progress, adapter.logs

    seen["prompts"] = [as_json(prompt) for prompt in (await adapter.list_prompts()).prompts]
    seen["prompt"] = as_json(await adapter.get_prompt("briefing", {"ship": "amber", "line": "7"}))
    seen["completion"] = await adapter.complete("briefing", "ship", "a")

    await adapter.cancelled_call("wait", {"tag": visit["tag"]}, asyncio.Event())
    seen["stopped"] = await adapter.call("was_stopped", {"tag": visit["tag"]})

    seen["answers"] = [await adapter.call(name, arguments) for name, arguments in visit["calls_with_input"]]
    seen["input_requests"] = adapter.input_requests
    seen["ended"] = True
