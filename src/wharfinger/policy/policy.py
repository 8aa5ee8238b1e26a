"""`Policy`: who may read, call and query what, by rules in TOML or in Python.

Everything is refused unless a rule allows it; a rule that denies wins over all that allow. The rules that apply to a
principal are compiled once (`RuleAccess`), and principals to whom the same rules apply share the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from wharfinger.errors import WharfingerError
from wharfinger.policy.access import CompiledRule, Decisions, Directories, RuleAccess
from wharfinger.policy.patterns import EVERYTHING, parse_pattern
from wharfinger.policy.rule import (
    ACTIONS,
    LEVELS,
    WITH_READ,
    Limit,
    PolicyTest,
    Rule,
    UnusablePolicy,
    Words,
    action_and_target,
    words,
)
from wharfinger.policy.who import Selector, suggestion
from wharfinger.protocol.principal import ANONYMOUS, LOCAL, Principal

__all__ = ["Policy"]

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_PRINCIPALS = 10_000
"""The maximum number of principals whose access is remembered."""
MAX_COMPILED_RULES = 200_000
"""The maximum number of rules of all remembered accesses together: about 100 MB."""

PatternsOfDirectory = Callable[[str], Iterable[str]]
"""Returns the patterns for the published files of a directory, such as `file:///docs/**` for `/srv/docs`."""


_TABLES: dict[str, type[Rule | Limit | PolicyTest]] = {"allow": Rule, "deny": Rule, "limit": Limit, "test": PolicyTest}
"""The tables of a policy file, each of which may be repeated."""


class _ParsedRule:
    """A rule with its selectors and patterns."""

    def __init__(self, rule: Rule, id: str, denies: bool) -> None:
        self.rule = rule
        self.id = rule.name or id
        self.denies = denies
        self.selectors: tuple[Selector, ...] = rule.selectors()
        self.actions = rule.actions()
        everything = rule.what is None and rule.roots is None
        self.patterns = [EVERYTHING] if everything else [parse_pattern(text) for text in words(rule.what)]
        self.needs_issuer = any(selector.depends_on_issuer for selector in self.selectors) or bool(rule.scopes)
        """Whether the rule depends on claims. If several issuers are trusted, it must name one of them, because they
        may give different people the same name."""

    def compile(self, principal: Principal, claims: dict[str, frozenset[str]]) -> CompiledRule | None:
        """Return the rule as it applies to a principal; None if it does not.

        `claims` keeps the claims that selectors have read: pass the same dictionary for all rules of one principal.
        A rule with `reveal` also applies to a principal who lacks only scopes: it allows nothing then, but errors name
        these scopes.
        """
        rule = self.rule
        if rule.issuer is not None and rule.issuer != principal.issuer:
            return None
        scopes = words(rule.scopes)
        missing: tuple[str, ...] = ()
        applies = any(selector.applies_to(principal, claims) for selector in self.selectors)
        if not applies or not principal.scopes.issuperset(scopes):
            if not rule.reveal or self.denies or not principal.key:
                return None
            selecting = self._selecting_scope(principal, claims)
            if selecting is None:
                return None
            # Name all scopes, also those that the token has: a client requests exactly those that the answer names.
            missing = tuple(dict.fromkeys((*scopes, *selecting)))
        return CompiledRule(self.id, self.denies, self.actions, tuple(self.patterns), missing)

    def _selecting_scope(self, principal: Principal, claims: dict[str, frozenset[str]]) -> tuple[str, ...] | None:
        """Return the scope that a token needs so that `who` applies to the principal, in a tuple.

        The tuple is empty if `who` applies without a scope. If several scopes would do, it has the first. Returns None
        if no scope would do.
        """
        applying = [selector for selector in self.selectors if selector.applies_to(principal, claims)]
        if not all(selector.is_scope for selector in applying):
            return ()
        for selector in applying or self.selectors:
            if selector.is_scope and isinstance(selector.matcher, str):
                return (selector.matcher,)
            if applying and not isinstance(selector.matcher, str):
                # Name a scope of the token that this pattern matches.
                return (min(filter(selector.matcher, principal.scopes)),)
        return None


class Policy:
    """Decides what each principal may do; see `protocol.interfaces.Authorizer`.

        Policy(
            allow=[Rule(who="group:staff", what="file:///docs/**")],
            deny=[Rule(who="anyone", what="file:///docs/private/**")],
        )

    A policy that has `limits` but no rules allows everything except `inspect`, within these limits. A policy without
    anything allows nothing.

    `load` runs the `tests` of a policy in a file, unless a rule has `roots`. A server also runs the tests of a policy
    before using it.

    Raises:
        UnusablePolicy: a rule, a limit or a test is not valid; the message names it, and says what to write.
    """

    decides_by_rules = True
    """The decision about an action and a target is always the same for a principal, so that it can be remembered."""

    def __init__(
        self,
        *,
        allow: Sequence[Rule] = (),
        deny: Sequence[Rule] = (),
        limits: Sequence[Limit] = (),
        tests: Sequence[PolicyTest] = (),
    ) -> None:
        if limits and not allow and not deny:
            allow = (Rule(who="anyone", do=("read", "call", "prompt", "query"), name="only limits"),)
        self.limits = tuple(limits)
        self.tests = tuple(tests)
        self.rules: tuple[_ParsedRule, ...] = tuple(_parse(deny, "deny")) + tuple(_parse(allow, "allow"))
        self._check_limits_and_tests()
        source = repr((tuple(allow), tuple(deny), self.limits)).encode("utf-8", "surrogatepass")
        self.version: str = hashlib.sha256(source).hexdigest()[:16]
        self._clear_caches()

    # -- loading

    @classmethod
    def from_toml(cls, text: str | bytes, *, name: str = "the policy") -> Policy:
        """Read a policy in TOML.

        Raises:
            UnusablePolicy: the text is not TOML, has an unknown key, or has a rule that is not valid.
        """
        import tomllib  # most servers have no such file

        try:
            text = text.decode() if isinstance(text, bytes) else text
            file = tomllib.loads(text)
        except UnicodeDecodeError:
            raise UnusablePolicy(f"{name} is not in UTF-8: save it in this encoding.") from None
        except RecursionError:
            raise UnusablePolicy(f"{name} is not TOML: values are nested too deeply.") from None
        except ValueError as error:
            raise UnusablePolicy(f"{name} is not TOML: {str(error).rstrip('.')}.") from None
        return cls.from_tables(file, name=name)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], *, name: str = "the policy") -> Policy:
        """Build a policy from the tables of a file that was read: `allow`, `deny`, `limit` and `test`.

        Raises:
            UnusablePolicy: there is an unknown key, or a rule that is not valid.
        """
        try:
            for key in tables:
                if key not in _TABLES:
                    hint = suggestion(key, _TABLES)
                    raise UnusablePolicy(
                        f"{key!r} is not known: {hint}write [[allow]], [[deny]], [[limit]] or [[test]]."
                    )
            rows: dict[str, list[Any]] = {kind: list(_convert(kind, tables.get(kind, []))) for kind in _TABLES}
            return cls(allow=rows["allow"], deny=rows["deny"], limits=rows["limit"], tests=rows["test"])
        except UnusablePolicy as error:
            raise UnusablePolicy(f"{name}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file, and run its tests.

        Paths in `roots` are relative to the folder of the file. If there are any, the tests are not run here, because
        the policy decides only after `bind_roots`.

        Raises:
            UnusablePolicy: the file cannot be read, is not a policy, or a test of it fails.
        """
        try:
            with open(path, "rb") as file:
                text = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise UnusablePolicy(f"{path} cannot be read: {error.strerror}.") from None
        if len(text) > MAX_FILE_BYTES:
            raise UnusablePolicy(f"{path} is larger than {MAX_FILE_BYTES // 1024**2} MiB.")
        policy = cls.from_toml(text, name=str(path))
        if policy.has_roots:
            return policy.relative_to(Path(path).parent)
        policy.require_tests(str(path))
        return policy

    @property
    def has_roots(self) -> bool:
        """Whether a rule has `roots`: `bind_roots` must be called before the policy decides. True afterwards too."""
        return any(parsed.rule.roots is not None for parsed in self.rules)

    def relative_to(self, folder: Path) -> Policy:
        """Return this policy with the paths in `roots` relative to a folder, instead of the current one."""

        def with_absolute_roots(parsed: _ParsedRule) -> Rule:
            if parsed.rule.roots is None:
                return parsed.rule
            roots = tuple(str(folder / os.path.expanduser(root)) for root in words(parsed.rule.roots))
            return msgspec.structs.replace(parsed.rule, roots=roots)

        return Policy(
            allow=[with_absolute_roots(parsed) for parsed in self.rules if not parsed.denies],
            deny=[with_absolute_roots(parsed) for parsed in self.rules if parsed.denies],
            limits=self.limits,
            tests=self.tests,
        )

    def bind_roots(self, patterns_of: PatternsOfDirectory) -> Policy:
        """Return this policy with patterns for the `roots` of its rules.

        The server calls this, since it knows what its sources publish. A directory that is not published matches
        nothing.
        """
        if not self.has_roots:
            return self
        bound: Policy = object.__new__(Policy)
        bound.__dict__.update(self.__dict__)
        bound.__dict__.pop("_all_denials", None)
        bound._clear_caches()
        rules: list[_ParsedRule] = []
        digest = hashlib.sha256(self.version.encode())
        for parsed in self.rules:
            if parsed.rule.roots is not None:
                parsed = _ParsedRule(parsed.rule, parsed.id, parsed.denies)
                texts = [text for root in words(parsed.rule.roots) for text in patterns_of(root)]
                parsed.patterns += [parse_pattern(text) for text in texts]
                digest.update(repr(texts).encode("utf-8", "surrogatepass"))
            rules.append(parsed)
        bound.rules = tuple(rules)
        bound.version = digest.hexdigest()[:16]
        return bound

    def check_issuers(self, issuers: Sequence[str]) -> None:
        """Check the rules and limits against the authorization servers that the server trusts.

        Raises:
            UnusablePolicy: a rule or limit names an issuer that is not trusted, or it is about claims and names no
                issuer although several are trusted.
        """
        rows = [(parsed.id, parsed.rule.issuer, parsed.needs_issuer) for parsed in self.rules]
        for number, limit in enumerate(self.limits, 1):
            needs_issuer = any(selector.depends_on_issuer for selector in limit.selectors())
            rows.append((limit.name or f"limit {number}", limit.issuer, needs_issuer))
        for id, issuer, needs_issuer in rows:
            if issuer is not None and issuer not in issuers:
                known = ", ".join(issuers) or "none"
                raise UnusablePolicy(f"{id}: this server does not trust the issuer {issuer!r}: it trusts {known}.")
            if issuer is None and len(issuers) > 1 and needs_issuer:
                raise UnusablePolicy(
                    f"{id}: this server trusts several issuers, which may give different people the same name: "
                    f'add issuer = "{issuers[0]}", or another one of {", ".join(issuers)}.'
                )

    def _check_limits_and_tests(self) -> None:
        for number, limit in enumerate(self.limits, 1):
            name = limit.name or f"limit {number}"
            _check_words(name, "limit", limit)
            try:
                limit.selectors()
                has_any = any((limit.rate("calls"), limit.rate("bytes"), limit.parallel))
            except WharfingerError as error:
                raise UnusablePolicy(f"{name}: {error}") from None
            _check_actions(name, limit.do)
            if uncounted := {"query", "inspect"}.intersection(words(limit.do)):
                raise UnusablePolicy(f'{name}: {min(uncounted)} is a call of a tool: write do = "call".')
            if not has_any or (limit.parallel is not None and limit.parallel < 1):
                raise UnusablePolicy(f"{name}: write calls, bytes or parallel, each with at least 1.")
        for number, test in enumerate(self.tests, 1):
            try:
                principal_of(test.principal)
                for text in (*words(test.allow), *words(test.deny)):
                    action_and_target(text)
            except WharfingerError as error:
                raise UnusablePolicy(f"{test.name or f'test {number}'}: {error}") from None

    # -- deciding

    def access(self, principal: Principal) -> RuleAccess:
        """Return the access of a principal."""
        known = self._by_principal.get(id(principal))
        if known is not None and known[0] is principal:
            access = self._by_rules.get(known[1])
            if access is not None:
                return access
        claims: dict[str, frozenset[str]] = {}
        compiled = [parsed.compile(principal, claims) for parsed in self.rules]
        applied = [(number, rule.missing_scopes) for number, rule in enumerate(compiled) if rule is not None]
        key = hashlib.sha256(f"{self.version} {applied}".encode()).hexdigest()[:32]
        with self._lock:
            access = self._by_rules.get(key)
            if access is None:
                rules = [rule for rule in compiled if rule is not None]
                access = RuleAccess(key, rules, self.is_public, self._directories, self._decisions)
                self._compiled_rules += len(rules) + 1
                while self._by_rules and self._compiled_rules > MAX_COMPILED_RULES:  # drop the oldest
                    self._compiled_rules -= len(self._by_rules.popitem(last=False)[1].rules) + 1
                self._by_rules[key] = access
            while len(self._by_principal) >= MAX_PRINCIPALS:
                self._by_principal.popitem(last=False)
            self._by_principal[id(principal)] = (principal, key)
        return access

    def _clear_caches(self) -> None:
        self._lock = threading.Lock()
        self._by_principal: OrderedDict[int, tuple[Principal, str]] = OrderedDict()
        """By `id` of a principal: the principal, which the entry keeps alive, and the key of its access."""
        self._by_rules: OrderedDict[str, RuleAccess] = OrderedDict()
        self._compiled_rules = 0
        self._directories: Directories = {}
        self._decisions: Decisions = {}

    def is_public(self, uri: str) -> bool:
        """Return whether every caller may read a URI: it is allowed to `anyone`, and denied to no caller."""
        if not self.access(ANONYMOUS).decide("read", uri).allowed:
            return False
        return self._all_denials.decide("read", uri).allowed

    @cached_property
    def _all_denials(self) -> RuleAccess:
        """An access to which the denials of all principals apply, and which is allowed everything else."""
        denials = [
            CompiledRule(parsed.id, True, parsed.actions, tuple(parsed.patterns))
            for parsed in self.rules
            if parsed.denies
        ]
        everything = CompiledRule("", False, ACTIONS, (EVERYTHING,))
        return RuleAccess("", [*denials, everything], lambda uri: True)

    # -- tests

    def check_tests(self) -> list[str]:
        """Run the tests of the policy, and return a sentence for each decision that differs."""
        failures: list[str] = []
        for number, test in enumerate(self.tests, 1):
            access = self.access(principal_of(test.principal))
            for texts, expected in ((test.allow, True), (test.deny, False)):
                for text in words(texts):
                    decision = access.decide(*action_and_target(text))
                    if decision.allowed != expected:
                        reason = f"by {decision.rule}" if decision.rule else "because no rule allows it"
                        failures.append(
                            f"{test.name or f'test {number}'} fails: {text!r} is "
                            f"{'allowed' if decision.allowed else 'refused'} {reason}."
                        )
        return failures

    def require_tests(self, name: str = "the policy") -> None:
        """Run the tests.

        Raises:
            UnusablePolicy: one fails; the message names all that fail.
        """
        if failures := self.check_tests():
            raise UnusablePolicy(f"{name}: {' '.join(failures)}")


def principal_of(claims: Mapping[str, Any] | str) -> Principal:
    """Return the principal of a token with these claims, as a server does that verifies the token.

    `client`, `issuer` and `scopes` may be written instead of `client_id`, `iss` and `scope`. `anyone` is a principal
    without a token, and `local` the one over stdio.

    Raises:
        UnusablePolicy: there is no `sub`, or the scopes are neither a string nor a list of strings.
    """
    if isinstance(claims, str):
        return LOCAL if claims == "local" else ANONYMOUS
    subject = str(claims.get("sub", ""))
    if not subject:
        raise UnusablePolicy('The claims of a principal need a sub: write as = { sub = "ann" }, or as = "anyone".')
    issuer = str(claims.get("iss", claims.get("issuer", "")))
    client = str(claims.get("client_id", claims.get("client", claims.get("azp", ""))))
    key = next((key for key in ("scopes", "scope", "scp") if key in claims), "scopes")
    written = claims.get(key, ())
    try:
        scopes = msgspec.convert(written.split() if isinstance(written, str) else written, frozenset[str])
    except msgspec.ValidationError:
        raise UnusablePolicy(f"{key} = {_short(written)} is not valid: {_expected(key)}.") from None
    return Principal(subject=subject, issuer=issuer, client=client, scopes=scopes, claims=dict(claims))


def _parse(rules: Sequence[Rule], kind: str) -> Iterator[_ParsedRule]:
    """Check rules and parse their parts.

    Raises:
        UnusablePolicy: a rule is not valid.
    """
    for number, rule in enumerate(rules, 1):
        id = rule.name or f"{kind} {number}"
        if rule.level is not None and rule.level not in LEVELS:
            hint = suggestion(rule.level, LEVELS)
            raise UnusablePolicy(f"{id}: level = {rule.level!r} is not known: {hint}write one of {', '.join(LEVELS)}.")
        if rule.do is not None and rule.level is not None:
            raise UnusablePolicy(f"{id}: write do or level, not both.")
        _check_words(id, "rule", rule)
        _check_actions(id, rule.do)
        try:
            yield _ParsedRule(rule, id, kind == "deny")
        except WharfingerError as error:
            raise UnusablePolicy(f"{id}: {error}") from None


_EMPTY_MEANINGS = {
    "who": 'applies to no principal: write who = "anyone" for all',
    "do": "is about no action: omit `do` for all actions",
    "what": "matches nothing: omit `what` for everything",
    "roots": "matches nothing: write the directories, or use `what`",
}
"""What a rule or limit with an empty list does, and what to write instead."""


def _check_words(id: str, kind: str, table: Rule | Limit) -> None:
    """Refuse an empty list or string, such as the value of a missing setting: it never means everything.

    An empty list of `scopes` is the default, and means that no scope is needed.
    """
    for key, consequence in _EMPTY_MEANINGS.items():
        value: Words | None = getattr(table, key, None)
        if (value is not None or key == "who") and not any(words(value)):
            raise UnusablePolicy(f"{id}: {key} is empty, so the {kind} {consequence}.")
    for key in (*_EMPTY_MEANINGS, "scopes"):
        if not all(words(getattr(table, key, None))):
            raise UnusablePolicy(f"{id}: {key} contains an empty string: remove it, or write what it should be.")
    for scope in words(getattr(table, "scopes", None)):
        if any(map(str.isspace, scope)):  # RFC 6749 §3.3
            raise UnusablePolicy(
                f"{id}: scopes = {scope[:60]!r} has a space, so no token has it: write a list of scopes."
            )


def _check_actions(id: str, do: str | Sequence[str] | None) -> None:
    for action in words(do):  # type: ignore[arg-type]
        if action not in ACTIONS and action not in WITH_READ:
            known = sorted(ACTIONS | WITH_READ)
            hint = suggestion(action, known)
            raise UnusablePolicy(f"{id}: do = {action[:60]!r} is not known: {hint}write one of {', '.join(known)}.")


def _convert(kind: str, tables: Any) -> Iterator[Any]:
    """Convert the tables of one kind to structs.

    Raises:
        UnusablePolicy: a table has an unknown key, lacks a required one, or has a value of another type.
    """
    entries: list[Any] = tables if isinstance(tables, list) else [None]  # pyright: ignore[reportUnknownVariableType]
    if not all(isinstance(table, Mapping) for table in entries):
        raise UnusablePolicy(f"{kind} must be a table that can be repeated: write [[{kind}]] above its keys.")
    fields = {field.encode_name: field for field in msgspec.structs.fields(_TABLES[kind])}
    for number, table in enumerate(entries, 1):
        own_name = table.get("name")
        name = own_name if isinstance(own_name, str) and own_name else f"{kind} {number}"
        for key in table:
            if key not in fields:
                raise UnusablePolicy(f"{name}: {key!r} is not known: {suggestion(key, fields)}use {', '.join(fields)}.")
        if missing := [key for key, field in fields.items() if field.required and key not in table]:
            example = 'as = { sub = "ann" }' if missing[0] == "as" else f'{missing[0]} = ["group:staff"]'
            raise UnusablePolicy(f"{name}: {missing[0]} is missing: write for example {example}.")
        for key, value in table.items():
            try:
                msgspec.convert(value, fields[key].type)
            except msgspec.ValidationError:
                hint = suggestion(value, LEVELS) if key == "level" and isinstance(value, str) else ""
                expected = f"{hint}{_expected(key)}"
                raise UnusablePolicy(f"{name}: {key} = {_short(value)} is not valid: {expected}.") from None
        yield msgspec.convert(table, _TABLES[kind])


def _expected(key: str) -> str:
    """Return what to write for a key."""
    match key:
        case "level":
            return f"write one of {', '.join(LEVELS)}"
        case "reveal":
            return "write true or false"
        case "parallel":
            return "write a whole number"
        case "as":
            return 'write the claims of a principal, as in { sub = "ann" }, or "anyone" or "local"'
        case "calls" | "bytes" | "issuer" | "name":
            return "write a string in quotes"
        case _:
            return "write a string in quotes, or a list of strings in brackets"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
