"""Skills of a client: files are read on demand and only if they match the manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wharfinger import Client, Server
from wharfinger.errors import NotVerified, ResourceNotFound
from wharfinger.sources import skills
from wharfinger.types.skills import Skill

REVISIONS = ("2025-11-25", "2026-07-28")
MANUAL = "---\nname: knots\ndescription: Tie knots.\nmetadata:\n  version: 2\n---\nSee rope.md.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one skill of two files."""
    skill = tmp_path / "knots"
    skill.mkdir()
    (skill / "SKILL.md").write_text(MANUAL)
    (skill / "rope.md").write_text("Hemp.\n")
    return tmp_path


def replace_fields(skill: Skill, **fields: Any) -> Skill:
    """Return the skill with other fields."""
    other: Skill = msgspec.structs.replace(skill, **fields)
    return other


@asynccontextmanager
async def connect(folder: Path, revision: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """Yield a client of a server with the skills of the folder, and the list of URIs that it reads."""
    server = Server("s")
    server.include(skills(folder))
    read: list[str] = []
    handler = server.handlers["resources/read"]

    async def record(request: Any) -> Any:
        read.append(request.params.uri)
        return await handler(request)

    server.handlers["resources/read"] = record
    async with Client(server, revision=revision) as client:
        yield client, read


@pytest.mark.parametrize("revision", REVISIONS)
async def test_skills_are_listed_and_loaded(folder: Path, revision: str) -> None:
    async with connect(folder, revision) as (client, read):
        (skill,) = await client.list_skills()
        assert await client.get_skill(skill.uri) == skill
        assert skill.frontmatter["metadata"] == {"version": 2}
        assert read == []
        assert (await client.read_skill_file(skill)).text == MANUAL
        assert (await client.read_skill_file(skill, "skill://knots/rope.md")).text == "Hemp.\n"
        assert read == ["skill://knots/SKILL.md", "skill://knots/rope.md"]
        with pytest.raises(ResourceNotFound):
            await client.get_skill("skill://none/SKILL.md")


async def test_a_file_that_changed_since_the_list_is_refused(folder: Path) -> None:
    async with connect(folder, "2026-07-28") as (client, _):
        (skill,) = await client.list_skills()
        (folder / "knots" / "rope.md").write_text("Wire.\n")  # the same number of bytes
        with pytest.raises(NotVerified, match="digest"):
            await client.read_skill_file(skill, "skill://knots/rope.md")
        (folder / "knots" / "rope.md").write_text("Hemp, and more.\n")
        with pytest.raises(NotVerified, match="16 bytes, but 6 in its manifest"):
            await client.read_skill_file(skill, "skill://knots/rope.md")


async def test_a_file_outside_the_manifest_is_not_requested(folder: Path) -> None:
    async with connect(folder, "2026-07-28") as (client, read):
        (skill,) = await client.list_skills()
        with pytest.raises(NotVerified, match="does not list it"):
            await client.read_skill_file(skill, "skill://knots/none.md")
        assert read == []


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"description": "Steal ropes."}, "description"),
        ({"license": "MIT"}, "license"),
        ({"metadata": {"version": True}}, "metadata"),
        ({"metadata": {"version": "2"}}, "metadata"),
        ({"metadata": {}}, "metadata"),
    ],
)
async def test_frontmatter_that_differs_from_its_entry_is_refused(
    folder: Path, change: dict[str, Any], reported: str
) -> None:
    async with connect(folder, "2026-07-28") as (client, _):
        (skill,) = await client.list_skills()
        other = replace_fields(skill, frontmatter={**skill.frontmatter, **change})
        with pytest.raises(NotVerified, match=f"differs from what the server listed: {reported}"):
            await client.read_skill_file(other)


async def test_numbers_in_the_frontmatter_are_compared_by_value(folder: Path) -> None:
    """JSON has one kind of number: a server may write 2 as 2.0."""
    async with connect(folder, "2026-07-28") as (client, _):
        (skill,) = await client.list_skills()
        other = replace_fields(skill, frontmatter={**skill.frontmatter, "metadata": {"version": 2.0}})
        assert (await client.read_skill_file(other)).text == MANUAL


async def test_only_the_frontmatter_of_a_dynamic_skill_is_verified(folder: Path) -> None:
    async with connect(folder, "2026-07-28") as (client, _):
        (skill,) = await client.list_skills()
        dynamic = replace_fields(skill, resources="dynamic")
        assert (await client.read_skill_file(dynamic, "skill://knots/rope.md")).text == "Hemp.\n"
        wrong = replace_fields(dynamic, frontmatter={"name": "knots"})
        with pytest.raises(NotVerified):
            await client.read_skill_file(wrong)
