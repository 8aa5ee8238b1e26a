"""The lines of a revision's files that contain a text: `git://label/grep/{rev}{?text,path,after}`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import VERSION
from wharfinger.sources.directories import modified_annotations
from wharfinger.sources.folder.file_uri import quote as quote_part
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_objects import NoSuchPath, is_tree
from wharfinger.sources.git_repository.git_process import run_git
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.parsing import Commit
from wharfinger.sources.git_repository.safe_text import decode
from wharfinger.sources.windows.window import NEXT, continuation
from wharfinger.sources.windows.window_budget import first_that_fit, within_budget

__all__ = ["GrepAnswer"]

WINDOW_LINES = 100
"""Maximum number of lines of a window."""
MAX_FOUND_LINES = 10_000
"""Maximum number of lines that a search finds."""
WINDOW_CHARACTERS = 32_000
"""Characters after which a window ends early."""
MAX_PATHS = 1_000
"""Maximum number of files and folders that are passed to git, for a caller who may not read all of them."""
LINE_CHARACTERS = 300
"""Characters of a line that are shown."""
MAX_TEXT_CHARACTERS = 1_000
"""Maximum number of characters of a text to search for."""
MAX_OUTPUT_BYTES = 8 << 20
"""Maximum number of bytes of git's output that are read."""
SEARCH_SECONDS = 10.0
"""Time after which a search ends, and returns the lines found so far."""


class FoundLine(NamedTuple):
    """A line that contains the text."""

    path: bytes
    number: int
    text: str


class GrepAnswer(GitAnswer):
    """The lines of a revision's files that contain a text. The case of ASCII letters is ignored."""

    _commit: Commit

    async def load(self) -> None:
        revision = await self.revision(self.address.rev)
        self._commit = await self.objects.commit_of(revision.oid)
        self.version, self.fixed = self._commit.tree, revision.fixed
        self.modified = self._commit.committer.seconds

    async def resource(self) -> t.Resource:
        rev = shown(self.address.rev)
        return t.Resource(
            uri=self.uri,
            name=f"grep in {rev}",
            title=f"Lines that contain a text, in the files at {rev}",
            mime_type=mime.TEXT,
            annotations=modified_annotations(self.modified),
            meta={VERSION: self.version},
        )

    async def contents(self) -> list[t.ResourceContents]:
        text, parts, after = self._read_query()
        found, cut = await self._search(text, parts)
        self.fixed = self.fixed and cut not in ("time", "failure")
        window = found[after : after + WINDOW_LINES]
        if not window:
            return [self.text(self._nothing_found(text, len(found), cut))]
        title = self._title(text, len(found), cut)
        line_range = f", of which these are {after + 1}-{after + len(window)}"
        room = within_budget(WINDOW_CHARACTERS) - len(title) - len(line_range)
        lines = first_that_fit(self._found_lines(window, text), room)
        end = after + len(lines)
        if len(lines) < len(found):
            title += f", of which these are {after + 1}-{end}"
        contents = [self.text(f"{title}:\n\n{''.join(lines)}")]
        if end < len(found):
            query = {name: value for name, value in self.address.query.items() if name != "after"}
            query["after"] = str(end)
            pairs = [f"{name}={_escaped(value)}" for name, value in query.items()]
            next_uri = f"{self.uris.grep(self._commit.oid)}?{'&'.join(pairs)}"
            contents[0].meta = {VERSION: self.version, NEXT: next_uri}
            contents.append(continuation(next_uri, f"{many(end, 'line')} so far."))
        return contents

    def _found_lines(self, found: Sequence[FoundLine], text: str) -> Iterator[str]:
        """Yield each line with its number. A line that names the file comes before the first line of each file."""
        for index, line in enumerate(found):
            file_line = ""
            if not index or found[index - 1].path != line.path:
                name = os.fsdecode(line.path)
                uri = self.uris.tree(self.address.rev, tuple(name.split("/")))
                file_line = ("\n" if index else "") + f"{shown(name)}  {uri}\n"
            yield f"{file_line}{line.number:>6}  {_short(line.text, text)}\n"

    def _read_query(self) -> tuple[str, Parts, int]:
        query = self.address.query
        text, after = query.get("text", ""), query.get("after", "0")
        if not text or len(text) > MAX_TEXT_CHARACTERS or "\n" in text or "\0" in text:
            raise InvalidArgument(
                f"text= must be one line of text, of at most {MAX_TEXT_CHARACTERS:,} characters, as in "
                f"{self.uris.grep(self.address.rev)}?text=routing"
            )
        if not (after.isascii() and after.isdecimal() and len(after) < 8):
            raise InvalidArgument("after= must be a number of at most 7 digits, as in the link to the next window.")
        return text, self.path_parameter("path"), int(after)

    async def _search(self, text: str, parts: Parts) -> tuple[list[FoundLine], str]:
        """Return the lines, and why they are not all: `time`, `size`, `failure`, or an empty string."""
        if parts:
            try:
                entry = await self.objects.find(self._commit.tree, parts)
                if self.readable is not None and not self.readable.may_read_any(self.address.rev, parts, entry):
                    raise NoSuchPath(self.uri)
            except NoSuchPath:
                raise InvalidArgument(f"path={shown('/'.join(parts))} is not in {shown(self.address.rev)}.") from None
        paths = await self._searched_paths(parts)
        if paths is None:
            return [], ""
        output = await run_git(
            self.repository.private_directory, "grep", "-F", "-I", "-i", "-n", "-z", "--threads=1", "--no-color",
            "--full-name", "--no-textconv", "-e", os.fsencode(text), self._commit.tree, "--", *paths,
            max_output_bytes=MAX_OUTPUT_BYTES, seconds=SEARCH_SECONDS, partial=True, codes=(0, 1),
        )  # fmt: skip
        matches = parse_grep(output.data, self._commit.tree)
        if self.path_filter is not None:
            readable = {path: self.may_read(path) for path in {line.path for line in matches}}
            matches = [line for line in matches if readable[line.path]]
        # git leaves out the files that a partial clone lacks.
        skipped = b"unable to read" in output.stderr
        return matches[:MAX_FOUND_LINES], output.cut or ("failure" if skipped else "")

    async def _searched_paths(self, parts: Parts) -> Sequence[bytes] | None:
        """Return the files and folders to search: only those that may be read, unless they are too many for git.

        An empty list means the whole tree, and None that nothing may be read.
        """
        unfiltered = [os.fsencode("/".join(parts))] if parts else []
        readable, rev = self.readable, self.address.rev
        if readable is None or self.path_filter is None:
            return unfiltered
        paths: list[bytes] = []
        waiting = [parts]
        while waiting:
            parts = waiting.pop()
            entry = await self.objects.find(self._commit.tree, parts)
            if not is_tree(entry.mode):
                paths += [os.fsencode("/".join(parts))] if readable.may_read(rev, parts) else []
            elif parts and readable.reads_all_below(rev, parts):
                paths.append(os.fsencode("/".join(parts)))
            elif readable.may_read_below(rev, parts):
                waiting += [(*parts, child.part) for child in await self.objects.tree(entry.oid)]
            if len(paths) + len(waiting) > MAX_PATHS:  # `_search` drops the lines that may not be read
                return unfiltered
        return sorted(paths) or None

    def _title(self, text: str, total: int, cut: str) -> str:
        more = "At least " if cut or total >= MAX_FOUND_LINES else ""
        return f"{more}{many(total, 'line')}{self._where()} with “{shown(text)}”{_end_of_search(cut)}"

    def _nothing_found(self, text: str, total: int, cut: str) -> str:
        if total:
            return f"{self._title(text, total, cut)}: there is no window after them.\n"
        pickaxe = f"{self.uris.log(self.address.rev)}?pickaxe={_escaped(text)}"
        return (
            f"No line{self._where()} has “{shown(text)}”{_end_of_search(cut)}. Try a part of it. Commits that added "
            f"or removed it: {pickaxe}\n"
        )

    def _where(self) -> str:
        where = f" below {shown(self.address.query['path'])}" if self.address.query.get("path") else ""
        return f"{where} at {shown(self.address.rev)} ({self._commit.oid[:12]})"


def _end_of_search(cut: str) -> str:
    words = {
        "time": f" in the first {SEARCH_SECONDS:g} s",
        "size": " before the search ended",
        "failure": " in the files that can be read (see `git fsck`)",
    }
    return words.get(cut, "")


def parse_grep(data: bytes, tree: str) -> list[FoundLine]:
    r"""Parse the output of `git grep -n -z` for a tree: `TREE:path\0number\0line\n`. A cut last line is dropped."""
    pattern = re.compile(tree.encode() + rb":([^\0]*)\0(\d+)\0([^\n]*)\n")
    lines: list[FoundLine] = []
    position = 0
    while match := pattern.match(data, position):
        lines.append(FoundLine(match[1], int(match[2]), decode(match[3].removesuffix(b"\r"))))
        position = match.end()
    return lines


def _short(line: str, text: str) -> str:
    """Return a line, or the part of it around the text."""
    line = line.strip()
    if len(line) <= LINE_CHARACTERS:
        return shown(line)
    position = max(0, line.lower().find(text.lower()))
    begin = max(0, min(position - 80, len(line) - LINE_CHARACTERS))  # 80 characters of context before the text
    end = begin + LINE_CHARACTERS
    return f"{'…' if begin else ''}{shown(line[begin:end])}{'…' if end < len(line) else ''}"


def _escaped(value: str) -> str:
    return "/".join([quote_part(part) for part in value.split("/")]).replace("&", "%26").replace("+", "%2B")
