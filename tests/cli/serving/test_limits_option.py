"""`--limit NAME=VALUE` sets the limit with that name, in its own type."""

import click
import pytest

from wharfinger.cli.serving.limits_option import apply_limits, check_limits, http_limits, limits_help, parse_amount
from wharfinger.protocol.limits import Limits


@pytest.mark.parametrize(
    ("text", "expected"), [("20", 20), ("8MiB", 8 * 1024**2), ("1.5 KiB", 1536), ("2GB", 2 * 10**9), ("0", 0)]
)
def test_amounts_are_read(text: str, expected: float) -> None:
    assert parse_amount(text) == expected


@pytest.mark.parametrize("text", ["", "many", "-1", "inf", "nan", "1TiBs"])
def test_an_invalid_amount_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_amount(text)


def test_each_limit_is_changed_in_its_own_struct() -> None:
    arguments = ["message=8MiB", "sessions=5", "drain=1.5", "http-drain=0.5"]
    check_limits(arguments)
    limits, http = apply_limits(Limits(), arguments), http_limits(arguments)
    assert (limits.message, limits.drain) == (8 * 1024**2, 1.5)
    assert (http.sessions, http.drain) == (5, 0.5)
    assert isinstance(limits.message, int)


def test_a_fraction_is_refused_for_a_limit_that_is_a_whole_number() -> None:
    """A bug: it was rounded down, so `message=0.5` refused every message."""
    with pytest.raises(click.BadParameter, match=r"The limit message is a whole number, not 0\.5\."):
        check_limits(["message=0.5"])
    with pytest.raises(click.BadParameter, match="http_backlog"):
        check_limits(["http-backlog=10.5"])
    arguments = ["message=0.3KiB", "in_flight=20.0", "drain=0.5"]
    check_limits(arguments)
    limits = apply_limits(Limits(), arguments)
    assert (limits.message, limits.in_flight, limits.drain) == (307, 20, 0.5)


def test_an_unknown_limit_is_refused_and_the_help_lists_every_limit() -> None:
    with pytest.raises(click.BadParameter, match="'mesage'"):
        check_limits(["mesage=1"])
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        check_limits(["message"])
    for name in (*Limits.__struct_fields__, "header_size", "http_backlog"):
        assert f"{name} " in limits_help()
