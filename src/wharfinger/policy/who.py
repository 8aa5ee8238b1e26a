"""Selectors: the words of a rule's `who`, and whether one applies to a principal."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from wharfinger.content.globs import Matcher, compile_glob
from wharfinger.errors import WharfingerError
from wharfinger.protocol.principal import LOCAL, Principal

__all__ = ["Selector", "UnusableSelector", "parse_selector", "suggestion"]

_WITHOUT_VALUE = ("anyone", "signed-in", "local")
MAX_VALUE_CHARACTERS = 1_000
MAX_EMAIL_STARS = 32
"""Maximum number of `*` in an email pattern without `@`: each may contain the `@`, and is a pattern of its own."""
_FIELDS = ("sub", "group", "scope", "client", "email")


class UnusableSelector(WharfingerError, ValueError):
    """A word of `who` cannot be used; the message says what to write."""

    exit_code = 2


class Selector(NamedTuple):
    """One parsed word of `who`."""

    text: str
    field: str
    """`anyone`, `signed-in`, `local`, `sub`, `group`, `scope`, `client`, `email`, or the name of a claim."""
    is_claim: bool
    """Whether `field` is the name of a claim (`claim.NAME:`)."""
    matcher: Matcher | str
    """The pattern that a value must match, or the value itself if it has no `*`."""

    @property
    def depends_on_issuer(self) -> bool:
        """Whether the match depends on what an issuer says about a principal."""
        return self.is_claim or self.field in _FIELDS

    @property
    def is_scope(self) -> bool:
        """Whether this is a `scope:` selector."""
        return self.field == "scope" and not self.is_claim

    def applies_to(self, principal: Principal, known: dict[str, frozenset[str]] | None = None) -> bool:
        """Return whether the principal has a matching value.

        Pass the same dictionary for all selectors of one principal, so that each claim is read only once.
        """
        if self.text == "anyone":
            return True
        if self.text == "local":
            return principal is LOCAL
        if not principal.key:  # LOCAL and ANONYMOUS: no credential says anything about them
            return False
        if self.text == "signed-in":
            return True
        matcher = self.matcher
        known = {} if known is None else known
        source = f"claim.{self.field}" if self.is_claim else self.field
        values = known.get(source)
        if values is None:
            claim_values = _texts(principal.claims.get(self.field)) if self.is_claim else _values(principal, self.field)
            values = known[source] = frozenset(claim_values)
        if isinstance(matcher, str):
            return matcher in values
        return any(map(matcher, values))


def parse_selector(text: str) -> Selector:
    """Parse one word of `who`.

    Raises:
        UnusableSelector: the text is not a selector.
    """
    if text in _WITHOUT_VALUE:
        return Selector(text, text, False, "")
    field, value, is_claim = *_split(text), text.startswith("claim.")
    if not value or not field or not (is_claim or field in _FIELDS):
        known = ", ".join((*_WITHOUT_VALUE, *(f"{field}:…" for field in _FIELDS), "claim.NAME:…"))
        hint = suggestion(text.partition(":")[0], (*_WITHOUT_VALUE, *_FIELDS))
        raise UnusableSelector(f"who = {text[:60]!r} is not known: {hint}write one of {known}.")
    if field == "scope" and not is_claim and any(map(str.isspace, value)):
        raise UnusableSelector(f"who = {text[:60]!r} has a space, so no token has it: write a list of scopes.")
    if len(value) > MAX_VALUE_CHARACTERS:
        raise UnusableSelector(f"who = {text[:60]!r}… is longer than {MAX_VALUE_CHARACTERS:,} characters.")
    patterns = [value]
    if field == "email" and not is_claim:
        patterns = [_with_lower_domain(value)]
        if "@" not in value:  # the domain may begin at any `*`
            stars = [found.start() for found in re.finditer(r"\*", value)]
            if len(stars) > MAX_EMAIL_STARS:
                raise UnusableSelector(f"who = {text[:60]!r}… has more than {MAX_EMAIL_STARS} `*`: write the `@`.")
            patterns += [f"{value[:star]}*@*{value[star + 1 :].lower()}" for star in stars[:-1]]
    if "*" not in value:
        return Selector(text, field, is_claim, patterns[0])
    matchers = [
        compile_glob(re.sub(r"[?\[\]\\]", r"\\\g<0>", pattern), path=False) for pattern in dict.fromkeys(patterns)
    ]

    def matches_any(text: str) -> bool:
        return any(matches(text) for matches in matchers)

    return Selector(text, field, is_claim, matchers[0] if len(matchers) == 1 else matches_any)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the beginning of a hint that suggests a word that is spelled alike; empty if there is none."""
    import difflib  # only for mistakes

    near = difflib.get_close_matches(word[:60].lower(), known, 1, 0.7)
    return f"did you mean {near[0]!r}? Or " if near and near[0] != word else ""


def _split(text: str) -> tuple[str, str]:
    """Split a selector after its name, which is a URL in `claim.https://example.org/team:blue`."""
    if not text.startswith("claim."):
        field, _, value = text.partition(":")
        return field, value
    text = text.removeprefix("claim.")
    colon = text.find(":")
    if text.startswith("://", colon):  # the name is a URL
        colon = text.find(":", colon + 3)
        if re.match(r":[0-9]+/.*:", text[colon:]):  # a port
            colon = text.find(":", colon + 1)
    return (text[:colon], text[colon + 1 :]) if colon > 0 else (text, "")


def _values(principal: Principal, field: str) -> Collection[str]:
    claims = principal.claims
    match field:
        case "sub":
            return (principal.subject,)
        case "client":
            return (principal.client,) if principal.client else ()
        case "scope":
            return principal.scopes
        case "group":
            return _texts(claims.get("groups"))
        case _:  # an address that is not verified may be another person's
            verified = claims.get("email_verified") is True
            return tuple(map(_with_lower_domain, _texts(claims.get("email")))) if verified else ()


def _with_lower_domain(address: str) -> str:
    """Return an address, or a pattern for some, as it is compared: the case of the domain has no meaning (RFC 5321
    §2.4)."""
    name, separator, domain = address.rpartition("@")
    if not separator:  # in a pattern such as `Ann*`, only what follows the last `*` belongs to the domain
        name, separator, domain = address.rpartition("*")
    return f"{name}{separator}{domain.lower()}"


def _texts(value: Any) -> tuple[str, ...]:
    """Return the values of a claim as strings.

    Only strings, numbers (whole ones of at most 64 bits), booleans and lists of these have any.
    """
    if isinstance(value, (list, tuple)):
        items: tuple[Any, ...] = tuple(value)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
        return tuple(text for item in items if (text := _text(item)) is not None)
    text = _text(value)
    return () if text is None else (text,)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64):
        return str(value)
    return None
