"""What the card of `wharfinger serve` says: how much is published, what is worth watching, how to have it again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from wharfinger.cli.card import Published

if TYPE_CHECKING:
    from wharfinger.sources.registry import PreparedSource

__all__ = ["Seen", "left_out", "look", "same_again"]

LOOKING = 0.5
"""Seconds that looking at all sources together may take."""
LOOKED_AT = 500
"""Resources of a source among which the one worth watching is looked for."""
LONGEST = 200
"""Characters of what a source says of itself, or of its trouble."""

Rank = tuple[bool, bool, bool, str, str]


class Seen(NamedTuple):
    """What was found out in time: a line for each source, and a URI worth watching (or empty)."""

    published: tuple[Published, ...]
    live: str


def look(made: Sequence[PreparedSource], within: float = LOOKING) -> Seen:
    """Ask all sources at once, and wait no longer than this; blocks."""
    looks = [_Look(one) for one in made]
    ends = time.monotonic() + within
    for one in looks:
        one.thread.join(max(0.0, ends - time.monotonic()))
    ranks = [one.rank for one in looks if one.rank is not None]
    return Seen(tuple(Published(one.what, one.facts) for one in looks), max(ranks)[-1] if ranks else "")


class _Look:
    """One source that is asked in a thread of its own, which may be left behind."""

    def __init__(self, made: PreparedSource) -> None:
        from wharfinger.sources.registry import shown_word

        self.what = made.source.location or shown_word(made.asked)
        self.facts = "not counted yet"
        self.rank: Rank | None = None
        self._made = made
        self.thread = threading.Thread(target=self._run, name="wharfinger-facts", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        from wharfinger.content.redaction import redacted_text

        source = self._made.source
        try:
            self.facts = source.describe()[:LONGEST]
            self.rank = _most_alive(self._made)
        except Exception as error:  # it is down, which is no reason not to serve the others
            said = redacted_text(" ".join(str(error).split())) or type(error).__name__
            self.facts = f"not available now: {said}"[:LONGEST]


def _most_alive(made: PreparedSource) -> Rank | None:
    """What is most likely to change: a log, else the text that changed last, else any."""
    from wharfinger.server.threads import is_async

    source, still = made.source, made.asked.kind.still
    if is_async(source.page):
        return None
    ranks: list[Rank] = []
    for item in source.page(None, LOOKED_AT)[0]:
        kind, stamp = str(item.mime_type), str(getattr(item.annotations, "last_modified", ""))
        if kind != "inode/directory":
            ranks.append((item.name.endswith(".log"), not still, kind.startswith("text/"), stamp, item.uri))
    return max(ranks, default=None)


CHOICES = (
    *("include", "exclude", "hidden", "max_size", "absolute_uris", "no_tools", "no_search"),
    *("allow_command", "every", "allow_private", "allow_query", "limits"),
)
"""Options that change what is published, and so belong to the command that a host is given."""


def same_again(params: Mapping[str, Any], made: Sequence[PreparedSource]) -> tuple[str, ...]:
    """Write what `wharfinger add HOST` needs to publish the same in the same way; passwords are left out."""
    from wharfinger.cli.programs import ourselves
    from wharfinger.cli.publishing import is_given
    from wharfinger.cli.words import slug
    from wharfinger.sources.registry import absolute_word, parse_word

    given = [parse_word(word) for word in params["words"]] if params["demo"] else []  # its copy is gone by then
    words = [absolute_word(asked) for asked in given or [one.asked for one in made]]
    name = ("--name", params["name"]) if params["name"] else ()
    options: list[str] = []
    for choice in CHOICES:
        option, value = "--limit" if choice == "limits" else "--" + choice.replace("_", "-"), params[choice]
        if value is True:
            options.append(option)
        elif is_given(value):
            options += [word for item in _items(value) for word in (option, item)]
    if not options and not any(word.startswith(("https:", "http:")) for word in words):
        return (*name, *words)
    label = params["name"] or slug(*(one.name for one in made))
    return ("--name", label, "--", *ourselves(), "serve", "--stdio", *name, *options, *words)


def _items(value: Any) -> Sequence[str]:
    """What an option was given, as it is typed."""
    if isinstance(value, tuple):
        return cast("tuple[str, ...]", value)
    return (f"{value:g}" if isinstance(value, float) else str(value),)


def left_out(made: Sequence[PreparedSource]) -> str:
    """Say how what the card does not show is to be given, passwords and environment; empty where there is none."""
    from wharfinger.sources.registry import hides_secret, shown_word

    told = [
        f"the password of {shown_word(one.asked)} is left out: give it by {one.asked.kind.secret or 'its library'}"
        for one in made
        if hides_secret(one.asked)
    ]
    begins = tuple(one.asked.kind.environment for one in made if one.asked.kind.environment)
    needed = sorted(name for name in os.environ if name.startswith(begins)) if begins else ()
    if needed:
        told.append(f"a host may not pass on {', '.join(needed)}: add --env NAME=VALUE for each")
    return "; ".join(told)
