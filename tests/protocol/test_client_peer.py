"""ClientPeer without a transport: responses, errors without ids, requests of the server, and batches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.protocol.client_peer import ClientPeer
from wharfinger.protocol.events import (
    Cancellation,
    Malformed,
    NotAMessage,
    Notification,
    Reply,
    Response,
    ServerRequest,
    UnattributedError,
)
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import REVISIONS

LIMITS = Limits(message=100_000, depth=20)


def make_client(revision: str | None = None) -> ClientPeer[str]:
    client: ClientPeer[str] = ClientPeer(LIMITS)
    if revision is not None:
        client.rules = REVISIONS[revision]
    return client


def message(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def send_request(client: ClientPeer[str], waiter: str, method: str = "tools/list") -> int:
    return client.request(method, t.RequestParams(), waiter)[0]


def answered_requests(client: ClientPeer[str], data: bytes) -> list[tuple[str, Any]]:
    """Receive a message, and return the waiter and the id of each request that it answers."""
    events = client.receive(data)
    assert all(type(event) is Response for event in events)
    return [(event.waiter, event.message.id) for event in events if type(event) is Response]


def test_request_is_one_message_with_a_new_id() -> None:
    """Spec: ids are unique among a sender's requests."""
    client = make_client()
    first, data = client.request("resources/read", t.ReadResourceRequestParams(uri="a:b"), "one")
    second, _ = client.request("ping", t.RequestParams(), "two")
    assert json.loads(data) == {"jsonrpc": "2.0", "id": first, "method": "resources/read", "params": {"uri": "a:b"}}
    assert first != second
    assert client.awaited == {first: "one", second: "two"}


def test_responses_in_any_order_are_matched_to_their_requests() -> None:
    client = make_client()
    first, second = send_request(client, "one"), send_request(client, "two")
    assert answered_requests(client, message(id=second, result={})) == [("two", second)]
    assert answered_requests(client, message(id=first, error={"code": 1, "message": "no"})) == [("one", first)]
    assert client.awaited == {}


@pytest.mark.parametrize("id", [2, "1", "", -1, 10**17])
def test_a_response_with_an_unknown_id_is_ignored(id: object) -> None:
    """Security C11: `1` is not `"1"`, and a response to an unknown request is ignored."""
    client = make_client()
    send_request(client, "one")
    assert client.receive(message(id=id, result={})) == ()
    assert list(client.awaited.values()) == ["one"]


def test_a_second_response_to_a_request_is_ignored() -> None:
    """Security C12."""
    client = make_client()
    id = send_request(client, "one")
    assert answered_requests(client, message(id=id, result={"a": 1})) == [("one", id)]
    assert client.receive(message(id=id, result={"a": 2})) == ()


def test_a_response_to_a_cancelled_request_is_ignored() -> None:
    client = make_client()
    id = send_request(client, "one")
    notice = client.cancel(id, "enough")
    assert notice is not None
    assert json.loads(notice) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": id, "reason": "enough"},
    }
    assert client.receive(message(id=id, result={})) == ()
    assert client.cancel(id, "enough") is None


def test_cancelling_initialize_sends_no_notification() -> None:
    """Spec: `initialize` must not be cancelled."""
    client = make_client()
    id = send_request(client, "one", "initialize")
    assert client.cancel(id, "enough") is None
    assert client.awaited == {}


def suspect_of_error(client: ClientPeer[str], code: int = -32700, **members: Any) -> str | None:
    """Receive an error without an id, and return the request that it may answer."""
    (event,) = client.receive(message(error={"code": code, "message": "no"}, **members))
    assert type(event) is UnattributedError
    return event.suspect


@pytest.mark.parametrize("members", [{}, {"id": None}], ids=["absent", "null"])
def test_error_without_an_id_answers_no_request(members: dict[str, Any]) -> None:
    """Older revisions send null, newer ones no id. In both cases the request still waits for its answer."""
    client = make_client()
    id = send_request(client, "one")
    for code in (-32700, -32600, -32601, -32603, 1):
        suspect_of_error(client, code, **members)
    assert answered_requests(client, message(id=id, result={})) == [("one", id)]
    assert suspect_of_error(client, **members) is None


@pytest.mark.parametrize(("code", "suspect"), [(-32700, "one"), (-32600, "one"), (-32601, None), (-32603, None)])
def test_only_parse_and_invalid_request_errors_without_an_id_name_a_suspect(code: int, suspect: str | None) -> None:
    """JSON-RPC 2.0, §5."""
    client = make_client()
    send_request(client, "one")
    assert suspect_of_error(client, code) == suspect


def test_a_request_is_the_suspect_only_if_no_other_message_can_be_meant() -> None:
    client = make_client()
    first, second = send_request(client, "one"), send_request(client, "two")
    assert suspect_of_error(client) is None  # either request may be meant
    client.receive(message(id=second, result={}))
    assert suspect_of_error(client) is None  # the server read the first request before the second
    third = send_request(client, "three")
    assert suspect_of_error(client) == "three"
    client.record_one_way()
    assert suspect_of_error(client) is None  # a notification may be meant
    client.receive(message(id=third, result={}))
    fourth = send_request(client, "four")
    assert suspect_of_error(client) is None
    client.receive(message(id=fourth, result={}))
    fifth = send_request(client, "five")
    assert suspect_of_error(client) == "five"
    client.cancel(fifth, "")
    send_request(client, "six")
    assert suspect_of_error(client) is None
    assert list(client.awaited) == [first, fifth + 1]


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-11-25"])
def test_ping_is_answered(revision: str | None) -> None:
    (event,) = make_client(revision).receive(message(id="p", method="ping"))
    assert type(event) is Reply
    assert json.loads(event.data) == {"jsonrpc": "2.0", "id": "p", "result": {}}


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "elicitation/create", "tools/call", "x"])
def test_other_requests_of_the_server_are_refused(method: str) -> None:
    """Security C13: the client declares nothing, so it serves nothing."""
    (event,) = make_client("2025-11-25").receive(message(id=7, method=method, params={}))
    assert type(event) is Reply
    refusal = json.loads(event.data)
    assert (refusal["id"], refusal["error"]["code"]) == (7, -32601)


def test_a_peer_that_handles_requests_receives_requests_and_cancellations() -> None:
    """The ids of the two directions are unrelated: the server cancels its own request."""
    client = make_client("2025-11-25")
    client.handles_requests = True
    number = send_request(client, "mine")
    (event,) = client.receive(message(id=number, method="roots/list"))
    assert type(event) is ServerRequest
    assert (event.message.id, event.message.method) == (number, "roots/list")
    (cancellation,) = client.receive(message(method="notifications/cancelled", params={"requestId": number}))
    assert cancellation == Cancellation(number)
    assert list(client.awaited.values()) == ["mine"]
    assert type(client.receive(message(id=9, method="ping"))[0]) is Reply


def test_requests_of_a_stateless_server_are_ignored() -> None:
    """Spec: clients of the stateless era send no responses."""
    assert make_client("2026-07-28").receive(message(id=7, method="ping")) == ()


def test_notifications_are_attributed_to_their_request() -> None:
    client = make_client()
    first, second = send_request(client, "one"), send_request(client, "two", "subscriptions/listen")
    tag = {"io.modelcontextprotocol/subscriptionId": second}
    rows: list[tuple[str, dict[str, Any] | None, str | None]] = [
        ("notifications/progress", {"progressToken": first, "progress": 1}, "one"),
        ("notifications/resources/updated", {"uri": "a:b", "_meta": tag}, "two"),
        ("notifications/cancelled", {"requestId": second}, "two"),
        ("notifications/resources/updated", {"uri": "a:b"}, None),
        ("notifications/tools/list_changed", None, None),
        ("notifications/message", {"level": "info", "data": 1}, None),
    ]
    for method, params, waiter in rows:
        members = {} if params is None else {"params": params}
        (event,) = client.receive(message(method=method, **members))
        assert type(event) is Notification
        assert (event.message.method, event.waiter) == (method, waiter)


def test_a_subscription_id_sent_back_as_a_string_is_matched() -> None:
    """Some servers convert the integer to a string."""
    client = make_client()
    id = send_request(client, "one", "subscriptions/listen")
    params = {"_meta": {"io.modelcontextprotocol/subscriptionId": str(id)}}
    (event,) = client.receive(message(method="notifications/tools/list_changed", params=params))
    assert type(event) is Notification
    assert event.waiter == "one"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/progress", {"progressToken": 99, "progress": 1}),
        ("notifications/progress", {"progress": 1}),
        ("notifications/progress", {"progressToken": [], "progress": 1}),
        ("notifications/cancelled", {"requestId": 99}),
        ("notifications/cancelled", {}),
        ("notifications/resources/updated", {"uri": "a:b", "_meta": {"io.modelcontextprotocol/subscriptionId": 99}}),
        ("notifications/resources/updated", {"uri": "a:b", "_meta": 3}),
    ],
)
def test_a_notification_for_an_unknown_request_is_ignored(method: str, params: dict[str, Any]) -> None:
    client = make_client()
    send_request(client, "one")
    assert client.receive(message(method=method, params=params)) == ()


@pytest.mark.parametrize(
    "data",
    [b"INFO starting", b"\xff\xfe\x00", b"[1]", b"42", b'"x"', b"{}", b'{"jsonrpc":"1.0","id":1}', b"{", b"null"],
)
def test_invalid_messages_are_reported_as_not_a_message(data: bytes) -> None:
    """Security C03, C04, C16: a line of a log, in any encoding, fails no request."""
    assert [type(event) for event in make_client().receive(data)] == [NotAMessage]


@pytest.mark.parametrize(
    "rest",
    [
        b"}",
        b',"result":{},"error":{"code":1,"message":""}}',
        b',"result":"\xff"}',
        b',"result":' + b"[" * 200 + b"]" * 200 + b"}",
        b',"result":' + b"[" * 40_000 + b"]" * 40_000 + b"}",
        b',"result":{"a":nan}}',
        b',"result":{"text":"\\ud800"}',
        b',"result":',
    ],
)
def test_a_malformed_response_fails_its_request_at_once(rest: bytes) -> None:
    """Security C08, C15, C24: the caller gets an error at once, instead of a timeout."""
    client = make_client()
    id = send_request(client, "one")
    (event,) = client.receive(b'{"jsonrpc":"2.0","id":%d' % id + rest)
    assert type(event) is Malformed
    assert event.waiter == "one"
    assert client.awaited == {}


def test_members_named_id_and_method_in_a_result_are_ignored() -> None:
    client = make_client()
    id = send_request(client, "one")
    result = {"contents": [{"uri": "a:b", "text": json.dumps({"id": 1, "method": "x"})}, {"id": 5, "method": "y"}]}
    assert answered_requests(client, message(id=id, result=result)) == [("one", id)]


def test_batches_are_read_only_in_2025_03_26() -> None:
    """2025-03-26: batches must be received."""
    client = make_client("2025-03-26")
    first, second = send_request(client, "one"), send_request(client, "two")
    batch = json.dumps(
        [json.loads(message(id=second, result={})), json.loads(message(id=first, result={})), [[]], 3]
    ).encode()
    assert [event.waiter for event in client.receive(batch) if type(event) is Response] == ["two", "one"]
    later_client = make_client("2025-06-18")
    send_request(later_client, "one")
    assert [type(event) for event in later_client.receive(batch)] == [NotAMessage]


def test_the_progress_token_is_the_request_id() -> None:
    client = make_client()
    meta = t.RequestMeta(protocol_version="2026-07-28")
    id, data = client.request("tools/call", t.CallToolRequestParams(name="x", meta=meta), "one", progress=True)
    assert json.loads(data)["params"]["_meta"] == {
        "progressToken": id,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    }
    assert meta.progress_token is t.UNSET
    id, data = client.request("x/y", {"a": 1, "_meta": {"b": 2}}, "two", progress=True)
    assert json.loads(data)["params"] == {"a": 1, "_meta": {"b": 2, "progressToken": id}}


def test_close_returns_all_waiting_requests() -> None:
    client = make_client()
    send_request(client, "one")
    send_request(client, "two")
    assert client.close() == ["one", "two"]
    assert client.close() == []


def test_a_request_after_close_is_not_suspect() -> None:
    """The error may answer an earlier request, whose caller no longer waits."""
    client = make_client()
    send_request(client, "one")
    client.close()
    send_request(client, "two")
    assert suspect_of_error(client) is None


def test_a_notification_sent_before_an_answered_request_is_not_suspected() -> None:
    client = make_client()
    client.record_one_way()
    id = send_request(client, "one")
    assert suspect_of_error(client) is None
    client.receive(message(id=id, result={}))
    send_request(client, "two")
    assert suspect_of_error(client) == "two"


@pytest.mark.parametrize("error", [3, "no", None, [], {}, {"code": "x"}, {"code": None}, {"message": "no"}])
def test_an_error_without_an_id_or_a_code_names_no_suspect(error: object) -> None:
    client = make_client()
    send_request(client, "one")
    (event,) = client.receive(message(error=error))
    assert type(event) is UnattributedError
    assert event.suspect is None


def test_result_without_an_id_is_ignored() -> None:
    client = make_client()
    send_request(client, "one")
    assert client.receive(message(result={})) == ()
    assert list(client.awaited.values()) == ["one"]


def test_a_too_deeply_nested_error_is_not_a_message() -> None:
    client: ClientPeer[str] = ClientPeer(Limits(message=1_000_000, depth=20))
    deep = b"[" * 200_000 + b"]" * 200_000
    data = b'{"jsonrpc":"2.0","error":{"code":-32700,"data":' + deep + b'},"id":null}'
    assert client.receive(data) == (NotAMessage(data),)


@pytest.mark.parametrize(
    ("token", "waiter"),
    [
        (10**17, "one"),
        (str(10**17), "one"),
        (10**18, "two"),
        (str(10**18), None),
        ("²", None),
        ("١" + "0" * 17, None),
        ("", None),
    ],
)
def test_ids_sent_back_as_strings_have_at_most_18_ascii_digits(token: int | str, waiter: str | None) -> None:
    client: ClientPeer[str] = ClientPeer(LIMITS, ids=iter([10**17, 10**18]))
    send_request(client, "one")
    send_request(client, "two")
    data = message(method="notifications/progress", params={"progressToken": token, "progress": 1})
    waiters = [event.waiter for event in client.receive(data) if type(event) is Notification]
    assert waiters == ([] if waiter is None else [waiter])


def test_progress_of_a_task_is_a_notification_without_a_waiter() -> None:
    """2025-11-25: progress continues after the request that began the task."""
    data = message(method="notifications/progress", params={"progressToken": "task-7", "progress": 1})
    (event,) = make_client("2025-11-25").receive(data)
    assert type(event) is Notification
    assert event.waiter is None
    for token in ("tas-7", "TASK-7", 7):
        data = message(method="notifications/progress", params={"progressToken": token, "progress": 1})
        assert make_client("2025-11-25").receive(data) == ()


@pytest.mark.parametrize(
    ("revision", "handles_requests"), [("2026-07-28", True), ("2026-07-28", False), ("2025-11-25", False)]
)
def test_a_cancellation_ends_a_client_request_if_the_server_cannot_send_requests(
    revision: str, handles_requests: bool
) -> None:
    client = make_client(revision)
    client.handles_requests = handles_requests
    id = send_request(client, "one", "subscriptions/listen")
    (event,) = client.receive(message(method="notifications/cancelled", params={"requestId": id}))
    assert type(event) is Notification
    assert event.waiter == "one"


def test_a_cancellation_without_an_id_is_ignored() -> None:
    client = make_client("2025-11-25")
    client.handles_requests = True
    send_request(client, "one")
    assert client.receive(message(method="notifications/cancelled", params={})) == ()


@pytest.mark.parametrize("id", [1, "x"])
def test_an_invalid_response_fails_the_request_with_its_id(id: int | str) -> None:
    client = make_client()
    number = send_request(client, "one")
    bad = json.dumps({"jsonrpc": "1.0", "id": id, "result": {}}).encode()
    events = client.receive(b" \n" + bad)
    if id == number:
        assert [(type(event), event.waiter) for event in events if type(event) is Malformed] == [(Malformed, "one")]
        assert client.awaited == {}
    else:
        assert [type(event) for event in events] == [NotAMessage]
        assert client.awaited == {number: "one"}


@pytest.mark.parametrize(
    "data",
    [
        b'["id":1,"result":',
        b'["id":1,"method":"x",' + b"[" * 200,
        b'x{"jsonrpc":"2.0","id":1,"result":',
        b'{"jsonrpc":"2.0","id":"1","result":',
        b'{"jsonrpc":"2.0","id":1.5,"result":',
        b'{"jsonrpc":"2.0","id":2,"result":',
        b'{"result":{},"id":1',
    ],
)
def test_malformed_bytes_that_do_not_start_like_a_response_fail_no_request(data: bytes) -> None:
    client = make_client()
    send_request(client, "one")
    assert client.receive(data) == (NotAMessage(data),)
    assert list(client.awaited.values()) == ["one"]


@pytest.mark.parametrize(("digits", "found"), [(18, True), (19, False)])
def test_the_id_of_a_malformed_response_has_at_most_18_digits(digits: int, found: bool) -> None:
    client: ClientPeer[str] = ClientPeer(LIMITS, ids=iter([10 ** (digits - 1)]))
    id = send_request(client, "one")
    (event,) = client.receive(b'{"id":%d,"result":' % id)
    assert type(event) is (Malformed if found else NotAMessage)


# --- batches (2025-03-26)


def event_types(client: ClientPeer[str], data: bytes) -> list[type]:
    return [type(event) for event in client.receive(data)]


def test_the_size_of_a_batch_is_limited_like_that_of_a_message() -> None:
    client = make_client("2025-03-26")
    send_request(client, "one")
    answer = message(id=1, result={})
    batch = b"[" + answer + b" " * (LIMITS.message - len(answer) - 2) + b"]"
    assert event_types(client, batch + b" ") == [NotAMessage]
    assert event_types(client, batch) == [Response]


def test_the_number_of_messages_in_a_batch_is_limited() -> None:
    large = Limits(message=1_000_000)
    notice = b'{"jsonrpc":"2.0","method":"a/b"}'
    client: ClientPeer[str] = ClientPeer(large)
    client.rules = REVISIONS["2025-03-26"]
    assert event_types(client, b"[" + b",".join([notice] * 4096) + b"]") == [Notification] * 4096
    assert event_types(client, b"[" + b",".join([notice] * 4097) + b"]") == [NotAMessage]


@pytest.mark.parametrize(("commas", "read"), [(100_000, True), (100_001, False)])
def test_entries_of_a_large_batch_must_all_be_messages(commas: int, read: bool) -> None:
    """`[1,1,…]` takes thirty times its size in memory, which is harmless in a small message."""
    client: ClientPeer[str] = ClientPeer(Limits(message=1_000_000))
    client.rules = REVISIONS["2025-03-26"]
    answer = b'{"jsonrpc":"2.0","id":%d,"result":"%b"}' % (send_request(client, "one"), b"," * (commas - 3))
    assert event_types(client, b"[" + answer + b",3]") == ([Response, NotAMessage] if read else [NotAMessage])
    if not read:
        batch_of_one = b"[" + answer[:-2] + b',"}]'
        assert batch_of_one.count(b",") == commas
        assert event_types(client, batch_of_one) == [Response]


@pytest.mark.parametrize("data", [b"[", b"[1,", b'[{"jsonrpc":"2.0"]', b"[" * 200_000])
def test_a_malformed_batch_is_not_a_message(data: bytes) -> None:
    client: ClientPeer[str] = ClientPeer(Limits(message=1_000_000))
    client.rules = REVISIONS["2025-03-26"]
    send_request(client, "one")
    assert event_types(client, data) == [NotAMessage]


def test_a_large_batch_that_is_not_utf_8_is_not_a_message() -> None:
    """Bug: it raised UnicodeDecodeError."""
    client: ClientPeer[str] = ClientPeer(Limits(message=1_000_000))
    client.rules = REVISIONS["2025-03-26"]
    entry = b'{"jsonrpc":"\xff","x":[' + b"1," * 100_001 + b"1]}"
    assert event_types(client, b"[" + entry + b"]") == [NotAMessage]


def test_arrays_inside_a_batch_are_ignored() -> None:
    client = make_client("2025-03-26")
    answer = message(id=send_request(client, "one"), result={})
    assert event_types(client, b"[[" + answer + b"]]") == []
    assert event_types(client, b"  [[]," + answer + b"]") == [Response]


def test_a_batch_before_the_handshake_is_not_a_message() -> None:
    client = make_client()
    answer = message(id=send_request(client, "one"), result={})
    assert event_types(client, b"[" + answer + b"]") == [NotAMessage]


def test_requests_other_than_initialize_can_be_cancelled() -> None:
    client = make_client()
    first = send_request(client, "one", "initialize")
    second = send_request(client, "two", "ping")
    assert client.cancel(second, "enough") is not None
    assert client.cancel(first, "enough") is None
