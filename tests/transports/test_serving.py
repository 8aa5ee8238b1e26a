"""The answer to a request whose handler raises an error or needs input."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from tests.transports.http_support import META
from wharfinger import types as t
from wharfinger.errors import HandlerFailed, InvalidParams, Overloaded, ProtocolError, ResourceNotFound
from wharfinger.protocol.jsonrpc import decode
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import InputNeeded, Request, ResultMeta, open_request, seal_error, seal_result
from wharfinger.protocol.shares import Shares
from wharfinger.transports.serving import CancelReason, answer_exception, check_unread

LIMITS = Limits(handler_time=7)


class StatelessEncoder:
    """An encoder of answers for the stateless era."""

    meta = ResultMeta(t.Implementation(name="test", version="1"))

    def respond(self, request: Request, result: Any) -> Any:
        return seal_result(request, result, self.meta)

    def fail(self, request: Request, error: ProtocolError) -> Any:
        return seal_error(request, error, self.meta)


def answer(error: BaseException, **options: Any) -> tuple[Any, ProtocolError | None]:
    """Return the answer to a request whose handler raises this error, and the failure that it reports."""
    message = {"jsonrpc": "2.0", "id": 3, "method": "resources/read", "params": {"uri": "test://a", "_meta": META}}
    request = open_request(decode(json.dumps(message).encode(), LIMITS), None)
    data, failure = answer_exception(request, error, StatelessEncoder(), LIMITS, **options)
    assert data is not None
    return json.loads(b"".join(data) if not isinstance(data, bytes) else data), failure


def test_a_protocol_error_is_the_answer_and_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    reply, failure = answer(ResourceNotFound("test://a"))
    assert (reply["id"], reply["error"]["code"]) == (3, -32602)
    assert isinstance(failure, ResourceNotFound)
    assert not caplog.records


@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(3), KeyboardInterrupt()])
def test_any_other_error_is_answered_with_a_reference_to_the_log(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    reply, failure = answer(error)
    assert isinstance(failure, HandlerFailed)
    message = reply["error"]["message"]
    assert "secret" not in message
    reference = message.partition("(reference ")[2].partition(")")[0]
    assert reference
    assert reference in caplog.text
    assert "resources/read 'test://a' failed" in caplog.text


def test_an_expected_failure_is_logged_at_the_given_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answer(ValueError(), level=logging.DEBUG)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


@pytest.mark.parametrize("group", [False, True])
def test_an_input_request_is_answered_as_a_result(group: bool) -> None:
    stop = InputNeeded({"resultType": "input_required", "inputRequests": {}})
    reply, failure = answer(BaseExceptionGroup("a group's", [stop]) if group else stop)
    assert failure is None
    assert reply["result"]["inputRequests"] == {}


def test_input_requests_that_cannot_be_encoded_are_an_error() -> None:
    reply, failure = answer(InputNeeded({"inputRequests": object()}))
    assert "result" not in reply
    assert isinstance(failure, HandlerFailed)


@pytest.mark.parametrize(
    ("reason", "error_type", "text"),
    [
        (CancelReason.DEADLINE, HandlerFailed, "took longer than 7 s"),
        (CancelReason.DRAIN, Overloaded, "The server is stopping."),
        (None, HandlerFailed, "Internal error (reference "),
    ],
)
def test_a_cancelled_handler_is_answered_with_the_reason(
    reason: CancelReason | None, error_type: type[ProtocolError], text: str
) -> None:
    reply, failure = answer(asyncio.CancelledError(), reason=reason)
    assert type(failure) is error_type
    assert text in reply["error"]["message"]


@pytest.mark.parametrize("error", [InvalidParams("\udcff"), InvalidParams("x", data=object())])
def test_an_error_that_cannot_be_encoded_still_gets_an_answer(error: ProtocolError) -> None:
    reply, failure = answer(error)
    assert reply["error"]["message"].startswith("Internal error (reference ")
    assert isinstance(failure, HandlerFailed)


def test_one_answer_may_be_larger_than_the_limit_of_unread_answers_but_two_may_not() -> None:
    unread, limits = Shares(), Limits(unread_total=10)
    assert check_unread(unread, "a", limits, b"x" * 11) == 11
    unread.add("a", 5)
    assert check_unread(unread, "a", limits, b"x" * 5) == 5
    with pytest.raises(Overloaded):
        check_unread(unread, "a", limits, b"x" * 6)
