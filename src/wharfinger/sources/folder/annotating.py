"""Annotates files by their names and types: which to read first, and which only people can use."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import iso
from wharfinger.types.base import or_unset

__all__ = ["annotations_of"]

README, OTHER_README, TOP, GENERATED = 1.0, 0.8, 0.7, 0.1
"""Priorities: the readme of the folder, other readmes, the files and folders at the top, and generated files."""

_GENERATED_NAMES = frozenset(("package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "go.sum"))
_GENERATED_ENDS = (".lock", ".map", ".min.js", ".min.css", ".pyc", ".o", ".class", ".snap")
_FOR_PEOPLE = ("font/", "video/", "application/x-executable", "application/vnd.microsoft.portable-executable")
"""Types that no model reads, or the beginnings of such types."""
_ARCHIVES = frozenset(
    {
        mime.OCTETS, "application/zip", "application/gzip", "application/x-bzip2", "application/x-xz",
        "application/zstd", "application/x-7z-compressed", "application/vnd.rar", "application/x-tar",
        "application/java-archive", "application/wasm", "application/x-iso9660-image", "application/x-rpm",
        "application/vnd.debian.binary-package", "application/vnd.android.package-archive",
    }
)  # fmt: skip


def annotations_of(parts: tuple[str, ...], mime_type: str, modified: float | None) -> t.Annotations | UnsetType:
    """Return the priority, the audience and the time of the last change of a file or directory.

    Priority and audience follow from its path below the folder and its type. Most files have neither: they are equally
    important, and for everyone.
    """
    stamp = "" if modified is None else iso(modified)
    priority = _priority(parts, mime_type)
    for_people = mime_type in _ARCHIVES or mime_type.startswith(_FOR_PEOPLE)
    if not stamp and priority is None and not for_people:
        return UNSET
    return t.Annotations(
        audience=["user"] if for_people else UNSET,
        priority=or_unset(priority),
        last_modified=stamp or UNSET,
    )


def _priority(parts: tuple[str, ...], mime_type: str) -> float | None:
    if not parts:
        return None
    name = parts[-1].lower()
    if name.endswith(_GENERATED_ENDS) or name in _GENERATED_NAMES:
        return GENERATED
    if mime_type != mime.DIRECTORY and name.partition(".")[0] == "readme":
        return README if len(parts) == 1 else OTHER_README
    return TOP if len(parts) == 1 else None
