"""The policy of a mounted server also limits what the servers around it show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.server.driving import Wire, ask
from wharfinger import Context, Server
from wharfinger.policy import Policy, Rule
from wharfinger.sources import files

BOB = Policy(allow=[Rule(who="sub:bob")])
TEMPLATE = {"ref": {"type": "ref/resource", "uri": "tide://{x}/now"}, "argument": {"name": "x", "value": ""}}
PROMPT = {"ref": {"type": "ref/prompt", "name": "p_ask"}, "argument": {"name": "x", "value": ""}}


def make_part(folder: Path, policy: Policy | None) -> Server:
    docs = folder / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("the word is hidden")
    part = Server("part", policy=policy)
    part.tools.add(lambda: "x", name="act")
    part.prompts.add(lambda x: x, name="ask")
    part.resources.add("note:hidden", lambda: "x")
    part.resources.add("tide://{x}/now", lambda x: x)
    part.include(files(docs))
    return part


def mount(part: Server) -> Server:
    """Return a server with features of its own, in which `part` is mounted two levels deep."""
    middle, whole = Server("middle"), Server("whole")
    middle.include(part)
    whole.include(middle, prefix="p")
    whole.resources.add("note:open", lambda: "x")

    @whole.tool
    async def find(ctx: Context[Any]) -> list[str]:
        return [hit.uri for hit in await ctx.search("hidden")]

    return whole


async def shown(server: Server, principal: str) -> set[str]:
    """Return everything that the server names to a principal."""

    async def result(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = await ask(server, method, params, principal=principal)
        return dict(answer["result"] if "result" in answer else answer["error"])

    names = {tool["name"] for tool in (await result("tools/list"))["tools"]}
    names |= {prompt["name"] for prompt in (await result("prompts/list"))["prompts"]}
    names |= {resource["uri"] for resource in (await result("resources/list"))["resources"]}
    names |= {template["uriTemplate"] for template in (await result("resources/templates/list"))["resourceTemplates"]}
    found = await result("tools/call", {"name": "find", "arguments": {}})
    names |= {f"found {uri}" for uri in found["structuredContent"]}
    if "Did you mean" in (await result("resources/read", {"uri": "file:///docs/b.md"}))["message"]:
        names.add("suggestion")
    for params in (TEMPLATE, PROMPT):
        if "completion" in await result("completion/complete", params):
            names.add(f"completion of {params['ref']}")
    return names


async def test_features_that_the_policy_of_a_part_forbids_are_named_nowhere(tmp_path: Path) -> None:
    """A bug: a server without a policy listed, searched and completed everything of its parts."""
    whole = mount(make_part(tmp_path, BOB))
    assert await shown(whole, "eve") == {"find", "note:open"}
    assert await shown(whole, "bob") >= {
        "find", "note:open", "p_act", "p_ask", "note:hidden", "tide://{x}/now", "file:///docs", "file:///docs/a.md",
        "file:///docs/{+path}", "found note:hidden", "found file:///docs/a.md", "suggestion",
        f"completion of {TEMPLATE['ref']}", f"completion of {PROMPT['ref']}",
    }  # fmt: skip


async def test_the_error_for_a_forbidden_tool_of_a_part_is_that_of_an_unknown_one(tmp_path: Path) -> None:
    whole = mount(make_part(tmp_path, BOB))
    errors = [(await ask(whole, "tools/call", {"name": name}, principal="eve"))["error"] for name in ("p_act", "p_no")]
    assert [error["message"] for error in errors] == ["Unknown tool: p_act", "Unknown tool: p_no"]


async def test_names_of_forbidden_sources_of_a_part_are_not_told(tmp_path: Path) -> None:
    whole = mount(make_part(tmp_path, BOB))

    @whole.tool
    async def find_in(ctx: Context[Any]) -> list[str]:
        return [hit.uri for hit in await ctx.search("hidden", source="no")]

    for principal, names in (("eve", "none"), ("bob", "docs")):
        result = (await ask(whole, "tools/call", {"name": "find_in", "arguments": {}}, principal=principal))["result"]
        assert result["content"][0]["text"].endswith(f"there are {names}.")


async def test_a_part_may_get_lose_and_replace_its_policy(tmp_path: Path) -> None:
    part = make_part(tmp_path, None)
    whole = mount(part)
    everything = await shown(whole, "eve")
    assert "note:hidden" in everything and not whole.services.restricts
    part.policy = BOB
    assert await shown(whole, "eve") == {"find", "note:open"}
    part.policy = Policy(allow=[Rule(who="sub:eve", what="note:hidden")])
    assert await shown(whole, "eve") == {"find", "note:open", "note:hidden", "found note:hidden"}
    part.policy = None
    assert await shown(whole, "eve") == everything and not whole.services.restricts


async def test_both_policies_must_allow_a_feature_of_a_part(tmp_path: Path) -> None:
    whole = mount(make_part(tmp_path, Policy(allow=[Rule(who="anyone", what="note:**")])))
    whole.policy = Policy(allow=[Rule(who="anyone", what=("note:open", "note:hidden", "tool:*"))])
    assert await shown(whole, "eve") == {"find", "note:open", "note:hidden", "found note:hidden"}


async def test_watchers_are_notified_only_of_resources_that_a_part_lets_them_read(tmp_path: Path) -> None:
    part = make_part(tmp_path, None)
    whole = mount(part)
    await whole.start()
    async with Wire(whole, principal="eve") as before, Wire(whole, principal="eve") as after:
        await before.watch("note:hidden", "note:open")
        part.policy = BOB
        await after.watch("note:hidden", "note:open")
        assert after.notifications[0]["params"]["notifications"] == {"resourceSubscriptions": ["note:open"]}
        part.resource_updated("note:hidden")
        whole.resource_updated("note:open")
        for wire in (before, after):
            await wire.wait_until(lambda wire=wire: "note:open" in named(wire))  # type: ignore[misc]
            assert "note:hidden" not in named(wire)
    await whole.close()


def named(wire: Wire) -> list[str]:
    """Return the URIs in the notices that a client got."""
    return [notice["params"].get("uri", "") for notice in wire.notifications]
