"""The list tool and its pages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.sources.conftest import create_files
from tests.sources.resource_tool_set.conftest import Runner, call, runner_of
from wharfinger import Client, Server, ToolError
from wharfinger import types as t
from wharfinger.sources import Folder, files, logs
from wharfinger.sources.resource_tool_set import resource_tools
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS
from wharfinger.sources.resource_tool_set.list_tool import MAX_ENTRIES, MAX_TEMPLATES


def test_resources_are_listed_in_pages(run: Runner, source: Folder, charts: Path) -> None:
    create_files(charts, [f"n{number:04d}.txt" for number in range(620)])
    uris: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page, _ = call(run, "list_resources", **cursor)
        assert len(page["resources"]) <= MAX_ENTRIES
        uris += [resource["uri"] for resource in page["resources"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert len(uris) == len(set(uris)) == 620 + 8 + 1


def test_the_list_continues_if_its_last_resource_was_removed() -> None:
    """A bug: it began again."""
    server = Server("harbour")
    server.include(resource_tools())
    for number in range(150):
        server.resources.add(f"notes://{number:03}", lambda: "calm")
    run = runner_of(server)
    first, _ = call(run, "list_resources")
    server.resources.remove(first["resources"][-1]["uri"])
    rest, _ = call(run, "list_resources", cursor=first["nextCursor"])
    assert [entry["uri"] for entry in rest["resources"]] == [f"notes://{number:03}" for number in range(100, 150)]


def test_a_listed_resource_has_its_title_media_type_size_and_description(run: Runner, source: Folder) -> None:
    listed = {resource["uri"]: resource for resource in call(run, "list_resources")[0]["resources"]}
    hull = listed[f"{source.uri}/harbours/hull.ts"]
    assert (hull["title"], hull["mimeType"], hull["size"]) == ("harbours/hull.ts", "text/x-typescript", 24)
    assert listed["notes://today"]["description"] == "The pilot's notes."


def test_a_directory_is_listed_in_pages(run: Runner, source: Folder, charts: Path) -> None:
    top, _ = call(run, "read_directory")
    assert top["entries"] == [{"uri": source.uri, "mimeType": "inode/directory"}]
    create_files(charts, [f"n{number:03d}.txt" for number in range(MAX_ENTRIES)])
    first, _ = call(run, "read_directory", uri=source.uri)
    second, _ = call(run, "read_directory", uri=source.uri, cursor=first["nextCursor"])
    titles = [entry["title"] for entry in (*first["entries"], *second["entries"])]
    assert titles[:3] == ["harbours", "README.md", "empty.txt"]
    assert len(titles) == len(set(titles)) == MAX_ENTRIES + 4
    assert "nextCursor" not in second
    assert first["note"] == "To continue, call read_directory for the same uri with cursor set to nextCursor."


def test_the_root_directory_says_how_many_templates_are_left_out() -> None:
    """A bug: a model could not know that there are more."""
    server = Server("many")
    server.include(resource_tools())
    for number in range(MAX_TEMPLATES + 7):
        server.resource(f"tide{number}://{{port}}")(lambda port: str(port))
    top, _ = call(runner_of(server), "read_directory")
    assert len(top["templates"]) == MAX_TEMPLATES
    assert top["note"] == "7 templates left out."


def test_the_root_directory_shows_templates_and_their_query_parameters(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("quiet\n")
    server = Server("logs")
    server.include(logs(tmp_path / "*.log", label="app"))
    server.include(resource_tools())

    @server.resource("tide://{port}")
    def tide(port: str) -> str:
        """The tide at a port."""
        return "high"

    async def main() -> Any:
        async with Client(server) as client:
            return (await client.call_tool("read_directory", {})).structured

    templates = {template["uriTemplate"]: template for template in asyncio.run(main())["templates"]}
    assert templates["tide://{port}"]["description"] == "The tide at a port."
    log_template = templates["log://app/{+path}{?tail,since,until,level,text}"]
    assert log_template["parameters"]["level"] == "such as error: entries of this level and above"
    assert list(templates["log://app/{+path}"]["parameters"]) == ["lines"]


def test_pages_are_short_if_entries_are_long(tmp_path: Path) -> None:
    """Each name has 90 characters that are percent-encoded as six characters each."""
    create_files(tmp_path, [f"{number:03d}{'ü' * 90}.txt" for number in range(150)])
    server = Server("long")
    server.include(files(tmp_path, label="long"))
    server.include(resource_tools())

    async def main() -> None:
        async with Client(server) as client:
            for tool, member, arguments in (
                ("list_resources", "resources", {}),
                ("read_directory", "entries", {"uri": "file:///long"}),
            ):
                uris: list[str] = []
                cursor: dict[str, str] = {}
                while True:
                    result: Any = await client.call_tool(tool, arguments | cursor)
                    assert len(result.content[0].text) <= DEFAULT_TOKENS * 4
                    uris += [entry["uri"] for entry in result.structured[member]]
                    if "nextCursor" not in result.structured:
                        break
                    cursor = {"cursor": result.structured["nextCursor"]}
                assert len(uris) == len(set(uris)) == 150 + (tool == "list_resources")

    asyncio.run(main())


def test_an_empty_list_or_folder_is_reported(tmp_path: Path) -> None:
    server = Server("empty")
    server.include(resource_tools())

    async def note_of(tool: str, **arguments: str) -> Any:
        async with Client(server) as client:
            return (await client.call_tool(tool, arguments)).structured["note"]

    assert "No resources are listed here" in asyncio.run(note_of("list_resources"))
    assert "no folders" in asyncio.run(note_of("read_directory"))
    server.include(files(tmp_path, label="empty"))
    assert "This folder is empty" in asyncio.run(note_of("read_directory", uri="file:///empty"))


@pytest.mark.parametrize(("length", "shown"), [(10, MAX_ENTRIES), (1_000, 35)])
def test_a_folder_without_pages_says_how_many_parts_are_left_out(length: int, shown: int) -> None:
    """A bug: the parts after the first 100 were left out silently, and long URIs exceeded the budget."""
    server = Server("parts")
    server.include(resource_tools())
    uris = [f"notes://{number:{length}}".replace(" ", "0") for number in range(150)]

    @server.resource("notes://all")
    def all_parts() -> t.ReadResourceResult:
        return t.ReadResourceResult(contents=[t.ResourceContents(uri=uri, text="") for uri in uris])

    folder, _ = call(runner_of(server), "read_directory", uri="notes://all")
    assert [entry["uri"] for entry in folder["entries"]] == uris[:shown]
    assert folder["note"] == f"{150 - shown} entries left out: call read_resource."


def test_a_resource_without_parts_is_not_a_folder(run: Runner) -> None:
    """Regression: it was an empty folder, and any cursor was accepted."""

    async def listed(client: Client) -> None:
        with pytest.raises(ToolError, match="notes://today is not a folder: call read_resource"):
            await client.call_tool("read_directory", {"uri": "notes://today"})

    run(listed)
