"""What there is, in pages."""

from __future__ import annotations

from pathlib import Path

from tests.sources.conftest import many_names
from tests.sources.resource_tool_set.conftest import Ask, call
from wharfinger.sources import Folder
from wharfinger.sources.resource_tool_set.list_tool import MAX_ENTRIES


def test_resources_are_listed_in_pages_that_go_on(ask: Ask, source: Folder, charts: Path) -> None:
    many_names(charts, [f"n{number:04d}.txt" for number in range(620)])
    uris: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page, _ = call(ask, "list_resources", **cursor)
        assert len(page["resources"]) <= MAX_ENTRIES
        uris += [resource["uri"] for resource in page["resources"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert len(uris) == len(set(uris)) == 620 + 8 + 1


def test_a_resource_is_listed_in_few_words(ask: Ask, source: Folder) -> None:
    listed = {resource["uri"]: resource for resource in call(ask, "list_resources")[0]["resources"]}
    hull = listed[f"{source.uri}/harbours/hull.ts"]
    assert (hull["title"], hull["mimeType"], hull["size"]) == ("harbours/hull.ts", "text/x-typescript", 24)
    assert listed["notes://today"]["description"] == "What the pilot said."


def test_a_directory_is_listed_in_pages(ask: Ask, source: Folder, charts: Path) -> None:
    assert call(ask, "read_directory")[0] == {"entries": [{"uri": source.uri, "mimeType": "inode/directory"}]}
    many_names(charts, [f"n{number:03d}.txt" for number in range(MAX_ENTRIES)])
    first, _ = call(ask, "read_directory", uri=source.uri)
    second, _ = call(ask, "read_directory", uri=source.uri, cursor=first["nextCursor"])
    titles = [entry["title"] for entry in (*first["entries"], *second["entries"])]
    assert titles[:3] == ["harbours", "README.md", "empty.txt"]
    assert len(titles) == len(set(titles)) == MAX_ENTRIES + 4
    assert "nextCursor" not in second
