"""Serves the methods of the skills extension, from the sources that have skills and directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.errors import InvalidParams, ResourceNotFound
from wharfinger.policy.current import may_read
from wharfinger.server.context import Context
from wharfinger.server.cursors import Keys, keys_for
from wharfinger.server.features.listing import joined_page
from wharfinger.server.mounting import COMBINED_METHODS
from wharfinger.server.owners import owner_of
from wharfinger.types.skills import (
    EXTENSION,
    GetSkillRequestParams,
    GetSkillResult,
    ListSkillsResult,
    ReadResourceDirectoryRequestParams,
    ReadResourceDirectoryResult,
    Skill,
)

if TYPE_CHECKING:
    from wharfinger.server.service import FeatureService

__all__ = ["serve_skills"]


def serve_skills(server: FeatureService, *, page_size: int = 500) -> None:
    """Declare the extension and serve its methods. Does nothing the second time.

    A source has skills if it has two methods: `skills(after, limit)` returns `(skills, key)` as `Source.page` does,
    and `skill(uri)` returns one skill or raises `ResourceNotFound`. Its directories can be read if it has
    `children(uri, after, limit)`, which returns `(resources, key)`.
    """
    if "skills/list" in server.handlers:
        return
    for name in ("skills/list", "skills/get", "resources/directory/read"):
        COMBINED_METHODS[name] = serve_skills

    async def list_skills(params: t.PaginatedRequestParams, ctx: Context) -> ListSkillsResult:
        keys = keys_for(server.services.keys, ctx.request)
        position = _position(keys, "skills", params.cursor)
        methods = [getattr(source, "skills", None) for source in server.resources.every_source()]
        providers = [_no_skills if method is None else server.pool.adapt(method) for method in methods]
        shown, position = await joined_page(providers, owner_of(ctx.request), position, page_size)
        while not (readable := [_readable(skill) for skill in shown if may_read(skill.uri)]) and position is not None:
            shown, position = await joined_page(providers, owner_of(ctx.request), position, page_size)
        cursor = UNSET if position is None else keys.seal("skills", position)
        return ListSkillsResult(skills=readable, next_cursor=cursor)

    async def get_skill(params: GetSkillRequestParams, ctx: Context) -> GetSkillResult:
        find = getattr(server.resources.source_of(params.uri), "skill", None)
        try:
            if find is not None and may_read(params.uri):
                return GetSkillResult(skill=_readable(await server.pool.call(owner_of(ctx.request), find, params.uri)))
        except ResourceNotFound:
            pass
        raise InvalidParams("There is no skill at this URI: skills/list lists the skills.", data={"uri": params.uri})

    async def read_directory(params: ReadResourceDirectoryRequestParams, ctx: Context) -> ReadResourceDirectoryResult:
        purpose = f"directory {params.uri}"
        keys = keys_for(server.services.keys, ctx.request)
        key = _position(keys, purpose, params.cursor)
        owner, children = owner_of(ctx.request), getattr(server.resources.source_of(params.uri), "children", None)
        try:
            if children is not None and may_read(params.uri):
                shown, key = await server.pool.call(owner, children, params.uri, key, page_size)
                while not (readable := [child for child in shown if may_read(child.uri)]) and key is not None:
                    shown, key = await server.pool.call(owner, children, params.uri, key, page_size)
                cursor = UNSET if key is None else keys.seal(purpose, key)
                return ReadResourceDirectoryResult(resources=readable, next_cursor=cursor)
        except ResourceNotFound:
            pass
        raise InvalidParams("This URI is not a directory of this server.", data={"uri": params.uri})

    server.extensions.add_method("skills/list", list_skills, extension=EXTENSION, cacheable=True)
    server.extensions.add_method("skills/get", get_skill, extension=EXTENSION, cacheable=True)
    server.extensions.add_method("resources/directory/read", read_directory, extension=EXTENSION)
    server.extensions.declare(EXTENSION, {"directoryRead": True})


def _readable(skill: Skill) -> Skill:
    """Return a skill with only those of its files that the caller may read."""
    if skill.resources == "dynamic" or all(may_read(file.uri) for file in skill.resources):
        return skill
    return msgspec.structs.replace(skill, resources=[file for file in skill.resources if may_read(file.uri)])


async def _no_skills(owner: str, after: object, limit: int) -> tuple[list[Any], None]:
    return [], None


def _position(keys: Keys, purpose: str, cursor: Any) -> Any:
    """Return the key in a cursor; None if there is no cursor."""
    return None if cursor is UNSET else keys.open(purpose, cursor)
