"""The address of a remote repository, and the credentials for it, which come from the environment only."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from wharfinger.content.text import shown
from wharfinger.net import is_loopback
from wharfinger.source import UnusableSource

__all__ = ["TOKEN_VARIABLE", "RemoteAddress", "is_remote", "parse_remote"]

TOKEN_VARIABLE = "WHARFINGER_GIT_TOKEN"  # noqa: S105
USERNAME_VARIABLE = "WHARFINGER_GIT_USERNAME"
DEFAULT_USERNAME = "x-access-token"
"""The user name that GitHub, GitLab and Gitea accept with any token."""
MAX_URL_CHARACTERS = 2_000

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://").match
_SCP = re.compile(r"[\w.-]+@[\w.-]+:").match
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\<>\"'`{}|^]").search

_token_hosts: dict[tuple[str, str], str] = {}
"""The host to which a token was sent, by the name of its variable and the token itself."""


class RemoteAddress(NamedTuple):
    """The address of a remote repository, without credentials."""

    url: str
    scheme: str
    host: str
    origin: str
    """Scheme, host and port, as in `https://git.example.org`."""
    name: str
    """The last part of the path, without `.git`."""

    @property
    def key(self) -> str:
        """The name of its folder in the cache: readable, and different for each address."""
        digest = hashlib.blake2b(self.url.encode(), digest_size=12).hexdigest()
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.host}-{self.name}")[:60] + f"-{digest}"

    @property
    def token_variable(self) -> str:
        """The environment variable with the token for this host only."""
        return f"{TOKEN_VARIABLE}_{_host_suffix(self.host)}"

    def authorization(self) -> str:
        """Return the value of the `Authorization` header, or an empty string if the environment has no token.

        The variable of the host is used first. In this process, the token of a variable is sent to one host only.

        Raises:
            UnusableSource: the token was already used for another host, or it or the user name cannot be sent.
        """
        variable = self.token_variable if self.token_variable in os.environ else TOKEN_VARIABLE
        token = os.environ.get(variable)
        username = os.environ.get(f"{USERNAME_VARIABLE}_{_host_suffix(self.host)}") or os.environ.get(USERNAME_VARIABLE)
        if not token:
            return ""
        # A token for one host must not reach another. `git.example` and `git-example` have the same variable.
        first_host = _token_hosts.setdefault((variable, token), self.host)
        if first_host != self.host:
            remedy = f"set {self.token_variable} for it, to an empty value if {self.host} needs no token"
            if variable != TOKEN_VARIABLE:
                remedy = "publish one of the two with another process"
            raise UnusableSource(f"{variable} is used for {first_host}, and is not sent to {self.host} too: {remedy}.")
        username = username or DEFAULT_USERNAME
        if not (token.isascii() and token.isprintable() and username.isprintable() and ":" not in username):
            raise UnusableSource(
                f"The token or the user name for {self.host} has characters that cannot be sent: check {variable}, and "
                f"the variable of the user name."
            )
        return "Basic " + base64.b64encode(f"{username}:{token}".encode()).decode("ascii")


def is_remote(text: str) -> bool:
    """Return whether this is the address of a remote repository, rather than a path."""
    return (_SCHEME(text) or _SCP(text)) is not None and not os.path.lexists(text)


def parse_remote(text: str) -> RemoteAddress:
    """Parse the address of a remote repository.

    Raises:
        UnusableSource: it cannot be used; the message shows no credentials.
    """
    if not _SCHEME(text):
        raise UnusableSource("Repositories are cloned over HTTPS only: write git:https://HOST/PATH.git.")
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise UnusableSource("The address of the repository cannot be read: write git:https://HOST/PATH.git.") from None
    scheme = parts.scheme.lower()
    if scheme not in ("https", "http"):
        raise UnusableSource(
            f"Repositories are cloned over HTTPS only, and not over {shown(scheme)}: write git:https://HOST/PATH.git, "
            "or git:PATH for one on this machine."
        )
    if "@" in parts.netloc:
        raise UnusableSource(
            f"Leave user name and password out of the address of the repository at {shown(host)}: set "
            f"{TOKEN_VARIABLE}, and if needed {USERNAME_VARIABLE}, in the environment."
        )
    path = parts.path.rstrip("/")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise UnusableSource(
            f"The address of the repository at {shown(host)} cannot have a query or a fragment: leave it out."
        )
    if not host or not path or _UNSAFE(text) or not text.isascii() or len(text) > MAX_URL_CHARACTERS:
        raise UnusableSource("The address of the repository cannot be read: write git:https://HOST/PATH.git.")
    if scheme == "http" and not is_loopback(host):
        raise UnusableSource(
            f"The repository at {shown(host)} is reached by http://, which anyone on the way can read and change: "
            "write https://. Only this machine may be reached by http://."
        )
    authority = f"[{host}]" if ":" in host else host
    origin = f"{scheme}://{authority}" + (f":{port}" if port is not None else "")
    name = unquote(path.rpartition("/")[2]).removesuffix(".git") or "repository"
    name = re.sub(r"[^\w.-]", "_", name).strip(".") or "repository"
    return RemoteAddress(f"{origin}{path}", scheme, host, origin, name)


def _host_suffix(host: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", host.upper())
