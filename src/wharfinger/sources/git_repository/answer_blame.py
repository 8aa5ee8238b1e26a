"""Who wrote each line of a file: `git://label/blame/{rev}/{+path}{?lines}`.

`git blame --porcelain` names a commit and a path for each line. Authors, times and subjects are read from the
objects of the commits, and the lines from the object of the file. No other output of git is shown.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown, size_text
from wharfinger.errors import InvalidArgument
from wharfinger.policy.current import may_read
from wharfinger.source import VERSION
from wharfinger.sources.directories import modified_annotations
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_objects import is_file
from wharfinger.sources.git_repository.git_process import GitFailed, run_git
from wharfinger.sources.git_repository.git_text import subject
from wharfinger.sources.git_repository.object_reader import WHOLE_BYTES
from wharfinger.sources.git_repository.parsing import Commit, GitTreeEntry
from wharfinger.sources.windows.window import NEXT, Window, continuation, parse_window, with_query
from wharfinger.sources.windows.window_budget import first_that_fit, within_budget

__all__ = ["BlameAnswer"]

DEFAULT_LINES = 200
"""Lines of a window if the URI has neither `lines` nor `tail`, or if its `lines` has no end."""
MAX_LINES = 5_000
"""Maximum number of lines of any window."""
DEFAULT_CHARACTERS, MAX_CHARACTERS = 32_000, 256_000
"""Characters after which a window ends early: the first number if the URI has neither `lines` nor `tail`."""
MAX_LINE_CHARACTERS = 2_000
"""Characters of one line that are shown."""
HISTORY_SECONDS = 20.0
"""Timeout for reading the history of a file."""

_HEADER = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64}) \d+ (\d+)(?: \d+)?").fullmatch
_ESCAPE = re.compile(rb'\\([abfnrtv"\\]|[0-7]{3})')
_BYTES_BY_ESCAPE = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))


class LineOrigin(NamedTuple):
    """The commit in which a line got its current text, and the path of the file in that commit.

    `boundary` is true if git looks no further: at the first commit, or at the oldest one of a shallow clone.
    """

    oid: str
    path: bytes
    boundary: bool = False


class BlameAnswer(GitAnswer):
    """The commits that last changed the lines of a file."""

    _commit: Commit
    _entry: GitTreeEntry

    async def load(self) -> None:
        self.need_path()
        revision = await self.revision(self.address.rev)
        self._commit = await self.objects.commit_of(revision.oid)
        self._entry = await self.objects.find(self._commit.tree, self.address.parts)
        if not is_file(self._entry.mode):
            raise InvalidArgument(
                "Blame shows the lines of one file: name it, as in "
                f"{self.uris.blame(self.address.rev, (*self.address.parts, 'FILE'))}."
            )
        self.version = await self._last_change()
        self.fixed = revision.fixed
        self.modified = self._commit.committer.seconds

    async def _last_change(self) -> str:
        """Return the last commit that changed the file, followed by `boundary_version` if that is not 0.

        If git does not find the commit in time, the commit of the revision takes its place.
        """
        cache, boundary_version = self.repository.last_changes, self.repository.references.boundary_version
        key = (self._commit.oid, self.path, boundary_version)
        last_change = cache.get(key)
        if last_change is None:
            output = await run_git(
                self.repository.private_directory, "rev-list", "-n1", self._commit.oid, "--", self.path,
                seconds=HISTORY_SECONDS, partial=True,
            )  # fmt: skip
            last_change = cache.put(key, output.data.decode("ascii").strip() or self._commit.oid)
        return f"{last_change}.{boundary_version}" if boundary_version else last_change

    async def resource(self) -> t.Resource:
        rev = shown(self.address.rev)
        path = shown("/".join(self.address.parts))
        return t.Resource(
            uri=self.uri,
            name=f"blame of {shown(self.address.parts[-1])}",
            title=f"Who wrote the lines of {path} at {rev}",
            mime_type=mime.TEXT,
            annotations=modified_annotations(self.modified),
            meta={VERSION: self.version},
        )

    async def contents(self) -> list[t.ResourceContents]:
        lines = await self._lines()
        window = parse_window(self.address.query)
        if not lines:
            return [self.text("The file is empty.\n")]
        first, last = _range(window, len(lines))
        origins = await self._origins(first, last)
        names = list(dict.fromkeys(origin.oid for origin in origins))
        commits = {oid: await self._shown_commit(oid) for oid in names}
        all_lines = f"the {len(lines):,} lines"
        room = within_budget(MAX_CHARACTERS if window else DEFAULT_CHARACTERS)
        room -= len(self._title(f"{first}-{last} of {all_lines}"))
        shown_lines = first_that_fit(_blamed_lines(lines, origins, commits, first, self.path), room)
        end = first + len(shown_lines) - 1
        title = self._title("all lines" if (first, end) == (1, len(lines)) else f"{first}-{end} of {all_lines}")
        contents = [self.text(title + "".join(shown_lines))]
        last_requested = len(lines) if window is None or window.kind == "tail" or window.last is None else window.last
        if end < min(last_requested, len(lines)):
            until = "" if window is None or window.last is None else str(window.last)
            next_uri = with_query(self.uris.blame(self._commit.oid, self.address.parts), f"lines={end + 1}-{until}")
            contents[0].meta = {VERSION: self.version, NEXT: next_uri}
            contents.append(continuation(next_uri, f"Lines {first}-{end} of {len(lines):,}."))
        return contents

    def _title(self, line_range: str) -> str:
        path, rev = shown("/".join(self.address.parts)), shown(self.address.rev)
        example = self.uris.commit("COMMIT")
        return f"Who last changed {line_range} of {path} at {rev}; read a commit by its name: {example}\n\n"

    async def _shown_commit(self, oid: str) -> Commit | None:
        """Return the part of a commit that the caller may read; None if the caller may not read it."""
        commit = await self.objects.commit(oid)
        if self.readable is None:
            return commit
        return await self.readable.without_hidden(commit) if may_read(self.uris.commit(oid)) else None

    async def _lines(self) -> list[str]:
        """Return the lines as git counts them, without their line ends."""
        size = (await self.objects.info(self._entry.oid)).size
        if size > WHOLE_BYTES:
            raise InvalidArgument(
                f"This file has {size_text(size)}, and blame reads at most {size_text(WHOLE_BYTES)}: read its commits "
                f"in {self.uris.log(self.address.rev)}?path=PATH."
            )
        decoded = await asyncio.to_thread(mime.decode_text, await self.objects.reader.contents(self._entry.oid))
        # git finds lines by the byte 10, which in UTF-16 is half a character.
        if decoded is None or decoded[1].startswith(("utf-16", "utf-32")):
            file = self.uris.tree(self.address.rev, self.address.parts)
            raise InvalidArgument(f"This file has no lines that git can tell apart: read {file} instead.")
        lines = decoded[0].split("\n")
        return lines[:-1] if not lines[-1] else lines

    async def _origins(self, first: int, last: int) -> list[LineOrigin]:
        """Return the origin of each of these lines."""
        origins = await self._run_blame(first, last)
        readable = self.readable
        if readable is None or all(
            readable.may_read(origin.oid, origin.path) for origin in origins if origin.path != self.path
        ):
            return origins
        # The file once had a name that may not be read. So show only its history under its present name.
        return await self._run_blame(first, last, "--no-follow")

    async def _run_blame(self, first: int, last: int, *options: str) -> list[LineOrigin]:
        try:
            output = await run_git(
                self.repository.private_directory, "blame", "--porcelain", *options, f"-L{first},{last}",
                self._commit.oid, "--", self.path, seconds=HISTORY_SECONDS,
            )  # fmt: skip
        except GitFailed as error:
            if not error.why:
                raise GitFailed(
                    f"The history of this file is long: {error.message.rstrip('.')}. Ask for fewer lines, such as "
                    f"lines=1-20, or read its commits in {self.uris.log(self.address.rev)}?path=PATH."
                ) from None
            raise
        return parse_blame(output.data)


def parse_blame(data: bytes) -> list[LineOrigin]:
    """Parse the output of `git blame --porcelain`, which describes a commit only where it first appears."""
    origins: list[LineOrigin] = []
    paths: dict[str, bytes] = {}
    boundaries: set[str] = set()
    oid = ""
    for line in data.split(b"\n"):
        if line.startswith(b"\t"):
            origins.append(LineOrigin(oid, paths.get(oid, b""), oid in boundaries))
            oid = ""
        elif not oid:
            header = _HEADER(line)
            oid = header[1].decode("ascii") if header else ""
        elif line.startswith(b"filename "):
            paths[oid] = unquote_path(line.removeprefix(b"filename "))
        elif line == b"boundary":
            boundaries.add(oid)
    return origins


def unquote_path(name: bytes) -> bytes:
    """Decode a path that git printed. Unusual bytes are quoted and escaped (git-config(1), `core.quotePath`)."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name
    return _ESCAPE.sub(lambda match: bytes((_BYTES_BY_ESCAPE.get(match[1][0]) or int(match[1], 8) & 255,)), name[1:-1])


def _range(window: Window | None, line_count: int) -> tuple[int, int]:
    """Return the first and the last line of a window of a file with `line_count` lines.

    Raises:
        InvalidArgument: it begins after the last line, or is a window of bytes.
    """
    if window is None:
        return 1, min(DEFAULT_LINES, line_count)
    if window.kind == "tail":
        return max(1, line_count - min(window.first, MAX_LINES) + 1), line_count
    if window.kind != "lines":
        raise InvalidArgument("Blame is read by lines: write lines=1-200 or tail=50.")
    if window.first > line_count:
        raise InvalidArgument(f"The file has {many(line_count, 'line')}: lines={window.first}- begins after its end.")
    last = window.first + DEFAULT_LINES - 1 if window.last is None else window.last
    return window.first, min(last, line_count, window.first + MAX_LINES - 1)


def _blamed_lines(
    lines: list[str], origins: list[LineOrigin], commits: dict[str, Commit | None], first: int, path: bytes
) -> Iterator[str]:
    """Yield each line with its number. Where the origin changes, a line about the commit comes first."""
    width = len(str(first + len(origins) - 1))
    for index, origin in enumerate(origins):
        is_new = not index or origins[index - 1] != origin
        commit_line = _commit_line(origin, commits[origin.oid], path) if is_new else ""
        number = first + index
        text = lines[number - 1]
        cut = f"{text[:MAX_LINE_CHARACTERS]}[… {len(text):,} characters]" if len(text) > MAX_LINE_CHARACTERS else text
        yield f"{commit_line}{number:>{width + 2}}  {cut}\n"


def _commit_line(origin: LineOrigin, commit: Commit | None, path: bytes) -> str:
    if commit is None:
        return "a commit that is not shown\n"
    try:
        day = time.strftime("%Y-%m-%d", time.gmtime(commit.author.seconds + commit.author.offset * 60))
    except (OverflowError, ValueError, OSError):
        day = "(invalid time)"
    name = re.sub(r" <[^<>]*>$", "", commit.author.name)
    moved = f" (in {shown(os.fsdecode(origin.path))})" if origin.path and origin.path != path else ""
    older = " or earlier, where this shallow clone ends" if origin.boundary and commit.parents else ""
    return f"{commit.oid[:12]} {day}{older} {shown(name)}: {subject(commit)}{moved}\n"
