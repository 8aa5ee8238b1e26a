"""The gate of the server's web page (`BrowseSite`): every request of a browser passes it, also those of socket.io.

NiceGUI, which makes the page, lets every origin connect to its socket.io, has no notion of a visitor, and serves more
paths than the page needs. So a request reaches NiceGUI only if

- its path is `/` or `/sign-in`, which is passed on as `/`, or begins with one of `_NICEGUI_PATHS`;
- it does not come from another origin (Origin, and `Sec-Fetch-Site`, which a script cannot set);
- it has the cookie of a visitor, whose credentials are still valid;
- its body is at most `MAX_BODY_BYTES`.

The Host header was checked before (`protocol.http.host_origin`). The answers of NiceGUI get the headers of this page.
They give no permission to other origins, and their Content-Security-Policy allows only scripts of this server and
scripts with the nonce of the answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import parse_qs

from wharfinger.content.mime import PDF
from wharfinger.errors import ProtocolError
from wharfinger.protocol.http.rules import HttpRefusal, read_headers
from wharfinger.transports.http_server.app import Authenticate
from wharfinger.web.content_shelf import ContentShelf, ShelfItem
from wharfinger.web.visitors import VISIT_SECONDS, Visitor, Visitors, cookie_name

__all__ = ["PageGate"]

Application = Callable[[Any, Any, Any], Awaitable[None]]
HeaderField = tuple[bytes, bytes]

MAX_BODY_BYTES = 1024 * 1024
"""Maximum bytes of a request's body. The largest bodies are messages of socket.io with the values of a form."""
MAX_HTML_BYTES = 4 * 1024 * 1024
"""Maximum bytes of the page's HTML. It usually has 20 KB, since it contains no data of the servers."""
MAX_TOKEN_CHARACTERS = 16 * 1024

_NICEGUI_PATHS = ("/_nicegui/", "/_nicegui_ws/")
_OWN_FETCH_SITES = (b"same-origin", b"none")
"""Values of `Sec-Fetch-Site` without `same-site`, which is another origin."""
_OUR_HEADERS: tuple[HeaderField, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # without a referrer the Origin of a form would be null (Fetch §3.1)
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; media-src 'self'; frame-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
"""Styles need 'unsafe-inline' because NiceGUI and Quasar insert style elements. Scripts need neither that nor eval."""
_PLAIN_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"
_INERT_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"
_PDF_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; object-src 'self'; frame-ancestors 'self'"
"""Has no `sandbox`, since a PDF viewer refuses to start in one. It runs in its own process, away from the page."""
_DROPPED_HEADERS = frozenset(
    {b"access-control-allow-origin", b"access-control-allow-credentials", b"content-security-policy", b"set-cookie"}
)
"""Headers of NiceGUI's answers that are dropped: this page shares nothing, and keeps no session there."""

STYLE = """:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;
padding:0 1rem}h1{font-size:1.3rem}input,button{font:inherit;padding:.4rem .6rem}input{width:100%;box-sizing:border-box;
margin:.3rem 0 1rem}[role=alert]{font-weight:600}"""


class PageGate:
    """An ASGI application in front of `inner`; requests of visitors have `wharfinger.visitor` in their scope."""

    def __init__(self, inner: Application, visitors: Visitors, shelf: ContentShelf, *, name: str) -> None:
        self._inner = inner
        self._visitors = visitors
        self._shelf = shelf
        self._name = name

    async def __call__(self, scope: Any, receive: Any, send: Any, authenticate: Authenticate | None = None) -> None:
        """Serve one request. `authenticate` checks the credentials of visitors if the server requires them."""
        # NiceGUI would take a prefix of its own paths from this header.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0].lower() != b"x-forwarded-prefix"]
        headers = read_headers(scope["headers"])
        try:
            check_site(scope, headers)
            visitor = await self._find_visitor(headers, authenticate)
            path, method = scope["path"], scope["method"]
            if path in ("/", "/sign-in") and visitor is None:
                await self._enter(scope, headers, receive, send, authenticate)
            elif path == "/sign-out" and visitor is not None and method == "POST":
                self._visitors.forget(visitor)
                await self._send_form(send, authenticate, "You have signed out.", 200)
            elif visitor is None:
                raise HttpRefusal(401, "Open the page with the URL that the terminal shows, or sign in at /.")
            elif path in ("/", "/sign-in"):
                scope["wharfinger.visitor"] = visitor
                page_scope = scope | {"path": "/", "raw_path": b"/", "query_string": b""}
                await self._pass(page_scope, await read_ahead(headers, receive), send)
            elif path.startswith("/content/") and method in ("GET", "HEAD"):
                item = self._shelf.find(visitor.key, path)
                if item is None:
                    raise HttpRefusal(404, "This content is no longer kept: open the resource on the page again.")
                await send_item(send, item)
            elif path.startswith(_NICEGUI_PATHS):
                scope["wharfinger.visitor"] = visitor
                await self._pass(scope, await read_ahead(headers, receive), send)
            else:
                raise HttpRefusal(404, "Not found: the page is at /.")
        except ProtocolError as error:
            text = f"{error.message}\n".encode()
            await answer(send, error.http_status, b"text/plain; charset=utf-8", text, ())

    # -- visitors

    async def _find_visitor(self, headers: Mapping[bytes, bytes], authenticate: Authenticate | None) -> Visitor | None:
        """Return the visitor of a request, or None. The credentials of the visitor are checked again."""
        cookie = read_cookie(headers)
        visitor = self._visitors.find(cookie) if cookie else None
        if visitor is None or authenticate is None:
            return visitor if visitor is None or not visitor.authorization else None
        if not visitor.authorization:  # it was admitted without credentials, before they were required
            return None
        try:
            visitor.principal = await authenticate({**headers, b"authorization": visitor.authorization})
        except HttpRefusal as error:
            if error.http_status in (401, 403):
                self._visitors.forget(visitor)
                return None
            raise
        return visitor

    async def _enter(
        self, scope: Any, headers: Mapping[bytes, bytes], receive: Any, send: Any, authenticate: Authenticate | None
    ) -> None:
        """Exchange the token of the URL or of the form for a cookie. Without a valid token, ask for one."""
        if scope["path"] == "/sign-in" and scope["method"] == "POST" and authenticate is not None:
            token = _field(await read_body(headers, receive), "token")
            try:
                authorization = b"Bearer " + token.strip().encode("ascii")
                principal = await authenticate({**headers, b"authorization": authorization})
            except UnicodeEncodeError:
                await self._send_form(send, authenticate, "A token consists of letters, digits and punctuation.", 401)
            except HttpRefusal as error:
                if error.http_status not in (401, 403):
                    raise
                await self._send_form(send, authenticate, "This token is not valid here.", 401)
            else:
                await self._welcome(scope, headers, send, self._visitors.admit(principal, authorization))
            return
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpRefusal(401, "Sign in first.")
        token = "" if authenticate is not None else _field(scope["query_string"], "token")
        # A HEAD, as of a link checker, must not use up the token.
        cookie = self._visitors.redeem(token) if token and scope["method"] == "GET" else None
        if cookie is not None:
            await self._welcome(scope, headers, send, cookie)
        else:
            await self._send_form(send, authenticate, "This link was used already, or is not valid." if token else "")

    async def _welcome(self, scope: Any, headers: Mapping[bytes, bytes], send: Any, cookie: str) -> None:
        """Set the cookie, and go to the page.

        A redirect would belong to the navigation that led here. If that began on another site, such as a web mail or
        a terminal in a browser, the browser would not send a Strict cookie; so the answer is a page that opens `/`.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        value = f"{cookie_name(host)}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={VISIT_SECONDS:.0f}{secure}"
        body = self._html('<meta http-equiv="refresh" content="0;url=/">', '<p><a href="/">Open the page</a></p>')
        fields = ((b"set-cookie", value.encode("latin-1")), (b"content-security-policy", _PLAIN_POLICY))
        await answer(send, 200, b"text/html; charset=utf-8", body, fields)

    async def _send_form(self, send: Any, authenticate: Authenticate | None, alert: str, status: int = 401) -> None:
        """Ask for a token, or say that the page must be opened with the URL in the terminal."""
        alert_html = f'<p role="alert">{escape(alert)}</p>' if alert else ""
        if authenticate is None:
            ask = (
                "<p>Open this page with the URL that the terminal shows. It works once: "
                "for another, start the command again.</p>"
            )
        else:
            ask = (
                '<form method="post" action="/sign-in"><label for="token">Token for this server</label>'
                '<input id="token" name="token" type="password" autocomplete="off" required autofocus>'
                "<button>Sign in</button></form>"
            )
        fields = ((b"content-security-policy", _PLAIN_POLICY),)
        await answer(send, status, b"text/html; charset=utf-8", self._html("", alert_html + ask), fields)

    def _html(self, head: str, body: str) -> bytes:
        name = escape(self._name)
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>{head}'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
            f"<body><main><h1>{name}</h1>{body}</main></body></html>\n"
        ).encode("utf-8", "replace")

    # -- answers of NiceGUI

    async def _pass(self, scope: Any, receive: Any, send: Any) -> None:
        """Let NiceGUI answer, with our headers and a nonce on each script of its page."""
        nonce = secrets.token_urlsafe(16)
        start: dict[str, Any] = {}  # of an HTML response: sent with the changed page
        html = bytearray()

        async def send_changed(event: Any) -> None:
            if event["type"] == "http.response.start":
                fields = [(name.lower(), value) for name, value in event.get("headers", ())]
                fields = [field for field in fields if field[0] not in _DROPPED_HEADERS]
                is_html = any(name == b"content-type" and b"text/html" in value for name, value in fields)
                policy = (b"content-security-policy", _POLICY.format(nonce=nonce).encode())
                event = {
                    "type": event["type"],
                    "status": event["status"],
                    "headers": [*fields, policy, *_OUR_HEADERS],
                }
                if is_html:
                    start.update(event)
                    return
                await send(event)
                return
            body, more = event.get("body", b""), event.get("more_body", False)
            if not start:
                await send({"type": "http.response.body", "body": bytes(body), "more_body": more})
                return
            html.extend(body)
            if len(html) > MAX_HTML_BYTES:
                raise ValueError(f"The page's HTML has more than {MAX_HTML_BYTES} bytes.")
            if not more:
                # Scripts of the template only: text in it is escaped, and has no `<`.
                page = bytes(html).replace(b"<script", b'<script nonce="%b"' % nonce.encode())
                start["headers"] = [
                    *(field for field in start["headers"] if field[0] not in (b"content-length", b"cache-control")),
                    (b"content-length", b"%d" % len(page)),
                    (b"cache-control", b"no-store"),
                ]
                await send(start)
                await send({"type": "http.response.body", "body": page, "more_body": False})

        await self._inner(scope, receive, send_changed)


def check_site(scope: Any, headers: Mapping[bytes, bytes]) -> None:
    """Check that no other origin causes a request. Others may only link to the page.

    `--allow-origin` lets pages of another origin call the endpoint of the protocol, with a token. They get no access to
    this page, which recognises its visitors by a cookie.

    Raises:
        HttpRefusal: 403.
    """
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    if origin is not None and origin.rpartition(b"://")[2].lower() != host.lower():
        raise HttpRefusal(403, "Only this page may send this request.")
    site = headers.get(b"sec-fetch-site")
    is_navigation = scope["method"] in ("GET", "HEAD") and headers.get(b"sec-fetch-mode") == b"navigate"
    if site is not None and site not in _OWN_FETCH_SITES and not (is_navigation and scope["path"] == "/"):
        raise HttpRefusal(403, "Open this from the page in a browser.")
    if scope["method"] not in ("GET", "HEAD") and origin is None and site is None:
        raise HttpRefusal(403, "The browser has to say which page sends this: Origin is missing.")


def read_cookie(headers: Mapping[bytes, bytes]) -> str:
    """Return the value of this page's cookie, or an empty string."""
    name = cookie_name(headers.get(b"host", b"").decode("latin-1"))
    # `SimpleCookie` would drop all cookies if it cannot parse the cookie of another application on this host.
    for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return value.strip()
    return ""


def _field(encoded: bytes, name: str) -> str:
    try:
        values = parse_qs(encoded.decode("latin-1"), max_num_fields=10).get(name, [""])
    except ValueError:
        return ""
    return values[0][:MAX_TOKEN_CHARACTERS]


async def read_ahead(headers: Mapping[bytes, bytes], receive: Any) -> Any:
    """Return a `receive` whose first event has the whole body.

    engine.io catches every error while it reads a body, and answers 200. So the body is read before.

    Raises:
        HttpRefusal: the body is too large, or did not arrive.
    """
    events: list[Any] = [{"type": "http.request", "body": await read_body(headers, receive), "more_body": False}]

    async def receive_next() -> Any:
        return events.pop() if events else await receive()

    return receive_next


async def read_body(headers: Mapping[bytes, bytes], receive: Any) -> bytes:
    """Return the body of a request.

    Raises:
        HttpRefusal: the body is larger than `MAX_BODY_BYTES`, or did not arrive.
    """
    size = int(headers.get(b"content-length", b"0") or 0)
    body = bytearray()
    while True:
        if max(size, len(body)) > MAX_BODY_BYTES:
            raise HttpRefusal(413, f"The message is larger than {MAX_BODY_BYTES} bytes.")
        event = await receive()
        if event["type"] != "http.request":
            raise HttpRefusal(400, "The body did not arrive.")
        body += event.get("body", b"")
        if not event.get("more_body") and len(body) <= MAX_BODY_BYTES:
            return bytes(body)


async def send_item(send: Any, item: ShelfItem) -> None:
    """Send the content of a resource: nothing in it may run, load anything, or be taken for another type."""
    policy = _PDF_POLICY if item.kind == PDF else _INERT_POLICY
    fields = ((b"content-security-policy", policy), (b"content-disposition", b"inline"))
    await answer(send, 200, item.kind.encode("latin-1", "replace"), item.body, fields)


async def answer(send: Any, status: int, kind: bytes, body: bytes, fields: Iterable[HeaderField]) -> None:
    """Send an answer that no cache keeps."""
    head = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": [*head, *_OUR_HEADERS, *fields]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
