"""The options of `Server.run` are those of the functions that it calls."""

from __future__ import annotations

import inspect

from wharfinger.server.running import HttpRunOptions, UnixRunOptions
from wharfinger.transports.http_server.runner import serve_http
from wharfinger.transports.unix_server import serve_unix


def keywords(function: object) -> set[str]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def test_options_of_http_are_those_of_serve_http_that_concern_authors() -> None:
    assert keywords(serve_http) - HttpRunOptions.__annotations__.keys() == {"contents", "site"}
    assert keywords(serve_http) >= HttpRunOptions.__annotations__.keys()


def test_options_of_a_unix_socket_are_those_of_serve_unix() -> None:
    assert keywords(serve_unix) == UnixRunOptions.__annotations__.keys()
