"""Makes the result of reading a directory: a text that lists the children, and a content for each of them."""

from __future__ import annotations

import time
from calendar import timegm
from collections.abc import Callable, Sequence

from msgspec import UNSET, UnsetType

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import iso, size_text
from wharfinger.sources.windows.window import SUMMARY

__all__ = [
    "MAX_CHILDREN",
    "Describe",
    "description_of",
    "listing_text",
    "modified_annotations",
    "modified_at",
    "summaries",
]

MAX_CHILDREN = 1_000
"""Maximum number of entries that a read of a directory returns."""

Describe = Callable[[t.Resource], str]
"""Returns a few words about a file, for the listing of its directory."""


def listing_text(
    directory: str,
    counts: str,
    children: Sequence[t.Resource],
    template: str = "",
    *,
    describe: Describe | None = None,
) -> str:
    """Return the text about a directory: the numbers of its entries, and a line for each child.

    Args:
        directory: The directory, with a slash at its end.
        counts: The numbers of its entries, such as `1 folder and 2 files`.
        children: The first entries, at most `MAX_CHILDREN`.
        template: If there are more entries than `children`, the template whose completion offers them.
        describe: Returns a few words about a file; by default its size, type and time of change.
    """
    lines = [f"{directory} holds {counts}."]
    if template:
        sentence = f"The others are in resources/list, and in the completion of {template}."
        lines.append(f"Only the first {len(children):,} entries follow. {sentence}")
    if children:
        lines.append("")
    describe = describe or _facts
    for child in children:
        after_name = "/" if child.mime_type == mime.DIRECTORY else f"  ({describe(child)})"
        lines.append(f"{child.name}{after_name}  {child.uri}")
    return "\n".join(lines) + "\n"


def summaries(children: Sequence[t.Resource], *, describe: Describe | None = None) -> list[t.ResourceContents]:
    """Return a content for each child of a directory.

    VS Code shows a child with an empty content as a directory, and any other as a file (mcpResourceFilesystem,
    `readdir`). So the text of a file's content is a few words about the file.
    """
    describe = describe or _brief
    contents: list[t.ResourceContents] = []
    for child in children:
        is_directory = child.mime_type == mime.DIRECTORY
        contents.append(
            t.ResourceContents(
                uri=child.uri,
                mime_type=mime.DIRECTORY if is_directory else mime.TEXT,
                text="" if is_directory else describe(child),
                meta={SUMMARY: True},
            )
        )
    return contents


def description_of(child: t.Resource) -> str:
    """A `Describe` for sources whose resources have descriptions."""
    return str(child.description)


def modified_annotations(seconds: float | None) -> t.Annotations | UnsetType:
    """Return annotations with the time of the last change (Unix time); UNSET if that is unknown."""
    stamp = "" if seconds is None else iso(seconds)
    return t.Annotations(last_modified=stamp) if stamp else UNSET


def modified_at(child: t.Resource) -> float:
    """Return the time of the last change of a child (Unix time, whole seconds); 0 if that is unknown."""
    if child.annotations is UNSET or not child.annotations.last_modified:
        return 0
    return timegm(time.strptime(str(child.annotations.last_modified), "%Y-%m-%dT%H:%M:%SZ"))


def _brief(child: t.Resource) -> str:
    return " ".join(_size_and_type(child))


def _facts(child: t.Resource) -> str:
    modified = "" if child.annotations is UNSET else child.annotations.last_modified
    return ", ".join([*_size_and_type(child), *([str(modified)] if modified else [])])


def _size_and_type(child: t.Resource) -> list[str]:
    size = [] if child.size is UNSET else [size_text(child.size)]
    return [*size, child.mime_type or "of unknown type"]
