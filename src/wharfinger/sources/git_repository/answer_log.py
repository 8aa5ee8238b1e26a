"""The log of what led to a revision: `git://label/log/{rev}{?path,after,since,until,limit}`, newest first.

The next window names the commit that this one began at, so that it stays what it is while commits arrive.
"""

from __future__ import annotations

import calendar
import functools
import re
import time
from urllib.parse import quote as quote_query

from wharfinger import types as t
from wharfinger.content import mime
from wharfinger.content.text import many, shown
from wharfinger.errors import InvalidArgument
from wharfinger.source import VERSION
from wharfinger.sources.directories import dated
from wharfinger.sources.folder.file_uri import UnreadableUri
from wharfinger.sources.git_repository.answers import GitAnswer
from wharfinger.sources.git_repository.git_text import log_text
from wharfinger.sources.git_repository.git_uris import plain_path
from wharfinger.sources.git_repository.history import LIMIT, Chosen
from wharfinger.sources.git_repository.parsing import Commit
from wharfinger.sources.git_repository.revision_names import GitRevision, commit_of
from wharfinger.sources.windows.window import NEXT, going_on

__all__ = ["LogAnswer"]

MOST = 1_000  # commits of one window
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?(?:Z|([+-])(\d\d):?(\d\d))?", re.ASCII
).fullmatch
_SECONDS = re.compile(r"\d{1,12}", re.ASCII).fullmatch
_OID = re.compile(r"[0-9a-f]{40}").fullmatch


class LogAnswer(GitAnswer):
    """Some commits that led to a revision."""

    @functools.cached_property
    def _found(self) -> tuple[GitRevision, Commit]:
        revision = self.revision(self.address.rev)
        return revision, commit_of(revision.oid, self.objects)

    @property
    def fixed(self) -> bool:
        return self._found[0].fixed

    @property
    def modified(self) -> float | None:
        return self._found[1].committer.seconds

    @property
    def version(self) -> str:
        return self._found[1].oid

    def resource(self) -> t.Resource:
        rev = shown(self.address.rev)
        return t.Resource(
            uri=self.uri,
            name=f"log of {rev}",
            title=f"Commits that led to {rev}",
            mime_type=mime.TEXT,
            annotations=dated(self._found[1].committer.seconds),
            meta={VERSION: self.version},
        )

    def contents(self) -> list[t.ResourceContents]:
        query = self.address.query
        limit = _number(query.get("limit", str(LIMIT)))
        chosen = Chosen(
            _path(query.get("path", "")), _time("since", query.get("since"), 0), _time("until", query.get("until"), 1)
        )
        after = query.get("after")
        if after is not None and not _OID(after):
            raise InvalidArgument("after= must be the full name of a commit of this log, with 40 digits.")
        tip = self._found[1].oid
        stretch = self.repository.histories.stretch(tip, self.references.shallow, after, limit, chosen)
        title = (
            f"{many(len(stretch.commits), 'commit')} that led to {shown(self.address.rev)} ({tip[:12]}), newest first."
        )
        how = f"One of them in full: {self.uris.commit('COMMIT')}, and its changes: {self.uris.diff('COMMIT')}"
        if not stretch.whole:
            how += (
                "\nThere may be older commits, which are not in this repository or too many: name one to read its log."
            )
        contents = [self.text(log_text(title, stretch.commits, how))]
        if stretch.after is not None:
            following = self._following(tip, stretch.after)
            contents[0].meta = {VERSION: self.version, NEXT: following}
            contents.append(going_on(following, f"{many(len(stretch.commits), 'commit')} so far."))
        return contents

    def _following(self, tip: str, after: str) -> str:
        query = {**self.address.query, "after": after}
        pairs = [f"{name}={quote_query(value, '/:', errors='surrogateescape')}" for name, value in query.items()]
        return f"{self.uris.log(tip)}?{'&'.join(pairs)}"


def _number(value: str) -> int:
    if value.isascii() and value.isdecimal() and len(value) < 6 and 1 <= int(value) <= MOST:
        return int(value)
    raise InvalidArgument(f"limit= must be a number of commits from 1 to {MOST:,}, such as limit={LIMIT}.")


def _path(value: str) -> tuple[str, ...]:
    try:
        return plain_path(value) if value else ()
    except UnreadableUri:
        raise InvalidArgument("path= must be a file or folder, such as path=docs/guide.md.") from None


def _time(name: str, value: str | None, end: int) -> int | None:
    """Seconds since 1970 of `2026-11-20`, `2026-11-20T09:30Z` or a number; a day is meant to its end by `until`."""
    if value is None:
        return None
    if _SECONDS(value):
        return int(value)
    found = _TIME(value)
    try:
        if found is None:
            raise ValueError
        year, month, day, hour, minute, second, sign, hours, minutes = found.groups()
        fields = [int(part or 0) for part in (year, month, day, hour, minute, second)]
        text = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*fields)
        seconds = calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        raise InvalidArgument(f"{name}= must be a time: 2026-11-20, 2026-11-20T09:30:00Z or 1795166400.") from None
    offset = (int(hours) * 60 + int(minutes)) * 60 if sign else 0
    return seconds - (-offset if sign == "-" else offset) + (86_399 if end and hour is None else 0)
