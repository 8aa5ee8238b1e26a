"""Removes passwords and tokens from URLs, command lines and messages.

Each function takes time linear in the length of its text, because peers write parts of it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise

from wharfinger.content.secret_forms import SECRET_NAMES, TOKEN_FORMS, TOKEN_START

__all__ = ["HIDDEN", "has_password", "redacted", "redacted_command", "redacted_text"]

HIDDEN = "***"
"""Replaces a secret in a command or a message."""

_DATABASE = re.compile(
    r"\b(?:sqlite|postgres(?:ql)?|mysql|mariadb|oracle|mssql)(?:\+\w{1,64})?\Z", re.IGNORECASE
).search
_AUTHORITY_END = re.compile(r"[/?#\s]").search
_URL_END = re.compile(r"[\s\"'<>]").search
_SECRET_NAME = re.compile(
    rf"(?:{'|'.join(name.replace('_', '') for name in SECRET_NAMES)}|cookie)\Z"
    r"|\A(?:x?auth|key|pass|pat|sig|bearer)\Z"
).search
_SHORT_NAME = re.compile(r"[-_.](?:pass|pat|pw)\Z", re.IGNORECASE).search
_TOKEN = re.compile(f"{TOKEN_START}(?:{'|'.join(form.pattern for form in TOKEN_FORMS)})")
_ASSIGNED = re.compile(
    r"(?<![A-Za-z0-9_.-])([A-Za-z0-9_.-]++)([\"']?+\s{0,4}+=(?!=)\s{0,4}+|[\"']\s{0,4}+:\s{0,4}+)"
    r"((?:bearer|basic|token)\s{1,4}+[^\s\"',;&}]++|\"(?:[^\"\\]|\\.)*+\"(?=[\s,;)\]}]|\Z)"
    r"|\"[^\"]*+\"|'[^']*+'|[^\s\"',;&}]++)",
    re.IGNORECASE,
)
"""Matches a name with its value: `name = value`, `"name": "value"`, `"name": "a\\"b"`."""
_CODE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*+[\[(]").fullmatch
"""Matches code before the first quote of an assigned value: `DATA["name"]`, `os.getenv("NAME")`."""
_FIELD = re.compile(
    r"(?<![A-Za-z0-9_.-])(?!(?i:auth|key):)([A-Za-z0-9][A-Za-z0-9_-]*+)(:\s{0,4}+[\"']?+)([^\s\"',;&}]{8,}+)"
)
"""Matches a header or a variable with its value. A value without digits is a word of an error message, not a secret.

`key: column_12` is an error message too.
"""
_COOKIES = re.compile(
    r"(?<![A-Za-z0-9_.-])((?:set-)?cookie:\s{0,4}+)[^\s\"',;:=]++=[^\s\"',;]*+(?:;\s{0,4}+[^\s\"',;:=]++=[^\s\"',;]*+)*+",
    re.IGNORECASE,
)
"""Matches a header with cookies: `Cookie: session=value; theme=dark`."""
_OPTION_VALUE = re.compile(
    r"(?<!\S)(['\"]?--)([A-Za-z0-9][A-Za-z0-9_.-]*+)(\s{1,4}+)"
    r"(?!(?:and|are|cannot|for|has|in|is|must|needs?|or|to|was|with)[,.;:]?(?:\s|\Z))"
    r"(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'-]\S*?(?=[,.;:]?(?:\s|\Z)))"
)
"""Matches an option and the value after it, unless the next word shows that the option occurs in a sentence."""
_BEARER = re.compile(
    r"\b(bearer|basic)( {1,4}+)(?!(?-i:[a-z]{1,14})(?!\.?[A-Za-z0-9_~+/=-]))[A-Za-z0-9._~+/=-]{8,}+", re.IGNORECASE
)
"""A word in lower case, as in `bearer authentication`, is not a token."""
_HEADER = re.compile(r"((?:-{1,2}\w{1,64}+=)?([A-Za-z0-9_-]{1,128}+)):").match
_OPTION = re.compile(r"--?([A-Za-z0-9][A-Za-z0-9_.-]{0,127}+)(=)?").match
_SHORT_OPTIONS = {"curl": "-u", "mariadb": "-p", "mysql": "-p", "mysqldump": "-p", "redis-cli": "-a", "sshpass": "-p"}
"""Programs with a short option for a password, which may be joined to the option or follow it."""


def _is_secret(name: str) -> bool:
    """Return whether this is the name of a secret, such as `--api-key`, `PGPASSWORD` or `client_secret`."""
    return _SECRET_NAME(re.sub(r"[-_.]", "", name).lower()) is not None or _SHORT_NAME(name) is not None


def redacted(url: str) -> str:
    """Return a URL, or a text with URLs, without passwords, tokens and secret parameters."""
    if "://" not in url:
        return url
    parts = url.split("://")
    shown = [parts[0]]
    for before, part in pairwise(parts):
        shown.append(_without_secret_fields(_without_password(part, _DATABASE(before[-80:]) is not None)))
    return "://".join(shown)


def has_password(url: str) -> bool:
    """Return whether a URL contains a password, a token or a secret parameter."""
    return redacted(url) != url


def _without_password(rest: str, is_database: bool) -> str:
    """Return the part after `://` without the password, which for a database may contain slashes (SQLAlchemy).

    A token in place of the user is hidden too.
    """
    # After `user@host:`, a port follows, unless the user is an e-mail address.
    may_contain_slashes = is_database and "@" not in rest.partition(":")[0]
    end = (_URL_END if may_contain_slashes else _AUTHORITY_END)(rest)
    authority = rest if end is None else rest[: end.start()]
    user, colon, _ = authority.partition(":")
    at = authority.rfind("@")
    if colon and "/" not in user and at > len(user):
        return (HIDDEN if _TOKEN.fullmatch(user) else user) + rest[at:]
    if at > 0 and _TOKEN.fullmatch(authority[:at]):
        return HIDDEN + rest[at:]
    return rest


def _without_secret_fields(rest: str) -> str:
    """Return the part after `://` without secrets in the query and the fragment."""
    end = found.start() if (found := _URL_END(rest)) else len(rest)
    url, after = rest[:end], rest[end:]
    for mark in "#?":
        head, found_mark, fields = url.partition(mark)
        fields, hash_mark, fragment = fields.partition("#") if mark == "?" else (fields, "", "")
        safe = [field for field in fields.split("&") if "=" not in field or not _is_secret(field.partition("=")[0])]
        if len(safe) < fields.count("&") + 1:
            url = head + (found_mark if safe else "") + "&".join(safe) + hash_mark + fragment
    return url + after


def redacted_text(text: str) -> str:
    """Return a message without passwords and tokens that have a known name or form."""
    text = _COOKIES.sub(rf"\1{HIDDEN}", redacted(text))
    text = _FIELD.sub(_hide_field, _ASSIGNED.sub(_hide_value, text))
    text = _OPTION_VALUE.sub(_hide_option, text)
    return _TOKEN.sub(HIDDEN, _BEARER.sub(rf"\1\2{HIDDEN}", text))


def _hide_value(found: re.Match[str]) -> str:
    is_code = found.string[found.end() : found.end() + 1] in ('"', "'") and _CODE(found[3]) is not None
    return f"{found[1]}{found[2]}{HIDDEN}" if _is_secret(found[1]) and not is_code else found[0]


def _hide_field(found: re.Match[str]) -> str:
    is_secret = any(character.isdigit() for character in found[3]) and _is_secret(found[1])
    return f"{found[1]}{found[2]}{HIDDEN}" if is_secret else found[0]


def _hide_option(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{found[3]}{HIDDEN}" if _is_secret(found[2]) else found[0]


def redacted_command(argv: Sequence[str]) -> str:
    """Return a command line for a shell, with `***` for arguments that look like passwords or tokens."""
    if not argv:
        return ""
    short_option = _SHORT_OPTIONS.get(re.split(r"[/\\]", argv[0])[-1].removesuffix(".exe"), "")
    shown: list[str] = []
    hide_next = False
    for word in argv:
        option = _OPTION(word)
        header = _HEADER(word)
        is_secret = option is not None and _is_secret(option[1])
        has_value = is_secret and option is not None and option[2] is not None
        if hide_next and not (is_secret and not has_value):
            shown.append(HIDDEN)
            hide_next = False
        elif has_value and option is not None:
            shown.append(f"{option[0]}{HIDDEN}")
        elif short_option and word.startswith(short_option) and not word.startswith("--"):
            shown.append(short_option if word == short_option else f"{short_option}{HIDDEN}")
            hide_next = word == short_option
        elif header is not None and _is_secret(header[2]):
            shown.append(f"{header[1]}: {HIDDEN}")
        else:
            shown.append(redacted_text(word))
            hide_next = is_secret and option is not None and option[0] == word
    # `***` alone is no reason for quotes, although it is special in a shell.
    without_stars = ((word, word.replace(HIDDEN, "x")) for word in shown)
    return " ".join(word if shlex.quote(plain) == plain else shlex.quote(word) for word, plain in without_stars)
