"""Inspection of a server: its watchers, recent requests, and views as another principal, only for administrators."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET

from wharfinger import Client, Server
from wharfinger.errors import MethodNotFound, PermissionDenied, RemoteError, ResourceNotFound, WharfingerError
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal
from wharfinger.server.server_inspection import MAX_RECENT, ServerInspection
from wharfinger.sources import files
from wharfinger.transports.memory import MemoryTarget
from wharfinger.types import PromptReference

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")
ADMIN = Rule(who="sub:ann", level="admin")
READER = Rule(who="sub:bob", do="read", what="note://public/**")


def make_server(policy: Policy | None = None, **options: str) -> Server:
    server = Server("notes", policy=policy, **options)
    for uri in ("note://public/a", "note://secret/b"):
        server.resources.add(uri, lambda: "text", name=uri)

    @server.tool
    def act() -> str:
        return "done"

    return server


async def test_without_a_policy_the_operator_sees_everything_and_callers_see_nothing() -> None:
    server = make_server()
    unshared, shared = ServerInspection(server), ServerInspection(server, shared=True)
    async with Client(server) as client:
        await client.read_resource("note://public/a")
        async with client.watch("note://secret/b"):
            assert [(row.uri, row.watchers) for row in unshared.watchers(ANONYMOUS)] == [("note://secret/b", 1)]
            assert shared.watchers(BOB) == []
    assert "note://public/a" in [entry.target for entry in unshared.recent(ANONYMOUS)]
    assert shared.recent(BOB) == []
    with pytest.raises(PermissionDenied, match="no policy"):
        unshared.view_as(ANONYMOUS, BOB)


async def test_with_a_policy_only_an_administrator_sees_anything() -> None:
    server = make_server(Policy(allow=[ADMIN, READER]))
    inspection = ServerInspection(server)
    async with Client(MemoryTarget(server, BOB)) as client, client.watch("note://public/a"):
        await client.read_resource("note://public/a")
        assert (inspection.allows(ANN), inspection.allows(BOB), inspection.allows(ANONYMOUS)) == (True, False, False)
        assert [(row.uri, row.principals) for row in inspection.watchers(ANN)] == [("note://public/a", ("bob",))]
        assert inspection.watchers(BOB) == inspection.recent(BOB) == []
    assert ("resources/read", "note://public/a", "bob", "allowed") in [
        (entry.method, entry.target, entry.principal, entry.outcome) for entry in inspection.recent(ANN)
    ]
    with pytest.raises(PermissionDenied):
        inspection.view_as(BOB, ANN)


async def test_a_deny_rule_for_inspect_hides_its_targets() -> None:
    policy = Policy(
        allow=[ADMIN, Rule(who="sub:bob")], deny=[Rule(who="sub:ann", do="inspect", what="note://secret/**")]
    )
    server = make_server(policy)
    inspection = ServerInspection(server)
    async with Client(MemoryTarget(server, BOB)) as client:
        await client.read_resource("note://secret/b")
        await client.read_resource("note://public/a")
    targets = [entry.target for entry in inspection.recent(ANN)]
    assert "note://public/a" in targets and "note://secret/b" not in targets
    async with Client(inspection.view_as(ANN, BOB)) as view:
        assert [resource.uri for resource in await view.list_resources()] == ["note://public/a"]
        with pytest.raises(ResourceNotFound):
            await view.read_resource("note://secret/b")


async def test_a_denied_tool_is_hidden_from_an_administrator() -> None:
    """A bug: for `inspect`, rules that deny a tool or prompt had no effect."""
    server = make_server(Policy(allow=[ADMIN, Rule(who="sub:bob")], deny=[Rule(who="sub:ann", what="tool:act")]))
    inspection = ServerInspection(server)
    async with Client(MemoryTarget(server, BOB)) as client:
        await client.call_tool("act")
        assert "act" not in [entry.target for entry in inspection.recent(ANN)]
    async with Client(inspection.view_as(ANN, BOB)) as view:
        assert [tool.name for tool in await view.list_tools()] == []


async def test_a_folder_in_a_view_hides_files_that_the_viewer_may_not_inspect(tmp_path: Path) -> None:
    """A bug: the list of the folder named them."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("open.md", "secret.md"):
        (folder / name).write_text("x")
    deny = Rule(who="sub:ann", do="inspect", what="file:///docs/secret.md")
    server = Server("s", policy=Policy(allow=[ADMIN, Rule(who="sub:bob")], deny=[deny]))
    server.include(files(folder))
    async with Client(ServerInspection(server).view_as(ANN, BOB)) as view:
        assert "open.md" in (shown := (await view.read_resource("file:///docs/")).text)
        assert "secret" not in shown


async def test_an_administrator_sees_completions_of_prompts() -> None:
    """A bug: the name of the prompt was taken for a URI, so nobody saw the request."""
    server = make_server(Policy(allow=[ADMIN, Rule(who="sub:bob")]))
    server.prompts.add(lambda name: name, name="greet")
    inspection = ServerInspection(server)
    async with Client(MemoryTarget(server, BOB)) as client:
        await client.complete(PromptReference(name="greet"), "name", "a")
    recent = inspection.recent(ANN)
    assert [entry.target for entry in recent if entry.method == "completion/complete"] == ["greet"]


def test_a_view_as_the_local_caller_is_refused() -> None:
    """A bug: the view was that of a signed-in caller with the subject `local`."""
    inspection = ServerInspection(make_server(Policy(allow=[ADMIN, Rule(who="signed-in")])))
    with pytest.raises(PermissionDenied, match="over stdio"):
        inspection.view_as(ANN, LOCAL)


async def test_a_view_shows_the_lists_of_its_principal_and_is_read_only(tmp_path: Path) -> None:
    server = make_server(Policy(allow=[ADMIN, READER]), audit=str(tmp_path / "audit.jsonl"))
    inspection = ServerInspection(server)
    async with Client(inspection.view_as(ANN, BOB)) as view, Client(MemoryTarget(server, BOB)) as client:
        assert await view.list_resources() == await client.list_resources()
        assert await view.list_tools() == await client.list_tools() == []
        assert (await view.read_resource("note://public/a")).text == "text"
        with pytest.raises(ResourceNotFound):
            await view.read_resource("note://secret/b")
        with pytest.raises((MethodNotFound, RemoteError)):
            await view.call_tool("act")
        with pytest.raises(WharfingerError):
            await view.watch("note://public/a").start()
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert sum('"inspector":"ann"' in line and '"subject":"bob"' in line for line in lines) >= 4
    assert sum('"target":"note://public/a"' in line and '"inspector":"ann"' in line for line in lines) == 1


@pytest.mark.parametrize("has_prompts", [False, True])
async def test_a_view_declares_prompts_only_if_the_server_has_any(has_prompts: bool) -> None:
    server = make_server(Policy(allow=[ADMIN, READER]))
    if has_prompts:
        server.prompts.add(lambda: "text", name="greet")
    async with Client(ServerInspection(server).view_as(ANN, BOB)) as view:
        capabilities = view.capabilities
        assert (capabilities.prompts is not UNSET, capabilities.tools is not UNSET) == (has_prompts, True)


async def test_a_view_ends_when_the_policy_no_longer_allows_it() -> None:
    server = make_server(Policy(allow=[ADMIN, READER]))
    inspection = ServerInspection(server)
    async with Client(inspection.view_as(ANN, BOB), cache=False) as view:
        await view.read_resource("note://public/a")
        server.policy = Policy(allow=[READER])
        with pytest.raises(WharfingerError):
            await view.read_resource("note://public/a")


async def test_only_the_latest_requests_are_kept() -> None:
    server = make_server()
    inspection = ServerInspection(server)
    async with Client(server, cache=False) as client:
        for _ in range(MAX_RECENT + 1):
            await client.list_tools()
    recent = inspection.recent(ANONYMOUS)
    assert len(recent) == MAX_RECENT
    assert {entry.method for entry in recent} == {"tools/list"}
