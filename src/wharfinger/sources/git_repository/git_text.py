"""Writes commits, changes, logs and the top of a repository as text.

Characters of names and messages that could move a cursor or reorder text are escaped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from wharfinger.content.text import many, shown
from wharfinger.sources.git_repository.git_differences import TreeChange
from wharfinger.sources.git_repository.parsing import Commit, Person, Tag
from wharfinger.sources.git_repository.safe_text import paragraph

__all__ = [
    "change_line",
    "commit_text",
    "local_time",
    "log_entry",
    "subject",
    "top_text",
]

MESSAGE_CHARACTERS = 64 << 10
"""Maximum number of characters of a message that are shown."""
SUBJECT_CHARACTERS = 200
"""Maximum number of characters of a message's first line in a list."""


def local_time(person: Person) -> str:
    """Return the time of a person's action by their own clock, such as `2026-11-20 09:30:00 +0100`."""
    sign = "-" if person.offset < 0 else "+"
    hours, minutes = divmod(abs(person.offset), 60)
    try:
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(person.seconds + person.offset * 60))
    except (OverflowError, ValueError, OSError):
        return "(invalid time)"
    return f"{local} {sign}{hours:02}{minutes:02}"


def _indented(message: str) -> str:
    text = paragraph(message.strip("\n"))
    if len(text) > MESSAGE_CHARACTERS:
        text = text[:MESSAGE_CHARACTERS] + "\n[The message is longer, and is cut here.]"
    return "\n".join([f"    {line}" if line else "" for line in text.split("\n")])


def subject(commit: Commit) -> str:
    """Return the first line of a message as one short line."""
    first = shown(commit.subject.strip())
    return first if len(first) <= SUBJECT_CHARACTERS else first[:SUBJECT_CHARACTERS] + "…"


def commit_text(commit: Commit, tags: Sequence[Tag], changed: Sequence[TreeChange], more: bool, diff_uri: str) -> str:
    """Return the author, time, message and changed paths of a commit. `more` is true if there may be others.

    `diff_uri` is the URI of its difference.
    """
    lines = [f"commit {commit.oid}"]
    lines += [f"parent {parent}" for parent in commit.parents]
    lines += [f"author {shown(commit.author.name)}  {local_time(commit.author)}"]
    if commit.committer != commit.author:
        lines += [f"committer {shown(commit.committer.name)}  {local_time(commit.committer)}"]
    for tag in tags:
        by = f" by {shown(tag.tagger.name)}  {local_time(tag.tagger)}" if tag.tagger else ""
        lines += ["", f"tagged{by}", "", _indented(tag.message)]
    lines += ["", _indented(commit.message), ""]
    against = "its first parent" if len(commit.parents) > 1 else "its parent" if commit.parents else "nothing"
    count = f"{'More than ' if more else ''}{many(len(changed), 'path')}"
    if more and not changed:
        count = "An unknown number of paths"
    lines += [f"{count} changed against {against}; read {diff_uri}"]
    lines += [change_line(change) for change in changed]
    return "\n".join(lines) + "\n"


def change_line(change: TreeChange) -> str:
    """Return a line for one changed path: `A` added, `D` deleted, `M` modified, `R` renamed, `T` type changed."""
    path = shown(os.fsdecode(change.path))
    moved = f"{shown(os.fsdecode(change.old_path))} -> " if change.old_path else ""
    return f"  {change.status} {moved}{path}"


def log_entry(commit: Commit, old_path: bytes = b"") -> str:
    """Return a commit of a log with its whole message. `old_path` is the path of a renamed file before the commit."""
    lines = [
        f"{commit.oid[:12]} {local_time(commit.committer)}  {shown(commit.author.name)}",
        _indented(commit.message),
    ]
    if old_path:
        lines.append(f"    [renamed from {shown(os.fsdecode(old_path))}]")
    return "\n".join(lines) + "\n"


def top_text(
    name: str, head: str, counts: str, lists: Iterable[tuple[str, Iterable[str]]], forms: Iterable[str]
) -> str:
    """Return the text about a repository: its HEAD, branches and tags, and the URIs of everything else."""
    lines = [f"{name} is a git repository: {head}; {counts}."]
    for title, names in lists:
        lines += ["", title, *[f"  {line}" for line in names]]
    return "\n".join([*lines, "", *forms]) + "\n"
