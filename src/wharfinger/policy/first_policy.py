"""Writes a first policy for what a server publishes: rules to begin with, limits, and tests that pass."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from wharfinger.policy.findings import Published, top_of
from wharfinger.policy.patterns import UnusablePattern, parse_pattern, segments_of
from wharfinger.policy.policy import Policy, principal_of

__all__ = ["first_policy"]

PRIVATE = ("private", "secret", "secrets", "confidential")
"""Names of folders that are denied whether or not they exist yet."""
_KEYS = ("*.key", "*.pem", "*.p12", ".env")
"""Patterns of file names that are denied whether or not such files exist yet."""
MAX_TOP_CHARACTERS = 300
"""URIs with a longer scheme and label get no rule, so they are refused: its patterns could be too long."""
_LOOKS_PRIVATE = re.compile(
    r"(?:private|secrets?|confidential|internal|personal|hr|payroll|pay|salar(?:y|ies)|wages|credentials?|passwords?"
    r"|medical|contracts?|invoices?)(?:\.[A-Za-z0-9]{1,8})?",
    re.IGNORECASE,
)
"""Matches names of published files, folders and tables that are denied because they look private."""
_FILE_SCHEMES = ("file://", "git://", "log://", "zip://", "table://", "s3://", "skill://")


def first_policy(
    published: Published,
    read_only_tools: Sequence[str],
    *,
    targets: str,
    file: str = "policy.toml",
    command: str = "serve",
) -> str:
    """Return a policy in TOML with comments.

    Calls to `read_only_tools` are allowed; a rule for the other tools is added as a comment.

    The other arguments are for the commands in the comments, so they must be quoted for a shell, and contain no
    passwords and no line breaks: `targets` says what is published, `file` will hold the policy, and `command` serves
    it.
    """
    tops = sorted({top for uri in published.uris if (top := top_of(uri)) and len(top) <= MAX_TOP_CHARACTERS})
    patterns = {top: top.replace("*", "%2A") for top in tops}  # a `*` in a label stands for itself
    readers = "Callers with a token, and local ones (over stdio), may read."
    example = shlex.quote(tops[0]) if tops else "URI"
    parts = [
        f"""\
# Who may do what. What no rule allows is refused, and a rule that denies wins.
#
# Check it:    wharfinger policy check {file} {targets}
# Explain it:  wharfinger policy explain {file} --as sub:ann read {example}
# Use it:      wharfinger {command} --http --tokens tokens.json --policy {file} {targets}
#
# who:  anyone, signed-in, local (over stdio), sub:NAME, group:NAME, scope:NAME, client:ID, email:ADDRESS,
#       claim.NAME:VALUE; * stands for any characters, as in "email:*@example.com"
# do:   read (with list, complete, search and watch), call, prompt, query, inspect; all if it is left out
# what: URIs by segment (* for one, ** for any number), tool:NAME, prompt:NAME
""",
        _format_rule("allow", readers, do="read", what=[f"{patterns[top]}/**" for top in tops] or ["**"]),
    ]
    callable_tools = [name for name in read_only_tools if _can_be_named("tool", name)]
    if callable_tools:
        what = [f"tool:{name}" for name in callable_tools]
        comment = "These tools change nothing. The rules also apply to what they read."
        parts.append(_format_rule("allow", comment, do="call", what=what))
    if others := [name for name in published.tools if name not in read_only_tools and _can_be_named("tool", name)]:
        what = [f"tool:{name}" for name in others]
        comment = "These tools may change something: choose who may call them."
        text = _format_rule("allow", comment, do="call", what=what).removeprefix("# ").removesuffix("\n")
        parts.append("# " + text.replace("\n", "\n# ") + "\n")
    if prompts := [name for name in published.prompts if _can_be_named("prompt", name)]:
        what = [f"prompt:{name}" for name in prompts]
        parts.append(_format_rule("allow", "Prompts of the server.", do="prompt", what=what))
    hidden = [
        f"{patterns[top]}/**/{name}"
        for top in tops
        if top.startswith(_FILE_SCHEMES)
        for name in (*(f"{name}/**" for name in PRIVATE), *_KEYS)
    ]
    named = (
        f"{patterns[top]}/**/{name}/**" for top, name in sorted(_find_private_names(published.uris)) if top in patterns
    )
    hidden = list(dict.fromkeys((*hidden, *named)))
    if hidden:
        parts.append(_format_rule("deny", "This looks private. Nobody may read it.", who=["anyone"], what=hidden))
    parts.append(
        """\
# How much each caller may use.
[[limit]]
who      = "signed-in"
calls    = "600/min"
bytes    = "256MiB/min"
parallel = 16

[[limit]]
who      = "anyone"
calls    = "60/min"
parallel = 4
"""
    )
    policy = Policy.from_toml("\n".join(parts))
    access = policy.access(principal_of({"sub": "ann"}))
    readable = next((uri for uri in published.uris if uri not in tops and access.allows("read", uri)), "")
    refused = next((uri for uri in published.uris if not access.allows("read", uri)), "")
    if not refused and hidden:
        refused = hidden[0].replace("/**", "", 1).replace("/**", "/notes.md")
    if readable or refused:
        lines = ["# Decisions that must stay as they are: they are checked at the start and on every change."]
        lines += ["[[test]]", 'as    = { sub = "ann" }']
        lines += [f"allow = {_toml_string(f'read {readable}')}"] if readable else []
        lines += [f"deny  = {_toml_string(f'read {refused}')}"] if refused else []
        parts.append("\n".join(lines) + "\n")
    if readable:
        parts.append(f'[[test]]\nas    = "anyone"\ndeny  = {_toml_string(f"read {readable}")}\n')
    return "\n".join(parts)


def _format_rule(
    kind: str, comment: str, *, what: Sequence[str], do: str = "", who: Sequence[str] = ("signed-in", "local")
) -> str:
    lines = [f"# {comment}", f"[[{kind}]]", f"who  = {_toml_strings(who)}"]
    lines += [f"do   = {_toml_string(do)}"] if do else []
    return "\n".join([*lines, f"what = {_toml_strings(what)}"]) + "\n"


def _toml_strings(values: Sequence[str]) -> str:
    if len(values) == 1:
        return _toml_string(values[0])
    inline = ", ".join(map(_toml_string, values))
    if len(inline) < 100:
        return f"[{inline}]"
    return "[\n" + "".join(f"    {_toml_string(value)},\n" for value in values) + "]"


def _toml_string(value: str) -> str:
    """Return a string of TOML, which has the escapes of JSON, and also requires one for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _can_be_named(kind: str, name: str) -> bool:
    """Return whether a rule can name this tool or prompt. In a rule, a `*` would match other names too."""
    try:
        parse_pattern(f"{kind}:{name}")
    except UnusablePattern:
        return False
    return "*" not in name


def _find_private_names(uris: Iterable[str]) -> set[tuple[str, str]]:
    """Return the files, folders and tables that look private.

    Each item is the top of a URI, and a pattern for the name: `pay`, or `pay.*` for `pay.md`.
    """
    found: set[tuple[str, str]] = set()
    for uri in uris:
        for name in (segments_of(uri) or ())[2:]:
            if _LOOKS_PRIVATE.fullmatch(name):
                word, dot, _ = name.partition(".")
                found.add((top_of(uri), f"{word}.*" if dot else word))
    return found
