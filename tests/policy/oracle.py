"""A short, slow reference implementation of policy rules. It takes only the class `Rule` from `wharfinger.policy`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from wharfinger.policy import Rule
from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal


def split_uri(uri: str) -> list[bytes]:
    """Split a canonical URI into decoded segments. The first is the scheme."""
    scheme, colon, rest = uri.partition("?")[0].partition(":")
    slashes = "//" if rest.startswith("//") else ""
    rest = rest[len(slashes) :]
    parts = (rest[:-1] if rest.endswith("/") else rest).split("/")
    return [f"{scheme}{colon}{slashes}".encode(), *map(unquote_to_bytes, parts)]


def path_matches(pattern: Sequence[str], path: Sequence[bytes]) -> bool:
    """Compare segments one by one, and try every length for `**`."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(path_matches(pattern[1:], path[skip:]) for skip in range(len(path) + 1))
    if not path:
        return False
    words = [re.escape(unquote_to_bytes(word)) for word in pattern[0].split("*")]
    return re.fullmatch(b".*".join(words), path[0], re.DOTALL) is not None and path_matches(pattern[1:], path[1:])


def matches(pattern: str, target: str) -> bool:
    """Return whether a pattern matches a canonical URI, or `tool:NAME` or `prompt:NAME`."""
    if pattern == "**":
        return not target.startswith(("tool:", "prompt:"))
    if pattern.startswith(("tool:", "prompt:")):
        kind, _, name = pattern.partition(":")
        words = map(re.escape, name.split("*"))
        return re.fullmatch(f"{kind}:" + ".*".join(words), target, re.DOTALL) is not None
    match = re.fullmatch(r"([a-z][a-z0-9+.-]*:(?://)?)(.*)", pattern)
    assert match is not None
    rest = match[2][:-1] if len(match[2]) > 1 and match[2].endswith("/") else match[2]
    parts = [""] if rest == "/" else rest.split("/")
    return not target.startswith(("tool:", "prompt:")) and path_matches([match[1], *parts], split_uri(target))


def selector_applies(word: str, principal: Principal) -> bool:
    """Return whether one selector of `who` applies to a principal."""
    if word == "anyone":
        return True
    if principal is LOCAL or principal is ANONYMOUS:
        return word == "local" and principal is LOCAL
    if word in ("signed-in", "local"):
        return word == "signed-in"
    field, _, value = word.partition(":")
    claims: Mapping[str, Any] = principal.claims
    groups = claims.get("groups", [])
    values = {
        "sub": [principal.subject],
        "client": [principal.client],
        "scope": list(principal.scopes),
        "group": [groups] if isinstance(groups, str) else groups,
        "email": [claims.get("email")] if claims.get("email_verified") is True else [],
    }[field]
    return any(re.fullmatch(".*".join(map(re.escape, value.split("*"))), text, re.DOTALL) for text in values)


def applies(rule: Rule, principal: Principal) -> bool:
    """Return whether a rule applies to a principal."""
    words = [rule.who] if isinstance(rule.who, str) else rule.who
    scopes = [rule.scopes] if isinstance(rule.scopes, str) else rule.scopes
    return (
        any(selector_applies(word, principal) for word in words)
        and (rule.issuer is None or rule.issuer == principal.issuer)
        and set(scopes) <= principal.scopes
    )


def covers(rule: Rule, action: str, target: str) -> bool:
    """Return whether a rule applies to an action on a target."""
    levels = {"read": "read prompt", "write": "read prompt call", "execute": "read prompt call query"}
    do = [rule.do] if isinstance(rule.do, str) else rule.do
    if rule.level:
        do = levels[rule.level].split() if rule.level in levels else None  # `admin` allows everything
    read_actions = {"list": "read", "complete": "read", "search": "read", "watch": "read"}
    what = [rule.what] if isinstance(rule.what, str) else rule.what
    return (do is None or action in [read_actions.get(name, name) for name in do]) and (
        what is None or any(matches(pattern, target) for pattern in what)
    )


def allowed(allow: Sequence[Rule], deny: Sequence[Rule], principal: Principal, action: str, target: str) -> bool:
    """Return whether some rule allows an action to a principal and none denies it."""
    if any(applies(rule, principal) and covers(rule, action, target) for rule in deny):
        return False
    return any(applies(rule, principal) and covers(rule, action, target) for rule in allow)
