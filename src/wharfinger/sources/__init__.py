"""Data as resources: what is ready to be included in a server, each source loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wharfinger.sources.folder import Folder, UnusableFolder, files
    from wharfinger.sources.mirror_tools import Mirrors, mirrors
    from wharfinger.sources.skill_folder import Skills, skills

__all__ = ["Folder", "Mirrors", "Skills", "UnusableFolder", "files", "mirrors", "skills"]

_HOMES = {
    "Folder": "wharfinger.sources.folder",
    "Mirrors": "wharfinger.sources.mirror_tools",
    "Skills": "wharfinger.sources.skill_folder",
    "UnusableFolder": "wharfinger.sources.folder",
    "files": "wharfinger.sources.folder",
    "mirrors": "wharfinger.sources.mirror_tools",
    "skills": "wharfinger.sources.skill_folder",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wharfinger.sources' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
