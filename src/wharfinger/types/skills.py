"""Skills (extension `io.modelcontextprotocol/skills`) and `resources/directory/read`.

Import this module itself to use them: `wharfinger.types` exports only the core protocol.
"""

from __future__ import annotations

from typing import Literal

from .base import CacheableResult, JSONObject, PaginatedResult, WireStruct
from .requests import PaginatedRequestParams, ResourceRequestParams
from .resources import Resource

__all__ = [
    "EXTENSION",
    "GetSkillRequestParams",
    "GetSkillResult",
    "ListSkillsResult",
    "ReadResourceDirectoryRequestParams",
    "ReadResourceDirectoryResult",
    "Skill",
    "SkillResource",
]

EXTENSION = "io.modelcontextprotocol/skills"
"""The identifier of the extension."""


class SkillResource(WireStruct, kw_only=True):
    """A file of a skill: `digest` is `sha256:` and 64 hexadecimal digits, `size` is in bytes, both of the raw bytes."""

    uri: str
    digest: str
    size: int


class Skill(WireStruct, kw_only=True):
    """A skill: the URI of its SKILL.md, the frontmatter of that file as JSON, and its files.

    `resources` lists all its files (the manifest), or is `dynamic` if the server does not list them.
    """

    uri: str
    frontmatter: JSONObject
    resources: list[SkillResource] | Literal["dynamic"]


class ListSkillsResult(PaginatedResult, kw_only=True):
    """Result of `skills/list`."""

    skills: list[Skill]


class GetSkillRequestParams(ResourceRequestParams, kw_only=True):
    """Params of `skills/get`: `uri` is that of a SKILL.md."""


class GetSkillResult(CacheableResult, kw_only=True):
    """Result of `skills/get`."""

    skill: Skill


class ReadResourceDirectoryRequestParams(PaginatedRequestParams, kw_only=True):
    """Params of `resources/directory/read`: `uri` is that of a directory, without a slash at its end."""

    uri: str


class ReadResourceDirectoryResult(PaginatedResult, kw_only=True):
    """Result of `resources/directory/read`: the direct children; sub-directories have the type `inode/directory`."""

    resources: list[Resource]
