"""Policies of a server: the features that each principal may list, read, call, complete and search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import ALL, ERAS, STATELESS, Wire, ask, list_all, make_principal, make_request, read
from wharfinger import Context, Server
from wharfinger import types as t
from wharfinger.policy import Policy, ReportOnly, Rule
from wharfinger.policy.access import RuleAccess
from wharfinger.policy.current import may_read_below
from wharfinger.protocol.interfaces import Access
from wharfinger.protocol.principal import Principal
from wharfinger.server.access_control import MAX_REMEMBERED, MAX_REMEMBERED_CHARACTERS
from wharfinger.server.features.resources import Content
from wharfinger.source import Hit, ResourcePage, Source
from wharfinger.sources import files, skills


class Shelf(Source):
    """Books below `shelf://`, with a record of the calls of `stat` and `read`."""

    name = "shelf"
    uri = "shelf://"

    def __init__(self, *books: str) -> None:
        self.books = list(books)
        self.calls: list[str] = []
        self.templates = (t.ResourceTemplate(uri_template="shelf://{room}/{book}", name="book"),)

    def matches(self, uri: str) -> bool:
        return uri.startswith("shelf://")

    def page(self, after: str | None, limit: int) -> ResourcePage:
        start = int(after or 0)
        books = [t.Resource(uri=f"shelf://{book}", name=book) for book in self.books[start : start + limit]]
        return books, str(start + limit) if start + limit < len(self.books) else None

    def stat(self, uri: str) -> t.Resource:
        self.calls.append(f"stat {uri}")
        return t.Resource(uri=uri, name=uri)

    def read(self, uri: str) -> t.ReadResourceResult:
        self.calls.append(f"read {uri}")
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text=f"the text of {uri}")])

    def complete(self, template: str, argument: str, value: str, context: Any) -> list[str]:
        segment = 0 if argument == "room" else 1
        return sorted({book.split("/")[segment] for book in self.books})

    def search(self, query: str, limit: int) -> list[Hit]:
        return [Hit(uri=f"shelf://{book}", title=book) for book in self.books][:limit]


POLICY = Policy(
    allow=[
        Rule(who="sub:ann"),
        Rule(who="sub:bob", what=["shelf://open/**", "note:open", "tool:open*", "prompt:open", "method:acme/open"]),
    ]
)
"""Ann may use every feature, Bob only those named `open`."""


def library(policy: Policy | None = POLICY) -> tuple[Server, Shelf]:
    """Return a server with an open and a closed feature of each kind."""
    server = Server("library", policy=policy, page_size=3)
    shelf = Shelf(*(f"{room}/{number}" for number in range(6) for room in ("closed", "open")))
    server.include(shelf)

    for kind in ("open", "closed"):
        server.resources.add(f"note:{kind}", lambda: "a note", name=kind)
        server.tools.add(lambda: "called", name=f"{kind}_tool")
        server.prompts.add(lambda: "a prompt", name=kind)
        server.resources.add(f"{kind}note://{{day}}", lambda day: day, name=kind)
        server.extensions.add_method(f"acme/{kind}", lambda params: t.EmptyResult(), params=t.RequestParams)
    return server, shelf


async def list_names(server: Server, method: str, member: str, key: str, principal: str) -> list[str]:
    """Return the names on every page of a list, as one principal sees it."""
    found: list[str] = []
    params: dict[str, Any] = {}
    while True:
        result = (await ask(server, method, params, principal=principal))["result"]
        found += [item[key] for item in result[member]]
        assert len(result[member]) == 3 or "nextCursor" not in result  # every page but the last is full
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


async def test_pages_of_lists_are_filled_with_features_that_the_caller_may_use() -> None:
    server, _ = library()
    open_books = [f"shelf://open/{number}" for number in range(6)]
    assert await list_names(server, "resources/list", "resources", "uri", "bob") == ["note:open", *open_books]
    assert len(await list_names(server, "resources/list", "resources", "uri", "ann")) == 14
    assert await list_names(server, "tools/list", "tools", "name", "bob") == ["open_tool"]
    assert await list_names(server, "prompts/list", "prompts", "name", "bob") == ["open"]
    templates = await list_names(server, "resources/templates/list", "resourceTemplates", "uriTemplate", "bob")
    assert templates == ["shelf://{room}/{book}"]
    for principal in ("eve", ""):
        assert await list_names(server, "resources/list", "resources", "uri", principal) == []
        assert await list_names(server, "tools/list", "tools", "name", principal) == []
        assert await list_names(server, "resources/templates/list", "resourceTemplates", "uriTemplate", principal) == []


@pytest.mark.parametrize("revision", ALL)
async def test_forbidden_features_look_like_missing_ones(revision: str) -> None:
    """The errors differ only in the name that the caller sent, and the source is not called."""
    server, shelf = library()
    for method, key, forbidden, missing in (
        ("resources/read", "uri", "shelf://closed/1", "shelf://clos3d/1"),
        ("resources/read", "uri", "note:closed", "note:clos3d"),
        ("resources/read", "uri", "closednote://1", "closednot3://1"),
        ("tools/call", "name", "closed_tool", "clos3d_tool"),
        ("prompts/get", "name", "closed", "clos3d"),
    ):
        forbidden_answer = await ask(server, method, {key: forbidden}, revision, principal="bob")
        missing_answer = await ask(server, method, {key: missing}, revision, principal="bob")
        assert json.dumps(forbidden_answer).replace(forbidden, missing) == json.dumps(missing_answer)
        assert "error" in forbidden_answer
    assert shelf.calls == []
    assert (await read(server, "shelf://open/1", revision, principal="bob"))[0]["text"] == "the text of shelf://open/1"
    assert "result" in await ask(server, "tools/call", {"name": "closed_tool"}, revision, principal="ann")


async def test_a_uri_that_is_not_canonical_is_not_found() -> None:
    server, shelf = library()
    for uri in (
        "shelf://open/%31",
        "shelf://open/../closed/1",
        "shelf://open//1",
        "SHELF://open/1",
        "shelf://open/1#x",
    ):
        assert "code" in await read(server, uri, principal="bob"), uri
    assert shelf.calls == []


async def test_an_extension_method_needs_a_rule_that_names_it() -> None:
    server, _ = library()
    assert "result" in await ask(server, "acme/open", principal="bob")
    answer = await ask(server, "acme/closed", principal="bob")
    assert answer["error"]["code"] == -32601
    assert "result" in await ask(server, "acme/closed", principal="ann")


@pytest.mark.parametrize("name", ["tasks/export", "skills/export", "resources/export"])
async def test_custom_methods_with_the_prefix_of_a_built_in_method_are_checked_by_the_policy(name: str) -> None:
    server = Server("s", policy=POLICY)
    server.extensions.add_method(name, lambda params: t.EmptyResult(), params=t.RequestParams)
    assert (await ask(server, name, principal="bob"))["error"]["code"] == -32601
    assert "result" in await ask(server, name, principal="ann")


async def test_completions_contain_only_values_of_readable_resources() -> None:
    server, _ = library()

    async def values(argument: str, principal: str, **others: str) -> Any:
        params: dict[str, Any] = {
            "ref": {"type": "ref/resource", "uri": "shelf://{room}/{book}"},
            "argument": {"name": argument, "value": ""},
            "context": {"arguments": others},
        }
        return (await ask(server, "completion/complete", params, principal=principal))["result"]["completion"]

    assert (await values("room", "bob"))["values"] == ["open"]
    assert (await values("room", "ann"))["values"] == ["closed", "open"]
    assert (await values("book", "bob", room="open"))["values"] == ["0", "1", "2", "3", "4", "5"]
    assert (await values("book", "bob", room="closed")) == {"values": [], "total": 0, "hasMore": False}
    assert (await values("book", "bob"))["values"] == []  # without a room, they may be books of the closed one
    forbidden = {"ref": {"type": "ref/prompt", "name": "closed"}, "argument": {"name": "a", "value": ""}}
    assert (
        "Unknown prompt" in (await ask(server, "completion/complete", forbidden, principal="bob"))["error"]["message"]
    )


async def test_a_completion_for_a_malformed_template_is_refused_like_one_for_a_template_that_does_not_exist() -> None:
    """A bug: with a policy, it was an internal error."""
    for server in (Server("open"), library()[0]):
        server.resources.add("note:today", lambda: "a note")
        params = {"ref": {"type": "ref/resource", "uri": "shelf://{"}, "argument": {"name": "room", "value": ""}}
        error = (await ask(server, "completion/complete", params, principal="ann"))["error"]
        assert (error["code"], error["message"][:36]) == (-32602, "There is no such resource template: ")


async def test_results_omit_links_and_contents_that_the_caller_may_not_read() -> None:
    server, _ = library()
    link = t.ResourceLink(uri="shelf://closed/1", name="closed")

    @server.tool(name="open_links")
    def links() -> list[Any]:
        contents = t.ResourceContents(uri="note:closed", text="secret")
        return ["text", link, t.EmbeddedResource(resource=contents), t.ResourceLink(uri="note:open", name="open")]

    @server.resource("shelf://open/several")
    def several() -> list[Content]:
        return [Content("mine"), Content("secret", uri="note:closed"), Content("other", uri="note:open")]

    server.prompts.remove("open")

    @server.prompt(name="open")
    def prompt() -> list[Any]:
        return ["text", t.PromptMessage(role="user", content=link)]

    for principal, number in (("bob", 2), ("ann", 4)):
        result = (await ask(server, "tools/call", {"name": "open_links"}, principal=principal))["result"]
        assert len(result["content"]) == number
    assert len(await read(server, "shelf://open/several", principal="bob")) == 2
    assert len(await read(server, "shelf://open/several", principal="ann")) == 3
    for principal, number in (("bob", 1), ("ann", 2)):
        assert (
            len((await ask(server, "prompts/get", {"name": "open"}, principal=principal))["result"]["messages"])
            == number
        )


async def test_a_handler_searches_with_the_access_of_its_caller() -> None:
    server, _ = library()

    @server.tool(name="open_search")
    async def find(ctx: Context) -> list[str]:
        return [hit.uri for hit in await ctx.search("text", limit=20)]

    async def search_as(principal: str) -> list[str]:
        result = (await ask(server, "tools/call", {"name": "open_search"}, principal=principal))["result"]
        return list(result["structuredContent"])

    assert await search_as("bob") == [f"shelf://open/{number}" for number in range(6)]
    assert len(await search_as("ann")) == 12


@pytest.mark.parametrize("revision", ERAS)
async def test_a_cursor_is_opaque_and_valid_only_for_its_caller_and_policy(revision: str) -> None:
    server, _ = library()
    page = await ask(server, "resources/list", {}, revision, principal="ann")
    cursor = page["result"]["nextCursor"]
    assert len(cursor) > 256  # padded
    for principal in ("bob", "eve", ""):
        answer = await ask(server, "resources/list", {"cursor": cursor}, revision, principal=principal)
        assert "list again from the start" in answer["error"]["message"]
    assert "result" in await ask(server, "resources/list", {"cursor": cursor}, revision, principal="ann")
    server.policy = Policy(allow=[Rule(who="sub:ann"), Rule(who="sub:bob")])
    answer = await ask(server, "resources/list", {"cursor": cursor}, revision, principal="ann")
    assert "list again from the start" in answer["error"]["message"]
    assert (
        "list again"
        in (await ask(server, "tools/list", {"cursor": cursor}, revision, principal="ann"))["error"]["message"]
    )


async def test_a_policy_can_be_replaced_and_removed_while_the_server_runs() -> None:
    server, _ = library()
    assert "code" in await read(server, "note:closed", principal="bob")
    server.policy = Policy(allow=[Rule(who="sub:bob", what="note:closed")])
    assert (await read(server, "note:closed", principal="bob"))[0]["text"] == "a note"
    assert "code" in await read(server, "note:open", principal="bob")
    server.policy = None
    assert (await read(server, "note:open", principal="eve"))[0]["text"] == "a note"
    assert len(await list_all(server)) == 14


async def test_middleware_is_not_called_for_forbidden_resources() -> None:
    server, _ = library()
    seen: list[str] = []

    @server.middleware("resources/read")
    async def answer_all(call: Any, next: Any) -> Any:
        seen.append(call.params.uri)
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=call.params.uri, text="cached")])

    assert "code" in await read(server, "note:closed", principal="bob")
    assert (await read(server, "note:open", principal="bob"))[0]["text"] == "cached"
    assert seen == ["note:open"]


async def test_features_of_a_mounted_server_are_checked_under_their_names_in_the_parent() -> None:
    child, shelf = library(None)
    parent = Server("whole", policy=Policy(allow=[Rule(who="sub:bob", what=["tool:p_open*", "shelf://open/**"])]))
    parent.include(child, prefix="p")
    assert [tool["name"] for tool in (await ask(parent, "tools/list", principal="bob"))["result"]["tools"]] == [
        "p_open_tool"
    ]
    assert "result" in await ask(parent, "tools/call", {"name": "p_open_tool"}, principal="bob")
    assert "error" in await ask(parent, "tools/call", {"name": "p_closed_tool"}, principal="bob")
    assert "code" in await read(parent, "shelf://closed/1", principal="bob")
    assert shelf.calls == []
    child.policy = Policy(allow=[Rule(who="sub:bob", what="shelf://open/1")])  # both are enforced
    assert "code" in await read(parent, "shelf://open/2", principal="bob")
    assert (await read(parent, "shelf://open/1", principal="bob"))[0]["text"]


@pytest.mark.parametrize("depth", [1, 2])
async def test_what_the_policy_of_a_mounted_server_forbids_cannot_be_watched_through_its_parent(depth: int) -> None:
    """A bug: a resource of a source could be watched, although a read of it was refused."""
    server, _ = library(Policy(allow=[Rule(who="anyone", what="shelf://open/1")]))
    for number in range(depth):
        parent = Server(f"parent {number}")
        parent.include(server)
        server = parent
    for uri, allowed in (("shelf://open/1", True), ("shelf://open/2", False), ("shelf://closed/1", False)):
        answer = await ask(server, "resources/subscribe", {"uri": uri}, "2025-11-25")
        assert ("result" in answer) is allowed


@pytest.mark.parametrize("depth", [1, 2])
async def test_what_the_policy_of_a_mounted_server_forbids_is_not_found_through_its_parent(
    depth: int, tmp_path: Path
) -> None:
    """A bug: a search showed the text, and the error of a read suggested the URI."""
    for name in ("open.md", "closed.md"):
        (tmp_path / name).write_text("a whale")
    server = Server("child", policy=Policy(allow=[Rule(who="anyone", what="file:///f/open.md")]))
    server.include(files(tmp_path, label="f"))
    for number in range(depth):
        parent = Server(f"parent {number}")
        parent.include(server)
        server = parent

    @server.tool
    async def find(ctx: Context) -> list[str]:
        return [hit.uri for hit in await ctx.search("whale")]

    found = await ask(server, "tools/call", {"name": "find"})
    assert found["result"]["structuredContent"] == ["file:///f/open.md"]
    missing = await ask(server, "resources/read", {"uri": "file:///f/closet.md"})
    assert "closed" not in str(missing)


async def test_a_result_is_public_if_every_caller_may_read_it() -> None:
    server = Server("s", policy=Policy(allow=[Rule(who="anyone", what="note:*"), Rule(who="sub:bob")]))
    server.resources.add("note:one", lambda: "x", cache_scope="public")
    server.resources.add("other:one", lambda: "x", cache_scope="public")
    shelf = Shelf("a/1")
    server.include(shelf)
    scopes = {}
    for uri in ("note:one", "other:one", "shelf://a/1"):
        answer = await ask(server, "resources/read", {"uri": uri}, principal="bob")
        scopes[uri] = answer["result"]["cacheScope"]
    assert scopes == {"note:one": "public", "other:one": "private", "shelf://a/1": "private"}


async def test_a_result_with_other_contents_is_public_only_if_every_caller_may_read_them(tmp_path: Path) -> None:
    """A bug: a shared cache could give the names of files to callers who may not see them."""
    for name in ("open", "mixed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("x")
    (tmp_path / "mixed" / "secret.md").write_text("x")
    uris = ("note:*", "file:///open/**", "file:///mixed/", "file:///mixed/a.md")
    policy = Policy(allow=[Rule(who="anyone", what=uris), Rule(who="sub:bob")])
    server = Server("s", cache_scope="public", policy=policy)
    server.resources.add("note:all", lambda: [Content("a"), Content("b", uri="other:one")])
    server.include(files(tmp_path / "open"))
    server.include(files(tmp_path / "mixed"))
    for principal in ("bob", "eve"):
        scopes = {}
        for uri in ("note:all", "file:///open/", "file:///mixed/"):
            answer = await ask(server, "resources/read", {"uri": uri}, principal=principal)
            scopes[uri] = answer["result"]["cacheScope"]
        expected = ("private", "public", "private")
        assert scopes == dict(zip(scopes, expected, strict=True)), principal


async def test_a_result_of_an_extension_method_is_private_under_a_policy(tmp_path: Path) -> None:
    """A bug: a shared cache could give it to callers who may not call the method."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "SKILL.md").write_text("---\nname: one\ndescription: A skill.\n---\nDo it.\n")
    server = Server("s", cache_scope="public", policy=Policy(allow=[Rule(who="sub:bob")]))
    server.include(skills(tmp_path))

    @server.method("gauges/read", cacheable=True)
    def read_gauge() -> dict[str, int]:
        return {"metres": 3}

    for policy, scope in ((server.policy, "private"), (None, "public")):
        server.policy = policy
        for method in ("gauges/read", "skills/list"):
            assert (await ask(server, method, principal="bob"))["result"]["cacheScope"] == scope, method


def test_a_tool_that_the_policy_of_a_mounted_server_forbids_is_hidden() -> None:
    """A bug: an error about its `Mcp-Param-…` headers revealed that it exists."""
    part, whole = Server("part", policy=Policy(allow=[Rule(who="sub:bob")])), Server("whole")
    part.tools.add(lambda: "", name="secret")
    whole.include(part, prefix="p")
    for principal, hidden in (("bob", False), ("eve", True)):
        request = make_request(whole, "tools/call", {"name": "p_secret"}, principal=principal)
        assert whole.hides_tool(request) is hidden


async def test_instructions_may_depend_on_the_caller() -> None:
    server = Server("s", instructions=lambda: "shelf" if may_read_below("shelf://") else None, policy=POLICY)
    assert (await ask(server, "server/discover", principal="bob"))["result"]["instructions"] == "shelf"
    assert "instructions" not in (await ask(server, "server/discover", principal="eve"))["result"]


async def test_only_readable_uris_are_suggested(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "private").mkdir(parents=True)
    (folder / "chapter-one.md").write_text("x")
    (folder / "private" / "chapter-two.md").write_text("x")
    allow, deny = Rule(who="anyone", what="file:///docs/**"), Rule(who="anyone", what="file:///docs/private/**")
    server = Server("s", policy=Policy(allow=[allow], deny=[deny]))
    server.include(files(folder))
    async with Wire(server) as wire:
        for uri in (
            "file:///docs/chapter-onee.md",
            "file:///docs/chapter-twoo.md",
            "file:///docs/private/chapter-two.md",
        ):
            message = (await wire.ask("resources/read", {"uri": uri}))["error"]["message"]
            assert "private/" not in message.replace(uri, "")
            assert ("Did you mean" in message) == (uri.endswith("onee.md"))


async def test_skills_and_their_files_are_checked_by_their_uris(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "skills" / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: A skill.\n---\nDo it.\n"
        (tmp_path / "skills" / name / "SKILL.md").write_text(text)
        (tmp_path / "skills" / name / "secret.md").write_text("x")
    open_server = Server("s")
    open_server.include(skills(tmp_path / "skills"))
    async with Wire(open_server) as wire:
        all_skills = (await wire.ask("skills/list"))["result"]["skills"]
        uri = next(skill["uri"] for skill in all_skills if skill["frontmatter"]["name"] == "one")
    folder = uri.removesuffix("SKILL.md")
    policy = Policy(
        allow=[Rule(who="anyone", what=f"{folder}**")], deny=[Rule(who="anyone", what=f"{folder}secret.md")]
    )
    server = Server("s", policy=policy)
    server.include(skills(tmp_path / "skills"))
    async with Wire(server) as wire:
        visible_skills = (await wire.ask("skills/list"))["result"]["skills"]
        assert [skill["frontmatter"]["name"] for skill in visible_skills] == ["one"]
        assert [file["uri"] for file in visible_skills[0]["resources"]] == [uri]
        assert (await wire.ask("skills/get", {"uri": uri}))["result"]["skill"] == visible_skills[0]
        assert "error" in await wire.ask("skills/get", {"uri": uri.replace("/one/", "/two/")})
        children = (await wire.ask("resources/directory/read", {"uri": folder.rstrip("/")}))["result"]["resources"]
        assert [child["uri"] for child in children] == [uri]


async def test_without_a_policy_handlers_are_not_wrapped() -> None:
    server, _ = library(None)
    assert server.handlers["resources/read"] == server.resources.read
    assert server.watching.may_send is None


async def test_a_task_is_not_found_when_its_tool_is_forbidden() -> None:
    server = Server("s", policy=Policy(allow=[Rule(who="sub:bob", what="tool:*")]))

    @server.tool(task=True)
    def long() -> str:
        return "done"

    meta = {
        "_meta": {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    }
    async with Wire(server, STATELESS, "bob") as wire:
        task = (await wire.ask("tools/call", {"name": "long", **meta}))["result"]
        assert task["resultType"] == "task"
        params = {"taskId": task["taskId"], **meta}
        assert "result" in await wire.ask("tasks/get", params)
        server.policy = Policy(allow=[Rule(who="sub:bob", what="tool:other")])
        forbidden = await wire.ask("tasks/get", params)
        unknown = await wire.ask("tasks/get", {**params, "taskId": "none"})
        assert forbidden["error"] == unknown["error"]


def test_access_is_compiled_once_for_principals_with_the_same_rules() -> None:
    access = POLICY.access(make_principal("eve"))
    assert POLICY.access(make_principal("joe")) is access
    assert POLICY.access(make_principal("bob")) is not access


ANN = make_principal("ann")


class CountingPolicy(Policy):
    """A policy that counts how often it is consulted."""

    consultations = 0

    def access(self, principal: Principal) -> RuleAccess:
        self.consultations += 1
        return super().access(principal)


class CountingReport(ReportOnly):
    """A `ReportOnly` that counts how often it is consulted."""

    consultations = 0

    def access(self, principal: Principal) -> Access:
        self.consultations += 1
        return super().access(principal)


async def count_consultations(server: Server, authorizer: Any, *uris: str, principal: Principal = ANN) -> int:
    """Read these URIs, and return how often the authorizer was consulted."""
    before = authorizer.consultations
    for uri in uris:
        await ask(server, "resources/read", {"uri": uri}, principal=principal)
    return int(authorizer.consultations - before)


async def test_decisions_of_rules_are_cached_by_principal() -> None:
    policy = CountingPolicy(allow=[Rule(who="sub:ann")])
    server, _ = library(policy)
    assert await count_consultations(server, policy, "note:open", "note:open", "note:closed", "note:open") == 2
    assert await count_consultations(server, policy, "note:open", principal=make_principal("bob")) >= 1
    assert "error" in await ask(server, "resources/read", {"uri": "note:open"}, principal=make_principal("bob"))
    server.policy = Policy(allow=[Rule(who="sub:bob")])
    assert "error" in await ask(server, "resources/read", {"uri": "note:open"}, principal=ANN)


async def test_decisions_of_a_report_only_policy_are_not_cached() -> None:
    report = CountingReport(Policy(allow=[Rule(who="sub:bob")]))
    server, _ = library(None)
    server.policy = report
    assert await count_consultations(server, report, "note:open", "note:open") == 2


@pytest.mark.parametrize("characters", [MAX_REMEMBERED_CHARACTERS, MAX_REMEMBERED_CHARACTERS + 1])
async def test_decisions_about_long_targets_are_not_cached(characters: int) -> None:
    policy = CountingPolicy(allow=[Rule(who="sub:ann")])
    server, _ = library(policy)
    uri = "opennote://".ljust(characters, "x")
    repeated = await count_consultations(server, policy, uri, uri) - 1
    assert repeated == (characters > MAX_REMEMBERED_CHARACTERS)


@pytest.mark.parametrize("others", [MAX_REMEMBERED - 1, MAX_REMEMBERED])
async def test_a_guard_caches_a_bounded_number_of_decisions(others: int) -> None:
    policy = CountingPolicy(allow=[Rule(who="sub:ann")])
    server, _ = library(policy)
    await count_consultations(server, policy, "note:open", *(f"opennote://{number}" for number in range(others)))
    assert await count_consultations(server, policy, "note:open") == (others == MAX_REMEMBERED)
