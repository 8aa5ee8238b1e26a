"""Sources that publish data as resources: include them in a server. Each is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wharfinger.source import UnusableSource
    from wharfinger.sources.commands import command
    from wharfinger.sources.folder.source import Folder, UnusableFolder, files
    from wharfinger.sources.git_repository import git
    from wharfinger.sources.http_api import openapi
    from wharfinger.sources.log_files import logs
    from wharfinger.sources.object_store import objects
    from wharfinger.sources.resource_tool_set import ResourceTools, resource_tools
    from wharfinger.sources.screens import screen
    from wharfinger.sources.search import SearchIndex, search_index
    from wharfinger.sources.skill_folder import Skills, skills
    from wharfinger.sources.sql_database import sql
    from wharfinger.sources.system_state import system
    from wharfinger.sources.systemd_journal import journal
    from wharfinger.sources.table_files import tables
    from wharfinger.sources.upstream_server import upstream
    from wharfinger.sources.web_pages import web

__all__ = [
    "Folder",
    "ResourceTools",
    "SearchIndex",
    "Skills",
    "UnusableFolder",
    "UnusableSource",
    "command",
    "files",
    "git",
    "journal",
    "logs",
    "objects",
    "openapi",
    "resource_tools",
    "screen",
    "search_index",
    "skills",
    "sql",
    "system",
    "tables",
    "upstream",
    "web",
]

_MODULES = {
    "Folder": "wharfinger.sources.folder.source",
    "ResourceTools": "wharfinger.sources.resource_tool_set",
    "SearchIndex": "wharfinger.sources.search",
    "Skills": "wharfinger.sources.skill_folder",
    "UnusableFolder": "wharfinger.sources.folder.source",
    "UnusableSource": "wharfinger.source",
    "command": "wharfinger.sources.commands",
    "files": "wharfinger.sources.folder.source",
    "git": "wharfinger.sources.git_repository",
    "journal": "wharfinger.sources.systemd_journal",
    "logs": "wharfinger.sources.log_files",
    "objects": "wharfinger.sources.object_store",
    "openapi": "wharfinger.sources.http_api",
    "resource_tools": "wharfinger.sources.resource_tool_set",
    "screen": "wharfinger.sources.screens",
    "search_index": "wharfinger.sources.search",
    "skills": "wharfinger.sources.skill_folder",
    "sql": "wharfinger.sources.sql_database",
    "system": "wharfinger.sources.system_state",
    "tables": "wharfinger.sources.table_files",
    "upstream": "wharfinger.sources.upstream_server",
    "web": "wharfinger.sources.web_pages",
}
"""The module that defines each name. No submodule may have one of these names: importing it would hide the member."""


def __getattr__(name: str) -> object:
    home = _MODULES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
