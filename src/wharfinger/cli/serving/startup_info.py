"""The facts about sources in the banner of `wharfinger serve`, and the arguments of `wharfinger add` in it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from wharfinger.cli.render.banner import PublishedSource
from wharfinger.cli.serving.publish import SOURCE_OPTIONS, flag_of, is_given

if TYPE_CHECKING:
    from pathlib import Path

    from wharfinger.sources.registry import PreparedSource

__all__ = ["StartupInfo", "collect_startup_info", "host_arguments", "omitted_secrets"]

COLLECT_SECONDS = 0.5
"""The maximum time to wait for all sources together."""
EXAMINED_RESOURCES = 500
"""Maximum number of resources of a source that are examined to find one worth watching."""
FACTS_CHARACTERS = 200
"""Maximum length of the facts about one source."""

Rank = tuple[bool, bool, str, str]
"""Whether a resource is a log, whether it is text, the time of its last change, and its URI."""


class StartupInfo(NamedTuple):
    """A line for each source, and the URI most worth watching (empty if no resource that may change was found)."""

    published: tuple[PublishedSource, ...]
    live: str


def collect_startup_info(sources: Sequence[PreparedSource], within: float = COLLECT_SECONDS) -> StartupInfo:
    """Ask all sources at the same time, and return the answers that arrive within `within` seconds. Blocks."""
    probes = [_SourceProbe(prepared) for prepared in sources]
    end = time.monotonic() + within
    for probe in probes:
        probe.thread.join(max(0.0, end - time.monotonic()))
    ranks = [probe.rank for probe in probes if probe.rank is not None]
    return StartupInfo(
        tuple(PublishedSource(probe.what, probe.facts) for probe in probes), max(ranks)[-1] if ranks else ""
    )


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
            self.rank = _most_likely_to_change(self._prepared)
        except Exception as error:  # the other sources are served anyway
            reason = redacted_text(" ".join(str(error).split())) or type(error).__name__
            self.facts = f"not available now: {reason}"[:FACTS_CHARACTERS]


def _most_likely_to_change(prepared: PreparedSource) -> Rank | None:
    """Return the rank of the resource most likely to change: a log if there is one, else a text, else any other.

    Returns None if the source rarely changes, lists its resources asynchronously, or has nothing but directories in its
    first page.
    """
    from wharfinger.server.threads import is_async

    source = prepared.source
    is_skipped = prepared.parsed.kind.rarely_changes or is_async(source.page)
    page = None if is_skipped else source.page(None, EXAMINED_RESOURCES)
    if not isinstance(page, tuple):
        return None
    ranks: list[Rank] = []
    for item in page[0]:
        kind, stamp = str(item.mime_type), str(getattr(item.annotations, "last_modified", ""))
        if kind != "inode/directory":
            ranks.append((item.name.endswith(".log"), kind.startswith("text/"), stamp, item.uri))
    return max(ranks, default=None)


HOST_OPTIONS = (*SOURCE_OPTIONS, "no_tools", "no_search", "allow_query", "limits", "policy_report_only")
"""Options that change what clients get, so that the command for a host needs them too."""


def host_arguments(
    params: Mapping[str, Any], sources: Sequence[PreparedSource], server_file: Path | None = None
) -> tuple[str, ...]:
    """Return the arguments with which `wharfinger add HOST` publishes the same data, without passwords.

    `server_file` is the file of `-f`, if it contains the rules.
    """
    from wharfinger.cli.executable import own_command
    from wharfinger.cli.render.formatting import slug
    from wharfinger.sources.registry import absolute_word, parse_word

    # The copy that --demo makes is temporary: publish the folder itself.
    original = [parse_word(word) for word in params["words"]] if params["demo"] else []
    words = [absolute_word(word) for word in original or [prepared.parsed for prepared in sources]]
    name = ("--name", params["name"]) if params["name"] else ()
    options: list[str] = ["-f", str(server_file.absolute())] if server_file else []
    if params["policy"]:
        options += ["--policy", os.path.abspath(params["policy"])]
    for option in HOST_OPTIONS:
        flag, value = flag_of(option), params[option]
        if value is True:
            options.append(flag)
        elif is_given(value):
            if isinstance(value, tuple):
                values = cast("tuple[str, ...]", value)
            else:
                values = (f"{value:g}" if isinstance(value, float) else str(value),)
            options += [word for text in values for word in (flag, text)]
    if not options and not any(word.startswith(("https:", "http:")) for word in words):
        return (*name, *words)
    label = params["name"] or slug(*(prepared.name for prepared in sources))
    return ("--name", label, "--", *own_command(), "serve", "--stdio", *name, *options, *words)


def omitted_secrets(sources: Sequence[PreparedSource]) -> str:
    """Return how to pass the passwords and environment variables that the command omits, or an empty string."""
    from wharfinger.sources.registry import secret_remark

    parsed_words = [prepared.parsed for prepared in sources]
    remarks = [remark for parsed in parsed_words if (remark := secret_remark(parsed))]
    prefixes = tuple(parsed.kind.environment for parsed in parsed_words if parsed.kind.environment)
    needed = sorted(name for name in os.environ if name.startswith(prefixes)) if prefixes else ()
    if needed:
        remarks.append(f"some hosts do not pass on {', '.join(needed)}: add --env NAME=VALUE for each")
    return "; ".join(remarks)
