"""Cursors, sessions, states, tasks, events and notifications of one principal are useless or invisible to another."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.security.leaks.callers import HttpCaller, StreamCaller, http_app
from tests.security.leaks.world import word
from tests.server.driving import ERAS, META, STATELESS
from tests.waiting import wait_until_async
from wharfinger import Context, Server
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import Principal
from wharfinger.sources import files, resource_tools

PRINCIPALS = {name: Principal(subject=name) for name in ("ann", "bob")}
HIDDEN, SHOWN = word("hidden"), word("shown")
ALL_OF = ("**", "tool:*", "prompt:*")
POLICY = Policy(
    allow=[Rule(who="signed-in", what=ALL_OF)],
    deny=[
        Rule(
            who="sub:bob",
            what=(f"file:///lab/{HIDDEN}/**", f"tool:{HIDDEN}*", f"prompt:{HIDDEN}", f"note://{HIDDEN}/**"),
        )
    ],
)


def result(answer: bytes) -> Any:
    """Return the result or error of an answer over HTTP or a stream."""
    body = json.loads(answer[answer.index(b"{") :])
    return body.get("result", body.get("error"))


def lab(root: Path) -> Server:
    """Return a server of a folder with a hidden and a visible directory, and with tools and notes of both kinds."""
    for name in (HIDDEN, SHOWN):
        (root / name).mkdir(parents=True)
        for number in range(4):
            (root / name / f"{number}.md").write_text(f"harbour {name}")
    server = Server("lab", page_size=2, secret="x" * 32)
    server.include(files(root, label="lab"))
    server.include(resource_tools())
    for number in range(4):
        for name in (HIDDEN, SHOWN):
            server.resources.add(f"note://{name}/{number}", lambda: "text")
            server.tools.add(lambda: "text", name=f"{name}{number}", description="A tool.")
            server.prompts.add(lambda: "text", name=name if not number else f"{name}{number}")
    server.policy = POLICY
    return server


LISTS = ["tools/list", "prompts/list", "resources/list"]


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("revision", ERAS)
async def test_cursor_of_another_principal_or_policy_is_refused_like_a_forged_one(
    method: str, revision: str, tmp_path: Path
) -> None:
    server = lab(tmp_path.resolve())
    app = http_app(server, PRINCIPALS)
    async with HttpCaller(app, "ann", revision) as ann, HttpCaller(app, "bob", revision) as bob:
        cursor = result(await ann.ask(method))["nextCursor"]
        assert HIDDEN.encode() not in cursor.encode()
        assert "nextCursor" in result(await ann.ask(method, {"cursor": cursor}))
        refused = await bob.ask(method, {"cursor": cursor})
        assert refused == await bob.ask(method, {"cursor": "made up"})
        assert result(refused)["code"] == -32602
        for other in LISTS:
            if other != method:
                assert result(await ann.ask(other, {"cursor": cursor}))["code"] == -32602
        server.policy = Policy(allow=[Rule(who="signed-in", what=(*ALL_OF, "note://other"))])
        assert result(await ann.ask(method, {"cursor": cursor}))["code"] == -32602
        assert "nextCursor" in result(await ann.ask(method))
    await server.close()


@pytest.mark.parametrize("revision", ERAS)
async def test_cursor_of_the_list_tool_is_valid_for_its_caller_only(revision: str, tmp_path: Path) -> None:
    server = lab(tmp_path.resolve())
    app = http_app(server, PRINCIPALS)
    async with HttpCaller(app, "ann", revision) as ann, HttpCaller(app, "bob", revision) as bob:
        call = {"name": "list_resources", "arguments": {}}
        page = json.loads(result(await ann.ask("tools/call", call))["content"][0]["text"])
        next_page_call = {"name": "list_resources", "arguments": {"cursor": page["nextCursor"]}}
        assert not result(await ann.ask("tools/call", next_page_call)).get("isError")
        answer = await bob.ask("tools/call", next_page_call)
        assert HIDDEN.encode() not in answer
        assert result(answer).get("isError") or "code" in result(answer)
    await server.close()


async def test_cursors_of_hidden_and_visible_resources_have_equal_length(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / ("a" * (number + 1))).write_text("x")
    server = Server("lab", page_size=1, secret="x" * 32)
    server.include(files(tmp_path.resolve(), label="lab"))
    server.policy = Policy(allow=[Rule(who="anyone")])
    lengths: set[int] = set()
    async with HttpCaller(http_app(server, PRINCIPALS), "ann", STATELESS) as ann:
        cursor = None
        for _ in range(7):
            cursor = result(await ann.ask("resources/list", {"cursor": cursor} if cursor else {}))["nextCursor"]
            lengths.add(len(cursor))
    assert len(lengths) == 1
    await server.close()


async def test_session_of_another_principal_is_not_found(tmp_path: Path) -> None:
    server = lab(tmp_path.resolve())
    app = http_app(server, PRINCIPALS)
    async with HttpCaller(app, "ann", "2025-11-25") as ann, HttpCaller(app, "bob", "2025-11-25") as bob:
        own = bob.session
        bob.session = ann.session
        stolen = await bob.ask("tools/list")
        bob.session = b"0" * len(own)
        assert stolen.split(b"\n")[0][:3] == b"404"
        assert stolen == await bob.ask("tools/list")
        bob.session = own
        assert result(await bob.ask("tools/list"))["tools"]
    await server.close()


@pytest.mark.parametrize("change", ["other principal", "other policy", "none"])
async def test_request_state_is_valid_for_its_caller_and_policy_only(change: str) -> None:
    server = Server("asks", secret="x" * 32)

    @server.tool
    async def deploy(ctx: Context) -> str:
        return f"deployed to {await ctx.elicit('Where?', str)}"

    server.policy = POLICY
    app = http_app(server, PRINCIPALS)
    capabilities = {"_meta": {f"{META}clientCapabilities": {"elicitation": {"form": {}}}}}
    async with HttpCaller(app, "ann", STATELESS) as ann, HttpCaller(app, "bob", STATELESS) as bob:
        input_required = result(await ann.ask("tools/call", {"name": "deploy", "arguments": {}, **capabilities}))
        assert input_required["resultType"] == "input_required", input_required
        (name,) = input_required["inputRequests"]
        schema = input_required["inputRequests"][name]["params"]["requestedSchema"]["properties"]
        input_response = {"action": "accept", "content": dict.fromkeys(schema, "Pier 7")}
        retry = {
            "name": "deploy",
            "arguments": {},
            "requestState": input_required["requestState"],
            "inputResponses": {name: input_response},
        }
        if change == "other policy":
            server.policy = Policy(allow=[Rule(who="signed-in", what=(*ALL_OF, "note://other"))])
        caller = bob if change == "other principal" else ann
        answer = result(await caller.ask("tools/call", {**retry, **capabilities}))
        if change == "none":
            assert answer["content"][0]["text"] == "deployed to Pier 7"
        else:
            assert answer["code"] == -32602
            assert "Pier" not in json.dumps(answer)
    await server.close()


async def test_task_of_another_principal_is_refused_like_an_unknown_one() -> None:
    server = Server("slow", secret="x" * 32)

    @server.tool(task=True)
    async def slow() -> str:
        return HIDDEN

    server.policy = POLICY
    app = http_app(server, PRINCIPALS)
    capabilities = {"_meta": {f"{META}clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}}
    async with HttpCaller(app, "ann", STATELESS) as ann, HttpCaller(app, "bob", STATELESS) as bob:
        task = result(await ann.ask("tools/call", {"name": "slow", "arguments": {}, **capabilities}))["taskId"]
        assert result(await ann.ask("tasks/get", {"taskId": task, **capabilities}))["taskId"] == task
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            params = {"inputResponses": {}} if method == "tasks/update" else {}
            other = await bob.ask(method, {"taskId": task, **params, **capabilities})
            missing = await bob.ask(method, {"taskId": "0" * len(task), **params, **capabilities})
            assert other.replace(task.encode(), b"ID") == missing.replace(b"0" * len(task), b"ID"), method
            assert "code" in result(other)
            assert HIDDEN.encode() not in other
        server.policy = Policy(allow=[Rule(who="signed-in", what="**")])  # the tool is hidden from all callers now
        after = await ann.ask("tasks/get", {"taskId": task, **capabilities})
        assert HIDDEN.encode() not in after
    await server.close()


# -- notifications


async def watch(caller: HttpCaller | StreamCaller, uris: list[str]) -> None:
    """Watch every list and these URIs with the methods of the era."""
    if caller.revision == STATELESS:
        lists = {f"{name}ListChanged": True for name in ("resources", "tools", "prompts")}
        caller.listen({"notifications": {**lists, "resourceSubscriptions": uris}})
        await wait_until_received(caller, b"acknowledged")
    else:
        if isinstance(caller, HttpCaller):
            caller.open_stream()
        for uri in uris:
            await caller.ask("resources/subscribe", {"uri": uri})


async def wait_until_received(caller: HttpCaller | StreamCaller, text: bytes, times: int = 1) -> None:
    """Wait until a text has been received this many times."""
    await wait_until_async(lambda: caller.received.count(text) >= times, f"{text!r} is received {times} times")


@pytest.mark.parametrize("transport", ["http", "stream"])
@pytest.mark.parametrize("revision", ERAS)
async def test_notifications_reach_only_callers_who_may_see_the_change(
    revision: str, transport: str, tmp_path: Path
) -> None:
    server = lab(tmp_path.resolve())
    await server.start()
    app = http_app(server, PRINCIPALS)

    def caller(name: str) -> HttpCaller | StreamCaller:
        return (
            HttpCaller(app, name, revision) if transport == "http" else StreamCaller(server, PRINCIPALS[name], revision)
        )

    async with caller("ann") as ann, caller("bob") as bob:
        hidden, shown = f"file:///lab/{HIDDEN}/1.md", f"file:///lab/{SHOWN}/1.md"
        uris = [hidden, shown, "file:///lab", f"file:///lab/{HIDDEN}", f"note://{HIDDEN}/1", f"note://{SHOWN}/1"]
        await asyncio.gather(watch(ann, uris), watch(bob, uris))
        start = len(bob.received)
        assert HIDDEN.encode() not in bob.received[bob.received.find(b"acknowledged") :] or revision != STATELESS

        (tmp_path / HIDDEN / "1.md").write_text("changed")  # hidden from bob
        (tmp_path / HIDDEN / "new.md").write_text("new")
        server.resource_updated(f"note://{HIDDEN}/1")
        server.tools.add(lambda: "text", name=f"{HIDDEN}9", description="A tool.")
        server.tools.remove(f"{HIDDEN}0")
        await wait_until_received(ann, hidden.encode(), 2 if revision == STATELESS else 1)
        await wait_until_received(ann, b"notifications/tools/list_changed")
        await wait_until_received(ann, b"notifications/resources/list_changed")
        await asyncio.sleep(0.3)
        assert HIDDEN.encode() not in bob.received[start:]
        assert b"list_changed" not in bob.received[start:]
        assert b"resources/updated" not in bob.received[start:]

        (tmp_path / SHOWN / "1.md").write_text("changed")  # visible to both
        (tmp_path / SHOWN / "new.md").write_text("new")
        server.tools.add(lambda: "text", name=f"{SHOWN}9", description="A tool.")
        for listener in (ann, bob):
            await wait_until_received(listener, b"notifications/tools/list_changed")
            await wait_until_received(listener, b"notifications/resources/list_changed")
            await wait_until_received(listener, b"notifications/resources/updated")
        await wait_until_received(bob, shown.encode())
        assert HIDDEN.encode() not in bob.received[start:]

        before = len(bob.received)
        server.policy = Policy(allow=[Rule(who="sub:ann", what=ALL_OF), Rule(who="sub:bob", what="tool:*")])
        (tmp_path / SHOWN / "1.md").write_text("changed once more")  # now hidden from bob
        server.resource_updated(f"note://{SHOWN}/1")
        await wait_until_received(ann, f"note://{SHOWN}/1".encode())
        await asyncio.sleep(0.3)
        assert b"resources/updated" not in bob.received[before:]
    await server.close()


async def test_events_of_another_session_are_not_replayed(tmp_path: Path) -> None:
    server = lab(tmp_path.resolve())
    await server.start()
    app = http_app(server, PRINCIPALS)
    async with HttpCaller(app, "ann", "2025-11-25") as ann, HttpCaller(app, "bob", "2025-11-25") as bob:
        await watch(ann, [f"note://{HIDDEN}/1"])
        server.resource_updated(f"note://{HIDDEN}/1")
        await wait_until_received(ann, f"note://{HIDDEN}/1".encode())
        ids = [line[3:].strip() for line in ann.received.split(b"\n") if line.startswith(b"id:")]
        assert ids
        await bob.ask("resources/subscribe", {"uri": f"note://{SHOWN}/1"})
        bob.open_stream(ids[0].decode())
        server.resource_updated(f"note://{SHOWN}/1")
        await wait_until_received(bob, f"note://{SHOWN}/1".encode())  # it comes after all replayed events
        assert HIDDEN.encode() not in bob.received
    await server.close()
