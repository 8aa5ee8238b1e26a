"""Compares patterns: what they match, whether one contains another, and below which URI their matches are."""

from __future__ import annotations

import re

from wharfinger.policy.patterns import TargetPattern, segments_of

__all__ = ["contains", "literal_beginning", "pattern_matches"]

_SCHEME = re.compile(r"[a-z][a-z0-9+.\-]*:(//)?")


def pattern_matches(pattern: TargetPattern, target: str) -> bool:
    """Return whether a pattern matches a URI, `tool:NAME` or `prompt:NAME`."""
    if pattern.kind == "any":
        return True
    kind, _, name = target.partition(":")
    if pattern.kind != "uri" or kind in ("tool", "prompt", "method"):
        return pattern.kind == kind and bool(pattern.step(pattern.first, name) & pattern.final)
    segments = segments_of(target)
    return segments is not None and pattern.matches(segments)


def contains(outer: TargetPattern, inner: TargetPattern) -> bool:
    """Return whether everything that `inner` matches is matched by `outer`; False if that is not certain."""
    if outer.kind == "any" or (outer.kind == inner.kind and outer.text == inner.text):
        return True
    if outer.kind != inner.kind:
        return False
    outer_texts, inner_texts = _texts(outer), _texts(inner)
    positions = outer.first
    for item, text in zip(inner.items, inner_texts, strict=True):
        if text == "**":
            return outer.covers(positions)
        if isinstance(item, str):
            positions = outer.step(positions, item)
            continue
        reached = 0
        for index, outer_text in enumerate(outer_texts):
            if positions >> index & 1:
                if outer_text == "**":
                    reached |= 1 << index
                elif outer_text in ("*", text):
                    reached |= 2 << index  # the position after this item
        positions = outer.skip(reached)
    return bool(positions & outer.final)


def literal_beginning(pattern: TargetPattern) -> str:
    """Return the URI of the directory above the first segment with `*`, or the whole URI if there is none.

    Returns an empty string if the pattern is not for URIs, or has no segment before the first `*`.
    """
    if pattern.kind != "uri" or pattern.text == "**":
        return ""
    texts = _texts(pattern)
    fixed = next((index for index, text in enumerate(texts) if "*" in text), len(texts))
    return texts[0] + "/".join(texts[1:fixed]) if fixed > 1 else ""


def _texts(pattern: TargetPattern) -> list[str]:
    """Return the text of each item of a pattern."""
    text = pattern.text
    if pattern.kind != "uri":
        return [text.partition(":")[2]]
    scheme = _SCHEME.match(text)
    if scheme is None:
        return [text]
    segments = text[scheme.end() :].split("/")
    if len(segments) > 1 and not segments[-1]:
        segments.pop()
    return [scheme[0], *segments]
