"""The rules of a policy as structs, read from TOML or written in Python.

    [[allow]]
    who  = ["group:staff", "email:*@example.com"]
    do   = ["read"]
    what = ["file:///docs/**", "git://**"]

`Policy` checks every rule when it is created, so that no server starts with a mistake; the error names the rule.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from wharfinger.errors import WharfingerError
from wharfinger.policy.who import Selector, parse_selector

__all__ = ["ACTIONS", "LEVELS", "Limit", "PolicyTest", "Rule", "UnusablePolicy", "action_and_target"]

ACTIONS = frozenset({"read", "call", "prompt", "query", "inspect"})
"""The actions that a rule can allow. Lists, completion, search and watching come with `read`.

`query` is a query that the caller writes, such as SQL. `inspect` shows the server as another principal sees it.
"""
LEVELS: Mapping[str, frozenset[str]] = {
    "read": frozenset({"read", "prompt"}),
    "write": frozenset({"read", "prompt", "call"}),
    "execute": frozenset({"read", "prompt", "call", "query"}),
    "admin": ACTIONS,
}
"""The actions of each permission level. A higher level has all actions of a lower one."""
WITH_READ = frozenset({"list", "complete", "search", "watch"})
"""Actions that are allowed together with `read`."""

Level = Literal["read", "write", "execute", "admin"]

_RATE = re.compile(r"([1-9][0-9]{0,11})\s*(B|KiB|MiB|GiB)?\s*/\s*(s|sec|min|h|hour|day)")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:").match
_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hour": 3600, "day": 86_400}
_BYTES = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


class UnusablePolicy(WharfingerError, ValueError):
    """A policy cannot be used; the message names the rule, and says what to change."""

    exit_code = 2


Words = str | tuple[str, ...]
"""One string, or several."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Allows or denies actions to some principals: `Rule(who="group:staff", do="read", what="file:///docs/**")`."""

    who: Words
    """The rule applies to the principals that one of these selectors matches. A selector is `anyone`,
    `signed-in`, `local`, or `sub:`, `group:`, `scope:`, `client:`, `email:` or `claim.NAME:` with a value that may
    contain `*`."""
    do: Words | None = None
    """Actions from `ACTIONS` or `WITH_READ`; all actions if neither `do` nor `level` is given."""
    what: Words | None = None
    """Patterns for URIs and names (see `patterns`); everything if neither `what` nor `roots` is given."""
    roots: Words | None = None
    """Directories on this machine: the rule applies to published files in and below them."""
    level: Level | None = None
    """A level from `LEVELS` instead of `do`: all of its actions."""
    issuer: str | None = None
    """Apply only to principals of this authorization server. Required in rules about claims if several are trusted."""
    scopes: Words = ()
    """Scopes that the token must also have; all of them are required."""
    reveal: bool = False
    """Whether a caller who only lacks scopes gets an error that names them, instead of "not found"."""
    name: str = ""
    """Names the rule in the record and in explanations; by default `allow 1`, `deny 2` and so on."""

    def actions(self) -> frozenset[str]:
        """Return the actions that the rule is about."""
        if self.level is not None:
            return LEVELS[self.level]
        return ACTIONS if self.do is None else named_actions(self.do)

    def selectors(self) -> tuple[Selector, ...]:
        """Return the parsed `who`."""
        return tuple(map(parse_selector, words(self.who)))


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits for each principal. Principals who are not signed in are counted by their address."""

    who: Words = "anyone"
    """As in `Rule`. For each of `calls`, `bytes` and `parallel`, the first limit that applies to a principal and an
    action counts."""
    do: Words | None = None
    """The counted actions: `read`, `call` or `prompt`; all requests by default."""
    calls: str | None = None
    """The maximum rate of requests, such as `100/min`."""
    bytes: str | None = None
    """The maximum rate of bytes in answers, such as `50MiB/min`. They are counted after each request."""
    parallel: int | None = None
    """The maximum number of requests at the same time."""
    issuer: str | None = None
    name: str = ""

    def rate(self, of: Literal["calls", "bytes"]) -> tuple[int, float] | None:
        """Return an amount and the seconds in which it is allowed; None if there is no such limit.

        Raises:
            UnusablePolicy: the limit is not an amount per time.
        """
        text = self.calls if of == "calls" else self.bytes
        if text is None:
            return None
        match = _RATE.fullmatch(text.strip())
        if match is None or (of == "calls" and match[2]):
            example = "100/min" if of == "calls" else "50MiB/min"
            raise UnusablePolicy(f"{of} = {text!r} is not a rate: write an amount and a time, as in {example!r}.")
        return int(match[1]) * _BYTES[match[2] or ""], float(_SECONDS[match[3]])

    def selectors(self) -> tuple[Selector, ...]:
        """Return the parsed `who`."""
        return tuple(map(parse_selector, words(self.who)))


class PolicyTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Decisions that a policy must make, each as `read file:///docs/a.md`, `call tool:NAME` or `prompt prompt:NAME`."""

    principal: Mapping[str, Any] | Literal["anyone", "local"] = msgspec.field(name="as")
    """The claims of a principal (`sub`, `groups`, `scope` or `scopes`, …), `anyone` (no token), or `local` (stdio)."""
    allow: Words = ()
    deny: Words = ()
    name: str = ""


def words(value: Words | None) -> Sequence[str]:
    """Return one or several strings as a sequence."""
    return () if value is None else (value,) if isinstance(value, str) else value


def named_actions(do: Words) -> frozenset[str]:
    """Return the actions that `do` names; `list`, `complete`, `search` and `watch` mean `read`."""
    return frozenset("read" if word in WITH_READ else word for word in words(do))


def action_and_target(text: str) -> tuple[str, str]:
    """Return the action and the target of `read file:///docs/a.md`.

    Raises:
        UnusablePolicy: the text is not an action and a URI or name.
    """
    action, _, target = text.strip().partition(" ")
    target = target.strip()
    action = "read" if action in WITH_READ else action
    is_name = action in ("call", "prompt")
    if action not in ACTIONS or not target or (not is_name and _URI(target) is None):
        known = ", ".join(sorted(ACTIONS | WITH_READ))
        raise UnusablePolicy(f"{text!r}: write an action ({known}) and a URI, as in 'read file:///docs/a.md'.")
    if is_name:
        kind = "tool" if action == "call" else "prompt"
        target = target if target.startswith((f"{kind}:", "method:")) else f"{kind}:{target}"
    return action, target
