"""The client's peer on bare bytes: what each message means for who waits, and what is sent back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger import types as t
from wharfinger.protocol.client_peer import (
    Answer,
    Asked,
    ClientPeer,
    Garbage,
    Notice,
    Reply,
    Unattributed,
    Unreadable,
    Withdrawn,
)
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.revisions import REVISIONS

LIMITS = Limits(message=100_000, depth=20)


def peer(revision: str | None = None) -> ClientPeer[str]:
    made: ClientPeer[str] = ClientPeer(LIMITS)
    if revision is not None:
        made.rules = REVISIONS[revision]
    return made


def wire(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def ask(asked: ClientPeer[str], waiter: str, method: str = "tools/list") -> int:
    return asked.request(method, t.RequestParams(), waiter)[0]


def answers(asked: ClientPeer[str], data: bytes) -> list[tuple[str, Any]]:
    """Who is answered by one message, and with which id."""
    events = asked.receive(data)
    assert all(type(event) is Answer for event in events)
    return [(event.waiter, event.message.id) for event in events if type(event) is Answer]


def test_request_is_one_message_with_a_new_id() -> None:
    """Spec: ids are unique among a sender's requests."""
    asked = peer()
    first, data = asked.request("resources/read", t.ReadResourceRequestParams(uri="a:b"), "one")
    second, _ = asked.request("ping", t.RequestParams(), "two")
    assert json.loads(data) == {"jsonrpc": "2.0", "id": first, "method": "resources/read", "params": {"uri": "a:b"}}
    assert first != second
    assert asked.awaited == {first: "one", second: "two"}


def test_answers_reach_who_asked_in_any_order() -> None:
    asked = peer()
    first, second = ask(asked, "one"), ask(asked, "two")
    assert answers(asked, wire(id=second, result={})) == [("two", second)]
    assert answers(asked, wire(id=first, error={"code": 1, "message": "no"})) == [("one", first)]
    assert asked.awaited == {}


@pytest.mark.parametrize("id", [2, "1", "", -1, 10**17])
def test_answer_with_another_id_is_ignored(id: object) -> None:
    """Security C11: `1` is not `"1"`, and what was never asked has no answer."""
    asked = peer()
    ask(asked, "one")
    assert asked.receive(wire(id=id, result={})) == ()
    assert list(asked.awaited.values()) == ["one"]


def test_second_answer_to_one_request_is_ignored() -> None:
    """Security C12."""
    asked = peer()
    id = ask(asked, "one")
    assert answers(asked, wire(id=id, result={"a": 1})) == [("one", id)]
    assert asked.receive(wire(id=id, result={"a": 2})) == ()


def test_late_answer_to_a_cancelled_request_is_ignored() -> None:
    asked = peer()
    id = ask(asked, "one")
    notice = asked.cancel(id, "enough")
    assert notice is not None
    assert json.loads(notice) == {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": id, "reason": "enough"},
    }
    assert asked.receive(wire(id=id, result={})) == ()
    assert asked.cancel(id, "enough") is None


def test_initialize_is_given_up_without_a_word() -> None:
    """Spec: `initialize` must not be cancelled."""
    asked = peer()
    id = ask(asked, "one", "initialize")
    assert asked.cancel(id, "enough") is None
    assert asked.awaited == {}


def nameless(asked: ClientPeer[str], code: int = -32700, **members: Any) -> str | None:
    """Whom an error without an id is suspected to be about."""
    (event,) = asked.receive(wire(error={"code": code, "message": "no"}, **members))
    assert type(event) is Unattributed
    return event.suspect


@pytest.mark.parametrize("members", [{}, {"id": None}], ids=["absent", "null"])
def test_error_without_an_id_answers_no_request(members: dict[str, Any]) -> None:
    """Older revisions send null, newer ones nothing; whatever it says, the request still waits for its answer."""
    asked = peer()
    id = ask(asked, "one")
    for code in (-32700, -32600, -32601, -32603, 1):
        nameless(asked, code, **members)
    assert answers(asked, wire(id=id, result={})) == [("one", id)]
    assert nameless(asked, **members) is None


@pytest.mark.parametrize(("code", "suspect"), [(-32700, "one"), (-32600, "one"), (-32601, None), (-32603, None)])
def test_only_an_error_for_what_cannot_be_read_may_leave_the_id_out(code: int, suspect: str | None) -> None:
    """JSON-RPC 2.0, §5."""
    asked = peer()
    ask(asked, "one")
    assert nameless(asked, code) == suspect


def test_request_is_suspect_only_if_every_other_message_was_read() -> None:
    asked = peer()
    first, second = ask(asked, "one"), ask(asked, "two")
    assert nameless(asked) is None  # either of them
    asked.receive(wire(id=second, result={}))
    assert nameless(asked) is None  # what was sent before the second was read as well
    third = ask(asked, "three")
    assert nameless(asked) == "three"
    asked.sent_otherwise()
    assert nameless(asked) is None  # a notification may be meant
    asked.receive(wire(id=third, result={}))
    fourth = ask(asked, "four")
    assert nameless(asked) is None
    asked.receive(wire(id=fourth, result={}))
    fifth = ask(asked, "five")
    assert nameless(asked) == "five"
    asked.cancel(fifth, "")
    ask(asked, "six")
    assert nameless(asked) is None
    assert list(asked.awaited) == [first, fifth + 1]


@pytest.mark.parametrize("revision", [None, "2024-11-05", "2025-11-25"])
def test_ping_is_answered(revision: str | None) -> None:
    (event,) = peer(revision).receive(wire(id="p", method="ping"))
    assert type(event) is Reply
    assert json.loads(event.data) == {"jsonrpc": "2.0", "id": "p", "result": {}}


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list", "elicitation/create", "tools/call", "x"])
def test_other_requests_of_the_server_are_refused(method: str) -> None:
    """Security C13: nothing is declared, so nothing is served."""
    (event,) = peer("2025-11-25").receive(wire(id=7, method=method, params={}))
    assert type(event) is Reply
    refusal = json.loads(event.data)
    assert (refusal["id"], refusal["error"]["code"]) == (7, -32601)


def test_peer_that_answers_is_told_what_is_asked_and_withdrawn() -> None:
    """Ids of the two directions have nothing in common: what the server withdraws is its own request."""
    asked = peer("2025-11-25")
    asked.answers = True
    number = ask(asked, "mine")
    (event,) = asked.receive(wire(id=number, method="roots/list"))
    assert type(event) is Asked
    assert (event.message.id, event.message.method) == (number, "roots/list")
    (gone,) = asked.receive(wire(method="notifications/cancelled", params={"requestId": number}))
    assert gone == Withdrawn(number)
    assert list(asked.awaited.values()) == ["mine"]
    assert type(asked.receive(wire(id=9, method="ping"))[0]) is Reply


def test_stateless_server_that_asks_is_ignored() -> None:
    """Spec: in the stateless era clients send no answers."""
    assert peer("2026-07-28").receive(wire(id=7, method="ping")) == ()


def test_notifications_are_told_apart_by_what_they_belong_to() -> None:
    asked = peer()
    first, second = ask(asked, "one"), ask(asked, "two", "subscriptions/listen")
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
        (event,) = asked.receive(wire(method=method, **members))
        assert type(event) is Notice
        assert (event.message.method, event.waiter) == (method, waiter)


def test_subscription_tag_of_the_wrong_type_still_finds_its_request() -> None:
    """Some servers turn our integer into a string."""
    asked = peer()
    id = ask(asked, "one", "subscriptions/listen")
    params = {"_meta": {"io.modelcontextprotocol/subscriptionId": str(id)}}
    (event,) = asked.receive(wire(method="notifications/tools/list_changed", params=params))
    assert type(event) is Notice
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
def test_notification_for_no_request_of_ours_is_ignored(method: str, params: dict[str, Any]) -> None:
    asked = peer()
    ask(asked, "one")
    assert asked.receive(wire(method=method, params=params)) == ()


@pytest.mark.parametrize(
    "data",
    [b"INFO starting", b"\xff\xfe\x00", b"[1]", b"42", b'"x"', b"{}", b'{"jsonrpc":"1.0","id":1}', b"{", b"null"],
)
def test_what_is_no_message_is_garbage(data: bytes) -> None:
    """Security C03, C04, C16: a line of a log, in whatever encoding, ends nothing."""
    assert [type(event) for event in peer().receive(data)] == [Garbage]


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
def test_broken_answer_fails_its_request_at_once(rest: bytes) -> None:
    """Security C08, C15, C24: the caller gets to know, instead of waiting for its time to pass."""
    asked = peer()
    id = ask(asked, "one")
    (event,) = asked.receive(b'{"jsonrpc":"2.0","id":%d' % id + rest)
    assert type(event) is Unreadable
    assert event.waiter == "one"
    assert asked.awaited == {}


def test_documents_may_hold_members_that_look_like_an_envelope() -> None:
    asked = peer()
    id = ask(asked, "one")
    result = {"contents": [{"uri": "a:b", "text": json.dumps({"id": 1, "method": "x"})}, {"id": 5, "method": "y"}]}
    assert answers(asked, wire(id=id, result=result)) == [("one", id)]


def test_batch_is_read_only_in_the_revision_that_has_it() -> None:
    """2025-03-26: batches must be received."""
    asked = peer("2025-03-26")
    first, second = ask(asked, "one"), ask(asked, "two")
    batch = json.dumps(
        [json.loads(wire(id=second, result={})), json.loads(wire(id=first, result={})), [[]], 3]
    ).encode()
    assert [event.waiter for event in asked.receive(batch) if type(event) is Answer] == ["two", "one"]
    other = peer("2025-06-18")
    ask(other, "one")
    assert [type(event) for event in other.receive(batch)] == [Garbage]


def test_progress_is_asked_for_with_the_id_as_token() -> None:
    asked = peer()
    meta = t.RequestMeta(protocol_version="2026-07-28")
    id, data = asked.request("tools/call", t.CallToolRequestParams(name="x", meta=meta), "one", progress=True)
    assert json.loads(data)["params"]["_meta"] == {
        "progressToken": id,
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    }
    assert meta.progress_token is t.UNSET
    id, data = asked.request("x/y", {"a": 1, "_meta": {"b": 2}}, "two", progress=True)
    assert json.loads(data)["params"] == {"a": 1, "_meta": {"b": 2, "progressToken": id}}


def test_close_gives_everyone_who_waits() -> None:
    asked = peer()
    ask(asked, "one")
    ask(asked, "two")
    assert asked.close() == ["one", "two"]
    assert asked.close() == []
