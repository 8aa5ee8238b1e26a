"""The calls that each Python peer's client makes to the feature server (tests/interop/feature_server.py).

Each `…_tour.py` has a `Way`, which makes the calls with its own library.

A result is seen as JSON, as the protocol writes it. What a client is asked, it answers by the words of the question.
"""

import asyncio

ROOTS = [("file:///home/mary/charts", "charts"), ("file:///home/mary/logs", "logs")]
REPLY = "Berth at the south quay."


def wire(result):
    """A model of the SDK's as JSON, as it came over the wire."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def form(message):
    """`(action, content)` for a form; the message says what to do."""
    if message.startswith("Decline"):
        return "decline", None
    if message.startswith("Cancel"):
        return "cancel", None
    return "accept", {"quay": "south", "hours": 3}


class Way:
    """How a client does each thing; subclasses fill it in."""

    def __init__(self):
        self.logs, self.asked = [], []

    async def call(self, name, arguments, on_progress=None):
        """The result of `tools/call` as JSON; the SDK has checked it against the tool's output schema."""
        raise NotImplementedError

    async def cancelled_call(self, name, arguments, begun):
        """Call a tool whose first progress sets `begun`, then cancel it."""

        async def on_progress(done, total=None, message=None):
            begun.set()

        calling = asyncio.create_task(self.call(name, arguments, on_progress))
        await asyncio.wait_for(begun.wait(), 5)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)


async def tour(way, visit, seen):
    """Use every feature of the server that `visit` names."""
    seen["schemas"] = {
        tool["name"]: tool.get("outputSchema") for tool in [wire(tool) for tool in (await way.list_tools()).tools]
    }
    for name, arguments in visit["calls"]:
        seen.setdefault("results", []).append(await way.call(name, arguments))

    progress = []

    async def on_progress(done, total=None, message=None):
        progress.append([done, total, message])

    await way.set_level("info")
    seen["loaded"] = await way.call("load", {"steps": 3}, on_progress)
    seen["progress"], seen["logs"] = progress, way.logs

    seen["prompts"] = [wire(prompt) for prompt in (await way.list_prompts()).prompts]
    seen["prompt"] = wire(await way.get_prompt("briefing", {"ship": "amber", "line": "7"}))
    seen["completion"] = await way.complete("briefing", "ship", "a")

    await way.cancelled_call("wait", {"tag": visit["tag"]}, asyncio.Event())
    seen["stopped"] = await way.call("was_stopped", {"tag": visit["tag"]})

    seen["answers"] = [await way.call(name, arguments) for name, arguments in visit["questions"]]
    seen["asked"] = way.asked
    seen["ended"] = True
