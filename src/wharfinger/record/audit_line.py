"""One line of the audit log: its fields, bounded and escaped."""

from __future__ import annotations

import re
import time
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET

from wharfinger.content.redaction import redacted
from wharfinger.protocol.principal import Principal
from wharfinger.protocol.request import Request
from wharfinger.types import Implementation

__all__ = ["ACTIONS", "AuditLine", "action_of", "encode_line", "name_caller", "rfc3339", "trace_id"]

ACTIONS = {
    "resources/read": "read",
    "tools/call": "call",
    "prompts/get": "prompt",
    "completion/complete": "complete",
    "resources/subscribe": "watch",
    "resources/unsubscribe": "unwatch",
    "subscriptions/listen": "unwatch",
    "resources/list": "list",
    "resources/templates/list": "list",
    "tools/list": "list",
    "prompts/list": "list",
    "initialize": "connect",
    "server/discover": "connect",
    "elicitation/create": "elicit",
    "sampling/createMessage": "sample",
    "roots/list": "roots",
}
"""The action of each method. `subscriptions/listen` is recorded when it ends, after a `watch` for each URI."""

MAX_TARGET_CHARACTERS = 2048
"""The maximum number of characters of a URI or name that are kept, before they are escaped."""
MAX_SEARCHED_CHARACTERS = 4 * MAX_TARGET_CHARACTERS
"""The maximum number of characters of a URI or name in which passwords are looked for; the rest is left out."""
MAX_FIELD_CHARACTERS = 256
"""The maximum number of characters of any other field that are kept, before they are escaped."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.DOTALL).fullmatch
"""W3C Trace Context, traceparent."""


class AuditLine(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The fields of a line, in their order. Empty fields are left out."""

    time: str
    action: str
    """`read`, `list`, `search`, `watch`, `unwatch`, `complete`, `call`, `prompt`, `connect` or `other`; of a host also
    `approve`, `elicit`, `sample` and `roots`; for the log itself `record`."""
    outcome: str
    """`allowed`, `refused`, `failed`, `cancelled` or `limited`; for the log itself `resumed`."""
    method: str = ""
    target: str = ""
    """The URI, or the name of the tool or prompt."""
    subject: str = ""
    issuer: str = ""
    client: str = ""
    """The OAuth client."""
    app: str = ""
    """The name and version that the MCP client gives itself."""
    address: str = ""
    server: str = ""
    """The server that a host called, or that asked the host."""
    inspector: str = ""
    """The subject of the caller who inspects the server as `subject`; empty if the subject made the request."""
    rule: str = ""
    """The rule of the policy that decided."""
    via: str = ""
    """The method of the request whose handler did this on behalf of its caller."""
    bytes: int = 0
    ms: float = 0.0
    error: int = 0
    """The JSON-RPC code of the error that the caller got."""
    status: int = 0
    """The HTTP status of the error, also over stdio, if the message was refused before it became a request."""
    hits: int | msgspec.UnsetType = UNSET
    query: str = ""
    trace: str = ""
    unrecorded: int = 0
    """The number of requests that were refused, and of lines that were lost, before a line with the action `record`.

    Requests are refused while the log cannot be written or its queue is half full. Lines are lost while the queue is
    full.
    """
    reason: str = ""


def action_of(method: str) -> str:
    """Return the action of a method."""
    return ACTIONS.get(method, "other")


_encode = msgspec.json.Encoder().encode


def encode_line(line: AuditLine) -> bytes:
    r"""Return a line of JSON, with its newline. The texts of `line` itself are changed too.

    Passwords and tokens are removed from the target, and long texts are cut. Unprintable characters are written as
    `\uXXXX`, so that no text of a caller can end the line, move the cursor of a terminal or reverse the direction of
    the text.
    """
    target = line.target
    # A target without any of these characters has no password that `redacted` could find.
    if len(target) > MAX_TARGET_CHARACTERS or "@" in target or "?" in target or "#" in target:
        searched = target[:MAX_SEARCHED_CHARACTERS]
        line.target = shorten(redacted(searched), MAX_TARGET_CHARACTERS, len(target) - len(searched))
    if sum(map(len, _texts_of(line))) > MAX_FIELD_CHARACTERS:
        for name in _TEXTS:
            setattr(line, name, shorten(getattr(line, name), MAX_FIELD_CHARACTERS))
    try:
        data = _encode(line)
    except UnicodeEncodeError:  # lone surrogates, which JSON in UTF-8 cannot have
        for name in ("target", *_TEXTS):
            setattr(line, name, getattr(line, name).encode("utf-8", "backslashreplace").decode())
        data = _encode(line)
    text = data.decode()
    if not text.isprintable():
        data = "".join(char if char.isprintable() else _escape(char) for char in text).encode()
    return data + b"\n"


_TEXTS = (
    "method", "subject", "issuer", "client", "app", "address", "server", "inspector", "rule", "query", "reason",
)  # fmt: skip
_texts_of = attrgetter(*_TEXTS)


def shorten(text: str, limit: int, already_left_out: int = 0) -> str:
    """Return at most `limit` characters of a text, followed by the number of characters that are left out, if any.

    `already_left_out` is the number of characters that came after `text`, and count too.
    """
    left_out = max(len(text) - limit, 0) + already_left_out
    return f"{text[:limit]}…(+{left_out})" if left_out else text


def _escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def rfc3339(seconds: float) -> str:
    """Return a Unix time in RFC 3339, UTC, with milliseconds."""
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    if _last[0] != whole:
        _last[:] = whole, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{_last[1]}.{milliseconds:03d}Z"


_last: list[Any] = [-1, ""]
"""The last second that `rfc3339` has formatted, and its text."""


def trace_id(request: Request) -> str:
    """Return the id of the trace that a request belongs to, from `traceparent` in its `_meta`; empty if it has none."""
    meta = getattr(request.params, "meta", UNSET)
    if meta is UNSET or meta.traceparent is UNSET:
        return ""
    match = _TRACEPARENT(meta.traceparent)
    return match[1] if match is not None and match[1].strip("0") else ""


def name_caller(line: AuditLine, principal: Principal, app: Implementation | None, address: str) -> None:
    """Set the fields of a line that say who called."""
    line.subject, line.issuer, line.client = principal.subject, principal.issuer, principal.client
    line.app = "" if app is None else f"{app.name} {app.version}".strip()
    line.address = address
    line.inspector = principal.inspector
