"""Skills of sources: listed across all sources, found by their URI, with directories in pages."""

from __future__ import annotations

from typing import Any

from tests.server.driving import ask
from wharfinger import types as t
from wharfinger.errors import ResourceNotFound
from wharfinger.server.app import Server
from wharfinger.server.skills import serve_skills
from wharfinger.source import Source
from wharfinger.types.skills import Skill


class DirectorySource(Source):
    """A source with one directory and without skills."""

    def __init__(self, name: str) -> None:
        self.name = name

    def matches(self, uri: str) -> bool:
        return uri.startswith(f"{self.name}:")

    def children(self, uri: str, after: Any = None, limit: int = 1000) -> Any:
        if uri != f"{self.name}:":
            raise ResourceNotFound(uri)
        start = after or 0
        rows = [t.Resource(uri=f"{self.name}:{n}", name=str(n)) for n in range(3)]
        return rows[start : start + limit], start + limit if start + limit < 3 else None


class SkillSource(DirectorySource):
    """Numbered skills, in pages of at most `page_limit`."""

    def __init__(self, name: str, count: int, page_limit: int = 99) -> None:
        super().__init__(name)
        self.count, self.page_limit = count, page_limit
        self.requests: list[tuple[Any, int]] = []

    def skill_at(self, number: int) -> Any:
        uri = f"{self.name}:{number}/SKILL.md"
        return Skill(uri=uri, frontmatter={"name": f"{self.name}{number}"}, resources="dynamic")

    def skills(self, after: Any, limit: int) -> Any:
        self.requests.append((after, limit))
        start = after or 0
        end = start + min(limit, self.page_limit)
        return [self.skill_at(n) for n in range(start, min(end, self.count))], end if end < self.count else None

    def skill(self, uri: str) -> Any:
        for n in range(self.count):
            if self.skill_at(n).uri == uri:
                return self.skill_at(n)
        raise ResourceNotFound(uri)


def server_of(*sources: Source, page_size: int = 2) -> Server:
    server = Server("s")
    for source in sources:
        server.include(source)
    serve_skills(server, page_size=page_size)
    serve_skills(server)  # a second call changes nothing
    return server


async def pages(server: Server, method: str = "skills/list", **params: Any) -> list[list[str]]:
    entries_by_page: list[list[str]] = []
    while True:
        result = (await ask(server, method, params))["result"]
        entries_by_page.append([entry["uri"] for entry in result.get("skills", result.get("resources"))])
        if "nextCursor" not in result:
            return entries_by_page
        params = {**params, "cursor": result["nextCursor"]}


def uris(name: str, *numbers: int) -> list[str]:
    return [f"{name}:{n}/SKILL.md" for n in numbers]


async def test_pages_of_skills_are_filled_across_sources() -> None:
    one, none, two = SkillSource("one", 3), DirectorySource("none"), SkillSource("two", 2)
    server = server_of(one, none, two)
    assert await pages(server) == [uris("one", 0, 1), [*uris("one", 2), *uris("two", 0)], uris("two", 1)]
    assert one.requests == [(None, 2), (2, 2)]
    assert two.requests == [(None, 1), (1, 2)]


async def test_a_short_page_of_a_source_does_not_end_the_list() -> None:
    assert await pages(server_of(SkillSource("one", 3, page_limit=1))) == [
        uris("one", 0),
        uris("one", 1),
        uris("one", 2),
    ]
    assert await pages(server_of(SkillSource("one", 2))) == [uris("one", 0, 1)]
    assert await pages(server_of(SkillSource("one", 2), DirectorySource("none"))) == [uris("one", 0, 1), []]
    assert await pages(server_of(DirectorySource("none"))) == [[]]


async def test_a_list_continues_after_an_empty_page_of_a_source() -> None:
    class EmptyFirstPage(SkillSource):
        """A source whose first page is empty."""

        def skills(self, after: Any, limit: int) -> Any:
            return ([], 0) if after is None else super().skills(after, limit)

    assert await pages(server_of(EmptyFirstPage("one", 2))) == [uris("one", 0, 1)]


async def test_a_skill_is_found_by_its_uri_in_the_source_that_has_it() -> None:
    server = server_of(DirectorySource("none"), SkillSource("one", 2))
    skill = (await ask(server, "skills/get", {"uri": "one:1/SKILL.md"}))["result"]["skill"]
    assert skill == {"uri": "one:1/SKILL.md", "frontmatter": {"name": "one1"}, "resources": "dynamic"}
    for uri in ("one:2/SKILL.md", "none:1/SKILL.md", "other:1/SKILL.md"):
        assert (await ask(server, "skills/get", {"uri": uri}))["error"] == {
            "code": -32602,
            "message": "There is no skill at this URI: skills/list lists the skills.",
            "data": {"uri": uri},
        }


async def test_a_directory_is_read_in_pages_and_refuses_cursors_of_other_directories() -> None:
    server = server_of(DirectorySource("one"), DirectorySource("two"))
    method = "resources/directory/read"
    assert await pages(server, method, uri="one:") == [["one:0", "one:1"], ["one:2"]]
    cursor = (await ask(server, method, {"uri": "one:"}))["result"]["nextCursor"]
    assert (await ask(server, method, {"uri": "two:", "cursor": cursor}))["error"]["code"] == -32602
    for uri in ("one:x", "other:"):
        error = (await ask(server, method, {"uri": uri}))["error"]
        assert error == {"code": -32602, "message": "This URI is not a directory of this server.", "data": {"uri": uri}}


async def test_skills_of_mounted_servers_are_served_by_their_parent() -> None:
    part = server_of(SkillSource("one", 1))
    early, late = Server("early"), Server("late")
    early.include(part)
    assert await pages(early) == [uris("one", 0)]
    inner = Server("inner")
    inner.include(SkillSource("two", 1))
    late.include(inner)
    serve_skills(inner)
    assert await pages(late) == [uris("two", 0)]
    assert late.extensions.declared["io.modelcontextprotocol/skills"] == {"directoryRead": True}
