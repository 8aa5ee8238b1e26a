"""Finds rules that have no effect, or less effect than they seem to have, and what a policy lets everyone see.

A rule that matches nothing often has a spelling mistake, for example in the label of a folder or the name of a tool. In
a rule that denies, that is dangerous. So each pattern is compared with the published URIs and names, if they are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple, Protocol

from wharfinger.policy.pattern_sets import contains, literal_beginning, pattern_matches
from wharfinger.policy.patterns import TargetPattern, segments_of
from wharfinger.policy.policy import Policy
from wharfinger.policy.rule import Rule, words
from wharfinger.protocol.principal import ANONYMOUS

__all__ = ["Finding", "PublicView", "Published", "find_problems", "public_view", "top_of", "unmatched_beginnings"]

MAX_EXAMPLES = 5
"""The maximum number of URIs that a public view names."""


class Published(NamedTuple):
    """The published resources, tools and prompts of a server, according to its lists."""

    uris: Sequence[str]
    tools: Sequence[str] = ()
    prompts: Sequence[str] = ()
    complete: bool = True
    """Whether the lists were read to their end."""
    missing: frozenset[str] = frozenset()
    """URIs that are not listed, and that were not found when they were read."""
    roots: Callable[[str], Sequence[str]] | None = None
    """A function that returns the patterns of the published files in a directory; None if they are not known."""


class _RuleLike(Protocol):
    """A rule with its patterns, as in `Policy.rules`."""

    @property
    def id(self) -> str: ...
    @property
    def rule(self) -> Rule: ...
    @property
    def actions(self) -> frozenset[str]: ...
    @property
    def patterns(self) -> Sequence[TargetPattern]: ...


class Finding(NamedTuple):
    """A remark about a rule or, if `rule` is empty, the policy. A `problem` should be changed, a note need not be."""

    rule: str
    message: str
    problem: bool = True


class PublicView(NamedTuple):
    """The access of callers without a token."""

    rules: tuple[str, ...]
    """The rules that allow them something."""
    number: int
    """The number of listed resources that anyone may read."""
    examples: tuple[str, ...]
    """The URIs of the first of them."""
    tools: tuple[str, ...]
    prompts: tuple[str, ...]


def find_problems(policy: Policy, published: Published | None = None) -> list[Finding]:
    """Find the rules that can never match, or that other rules make useless, and other mistakes."""
    return list(_find(policy, published))


def _find(policy: Policy, published: Published | None) -> Iterator[Finding]:
    if not any(not parsed.denies for parsed in policy.rules):
        yield Finding("", "No rule allows anything, so everything is refused.")
    for parsed in policy.rules:
        id, written = parsed.id, words(parsed.rule.what)
        patterns = parsed.patterns[: len(written)]  # those after them come from `roots`
        yield from _find_unfitting(id, parsed.actions, parsed.patterns)
        if parsed.denies:
            yield from _find_single_revisions(id, patterns)
        else:
            yield from _find_shadowed(parsed, [other for other in policy.rules if other.denies])
        if published is None:
            continue
        for root in words(parsed.rule.roots):
            if published.roots is not None and not published.roots(root):
                yield Finding(id, f"Nothing in the directory {root} is published.")
        if parsed.rule.what is not None:
            yield from _find_unmatched(id, parsed.denies, patterns, published)
    for failure in () if policy.has_roots and published is None else policy.check_tests():
        yield Finding("", failure)
    if policy.has_roots and published is None:
        message = "Rules with roots match only what is published: add the targets of `serve` to check them."
        yield Finding("", message, problem=False)
    if not policy.tests:
        message = "There is no [[test]]: tests keep the server from starting with a mistake in its policy."
        yield Finding("", message, problem=False)


def _find_unfitting(id: str, actions: frozenset[str], patterns: Iterable[TargetPattern]) -> Iterator[Finding]:
    """Find patterns that do not fit the actions of their rule, such as those for tools in a rule about reading."""
    for pattern in patterns:
        fitting = {
            "tool": {"call", "inspect"},
            "prompt": {"prompt", "inspect"},
            "uri": {"read", "query", "inspect"},
        }.get(pattern.kind)
        if fitting is not None and not fitting & actions:
            allowed = " or ".join(sorted(fitting - {"inspect", "query"}))
            yield Finding(
                id, f"{pattern.text} is never matched: the rule is about {', '.join(sorted(actions))}, not {allowed}."
            )


def _find_single_revisions(id: str, patterns: Iterable[TargetPattern]) -> Iterator[Finding]:
    """Find patterns that match files in only one revision of a repository."""
    for pattern in patterns:
        scheme, _, rest = pattern.text.partition("://")
        segments = rest.split("/")
        fixed = len(segments) > 2 and "**" not in segments[:2] and "*" not in segments[2]
        if scheme == "git" and fixed and segments[1] != "changes":
            every = "/".join((segments[0], "*", "*", *segments[3:]))
            yield Finding(
                id, f"{pattern.text} denies the revision {segments[2]} only; the same files can be read at others. "
                f"Write git://{every}.",
            )  # fmt: skip


def _find_shadowed(allow: _RuleLike, denials: Iterable[_RuleLike]) -> Iterator[Finding]:
    """Find patterns that have no effect, because another rule denies everything that they match."""
    allowed_to = set(words(allow.rule.who))
    for deny in denials:
        rule, denied_to = deny.rule, set(words(deny.rule.who))
        if not deny.actions >= allow.actions or rule.scopes or rule.issuer not in (None, allow.rule.issuer):
            continue
        everyone = "anyone" in denied_to or ("signed-in" in denied_to and not allowed_to & {"anyone", "local"})
        if not everyone and not allowed_to <= denied_to:
            continue
        for inner in allow.patterns:
            if any(contains(outer, inner) for outer in deny.patterns):
                yield Finding(allow.id, f"{inner.text} has no effect: {deny.id} refuses all of it.")


def _find_unmatched(
    id: str, denies: bool, patterns: Iterable[TargetPattern], published: Published
) -> Iterator[Finding]:
    """Find patterns that match nothing that is published."""
    tops = sorted({top for uri in published.uris if (top := top_of(uri))})
    for pattern in patterns:
        if pattern.kind in ("tool", "prompt"):
            names = published.tools if pattern.kind == "tool" else published.prompts
            if not any(pattern_matches(pattern, f"{pattern.kind}:{name}") for name in names):
                yield Finding(id, f"There is no {pattern.text}.{_suggest(pattern.text.partition(':')[2], names)}")
            continue
        if pattern.kind != "uri" or any(pattern_matches(pattern, uri) for uri in published.uris):
            continue
        beginning = literal_beginning(pattern)
        top = top_of(beginning)
        if published.complete and top and top not in tops and beginning in published.missing:
            yield Finding(id, f"{pattern.text} matches nothing: {top} is not published.{_suggest(top, tops)}")
        elif beginning in published.missing:
            yield Finding(id, f"{pattern.text} matches nothing: there is no {beginning}.")
        elif not denies:  # rules that deny are often written for files that do not exist yet
            yield Finding(id, f"{pattern.text} matches nothing that is listed now.", problem=False)


def unmatched_beginnings(policy: Policy, uris: Sequence[str]) -> list[str]:
    """Return the URIs to read to find out whether patterns that match none of `uris` are mistakes."""
    beginnings: dict[str, None] = {}
    for parsed in policy.rules:
        for pattern in parsed.patterns:
            beginning = literal_beginning(pattern)
            if beginning and not any(pattern_matches(pattern, uri) for uri in uris):
                beginnings[beginning] = None
    return list(beginnings)


def top_of(uri: str) -> str:
    """Return the scheme and label of a URI, with its escapes: `file:///my%20docs`, `git://flask`.

    Returns an empty string if the URI is not in its canonical spelling.
    """
    segments = segments_of(uri)
    if segments is None:
        return ""
    scheme, *rest = segments
    slashes = scheme.count("/") + (scheme == "file://" and rest[:1] == [""])
    return "/".join(uri.partition("?")[0].split("/")[: slashes + 1])


def _suggest(name: str, names: Iterable[str]) -> str:
    """Return a sentence with the name that is spelled most alike, or with the first names; empty if there are none."""
    known = list(names)
    near = get_close_matches(name, known, 1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" There is: {', '.join(known[:10])}." if known else ""


def public_view(policy: Policy, published: Published | None = None) -> PublicView:
    """Return the access of callers without a token."""
    access = policy.access(ANONYMOUS)
    rules = tuple(
        parsed.id for parsed in policy.rules if not parsed.denies and parsed.compile(ANONYMOUS, {}) is not None
    )
    if published is None:
        return PublicView(rules, 0, (), (), ())
    uris = [uri for uri in published.uris if access.allows("read", uri)]
    tools = tuple(name for name in published.tools if access.allows("call", f"tool:{name}"))
    prompts = tuple(name for name in published.prompts if access.allows("prompt", f"prompt:{name}"))
    return PublicView(rules, len(uris), tuple(uris[:MAX_EXAMPLES]), tools, prompts)
