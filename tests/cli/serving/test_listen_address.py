"""The address to listen on: its valid forms, and the next free port."""

import click
import pytest

from wharfinger.cli.serving.listen_address import (
    ListenAddress,
    is_any_address,
    looks_like_address,
    parse_listen,
    reachable_url,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ListenAddress("127.0.0.1", 8000, False)),
        ("9000", ListenAddress("127.0.0.1", 9000, True)),
        (":9000", ListenAddress("127.0.0.1", 9000, True)),
        ("localhost:9000", ListenAddress("localhost", 9000, True)),
        ("0.0.0.0", ListenAddress("0.0.0.0", 8000, False)),
        ("[::1]:9000", ListenAddress("::1", 9000, True)),
        ("[::1]", ListenAddress("::1", 8000, False)),
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0, True)),
        ("host:", ListenAddress("host", 8000, False)),
    ],
)
def test_a_valid_address_is_parsed(text: str, expected: ListenAddress) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["host:http", "host:70000", ":-1", "host:٣"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_listen(text)


@pytest.mark.parametrize("text", ["::1", "::1:8000", "fe80::1"])
def test_an_ipv6_address_without_brackets_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"in brackets, such as \[::1\]:8000, not"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("127.0.0.1:8000", True),
        ("8000", True),
        (":80", True),
        ("./charts", False),
        ("charts", False),
        ("a/b:80", False),
    ],
)
def test_a_folder_after_http_is_not_an_address(word: str, expected: bool) -> None:
    """`wharfinger serve --http charts` publishes charts."""
    assert looks_like_address(word) is expected


@pytest.mark.parametrize(("host", "expected"), [
    ("0.0.0.0", True), ("::", True), ("0", True), ("0:0:0:0:0:0:0:0", True),
    ("127.0.0.1", False), ("::1", False), ("0.0.0.1", False), ("localhost", False), ("00", False),
])  # fmt: skip
def test_any_address_is_recognised_however_it_is_spelled(host: str, expected: bool) -> None:
    assert is_any_address(host) is expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("http://0.0.0.0:1", "http://127.0.0.1:1"),
        ("http://[::]:1", "http://[::1]:1"),
        ("http://harbour.test:1", "http://harbour.test:1"),
    ],
)
def test_the_address_for_clients_can_be_connected_to(url: str, expected: str) -> None:
    assert reachable_url(url) == expected
