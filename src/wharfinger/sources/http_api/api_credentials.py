"""The credentials of an HTTP API: which variable of the environment goes into which header, query or cookie.

`WHARFINGER_OPENAPI_<LABEL>_<SCHEME>` is the value for the security scheme of that name in the document, and
`WHARFINGER_OPENAPI_<LABEL>_TOKEN` is the value for every other scheme that takes a key or a token. If the document has
no schemes, `…_TOKEN` is sent as a bearer token. HTTP Basic takes `…_USER` and `…_PASSWORD`. The label is part of each
name, so that with two APIs, neither gets the token of the other.

Values are not shown: if an answer of the API repeats a value of at least `MIN_HIDDEN_CHARACTERS`, as those of echo
servers do, it is replaced (`hidden`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from wharfinger.content.redaction import HIDDEN
from wharfinger.source import UnusableSource
from wharfinger.sources.http_api.api_document import JsonObject
from wharfinger.sources.http_api.api_operations import ApiOperation

__all__ = ["ENVIRONMENT_PREFIX", "ApiCredentials", "SentCredentials", "joined_headers"]

ENVIRONMENT_PREFIX = "WHARFINGER_OPENAPI_"
MIN_HIDDEN_CHARACTERS = 6
"""Shorter values are not searched for in answers, where they occur by chance."""


class SentCredentials(NamedTuple):
    """The credentials of one request."""

    headers: Mapping[str, str] = {}
    query: tuple[tuple[str, str], ...] = ()


class ApiCredentials:
    """The credentials for the security schemes of one document.

    Raises:
        UnusableSource: the value of a variable cannot be sent in a header.
    """

    def __init__(
        self, schemes: Mapping[str, JsonObject], label: str, environment: Mapping[str, str], headers: Mapping[str, str]
    ) -> None:
        self._environment = environment
        self._prefix = f"{ENVIRONMENT_PREFIX}{_upper(label)}_"
        self._schemes = schemes
        self._secrets: set[str] = set()
        for name, value in headers.items():
            if _names_secret(name):
                self._secrets |= {value, value.partition(" ")[2]}
        self._sent: dict[str, SentCredentials] = {}
        for name, scheme in schemes.items():
            if (sent := self._of_scheme(name, scheme)) is not None:
                self._sent[name] = sent
        if not schemes and (token := self._value("TOKEN")):
            self._sent[""] = SentCredentials({"authorization": f"Bearer {token}"})
        # The longest first, because one value may contain another.
        self._hidden = sorted((each for each in self._secrets if len(each) >= MIN_HIDDEN_CHARACTERS), key=len)[::-1]

    def __repr__(self) -> str:
        return f"<credentials for {', '.join(self._sent) or 'nothing'}>"

    @property
    def query_names(self) -> frozenset[str]:
        """The query parameters that are credentials, which no URI may contain."""
        return frozenset(
            str(scheme.get("name"))
            for scheme in self._schemes.values()
            if scheme.get("type") == "apiKey" and scheme.get("in") == "query"
        )

    def variables(self, operation: ApiOperation | None) -> Sequence[str]:
        """Return the names of the environment variables to set for an operation, or for the API if it is None."""
        names = list(self._schemes)
        if operation is not None and operation.security:
            names = [name for names in operation.security for name in names if name in self._schemes]
        environment_names: list[str] = []
        for name in names:
            basic = (
                self._schemes[name].get("type") == "http" and str(self._schemes[name].get("scheme")).lower() == "basic"
            )
            environment_names += (
                [f"{self._prefix}USER", f"{self._prefix}PASSWORD"] if basic else [f"{self._prefix}TOKEN"]
            )
        return list(dict.fromkeys(environment_names or [f"{self._prefix}TOKEN"]))

    def of(self, operation: ApiOperation) -> SentCredentials:
        """Return the credentials of an operation: those of the first alternative for which there are values.

        An alternative without credentials, which makes them optional, comes last. If the document does not say what the
        operation needs, the first credentials that have a value are sent.
        """
        if "" in self._sent:
            return self._sent[""]
        if operation.security is None:
            return next(iter(self._sent.values()), SentCredentials())
        for names in operation.security:
            if names and all(name in self._sent for name in names):
                parts = [self._sent[name] for name in names]
                query = tuple(pair for part in parts for pair in part.query)
                return SentCredentials(joined_headers(*(part.headers for part in parts)), query)
        return SentCredentials()

    def hidden(self, text: str) -> str:
        """Return a text with each credential replaced."""
        for secret in self._hidden:
            text = text.replace(secret, HIDDEN)
        return text

    def hidden_bytes(self, data: bytes) -> bytes:
        """Return an answer with each credential replaced."""
        for secret in self._hidden:
            encoded = secret.encode()
            if encoded in data:
                data = data.replace(encoded, HIDDEN.encode())
        return data

    def _value(self, name: str) -> str:
        variable = self._prefix + name
        value = self._environment.get(variable, "").strip()
        if not value.isprintable() or not value.isascii():
            raise UnusableSource(f"{variable} has characters that cannot be sent in a header.")
        if value:
            self._secrets |= {value, quote(value, safe="")}
        return value

    def _of_scheme(self, name: str, scheme: JsonObject) -> SentCredentials | None:
        """Return the credentials for a security scheme; None if there is no value, or the scheme is not supported."""
        kind, http_scheme = scheme.get("type"), str(scheme.get("scheme", "")).lower()
        if kind == "http" and http_scheme == "basic":
            user, password = self._value("USER"), self._value("PASSWORD")
            if not (user or password):
                return None
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._secrets.add(encoded)
            if password not in ("", user):  # otherwise, the user is the key, as at Stripe
                self._secrets -= {user, quote(user, safe="")}
            return SentCredentials({"authorization": f"Basic {encoded}"})
        value = self._value(_upper(name)) or self._value("TOKEN")
        if not value:
            return None
        if kind == "apiKey":
            key = str(scheme.get("name"))
            if scheme.get("in") == "query":
                return SentCredentials(query=((key, value),))
            if not _is_header_name(key):
                return None
            if scheme.get("in") == "cookie":
                return SentCredentials({"cookie": f"{key}={quote(value, safe='')}"})
            return SentCredentials({key.lower(): value})
        if kind in ("oauth2", "openIdConnect") or (kind == "http" and http_scheme == "bearer"):
            return SentCredentials({"authorization": f"Bearer {value}"})
        return None


_names_secret = re.compile(r"auth|cookie|key|pass|secret|session|signature|token", re.IGNORECASE).search
"""Finds the names of headers whose values are credentials."""
_is_header_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
"""Matches the name of a header or a cookie (RFC 9110 §5.6.2)."""


def joined_headers(*parts: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of all parts: their cookies in one header, else the last of each name."""
    headers = {name: value for part in parts for name, value in part.items()}
    values = [part["cookie"] for part in parts if "cookie" in part]
    if len(values) > 1:
        pairs = [pair.strip().partition("=") for value in values for pair in value.split(";")]
        headers["cookie"] = "; ".join(f"{name}={value}" for name, value in {pair[0]: pair[2] for pair in pairs}.items())
    return headers


def _upper(name: str) -> str:
    """Return a name as a part of the name of a variable: `api.github.com` becomes `API_GITHUB_COM`."""
    return re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")
