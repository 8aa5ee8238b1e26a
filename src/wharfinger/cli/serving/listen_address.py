"""The address to listen on, and the address to which a client connects."""

from __future__ import annotations

import os
import re
from ipaddress import ip_address
from typing import NamedTuple

import click

__all__ = ["DEFAULT", "ListenAddress", "is_any_address", "looks_like_address", "parse_listen", "reachable_url"]


class ListenAddress(NamedTuple):
    """An address to listen on. If the user has `chosen` the port, it is never replaced with a free one."""

    host: str
    port: int
    chosen: bool


_ADDRESS = re.compile(r"\d+(\.\d+){3}|\[[0-9A-Fa-f:.]*\]")
DEFAULT = ListenAddress("127.0.0.1", 8000, False)


def looks_like_address(word: str) -> bool:
    """Return whether a word after `--http` is its value, and not a folder to publish."""
    if "/" in word or os.sep in word or os.path.exists(word):
        return False
    host, colon, port = word.rpartition(":")
    if not colon:
        return word.isdigit() or word == "localhost" or _ADDRESS.fullmatch(word) is not None
    return port[:1].isdigit() or not host or host == "localhost" or _ADDRESS.fullmatch(host) is not None


def parse_listen(text: str) -> ListenAddress:
    """Convert `HOST:PORT`, `:PORT`, `PORT`, `HOST` or an empty text; raises click.BadParameter."""
    if not text:
        return DEFAULT
    host, colon, port = text.rpartition(":")
    if (not colon and not text.isdigit()) or text.endswith("]"):
        host, port = text, ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise click.BadParameter(
            f"{port!r} in {text!r} is not a port number up to 65535: write HOST:PORT, such as 127.0.0.1:8000."
        )
    if ":" in host and not host.startswith("["):
        raise click.BadParameter(f"Write an IPv6 address in brackets, such as [::1]:8000, not {text!r}.")
    host = host.removeprefix("[").removesuffix("]")
    return ListenAddress(host or DEFAULT.host, int(port) if port else DEFAULT.port, bool(port))


def is_any_address(host: str) -> bool:
    """Return whether a server at this host listens at every address of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return host == "0"  # the resolver reads it as 0.0.0.0


def reachable_url(url: str) -> str:
    """Return the URL with the loopback address in place of a wildcard address, to which no client can connect."""
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    return f"{scheme}://{LOOPBACK.get(host, host)}:{port}"


LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not bound
