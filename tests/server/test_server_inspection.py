"""Inspection of a server: its watchers, recent requests, and views as another principal, only for administrators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.driving import looped
from wharfinger import Client, Server
from wharfinger.errors import MethodNotFound, PermissionDenied, RemoteError, ResourceNotFound, WharfingerError
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import ANONYMOUS, Principal
from wharfinger.server.server_inspection import MAX_RECENT, ServerInspection
from wharfinger.transports.memory import MemoryTarget

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


@looped
async def test_without_a_policy_the_operator_sees_everything_and_callers_see_nothing() -> None:
    server = make_server()
    alone, shared = ServerInspection(server), ServerInspection(server, shared=True)
    async with Client(server) as client:
        await client.read_resource("note://public/a")
        async with client.watch("note://secret/b"):
            assert [(one.uri, one.watchers) for one in alone.watchers(ANONYMOUS)] == [("note://secret/b", 1)]
            assert shared.watchers(BOB) == []
    assert "note://public/a" in [one.target for one in alone.recent(ANONYMOUS)]
    assert shared.recent(BOB) == []
    with pytest.raises(PermissionDenied, match="no policy"):
        alone.view_as(ANONYMOUS, BOB)


@looped
async def test_with_a_policy_only_an_administrator_sees_anything() -> None:
    server = make_server(Policy(allow=[ADMIN, READER]))
    inspection = ServerInspection(server)
    async with Client(MemoryTarget(server, BOB)) as client, client.watch("note://public/a"):
        await client.read_resource("note://public/a")
        assert (inspection.allows(ANN), inspection.allows(BOB), inspection.allows(ANONYMOUS)) == (True, False, False)
        assert [(one.uri, one.principals) for one in inspection.watchers(ANN)] == [("note://public/a", ("bob",))]
        assert inspection.watchers(BOB) == inspection.recent(BOB) == []
    assert ("resources/read", "note://public/a", "bob", "allowed") in [
        (one.method, one.target, one.principal, one.outcome) for one in inspection.recent(ANN)
    ]
    with pytest.raises(PermissionDenied):
        inspection.view_as(BOB, ANN)


@looped
async def test_a_denial_of_inspect_hides_its_targets() -> None:
    policy = Policy(
        allow=[ADMIN, Rule(who="sub:bob")], deny=[Rule(who="sub:ann", do="inspect", what="note://secret/**")]
    )
    server = make_server(policy)
    inspection = ServerInspection(server)
    async with Client(MemoryTarget(server, BOB)) as client:
        await client.read_resource("note://secret/b")
        await client.read_resource("note://public/a")
    targets = [one.target for one in inspection.recent(ANN)]
    assert "note://public/a" in targets and "note://secret/b" not in targets
    async with Client(inspection.view_as(ANN, BOB)) as view:
        assert [one.uri for one in await view.list_resources()] == ["note://public/a"]
        with pytest.raises(ResourceNotFound):
            await view.read_resource("note://secret/b")


@looped
async def test_a_view_lists_what_the_principal_lists_and_only_reads(tmp_path: Path) -> None:
    server = make_server(Policy(allow=[ADMIN, READER]), audit=str(tmp_path / "audit.jsonl"))
    inspection = ServerInspection(server)
    async with Client(inspection.view_as(ANN, BOB)) as view, Client(MemoryTarget(server, BOB)) as own:
        assert await view.list_resources() == await own.list_resources()
        assert await view.list_tools() == await own.list_tools() == []
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


@looped
async def test_a_view_ends_when_the_policy_no_longer_allows_it() -> None:
    server = make_server(Policy(allow=[ADMIN, READER]))
    inspection = ServerInspection(server)
    async with Client(inspection.view_as(ANN, BOB), cache=False) as view:
        await view.read_resource("note://public/a")
        server.policy = Policy(allow=[READER])
        with pytest.raises(WharfingerError):
            await view.read_resource("note://public/a")


@looped
async def test_only_the_last_200_requests_are_kept() -> None:
    server = make_server()
    inspection = ServerInspection(server)
    async with Client(server, cache=False) as client:
        for _ in range(MAX_RECENT + 1):
            await client.list_tools()
    recent = inspection.recent(ANONYMOUS)
    assert len(recent) == MAX_RECENT
    assert {one.method for one in recent} == {"tools/list"}
