"""Tests of the requirements 2.11 to 2.18 that have no other test."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.server import make_server
from tests.server.driving import Wire, ask, list_all
from tests.transports.http_support import ServerThread, call_tool
from wharfinger import Context, Server
from wharfinger.protocol.request import META_PREFIX
from wharfinger.sources import files


async def test_a_resource_may_request_input() -> None:
    """Requirements 2.11-25 and 2.13-7."""
    server = Server("s", ttl=60, cache_scope="public")

    @server.resource("test://asks")
    async def asks(ctx: Context) -> str:
        return f"for {await ctx.elicit('Who?', str)}"

    params = {"uri": "test://asks", "_meta": {f"{META_PREFIX}clientCapabilities": {"elicitation": {}}}}
    async with Wire(server) as wire:
        first = (await wire.ask("resources/read", params))["result"]
        assert first["resultType"] == "input_required"
        assert not {"ttlMs", "cacheScope", "contents"} & first.keys()
        ((key, input_request),) = first["inputRequests"].items()
        (field,) = input_request["params"]["requestedSchema"]["properties"]
        answers = {key: {"action": "accept", "content": {field: "Mary"}}}
        retry = {"inputResponses": answers, "requestState": first["requestState"]}
        result = (await wire.ask("resources/read", params | retry))["result"]
    assert result["contents"][0]["text"] == "for Mary"
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


def test_progress_and_logs_are_not_sent_on_a_listen_stream() -> None:
    """Requirements 2.12-4 and 2.17-15."""
    with ServerThread(make_server()) as http, http.connect() as listener, http.connect() as caller:  # type: ignore[arg-type]
        listener.send_stateless("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        listener.head()
        assert listener.event()["method"] == "notifications/subscriptions/acknowledged"
        meta = {"progressToken": 1, f"{META_PREFIX}logLevel": "debug"}
        for name, notification in (("test_tool_with_progress", "progress"), ("test_tool_with_logging", "message")):
            *before, _ = call_tool(caller, name, **meta).events
            assert [event["method"] for event in before] == [f"notifications/{notification}"] * 3
        call_tool(caller, "test_trigger_tool_change")
        assert listener.event()["method"] == "notifications/tools/list_changed"


async def test_all_pages_of_a_list_have_the_same_cache_scope() -> None:
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


async def test_results_are_private_by_default() -> None:
    """Requirement 2.13-5."""
    server = make_server()
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "server/discover"):
        assert (await ask(server, method))["result"]["cacheScope"] == "private"
    assert (await ask(server, "resources/read", {"uri": "test://static-text"}))["result"]["cacheScope"] == "private"


async def test_completion_reveals_no_unpublished_file(tmp_path: Path) -> None:
    """Requirement 2.16-10."""
    for name in ("chart.txt", ".env", "draft.txt", ".gitignore"):
        (tmp_path / name).write_text("draft.txt\n")
    server = Server("s")
    server.include(files(tmp_path))
    await server.start()
    values: list[str] = []
    for template in await list_all(server, "resources/templates/list"):
        argument = {"name": "path", "value": ""}
        ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
        answer = await ask(server, "completion/complete", {"ref": ref, "argument": argument})
        values += answer["result"]["completion"]["values"]
    assert set(values) == {"chart.txt"}
    await server.close()


async def test_a_listen_that_the_server_ends_is_cancelled_and_then_answered() -> None:
    """Requirements 2.12-8 and 2.23-1."""
    server = make_server()
    async with Wire(server) as wire:
        id = await wire.watch("test://watched-resource")
        server.drain()
        answer = await wire.answer(id)
        assert answer["result"]["_meta"][f"{META_PREFIX}subscriptionId"] == id
        lines = [json.loads(line) for line in b"".join(wire.chunks).splitlines()]
        (cancelled,) = [line for line in lines if line.get("method") == "notifications/cancelled"]
        assert cancelled["params"]["requestId"] == id
        assert lines.index(cancelled) < lines.index(answer)


async def test_every_list_has_the_caching_hints_of_the_server() -> None:
    """Requirement 2.13-1."""
    server = Server("s", ttl=60, cache_scope="public")
    server.tools.add(lambda: "", name="t")
    server.prompts.add(lambda: "", name="p")
    server.resources.add("test://r", lambda: "", name="r")
    for name in ("tools", "prompts", "resources", "resources/templates"):
        result = (await ask(server, f"{name}/list"))["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
