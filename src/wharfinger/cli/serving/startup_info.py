"""What the banner of `wharfinger serve` says about its sources, and the command for hosts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from wharfinger.cli.render.banner import PublishedSource

if TYPE_CHECKING:
    from wharfinger.sources.registry import PreparedSource

__all__ = ["StartupInfo", "collect_startup_info", "host_arguments", "omitted_secrets"]

COLLECT_SECONDS = 0.5
"""Seconds to wait for the answers of all sources together."""
EXAMINED_RESOURCES = 500
"""Resources of a source among which one worth watching is chosen."""
FACTS_CHARACTERS = 200

Rank = tuple[bool, bool, bool, str, str]
"""Whether it is a log, of a source that changes, and text; the time of its last change, and its URI."""


class StartupInfo(NamedTuple):
    """A line for each source, and a URI worth watching (empty if there is none)."""

    published: tuple[PublishedSource, ...]
    live: str


def collect_startup_info(sources: Sequence[PreparedSource], within: float = COLLECT_SECONDS) -> StartupInfo:
    """Ask all sources at the same time, and return what they have answered after `within` seconds; blocks."""
    probes = [_SourceProbe(one) for one in sources]
    end = time.monotonic() + within
    for one in probes:
        one.thread.join(max(0.0, end - time.monotonic()))
    ranks = [one.rank for one in probes if one.rank is not None]
    return StartupInfo(tuple(PublishedSource(one.what, one.facts) for one in probes), max(ranks)[-1] if ranks else "")


class _SourceProbe:
    """Asks one source in a daemon thread, which is abandoned if it takes too long."""

    def __init__(self, prepared: PreparedSource) -> None:
        from wharfinger.sources.registry import shown_word

        self.what = prepared.source.location or shown_word(prepared.parsed)
        self.facts = "not counted yet"
        self.rank: Rank | None = None
        self._prepared = prepared
        self.thread = threading.Thread(target=self._run, name="wharfinger-facts", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        from wharfinger.content.redaction import redacted_text

        source = self._prepared.source
        try:
            self.facts = source.describe()[:FACTS_CHARACTERS]
            self.rank = _liveliest(self._prepared)
        except Exception as error:  # the others are served anyway
            reason = redacted_text(" ".join(str(error).split())) or type(error).__name__
            self.facts = f"not available now: {reason}"[:FACTS_CHARACTERS]


def _liveliest(prepared: PreparedSource) -> Rank | None:
    """Return the resource most likely to change: a log, or the text that changed last, or any."""
    from wharfinger.server.threads import is_async

    source, static = prepared.source, prepared.parsed.kind.static
    page = None if is_async(source.page) else source.page(None, EXAMINED_RESOURCES)
    if not isinstance(page, tuple):
        return None
    ranks: list[Rank] = []
    for item in page[0]:
        kind, stamp = str(item.mime_type), str(getattr(item.annotations, "last_modified", ""))
        if kind != "inode/directory":
            ranks.append((item.name.endswith(".log"), not static, kind.startswith("text/"), stamp, item.uri))
    return max(ranks, default=None)


HOST_OPTIONS = (
    *("include", "exclude", "hidden", "max_size", "absolute_uris", "no_tools", "no_search"),
    "allow_command",
    "allow_operations",
    "base_url",
    "every",
    "patience",
    "allow_private_networks",
    "allow_query",
    "limits",
    "max_clone_size",
)
"""Options that change what is published, so that the command for a host needs them too."""


def host_arguments(params: Mapping[str, Any], sources: Sequence[PreparedSource]) -> tuple[str, ...]:
    """Return the arguments with which `wharfinger add HOST` publishes the same, without passwords."""
    from wharfinger.cli.executable import own_command
    from wharfinger.cli.render.formatting import slug
    from wharfinger.cli.serving.publish import flag_of, is_given
    from wharfinger.sources.registry import absolute_word, parse_word

    # The copy that --demo makes is temporary: publish the folder itself.
    given = [parse_word(word) for word in params["words"]] if params["demo"] else []
    words = [absolute_word(word) for word in given or [one.parsed for one in sources]]
    name = ("--name", params["name"]) if params["name"] else ()
    options: list[str] = []
    for choice in HOST_OPTIONS:
        option, value = flag_of(choice), params[choice]
        if value is True:
            options.append(option)
        elif is_given(value):
            options += [word for item in _items(value) for word in (option, item)]
    if not options and not any(word.startswith(("https:", "http:")) for word in words):
        return (*name, *words)
    label = params["name"] or slug(*(one.name for one in sources))
    return ("--name", label, "--", *own_command(), "serve", "--stdio", *name, *options, *words)


def _items(value: Any) -> Sequence[str]:
    """Return the values of an option as they are typed."""
    if isinstance(value, tuple):
        return cast("tuple[str, ...]", value)
    return (f"{value:g}" if isinstance(value, float) else str(value),)


def omitted_secrets(sources: Sequence[PreparedSource]) -> str:
    """Return how to pass the passwords and environment variables that the command omits, or an empty string."""
    from wharfinger.sources.registry import hides_secret, shown_word

    remarks = [
        f"the password of {shown_word(one.parsed)} is omitted: pass it by {one.parsed.kind.secret or 'its library'}"
        for one in sources
        if hides_secret(one.parsed)
    ]
    prefixes = tuple(one.parsed.kind.environment for one in sources if one.parsed.kind.environment)
    needed = sorted(name for name in os.environ if name.startswith(prefixes)) if prefixes else ()
    if needed:
        remarks.append(f"a host may not pass on {', '.join(needed)}: add --env NAME=VALUE for each")
    return "; ".join(remarks)
