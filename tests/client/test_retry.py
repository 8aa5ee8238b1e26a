"""What may be tried again."""

from __future__ import annotations

import pytest

from wharfinger.client.retry import READ_METHODS, is_transient
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


@pytest.mark.parametrize(
    ("error", "transient"),
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
def test_only_a_transient_error_is_tried_again(error: Exception, transient: bool) -> None:
    assert is_transient(error) is transient


def test_what_is_sent_twice_is_a_method_that_changes_nothing() -> None:
    assert set(METHODS) > READ_METHODS
    assert not READ_METHODS & {"tools/call", "prompts/get", "resources/subscribe", "initialize", "subscriptions/listen"}
