"""HTTP APIs as live resources, by their OpenAPI documents: `server.include(openapi("https://host/openapi.json"))`.

`api_document` reads a document, `api_operations` and `api_schemas` read its operations and schemas, `api_catalogue`
lists the operations that can be read, and `api_tools` makes tools of others. `api_uris` makes and reads URIs,
`api_credentials` chooses credentials, and `api_client` sends requests. `asgi_transport` calls an application in this
process. `api_paging` finds the next page of an answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from wharfinger.content.decoded_json import as_object
from wharfinger.content.text import printable
from wharfinger.fetching import Fetcher
from wharfinger.net import is_address, is_loopback, is_public, join_url, origin_of, split_url
from wharfinger.protocol.interfaces import AsgiApp
from wharfinger.source import UnusableSource
from wharfinger.sources.http_api.api_client import MAX_ANSWER_BYTES, ApiClient, ApiTransport
from wharfinger.sources.http_api.api_document import MAX_DOCUMENT_BYTES, JsonObject, check_values, parse_document
from wharfinger.sources.http_api.api_operations import ApiDocument
from wharfinger.sources.http_api.asgi_transport import AsgiTransport
from wharfinger.sources.http_api.source import ApiSettings, HttpApi
from wharfinger.sources.labels import usable_label

__all__ = ["HttpApi", "openapi"]

DEFAULT_EVERY_SECONDS = 5.0
"""Default time between two checks for changes."""
TIMEOUT_SECONDS = 30.0
MIN_EVERY_SECONDS = 0.1
IN_PROCESS_URL = "http://localhost"
"""The base URL of an application in this process."""


def openapi(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    *,
    base_url: str | None = None,
    label: str | None = None,
    headers: Mapping[str, str] | None = None,
    allow_operations: Sequence[str] = (),
    app: AsgiApp | None = None,
    allow_private_networks: bool = False,
    every: float | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> HttpApi:
    """Publish an HTTP API: `server.include(openapi("https://shop.example/openapi.json"))`.

    GET operations become resources and resource templates. Requests go to the host of the document (of a file: the
    host that it names), or to `base_url`, and to no other. Credentials are read from variables whose names begin with
    `WHARFINGER_OPENAPI_<LABEL>_`.

    Args:
        spec: The OpenAPI document, 3.0 or 3.1: its URL, its file (JSON or YAML), or its content. With `app`: its path
            in the application, such as `/openapi.json`, or its content.
        base_url: The URL of the API, without the paths of its operations. Default: the URL that the document states; a
            document from a URL may name only its own host.
        label: The name in URIs, `api://<label>/…`. Default: the host, the name of the file, or the title of the API.
        headers: Sent with each request.
        allow_operations: IDs of operations, or methods with paths such as `POST /orders`, to offer as tools.
        app: An ASGI application that is called in this process, without a socket, instead of a host.
        allow_private_networks: Also connect to names that resolve to addresses of this machine or of private networks.
            An address, or localhost, in the URL of `spec` or `base_url` is always allowed.
        every: Seconds between two checks for changes while a client watches. Default: 5.
        timeout: Seconds that one request may take.

    Raises:
        UnusableSource: the document or an argument cannot be used, or an operation does not exist.
        MissingExtra: a library that this needs is not installed.
    """
    seconds = DEFAULT_EVERY_SECONDS if every is None else every
    if not seconds >= MIN_EVERY_SECONDS or not timeout > 0:
        raise UnusableSource(f"every must be at least {MIN_EVERY_SECONDS:g} s, and timeout positive.")
    request_headers = dict(headers or {})
    for header, value in request_headers.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header) or not (value.isascii() and value.isprintable()):
            raise UnusableSource(f"headers: {printable(header)!r} or its value cannot be sent in a header.")
    if base_url is not None:
        base_url = _checked_url(base_url, "The base URL").rstrip("/")
    location, document_url, root = _locate_document(spec, app)
    name = usable_label(label or _default_label(document_url, location, root, app))
    origins = {origin for url in (document_url, base_url or "") if (origin := origin_of(url))}
    transport: ApiTransport
    if app is not None:
        base_url = base_url or IN_PROCESS_URL
        transport = AsgiTransport(app, timeout=timeout, max_body_bytes=MAX_ANSWER_BYTES)
    else:
        hosts = {str(urlsplit(origin).hostname) for origin in origins}
        transport = Fetcher(
            allow=_address_check(hosts, allow_private_networks),
            refuse=lambda url: None if origin_of(url) in origins else "it is not on the host that was given",
            max_body_bytes=MAX_ANSWER_BYTES,
            timeout=timeout,
        )

    def choose_base_url(document: ApiDocument) -> str:
        return _stated_base_url(document, document_url, location, origins)

    settings = ApiSettings(
        label=name,
        location=location,
        base_url=base_url or "",
        document_url=document_url,
        headers=request_headers,
        allow_operations=[allow_operations] if isinstance(allow_operations, str) else list(allow_operations),
        environment=os.environ,
        choose_base_url=choose_base_url,
    )
    return HttpApi(settings, ApiClient(transport, name), root, seconds)


def _locate_document(
    spec: str | os.PathLike[str] | Mapping[str, Any], app: AsgiApp | None
) -> tuple[str, str, JsonObject | None]:
    """Return the location of a document for messages, its URL if it must be fetched, and its content if not."""
    if isinstance(spec, Mapping):
        title = as_object(cast("Any", spec).get("info")).get("title")
        name = printable(title, 100) if isinstance(title, str) and title else "the OpenAPI document"
        return name, "", check_values(dict(spec), name)
    text = os.fspath(spec)
    if app is not None:
        if not text.startswith("/"):
            raise UnusableSource("With app=, give the path of the document there, such as /openapi.json.")
        return text, _checked_url(IN_PROCESS_URL + text, "The path"), None
    if re.match(r"https?://", text, re.IGNORECASE):
        url = _checked_url(text, "The URL of the document")
        return url.partition("?")[0], url, None
    path = os.path.abspath(os.path.expanduser(text))
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise UnusableSource(
            f"{text!r} is neither a URL nor a file that can be read ({error.strerror}): "
            "give https://host/openapi.json, or the path of a document."
        ) from None
    return path, "", parse_document(data, text)


def _default_label(document_url: str, location: str, root: JsonObject | None, app: AsgiApp | None) -> str:
    if app is not None or (root is not None and not os.path.isabs(location)):  # no URL and no file
        title = as_object(as_object(root).get("info")).get("title") or getattr(app, "title", "")
        slug = re.sub(r"[^a-z0-9]+", "-", str(title).lower()).strip("-")[:40].strip("-")
        return slug or "api"
    if document_url:
        return str(urlsplit(document_url).hostname)
    return os.path.basename(location).partition(".")[0] or "api"


def _checked_url(url: str, name: str) -> str:
    if split_url(url) is None:
        hint = " Credentials belong in the environment." if "@" in url else ""
        raise UnusableSource(f"{name} must be an http or https URL, such as https://host/openapi.json.{hint}")
    return url.partition("#")[0]


def _address_check(hosts: set[str], allow_private: bool) -> Callable[[str, str], bool]:
    """Return a function that takes a host and its address, and allows public addresses.

    It allows a private one if `hosts` contains the host and that is an address or localhost, or with `allow_private`.
    """

    def allow(host: str, address: str) -> bool:
        named_by_operator = host in hosts and (is_address(host) or is_loopback(host))
        return allow_private or named_by_operator or is_public(address)

    return allow


def _stated_base_url(document: ApiDocument, document_url: str, location: str, origins: set[str]) -> str:
    """Return the base URL that a document states. Adds its origin to `origins`.

    Raises:
        UnusableSource: a document without a URL states no absolute one, or one with a URL states only other hosts.
    """
    if not document_url:
        for server in document.servers:
            if origin := origin_of(server):
                origins.add(origin)
                return server.partition("?")[0].rstrip("/")
        raise UnusableSource(
            f"{location} does not say where its API is: give its URL with --base-url (base_url=), such as "
            "https://host/v1."
        )
    document_parts = urlsplit(document_url)
    for server in document.servers or ("/",):
        url = join_url(document_url, server).partition("?")[0].rstrip("/")
        if document_parts.scheme == "https" and url.startswith("http://"):
            url = f"https://{url.removeprefix('http://')}"  # an API behind a TLS proxy often states http
        if origin_of(url) == origin_of(document_url):
            return url
    other_servers = printable(", ".join(document.servers), 200)
    raise UnusableSource(
        f"The document at {location} names another host for its API: {other_servers}. If you trust it, give it with "
        "--base-url (base_url=)."
    )
