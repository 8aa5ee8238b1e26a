"""The catalogue of a host, compared with the files on the disk and with the lists of each server."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger import types as t
from wharfinger.client.results import Listing
from wharfinger.content.search_query import query_of
from wharfinger.errors import InvalidArgument, InvalidResponse, RequestTimeout
from wharfinger.host import ApprovalRequest, Host
from wharfinger.host import catalogue as catalogue_module
from wharfinger.host import catalogue_lists as lists
from wharfinger.host.catalogue import MAX_CHANGED_URIS, PATIENCE_SECONDS, Catalogue, CatalogueChange
from wharfinger.host.catalogue_lists import CatalogueEntry, CatalogueFilter, ServerList, TreeNode, read_server_list
from wharfinger.host.catalogue_search import search_names, search_tool
from wharfinger.sources import files, resource_tools
from wharfinger.upstreams.config import ServerConfig
from wharfinger.upstreams.upstreams import Upstreams


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "harbour"
    (root / "data" / "old").mkdir(parents=True)
    (root / "README.md").write_text("# Harbour\n\nTides and berths.\n")
    (root / "data" / "tides.csv").write_text("port,height\nHull,6.9\nWhitby,5.2\n")
    (root / "data" / "old" / "alarm.log").write_text("09:31 the tide alarm fired: the gauge was stuck\n")
    (root / "chart.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 5_000)
    os.utime(root / "data" / "old" / "alarm.log", (1_600_000_000, 1_600_000_000))
    return root


def make_server(folder: Path, label: str, *, tools: bool = False) -> Server:
    server = Server(label)
    server.include(files(folder, label=label))
    if tools:
        server.include(resource_tools())
    return server


def disk_uris(folder: Path, label: str) -> set[str]:
    top = f"file:///{label}"
    return {top} | {f"{top}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*")}


async def walk(catalogue: Catalogue, server: str, under: str = "", limit: int = 2) -> AsyncIterator[TreeNode]:
    """Yield every node below a folder, requested in small pages."""
    after = ""
    while True:
        page = await catalogue.tree(server, under, after=after, limit=limit)
        for node in page.nodes:
            yield node
            if node.below:
                async for below in walk(catalogue, server, node.path, limit):
                    yield below
        if not (after := page.after):
            return


# Entries


async def test_all_resources_and_templates_of_all_servers_are_listed(folder: Path) -> None:
    notes = Server("notes")

    @notes.resource("notes://{day}")
    def note(day: str) -> str:
        return day

    async with Host({"harbour": make_server(folder, "harbour"), "notes": notes}) as host:
        entries = await host.catalogue.entries()
        listed = await host.servers["harbour"].client.list_resources()
    assert {entry.uri for entry in entries if entry.server == "harbour" and not entry.is_template} == disk_uris(
        folder, "harbour"
    )
    assert {entry.uri: entry.resource for entry in entries if not entry.is_template} == {
        resource.uri: resource for resource in listed
    }
    assert ("notes", "notes://{day}", True) in {(entry.server, entry.uri, entry.is_template) for entry in entries}
    assert not entries.notes


NO_NAMES: set[str] = set()


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"type": "text/csv"}, {"tides.csv"}),
        ({"type": "image"}, {"chart.png"}),
        ({"type": "image/*"}, {"chart.png"}),
        ({"min_priority": 1.0}, {"README.md"}),
        ({"before": "2021-01-01"}, {"alarm.log"}),
        ({"min_size": 5_000}, {"chart.png"}),
        ({"max_size": 30, "type": "text"}, {"README.md"}),
        ({"pattern": "*.log"}, {"alarm.log"}),
        ({"pattern": "file:///harbour/data/old"}, {"alarm.log", "old"}),
        ({"pattern": "*.log", "type": "text/csv"}, NO_NAMES),
    ],
    # Sets are sorted, because the ids must be the same in each process.
    ids=lambda value: " ".join(map(str, value if isinstance(value, dict) else sorted(value))),
)
async def test_entries_match_all_filters(folder: Path, filters: Any, names: set[str]) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}) as host:
        entries = await host.catalogue.entries(templates=False, **filters)
    assert {entry.resource.name for entry in entries} == names


async def test_filters_of_server_template_audience_and_time_are_combined(folder: Path) -> None:
    other = Server("other")
    for name, audience in (("a", ["user"]), ("b", ["assistant"]), ("c", None)):
        annotations = t.Annotations(audience=audience) if audience else None  # type: ignore[arg-type]

        @other.resource(f"other://{name}", annotations=annotations)
        def read() -> str:
            return "text"

    async with Host({"harbour": make_server(folder, "harbour"), "other": other}) as host:
        catalogue = host.catalogue
        assert {entry.uri for entry in await catalogue.entries(server="other", audience="assistant")} == {
            "other://b",
            "other://c",
        }
        assert {entry.server for entry in await catalogue.entries(templates=True)} == {"harbour"}
        recent = {entry.uri for entry in await catalogue.entries(since="2021-01-01", templates=False)}
        assert recent and not any(uri.startswith("other:") or uri.endswith("alarm.log") for uri in recent)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"server": "harbor"}, "The servers are: harbour"),
        ({"since": "yesterday"}, "2026-11-22"),
        ({"pattern": "x" * 1_001}, "at most 1,000"),
        ({"limit": 0}, "positive"),
    ],
)
async def test_an_invalid_filter_is_refused_with_advice(folder: Path, filters: Any, message: str) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}) as host:
        with pytest.raises(InvalidArgument, match=message):
            await host.catalogue.entries(**filters)


async def test_pages_contain_every_entry_once(folder: Path) -> None:
    async with Host({"a": make_server(folder, "a"), "b": make_server(folder, "b")}) as host:
        all_entries = await host.catalogue.entries()
        collected: list[CatalogueEntry] = []
        while True:
            page = await host.catalogue.entries(limit=3, after=collected[-1] if collected else None)
            collected += page
            if not page.more:
                break
    assert collected == all_entries
    assert len(collected) > 12


# The tree


async def test_pages_contain_a_template_that_is_equal_to_a_uri() -> None:
    """A bug: it was missing if a page ended with the resource."""

    class EqualClient(StubClient):
        def list_resource_templates(self, bypass_cache: bool = False) -> Any:
            async def page(cursor: Any) -> Any:
                return [t.ResourceTemplate(uri_template="x://1", name="template")], UNSET

            return Listing(page, 1)

    resources = [t.Resource(uri=f"x://{number}", name="x") for number in (1, 2)]
    servers: Any = {"s": StubServer(EqualClient(resources, last=0))}
    catalogue = Catalogue(servers)
    pages = [await catalogue.entries(limit=1)]
    while pages[-1].more:
        pages.append(await catalogue.entries(limit=1, after=pages[-1][-1]))
    assert [entry for page in pages for entry in page] == await catalogue.entries()
    assert len(pages) == 3
    await catalogue.close()


async def test_the_tree_has_the_folders_on_the_disk(folder: Path) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}) as host:
        top = (await host.catalogue.tree()).nodes
        assert [(node.server, node.name) for node in top] == [("harbour", "harbour")]
        page = await host.catalogue.tree("harbour", "file:///harbour/")
        names = {node.name: node.below for node in page.nodes if node.path.startswith("file:") and "{" not in node.name}
        assert names == {"README.md": 0, "chart.png": 0, "data": 3}
        data = next(node for node in page.nodes if node.name == "data")
        below = await host.catalogue.tree("harbour", data.path)
        assert [(node.name, node.below) for node in below.nodes] == [("old", 1), ("tides.csv", 0)]


async def test_a_walk_of_the_tree_finds_every_entry_once(folder: Path) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}) as host:
        entries = await host.catalogue.entries()
        uris = [entry.uri async for node in walk(host.catalogue, "harbour") for entry in node.entries]
    assert sorted(uris) == sorted(entry.uri for entry in entries)


SEGMENTS = st.sampled_from(["a", "b", "a.md", "a-b", "ab", "A", "é", "0", "~", "a%20b"])
SCHEMES = st.sampled_from(["file:///", "file://", "git://repo/", "urn:", "x:", "note://"])
QUERIES = st.sampled_from(["", "", "?q=a", "?q=a/", "?q=a/b", "#a", "#a/b", "{/path*}", "{id}", "{id}/a"])


def uri_of(scheme: str, parts: list[str], slash: str, query: str) -> str:
    return f"{scheme}{'/'.join(parts)}{slash}{query}"


URIS = st.one_of(
    st.builds(uri_of, SCHEMES, st.lists(SEGMENTS, max_size=4), st.sampled_from(["", "/"]), QUERIES),
    st.sampled_from(["plain", "urn:isbn:1", "file:///", "file://", "a", "a/", "a/b", "//a"]),
    st.sampled_from(["memo:", "memo:#1", "memo:x", "memo:/x", "memo://a", "memo://a/b", "memo://{c}"]),
)


def walk_list(server_list: ServerList, under: str, limit: int) -> list[str]:
    uris: list[str] = []
    after = ""
    while True:
        page = server_list.children(under, after, limit)
        assert len(page.nodes) <= limit
        for node in page.nodes:
            below = walk_list(server_list, node.path, limit) if node.below else []
            assert len(below) == node.below
            assert len(node.path) > len(under) or not node.below
            uris += [entry.uri for entry in node.entries] + below
        if not (after := page.after):
            return uris


@given(st.sets(URIS, max_size=30), st.integers(1, 4))
def test_a_walk_of_a_list_of_any_uris_finds_each_uri_once(uris: set[str], limit: int) -> None:
    server_list = ServerList("s", {uri: t.Resource(uri=uri, name="n") for uri in uris}, {})
    assert sorted(walk_list(server_list, "", limit)) == sorted(uris)


# Search


def test_a_chain_of_thousands_of_folders_is_one_node() -> None:
    """A bug: a list of such URIs took minutes, as each folder of the chain was looked for from its beginning."""
    path = "a/" * (lists.MAX_URI_CHARACTERS // 2 - 4)
    uris = [f"s{number}://{path}" for number in range(200)]
    server_list = ServerList("s", {uri: t.Resource(uri=uri, name="x") for uri in uris}, {})
    began = time.process_time()
    nodes = server_list.children("", "", 200).nodes
    assert time.process_time() - began < 5
    assert [(node.path, node.below, len(node.entries)) for node in nodes] == [(uri, 0, 1) for uri in sorted(uris)]


def test_the_folder_of_a_scheme_has_all_its_uris() -> None:
    """A bug: URIs with `//` were in the folder of a scheme and beside it, if other URIs of the scheme have none."""
    uris = ["memo://a", "memo://b/c", "memo:x"]
    server_list = ServerList("s", {uri: t.Resource(uri=uri, name="x") for uri in uris}, {})
    assert [(node.path, node.below) for node in server_list.children("", "", 9).nodes] == [("memo:", 3)]
    assert walk_list(server_list, "", 9) == uris


def test_nothing_is_below_a_variable_or_a_query() -> None:
    """A bug: what follows a slash was listed below the entry, and again next to it."""
    uris = ["git://r/log?file=a", "git://r/log?file=a/b"]
    templates = ["docs://{id}", "docs://{id}/summary", "docs://{id}/text"]
    server_list = ServerList(
        "s",
        {uri: t.Resource(uri=uri, name="x") for uri in uris},
        {uri: t.ResourceTemplate(uri_template=uri, name="x") for uri in templates},
    )
    top = server_list.children("", "", 100).nodes
    assert [(node.path, node.below) for node in top] == [*((uri, 0) for uri in templates), ("git://r/", 2)]
    assert [(node.path, node.below) for node in server_list.children("git://r/", "", 100).nodes] == [
        (uri, 0) for uri in uris
    ]


async def test_names_are_found_without_a_request_to_any_server(folder: Path) -> None:
    server = make_server(folder, "harbour", tools=True)
    methods: list[str] = []

    @server.middleware("tools/call", "resources/read")
    async def record(call: Any, next: Any) -> Any:
        methods.append(call.method)
        return await next(call)

    async with Host({"harbour": server}) as host:
        hits = await host.catalogue.search("tides", contents=False)
    assert [hit.uri for hit in hits] == ["file:///harbour/data/tides.csv"]
    assert methods == []


@pytest.mark.parametrize("options", [{"tools": True}, {}], ids=["by its tool", "by reading"])
@pytest.mark.parametrize("index", [False, True])
async def test_contents_are_found(folder: Path, options: Any, index: bool) -> None:
    async with Host({"harbour": make_server(folder, "harbour", **options)}, index=index) as host:
        for _ in range(2):  # the second search may use the index
            hits = await host.catalogue.search("why was the gauge stuck")
            assert [hit.base for hit in hits] == ["file:///harbour/data/old/alarm.log"]
            assert "the gauge was stuck" in hits[0].snippet
            await asyncio.sleep(0)


async def test_the_index_finds_contents_of_a_server_without_a_search_tool(folder: Path) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}, index=True) as host:
        catalogue = host.catalogue
        await catalogue.entries()
        index = catalogue._index
        assert index is not None

        async def search() -> Any:
            answer = await index.search("harbour", "gauge stuck", 5)
            return answer and answer[0]

        hits = await wait_until_async(search, "the index finds the words")
        assert [hit.uri for hit in hits] == ["file:///harbour/data/old/alarm.log"]


async def test_hits_of_several_servers_are_merged_best_first(folder: Path) -> None:
    other = Server("other")

    @other.resource("other://gauge", title="The gauge that was stuck")
    def gauge() -> str:
        return "It was mended."

    async with Host({"harbour": make_server(folder, "harbour", tools=True), "other": other}) as host:
        hits = await host.catalogue.search("gauge stuck")
        other_hits = await host.catalogue.search("gauge stuck", server="other")
    assert {(hit.server, hit.base) for hit in hits} == {
        ("harbour", "file:///harbour/data/old/alarm.log"),
        ("other", "other://gauge"),
    }
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert [hit.server for hit in other_hits] == ["other"]


async def test_filters_apply_to_the_hits_of_a_search(folder: Path) -> None:
    async with Host({"harbour": make_server(folder, "harbour", tools=True)}) as host:
        assert not await host.catalogue.search("gauge stuck", type="text/csv")
        assert await host.catalogue.search("gauge stuck", pattern="*.log")


@pytest.mark.parametrize(
    ("options", "called"),
    [({}, True), ({"search_tools": {"s": None}}, False), ({"search_tools": {"s": "other"}}, True)],
)
async def test_the_query_is_sent_only_to_an_allowed_search_tool(options: Any, called: bool) -> None:
    server, queries = Server("s"), list[str]()
    read_only = t.ToolAnnotations(read_only_hint=True)

    @server.tool(annotations=read_only)
    def search(query: str) -> dict[str, Any]:
        queries.append(query)
        return {"results": [{"id": "s://x", "title": "x", "text": "tide"}]}

    @server.tool(annotations=read_only)
    def other(query: str) -> dict[str, Any]:
        queries.append(f"other: {query}")
        return {"results": [{"id": "s://y", "title": "y", "text": "tide"}]}

    async with Host({"s": server}, **options) as host:
        hits = await host.catalogue.search("tide")
    assert bool(queries) == bool(hits) == called
    if options.get("search_tools", {}).get("s"):
        assert queries == ["other: tide"]


@pytest.mark.parametrize(
    "annotations", [None, t.ToolAnnotations(read_only_hint=False), t.ToolAnnotations(destructive_hint=True)]
)
async def test_a_tool_that_is_not_read_only_is_not_called_for_a_search(annotations: t.ToolAnnotations | None) -> None:
    server, queries = Server("s"), list[str]()

    @server.tool(annotations=annotations)
    def search(query: str) -> str:
        queries.append(query)
        return ""

    async with Host({"s": server}) as host:
        await host.catalogue.search("tide")
    assert queries == []


@pytest.mark.parametrize("required", [["limit"], [{}], [["query"]]])
def test_a_tool_with_other_or_malformed_required_arguments_is_not_called_for_a_search(required: list[Any]) -> None:
    """A bug: a name that is an object or a list ended the search of all servers with a TypeError."""
    schema: dict[str, Any] = {"type": "object", "properties": {"query": {}}, "required": required}
    tool = t.Tool(name="search", input_schema=schema, annotations=t.ToolAnnotations(read_only_hint=True))
    assert search_tool([tool], None) is None
    schema["required"] = 5
    assert search_tool([tool], None) is tool


async def test_searches_need_no_approval(folder: Path) -> None:
    approvals: list[ApprovalRequest] = []

    def approve(approval: ApprovalRequest) -> bool:
        approvals.append(approval)
        return True

    async with Host({"harbour": make_server(folder, "harbour", tools=True)}, approve=approve) as host:
        hits = await host.catalogue.search("gauge stuck")
    assert [hit.base for hit in hits] == ["file:///harbour/data/old/alarm.log"]
    assert approvals == []


async def test_resources_are_read_if_the_search_of_the_server_fails() -> None:
    server = Server("s")

    @server.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    def search(query: str) -> str:
        raise RuntimeError("out of order")

    @server.resource("s://log")
    def log() -> str:
        return "the gauge was stuck"

    async with Host({"s": server}) as host:
        hits = await host.catalogue.search("gauge stuck")
    assert [hit.uri for hit in hits] == ["s://log"]
    assert "its tool 'search' failed" in hits.notes[0]


@pytest.mark.parametrize("answer", [{"results": 3}, {"results": [1, {"id": 5}, {"id": "no uri"}]}, {}, {"note": 7}])
async def test_an_invalid_search_result_gives_no_hits(answer: dict[str, Any]) -> None:
    server = Server("s")

    @server.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    def search(query: str) -> dict[str, Any]:
        return answer

    async with Host({"s": server}) as host:
        assert await host.catalogue.search("tide") == []


async def test_a_search_result_of_deeply_nested_json_gives_no_hits() -> None:
    server = Server("s")

    @server.tool(annotations=t.ToolAnnotations(read_only_hint=True))
    def search(query: str) -> str:
        return "[" * 2_000

    async with Host({"s": server}) as host:
        assert await host.catalogue.search("tide") == []


@pytest.mark.parametrize("limit", [0, 1_001])
async def test_a_search_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(InvalidArgument, match="from 1 to 1,000"):
        await Catalogue({}).search("tide", limit=limit)


# Changes


async def next_change(changes: AsyncIterator[CatalogueChange]) -> CatalogueChange:
    return await asyncio.wait_for(anext(changes), 10)


async def test_a_change_in_a_folder_appears_in_the_catalogue(folder: Path) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}) as host:
        await host.ready()
        changes = host.catalogue.changes()
        first = asyncio.ensure_future(next_change(changes))
        await host.catalogue.entries()
        await asyncio.sleep(0.3)  # until the source watches the folder
        (folder / "new.txt").write_text("new")
        change = await first
        assert "file:///harbour/new.txt" in change.added
        assert await host.catalogue.find("file:///harbour/new.txt")
        (folder / "new.txt").unlink()
        while "file:///harbour/new.txt" not in (change := await next_change(changes)).removed:
            pass
        assert not await host.catalogue.find("file:///harbour/new.txt")
        assert {entry.uri for entry in await host.catalogue.entries(templates=False)} == disk_uris(folder, "harbour")


async def test_a_change_is_found_by_the_next_call_without_an_iterator_of_changes(folder: Path) -> None:
    async with Host({"harbour": make_server(folder, "harbour")}) as host:
        await host.ready()
        await host.catalogue.entries()
        await asyncio.sleep(0.3)
        (folder / "new.txt").write_text("new")
        await wait_until_async(lambda: host.catalogue.find("file:///harbour/new.txt"), "the new file is found")


def test_changes_are_merged_and_too_many_changes_name_no_uris() -> None:
    first = CatalogueChange("s", frozenset("a"), frozenset("b"), frozenset("c"))
    second = CatalogueChange("s", frozenset("b"), frozenset("a"), frozenset("d"))
    # `a` came and went, and `b` went and came back, perhaps with another content.
    assert second.after(first) == CatalogueChange("s", changed=frozenset("bcd"))
    third = CatalogueChange("s", frozenset("x"), frozenset("c"), frozenset("y"))
    fourth = CatalogueChange("s", frozenset("c"), frozenset("y"), frozenset("x"))
    assert fourth.after(third) == CatalogueChange("s", frozenset("x"), frozenset("y"), frozenset("c"))
    uris = frozenset(map(str, range(MAX_CHANGED_URIS)))
    assert CatalogueChange("s", uris).after(CatalogueChange("s", uris)).added == uris
    assert CatalogueChange("s", uris).after(first).many


async def test_a_server_that_is_down_does_not_affect_the_others(folder: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    async with Host({"harbour": make_server(folder, "harbour"), "broken": command}) as host:
        await host.ready(20)
        start = time.monotonic()
        entries = await host.catalogue.entries()
        hits = await host.catalogue.search("gauge stuck")
    assert time.monotonic() - start < 15
    assert {entry.server for entry in entries} == {"harbour"}
    assert [hit.server for hit in hits] == ["harbour"]
    assert any(note.startswith("broken: ") for note in entries.notes)


async def test_with_no_patience_a_call_uses_the_known_lists(folder: Path) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    off = ServerConfig(name="off", target=sleeping, disabled=True)
    async with Upstreams([ServerConfig(name="slow", target=sleeping), off]) as servers:
        catalogue = Catalogue(servers, patience=0)
        start = time.monotonic()
        assert await catalogue.search("gauge") == []
        assert time.monotonic() - start < PATIENCE_SECONDS - 1
        assert catalogue.notes() == ["slow: its list is still being read."]
        await catalogue.close()


async def test_the_first_list_of_a_server_is_reported_as_a_change_without_uris(folder: Path) -> None:
    config = ServerConfig(name="harbour", target=make_server(folder, "harbour"))
    async with Upstreams([config]) as servers:
        catalogue = Catalogue(servers, patience=0)
        assert await next_change(catalogue.changes()) == CatalogueChange("harbour", many=True)
        assert await catalogue.find("file:///harbour/README.md")
        await catalogue.close()


# Hostile servers


class StubClient:
    """A client whose server lists these pages, and repeats the last page without end unless `last` is set."""

    def __init__(self, *pages: Sequence[t.Resource], last: int | None = None) -> None:
        self.pages_of, self.last = pages, last
        self.capabilities = t.ServerCapabilities(resources=t.ResourcesCapability())

    def list_resources(self, bypass_cache: bool = False) -> Any:
        return Listing(self.page, 1_000_000)

    async def page(self, cursor: Any) -> Any:
        number = 0 if cursor is UNSET else int(cursor)
        next_cursor = UNSET if number == self.last else str(number + 1)
        return self.pages_of[min(number, len(self.pages_of) - 1)], next_cursor

    def list_resource_templates(self, bypass_cache: bool = False) -> Any:
        async def page(cursor: Any) -> Any:
            return [], UNSET

        return Listing(page, 1)


async def test_an_endless_list_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_ENTRIES", 25)
    numbers = iter(range(1_000_000))

    class EndlessPage(Sequence[t.Resource]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: Any) -> Any:
            if index >= 10:
                raise IndexError
            return t.Resource(uri=f"x://{next(numbers)}", name="x")

    client: Any = StubClient(EndlessPage())
    server_list = await read_server_list("s", client)
    assert len(server_list.keys) == 25
    assert server_list.notes == ("The list of resources is not complete: only the first 25 are kept.",)


async def test_an_endless_list_of_duplicates_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_PAGES", 50)
    client: Any = StubClient([t.Resource(uri="x://1", name="x")])
    server_list = await read_server_list("s", client)
    assert list(server_list.resources) == ["x://1"]
    assert server_list.notes == (
        "The list of resources is not complete: only the first 50 pages are read.",
        "Left out: 49 resources with a URI that was listed before.",
    )


async def test_huge_entries_are_shortened_and_invalid_uris_are_left_out() -> None:
    huge = "n" * (lists.MAX_ENTRY_BYTES + 1)
    longest = "x://" + "u" * (lists.MAX_URI_CHARACTERS - 4)

    listed = [
        t.Resource(uri="x://huge", name=huge, title=huge, description=huge, mime_type="text/plain", size=7),
        t.Resource(uri=longest, name="longest"),
        t.Resource(uri=longest + "u", name="too long"),
        t.Resource(uri="x://line\nbreak", name="unprintable"),
        t.Resource(uri="x://first", name="first"),
        t.Resource(uri="x://first", name="second"),
    ]
    client: Any = StubClient(listed, last=0)
    server_list = await read_server_list("s", client)
    assert set(server_list.resources) == {"x://huge", longest, "x://first"}
    entry = server_list.resources["x://huge"]
    assert len(msgspec.json.encode(entry)) < 1_000
    assert (entry.mime_type, entry.size) == ("text/plain", 7)
    assert server_list.resources["x://first"].name == "first"
    assert server_list.notes == (
        "Left out: 2 resources with a URI that is empty, unprintable or too long.",
        "Left out: 1 resource with a URI that was listed before.",
        "Shortened: 1 resource with more than 16 KiB.",
    )


async def test_the_pages_before_a_failing_page_are_kept() -> None:
    class FailingClient(StubClient):
        async def page(self, cursor: Any) -> Any:
            if cursor == "1":
                raise InvalidResponse("garbage")
            return await super().page(cursor)

    client: Any = FailingClient([t.Resource(uri="x://1", name="x")])
    server_list = await read_server_list("s", client)
    assert list(server_list.resources) == ["x://1"]
    assert "a page failed (garbage)" in server_list.notes[0]


class TimeoutClient(StubClient):
    """A client whose server does not answer these methods in time."""

    slow: frozenset[str] = frozenset()

    async def page(self, cursor: Any) -> Any:
        if "resources" in self.slow:
            raise RequestTimeout("no answer")
        return await super().page(cursor)

    def list_resource_templates(self, bypass_cache: bool = False) -> Any:
        async def page(cursor: Any) -> Any:
            if "templates" in self.slow:
                raise RequestTimeout("no answer")
            return [t.ResourceTemplate(uri_template="x://{day}", name="day")], UNSET

        return Listing(page, 1)


class StubServer:
    """A server of a catalogue with such a client."""

    status, error = "ready", ""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def connected(self) -> Any:
        return self.client


async def test_the_last_list_is_kept_if_the_first_page_times_out() -> None:
    client = TimeoutClient([t.Resource(uri="x://1", name="x")], last=0)
    servers: Any = {"s": StubServer(client)}
    catalogue = Catalogue(servers)
    first = await catalogue.entries()
    client.slow = frozenset({"resources"})
    catalogue.list_changed("s")
    second = await catalogue.entries()
    await catalogue.close()
    assert list(second) == list(first) and len(first) == 2
    assert second.notes == ["s: its list cannot be read: no answer Its last list is used."]


async def test_resources_are_listed_if_the_templates_time_out() -> None:
    client: Any = TimeoutClient([t.Resource(uri="x://1", name="x")], last=0)
    whole = await read_server_list("s", client)
    client.slow = frozenset({"templates"})
    without = await read_server_list("s", client)
    again = await read_server_list("s", client, whole)
    assert (without.keys, without.notes) == (["x://1"], ("The templates cannot be read (no answer).",))
    assert again.keys == ["x://1", "x://{day}"]
    assert again.notes == ("The templates cannot be read (no answer). The last ones are used.",)


async def test_a_search_reports_a_server_that_does_not_answer_in_time() -> None:
    class SilentServer(StubServer):
        async def tools(self) -> Any:
            raise RequestTimeout("no answer within 2 s")

    servers: Any = {"s": SilentServer(StubClient([t.Resource(uri="x://1", name="x")], last=0))}
    catalogue = Catalogue(servers)
    hits = await catalogue.search("tide")
    await catalogue.close()
    assert hits.notes == ["s: its contents were not searched: no answer within 2 s"]


async def test_the_first_use_of_an_index_waits_for_slow_servers_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: it waited for one after the other, so for five seconds for each."""
    monkeypatch.setattr(catalogue_module, "PATIENCE_SECONDS", 0.2)

    class HangingServer(StubServer):
        async def tools(self) -> Any:
            await asyncio.sleep(60)

    servers: Any = {f"s{n}": HangingServer(StubClient([t.Resource(uri="x://1", name="x")], last=0)) for n in range(20)}
    catalogue = Catalogue(servers, index=True)
    began = time.monotonic()
    assert len(await catalogue.entries()) == 20
    seconds = time.monotonic() - began
    await catalogue.close()
    assert seconds < 2


async def test_the_calls_during_one_slow_read_of_a_list_wait_for_it_together() -> None:
    """A bug: each of them waited, so that a search and the look-ups of its hits took minutes."""
    release = asyncio.Event()
    release.set()

    class SlowClient(StubClient):
        async def page(self, cursor: Any) -> Any:
            await release.wait()
            return await super().page(cursor)

    client: Any = SlowClient([t.Resource(uri="x://1", name="x")], last=0)
    servers: Any = {"s": StubServer(client)}
    catalogue = Catalogue(servers, patience=0.2)
    assert len(await catalogue.entries()) == 1
    release.clear()
    catalogue.list_changed("s")
    began = time.monotonic()
    for _ in range(30):
        assert len(await catalogue.find("x://1", server="s")) == 1
    seconds = time.monotonic() - began
    client.pages_of = ([t.Resource(uri="x://2", name="x")],)
    release.set()
    await catalogue._background.finished()
    assert len(await catalogue.find("x://2")) == 1
    await catalogue.close()
    assert 0.2 <= seconds < 5  # 30 waits would take six seconds


async def test_a_server_that_is_removed_during_a_search_is_named_in_a_note() -> None:
    """A bug: the search ended in a KeyError."""

    class RemovedServer(StubServer):
        async def tools(self) -> Any:
            servers.pop("b", None)
            return []

    servers: Any = {name: RemovedServer(StubClient([], last=0)) for name in "ab"}
    catalogue = Catalogue(servers)
    await catalogue.entries()
    hits = await catalogue.search("tide")
    await catalogue.close()
    assert hits.notes[-1] == "b: its contents were not searched: There is no server 'b'. The servers are: a."


async def test_a_list_of_which_a_page_failed_is_read_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    client = TimeoutClient([t.Resource(uri="x://1", name="x")], last=0)
    client.capabilities = t.ServerCapabilities(resources=t.ResourcesCapability(list_changed=True))
    client.slow = frozenset({"templates"})
    servers: Any = {"s": StubServer(client)}
    catalogue = Catalogue(servers)
    assert len(await catalogue.entries()) == 1
    client.slow = frozenset()
    assert len(await catalogue.entries()) == 1
    monkeypatch.setattr(catalogue_module, "LIST_AGE_SECONDS", -1.0)
    entries = await catalogue.entries()
    await catalogue.close()
    assert (len(entries), entries.notes) == (2, [])


async def test_a_list_without_a_first_page_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "LIST_SECONDS", 0.05)

    class SilentClient(StubClient):
        async def page(self, cursor: Any) -> Any:
            await asyncio.Event().wait()

    client: Any = SilentClient()
    with pytest.raises(RequestTimeout, match=r"no first page within 0\.05 s"):
        await read_server_list("s", client)


async def test_a_waiting_call_gets_a_list_that_changed_while_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: the call waited for the pause between two reads."""
    monkeypatch.setattr(catalogue_module, "MIN_PAUSE_SECONDS", 60.0)
    reading, release = asyncio.Event(), asyncio.Event()
    release.set()

    class SlowClient(StubClient):
        async def page(self, cursor: Any) -> Any:
            reading.set()
            page = await super().page(cursor)
            await release.wait()
            return page

    client: Any = SlowClient([t.Resource(uri="x://1", name="x")], last=0)
    servers: Any = {"s": StubServer(client)}
    catalogue = Catalogue(servers)
    changes = catalogue.changes()
    change = asyncio.ensure_future(next_change(changes))
    await catalogue.entries()
    release.clear()
    reading.clear()
    catalogue.list_changed("s")
    await reading.wait()
    entries = asyncio.ensure_future(catalogue.entries(templates=False))
    await asyncio.sleep(0)
    client.pages_of = ([t.Resource(uri="x://2", name="x")],)
    catalogue.list_changed("s")
    release.set()
    assert [entry.uri for entry in await asyncio.wait_for(entries, PATIENCE_SECONDS / 2)] == ["x://2"]
    await change
    await catalogue.close()


# Size


def test_100_000_resources_take_bounded_time_and_memory() -> None:
    def resources() -> dict[str, t.Resource]:
        reader = lists._Reader()
        for number in range(100_000):
            path = f"part{number % 300:03}/report-{number:06}.md"
            entry = t.Resource(
                uri=f"file:///archive/{path}",
                name=path.rpartition("/")[2],
                title=path,
                mime_type="text/markdown",
                size=number,
                annotations=t.Annotations(last_modified=f"2026-11-{number % 28 + 1:02}T00:00:00Z"),
            )
            reader.add([entry])
        return reader.found

    tracemalloc.start()
    server_list = ServerList("s", resources(), {})
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert size < 100 << 20

    def measure(function: Any) -> tuple[float, Any]:
        start = time.process_time()
        result = function()
        return time.process_time() - start, result

    seconds, page = measure(lambda: server_list.children("file:///archive/", "", 200))
    assert (len(page.nodes), page.nodes[0].below) == (200, 334)
    assert seconds < 0.1
    matches = CatalogueFilter(pattern="*-099999.md").test()
    seconds, entries = measure(lambda: [entry for entry in server_list.entries() if matches(entry)])
    assert len(entries) == 1
    assert seconds < 5
    seconds, hits = measure(lambda: search_names([server_list], query_of("report 042000"), 20, lambda entry: True))
    assert hits[0][0].uri == "file:///archive/part000/report-042000.md"
    assert seconds < 10
