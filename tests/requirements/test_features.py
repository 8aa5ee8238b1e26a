"""Requirements of 2.11 to 2.18 that no other test covers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.server import make_server
from tests.server.driving import Wire, ask, listed, looped
from tests.transports.http_support import ServerThread, call_tool
from wharfinger import Context, Server
from wharfinger.protocol.request import META_PREFIX as RESERVED
from wharfinger.sources import files


@looped
async def test_a_resource_may_request_input() -> None:
    """Requirements 2.11-25 and 2.13-7."""
    server = Server("s", ttl=60, cache_scope="public")

    @server.resource("test://asks")
    async def asks(ctx: Context) -> str:
        return f"for {await ctx.elicit('Who?', str)}"

    params = {"uri": "test://asks", "_meta": {f"{RESERVED}clientCapabilities": {"elicitation": {}}}}
    async with Wire(server) as wire:
        first = (await wire.ask("resources/read", params))["result"]
        assert first["resultType"] == "input_required"
        assert not {"ttlMs", "cacheScope", "contents"} & first.keys()
        ((key, question),) = first["inputRequests"].items()
        (field,) = question["params"]["requestedSchema"]["properties"]
        answers = {key: {"action": "accept", "content": {field: "Mary"}}}
        again = {"inputResponses": answers, "requestState": first["requestState"]}
        result = (await wire.ask("resources/read", params | again))["result"]
    assert result["contents"][0]["text"] == "for Mary"
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


def test_progress_and_logs_are_not_sent_on_a_listen_stream() -> None:
    """Requirements 2.12-4 and 2.17-15."""
    with ServerThread(make_server()) as http, http.wire() as listener, http.wire() as caller:  # type: ignore[arg-type]
        listener.stateless("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        listener.head()
        assert listener.event()["method"] == "notifications/subscriptions/acknowledged"
        meta = {"progressToken": 1, f"{RESERVED}logLevel": "debug"}
        for name, reported in (("test_tool_with_progress", "progress"), ("test_tool_with_logging", "message")):
            *before, _ = call_tool(caller, name, **meta).events
            assert [event["method"] for event in before] == [f"notifications/{reported}"] * 3
        call_tool(caller, "test_trigger_tool_change")
        assert listener.event()["method"] == "notifications/tools/list_changed"


@looped
async def test_all_pages_of_a_list_have_one_scope() -> None:
    """Requirement 2.13-4."""
    server = Server("s", page_size=2, cache_scope="public", ttl=1)
    for number in range(5):
        server.resources.add(
            f"test://{number}", lambda: "", name="r", cache_scope="private" if number % 2 else "public"
        )
    scopes: list[str] = []
    params: dict[str, str] = {}
    while True:
        page = (await ask(server, "resources/list", params))["result"]
        scopes.append(page["cacheScope"])
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert len(scopes) == 3
    assert len(set(scopes)) == 1


@looped
async def test_results_are_private_by_default() -> None:
    """Requirement 2.13-5."""
    server = make_server()
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"):
        assert (await ask(server, method))["result"]["cacheScope"] == "private"
    assert (await ask(server, "resources/read", {"uri": "test://static-text"}))["result"]["cacheScope"] == "private"


@looped
async def test_completion_reveals_no_unpublished_file(tmp_path: Path) -> None:
    """Requirement 2.16-10."""
    for name in ("chart.txt", ".env", "draft.txt", ".gitignore"):
        (tmp_path / name).write_text("draft.txt\n")
    server = Server("s")
    server.include(files(tmp_path))
    await server.start()
    completed: list[str] = []
    for template in await listed(server, "resources/templates/list"):
        argument = {"name": "path", "value": ""}
        ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
        answer = await ask(server, "completion/complete", {"ref": ref, "argument": argument})
        completed += answer["result"]["completion"]["values"]
    assert set(completed) == {"chart.txt"}
    await server.close()


@looped
async def test_a_listen_that_the_server_ends_is_cancelled_and_then_answered() -> None:
    """Requirements 2.12-8 and 2.23-1."""
    server = make_server()
    async with Wire(server) as wire:
        id = await wire.watch("test://watched-resource")
        server.drain()
        answer = await wire.answer(id)
        assert answer["result"]["_meta"][f"{RESERVED}subscriptionId"] == id
        lines = [json.loads(line) for line in b"".join(wire.chunks).splitlines()]
        (cancelled,) = [line for line in lines if line.get("method") == "notifications/cancelled"]
        assert cancelled["params"]["requestId"] == id
        assert lines.index(cancelled) < lines.index(answer)


@looped
async def test_every_list_has_the_servers_hints() -> None:
    """Requirement 2.13-1."""
    server = Server("s", ttl=60, cache_scope="public")
    server.tools.add(lambda: "", name="t")
    server.prompts.add(lambda: "", name="p")
    server.resources.add("test://r", lambda: "", name="r")
    for name in ("tools", "prompts", "resources", "resources/templates"):
        result = (await ask(server, f"{name}/list"))["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
