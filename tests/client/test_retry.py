"""What may be tried again, and when."""

from __future__ import annotations

import pytest

from wharfinger.client.retry import READS, Backoff, Retry, passes
from wharfinger.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidResponse,
    NotAuthorized,
    NotMCP,
    RemoteError,
    UnsupportedRevision,
)
from wharfinger.protocol.methods import METHODS
from wharfinger.transports.http_client.origin import NoMessage


def test_backoff_is_random_within_what_doubles_and_forgotten_after_a_good_connection() -> None:
    chances = iter([0.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
    backoff = Backoff(Retry(first=1, most=8, stable=10), lambda: next(chances))
    assert [backoff.next() for _ in range(6)] == [0, 2, 2, 8, 8, 8]
    backoff.lasted(9.9)
    assert backoff.failures == 6
    backoff.lasted(10)
    assert backoff.next() == 1


def test_backoff_never_overflows() -> None:
    backoff = Backoff(Retry(), lambda: 1.0)
    assert [backoff.next() for _ in range(5000)][-1] == 30


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (ConnectionLost(), True),
        (ConnectionFailed("refused"), True),
        (NoMessage("gateway", 503), True),
        (NoMessage("wrong path", 404), False),
        (NotAuthorized("no"), False),
        (NotMCP("a web page"), False),
        (UnsupportedRevision("none in common"), False),
        (InvalidResponse("nonsense"), False),
        (RemoteError(-32603, "broken"), False),
        (ValueError(), False),
    ],
)
def test_only_what_may_pass_is_tried_again(error: Exception, again: bool) -> None:
    assert passes(error) is again


def test_what_is_sent_twice_is_a_method_that_changes_nothing() -> None:
    assert set(METHODS) > READS
    assert not READS & {"tools/call", "prompts/get", "resources/subscribe", "initialize", "subscriptions/listen"}
