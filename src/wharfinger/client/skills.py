"""Methods of the skills extension, and the checks of a skill's files against its manifest."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from wharfinger import types as t
from wharfinger.client.results import ReadResult
from wharfinger.content.frontmatter import BadFrontmatter, need_yaml, read_frontmatter
from wharfinger.errors import NotVerified
from wharfinger.protocol.methods import EXTENSIONS_FROM, Method
from wharfinger.types.skills import (
    GetSkillRequestParams,
    GetSkillResult,
    ListSkillsResult,
    ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult,
    Skill,
    SkillResource,
)

__all__ = ["DIRECTORY", "GET", "LIST", "check_entry", "check_file"]

LIST = Method(
    "skills/list", "client", t.PaginatedRequestParams, ListSkillsResult, first=EXTENSIONS_FROM, cacheable=True
)
GET = Method("skills/get", "client", GetSkillRequestParams, GetSkillResult, first=EXTENSIONS_FROM, cacheable=True)
DIRECTORY = Method(
    "resources/directory/read",
    "client",
    ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult,
    first=EXTENSIONS_FROM,
)


def check_entry(skill: Skill, uri: str) -> SkillResource | None:
    """Return the file's entry in the manifest, or None for a `dynamic` skill, whose manifest lists no files.

    Raises:
        NotVerified: the manifest has no such file.
    """
    if skill.resources == "dynamic":
        return None
    entry = next((file for file in skill.resources if file.uri == uri), None)
    if entry is None:
        raise NotVerified(f"{uri} is not a file of the skill {skill.uri}: its manifest does not list it.")
    return entry


def check_file(skill: Skill, entry: SkillResource | None, file: ReadResult) -> ReadResult:
    """Return `file` if it is one content, has the entry's size and digest, and is fit to be used.

    The skill's own SKILL.md must also have the frontmatter that the server sent for the skill.

    Raises:
        NotVerified: the file fails a check, and must not be used.
        MissingExtra: PyYAML, which reads the frontmatter, is not installed (the extra `skills`).
    """
    if len(file.contents) != 1:
        raise NotVerified(f"{file.uri} has {len(file.contents)} contents: a file of a skill has one.")
    data = file.bytes
    if entry is not None:
        if len(data) != entry.size:
            raise NotVerified(f"{file.uri} has {len(data)} bytes, but {entry.size} in its manifest.")
        if f"sha256:{sha256(data).hexdigest()}" != entry.digest:
            raise NotVerified(f"{file.uri} does not have the digest in its manifest.")
    if file.uri == skill.uri:
        _check_frontmatter(skill, data)
    return file


def _check_frontmatter(skill: Skill, data: bytes) -> None:
    need_yaml("Loading a skill")
    try:
        actual = read_frontmatter(data)
    except BadFrontmatter as error:
        raise NotVerified(f"The frontmatter of {skill.uri} cannot be read: {error}.") from None
    listed, missing = skill.frontmatter, object()
    differing = [key for key in {**listed, **actual} if not _equal(listed.get(key, missing), actual.get(key, missing))]
    if differing:
        names = ", ".join(sorted(differing))
        raise NotVerified(f"The frontmatter of {skill.uri} differs from what the server listed: {names[:200]}.")


def _equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, but true does not equal 1."""
    kinds: set[Any] = {type(one), type(other)}
    if kinds == {dict}:
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if kinds == {list}:
        return len(one) == len(other) and all(map(_equal, one, other))
    return (kinds == {bool} or bool not in kinds) and bool(one == other)
