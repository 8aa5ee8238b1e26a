"""The commits that led to a revision: `git://label/log/{rev}{?path,author,grep,pickaxe,since,until,limit,after}`.

The URI of the next window names the commit at which the log began, so that new commits do not change it.
"""

from __future__ import annotations

import calendar
import os
import re
import time
from urllib.parse import quote as quote_query

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import VERSION
from wharfinger.sources.directories import modified_annotations
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_objects import NoSuchPath, is_tree
from wharfinger.sources.git_repository.git_text import log_entry
from wharfinger.sources.git_repository.git_uris import Parts
from wharfinger.sources.git_repository.history import DEFAULT_COMMITS, SEARCH_SECONDS, CommitWindow, LogSelection
from wharfinger.sources.git_repository.parsing import Commit
from wharfinger.sources.git_repository.revision_names import is_full
from wharfinger.sources.windows.window import NEXT, continuation
from wharfinger.sources.windows.window_budget import first_that_fit, window_bytes, within_budget

__all__ = ["LogAnswer"]

MAX_LIMIT_COMMITS = 1_000
"""Maximum number of commits of one window."""
DEFAULT_WINDOW_CHARACTERS = 32_000
"""Maximum number of characters of a window whose URI has no `limit`."""
MAX_TEXT_CHARACTERS = 1_000
"""Maximum number of characters of a text to search for."""
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?(?:Z|([+-])(\d\d):?(\d\d))?", re.ASCII
).fullmatch
_SECONDS = re.compile(r"\d{1,12}", re.ASCII).fullmatch
_AGE = re.compile(r"(\d{1,5})(min|h|d|w|mo|y)", re.ASCII).fullmatch
_UNITS = {"min": 60, "h": 3_600, "d": 86_400, "w": 604_800, "mo": 2_592_000, "y": 31_536_000}


class LogAnswer(GitAnswer):
    """Some commits that led to a revision, newest first."""

    _tip: Commit
    _selection: LogSelection

    async def load(self) -> None:
        revision = await self.revision(self.address.rev)
        self._tip = await self.objects.commit_of(revision.oid)
        query = self.address.query
        self.version = self._tip.oid
        self.fixed = revision.fixed and not any(_AGE(query.get(name, "")) for name in ("since", "until"))
        self.modified = self._tip.committer.seconds
        parts = self.path_parameter("path")
        self._selection = LogSelection(
            os.fsencode("/".join(parts)),
            bool(parts) and not await self._is_folder(parts),
            _read_time("since", query.get("since")),
            _read_time("until", query.get("until"), end_of_day=True),
            *[_read_text(name, query.get(name)) for name in ("author", "grep", "pickaxe")],
        )

    async def _is_folder(self, parts: Parts) -> bool:
        try:
            return is_tree((await self.objects.find(self._tip.tree, parts)).mode)
        except NoSuchPath:  # perhaps it was removed
            return False

    async def resource(self) -> t.Resource:
        rev = shown(self.address.rev)
        return t.Resource(
            uri=self.uri,
            name=f"log of {rev}",
            title=f"Commits that led to {rev}",
            mime_type=mime.TEXT,
            annotations=modified_annotations(self.modified),
            meta={VERSION: self.version},
        )

    async def contents(self) -> list[t.ResourceContents]:
        query = self.address.query
        limit = _read_limit(query.get("limit", str(DEFAULT_COMMITS)))
        after = query.get("after")
        digits = self.repository.private_directory.oid_length
        if after is not None and not (is_full(after) and len(after) == digits):
            raise InvalidArgument(f"after= must be the full name of a commit of this log, with {digits} digits.")
        boundary_version = self.repository.references.boundary_version
        histories, readable = self.repository.histories, self.readable
        if readable is None:
            window = await histories.window(self._tip.oid, boundary_version, after, limit, self._selection)
        else:
            window = await readable.window(histories, self._tip.oid, after, limit, self._selection)
        self.fixed = self.fixed and not window.ended_early
        names = [each.oid for each in window.commits]
        commits_by_oid = await self.objects.commits(names)
        commits = [commits_by_oid.get(oid) or await self.objects.commit(oid) for oid in names]
        if readable is not None:
            commits = [await readable.without_hidden(commit) for commit in commits]
        room = window_bytes() if "limit" in query else within_budget(DEFAULT_WINDOW_CHARACTERS)
        reason = self._reason_for_end(window) if window.after is None else []
        about = f"One of them in full: {self.uris.commit('COMMIT')}, and its changes: {self.uris.diff('COMMIT')}\n"
        entries = first_that_fit(
            (log_entry(commit, logged.old_path) for commit, logged in zip(commits, window.commits, strict=True)),
            room - len(self._title(len(commits))) - len("\n".join(["", *reason, about])),
        )
        if len(entries) < len(commits):
            window, reason = CommitWindow(window.commits[: len(entries)], commits[len(entries) - 1].oid), []
        contents = [self.text(self._title(len(entries)) + "".join(entries) + "\n".join(["", *reason, about]))]
        if window.after is not None:
            next_uri = self._log_uri(self._tip.oid, {"after": window.after})
            contents[0].meta = {VERSION: self.version, NEXT: next_uri}
            contents.append(continuation(next_uri, f"{many(len(entries), 'commit')} in this window."))
        return contents

    def _title(self, count: int) -> str:
        tip = f"{shown(self.address.rev)} ({self._tip.oid[:12]})"
        conditions = [
            f"{name}={shown(value)}" for name, value in self.address.query.items() if name not in ("limit", "after")
        ]
        if not count:
            description = (
                f"matches {', '.join(conditions)}: remove a condition, or make one broader" if conditions else "is left"
            )
            return f"0 commits. None that led to {tip} {description}.\n\n"
        where = f" with {', '.join(conditions)}" if conditions else ""
        return f"{many(count, 'commit')} that led to {tip}{where}, newest first.\n\n"

    def _reason_for_end(self, window: CommitWindow) -> list[str]:
        """Return a line that says where and why the log ends, if there is a reason."""
        last = window.commits[-1] if window.commits else None
        path = shown(os.fsdecode(self._selection.path))
        if window.cut:
            bound = _CUT_REASONS[window.cut]
            if last is None:
                return [f"The search ended {bound}, and found nothing until then: begin at an older revision."]
            query = {"path": os.fsdecode(last.path)} if last.path else {}
            older = self._log_uri(f"{last.oid}~1", query)
            return [
                f"The search ended {bound}: there may be older commits. To look at what led to the last one: {older}"
            ]
        if self.repository.private_directory.shallow:
            # With `since`, the clone may have older commits; without it, its boundary looks like the first commit.
            return ["This is a shallow clone: it has no older commits."] if self._selection.since is None else []
        if last is not None and last.status == "A":
            return [f"{last.oid[:12]} added {shown(os.fsdecode(last.path))}: it has no older history under any name."]
        if path and last is not None and not last.path:
            return [f"Renames of folders are not followed: the files of {path} may have an older history of their own."]
        return []

    def _log_uri(self, rev: str, changed: dict[str, str]) -> str:
        """Return the URI of the log of `rev` with the parameters of this URI except `after`, updated by `changed`."""
        query = {name: value for name, value in self.address.query.items() if name != "after"}
        for name, seconds in (("since", self._selection.since), ("until", self._selection.until)):
            if _AGE(query.get(name, "")):  # an age would mean another time in the next window
                query[name] = str(seconds)
        query |= changed
        pairs = [f"{name}={quote_query(value, '/:', errors='surrogateescape')}" for name, value in query.items()]
        return f"{self.uris.log(rev)}?{'&'.join(pairs)}"


_CUT_REASONS = {
    "time": f"after {SEARCH_SECONDS:g} s",
    "size": "at the maximum length of a log",
    "failure": "at a commit that cannot be read (see `git fsck`)",
}


def _read_limit(value: str) -> int:
    if value.isascii() and value.isdecimal() and len(value) < 6 and 1 <= int(value) <= MAX_LIMIT_COMMITS:
        return int(value)
    raise InvalidArgument(
        f"limit= must be a number of commits from 1 to {MAX_LIMIT_COMMITS:,}, such as limit={DEFAULT_COMMITS}."
    )


def _read_text(name: str, value: str | None) -> str:
    if value is None:
        return ""
    if not value or len(value) > MAX_TEXT_CHARACTERS or "\0" in value or "\n" in value:
        raise InvalidArgument(f"{name}= must be one line of text, of at most {MAX_TEXT_CHARACTERS:,} characters.")
    return value


def _read_time(name: str, value: str | None, *, end_of_day: bool = False) -> int | None:
    """Return the Unix time of `7d` (ago), `2026-11-20`, `2026-11-20T09:30Z` or a number, which is a Unix time itself.

    A date means the start of its day, or the end if `end_of_day` is true.
    """
    if value is None:
        return None
    if _SECONDS(value):
        return int(value)
    age = _AGE(value)
    if age is not None:
        return max(0, int(time.time()) - int(age[1]) * _UNITS[age[2]])
    match = _TIME(value)
    try:
        if match is None:
            raise ValueError
        year, month, day, hour, minute, second, sign, hours, minutes = match.groups()
        fields = [int(part or 0) for part in (year, month, day, hour, minute, second)]
        text = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*fields)
        seconds = calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        raise InvalidArgument(
            f"{name}= must be a time: 7d (also min, h, w, mo, y), 2026-11-20, 2026-11-20T09:30:00Z or 1795166400."
        ) from None
    offset = (int(hours) * 60 + int(minutes)) * 60 if sign else 0
    return max(0, seconds - (-offset if sign == "-" else offset) + (86_399 if end_of_day and hour is None else 0))
