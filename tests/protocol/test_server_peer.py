"""ServerPeer, which turns received bytes into events and results into bytes, without I/O."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import msgspec
import pytest

from wharfinger import types as t
from wharfinger.errors import InternalError, PermissionDenied, ResourceNotFound
from wharfinger.protocol.events import Cancellation, Notification, Reply, Response
from wharfinger.protocol.handshake import Phase, Session
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.lines import OVERLONG
from wharfinger.protocol.methods import CORE, Method, add_method
from wharfinger.protocol.request import ChunkedMessage, Request, ResultMeta
from wharfinger.protocol.server_peer import Batch, ServerPeer

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
INFO = t.Implementation(name="s", version="2")


def new_peer(**limits: Any) -> ServerPeer:
    return ServerPeer(Session(), ResultMeta(INFO), Limits(**limits))


def request(id: Any, method: str, params: Any = None) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})
    ).encode()


def notification(method: str, params: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})).encode()


def open_peer(version: str = "2025-11-25", **limits: Any) -> ServerPeer:
    peer = new_peer(**limits)
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    event = peer.receive(request("open", "initialize", params))
    assert isinstance(event, Request)
    peer.respond(event, t.EmptyResult())
    assert isinstance(peer.receive(notification("notifications/initialized")), Notification)
    return peer


def as_request(event: Any) -> Request:
    assert isinstance(event, Request)
    return event


def error(event: Any) -> tuple[Any, int]:
    """Return the id, or None, and the code of an error response."""
    assert isinstance(event, Reply)
    message = json.loads(event.data)
    return message.get("id"), message["error"]["code"]


def test_a_stateless_request_needs_no_handshake() -> None:
    event = as_request(new_peer().receive(request(1, "resources/read", {"uri": "a:b", "_meta": META})))
    assert (event.id, event.method, event.params.uri, event.session) == (1, "resources/read", "a:b", None)
    assert event.caller.rules.name == "2026-07-28"
    assert event.caller.info is not None and event.caller.info.name == "t"


def test_one_connection_may_carry_requests_of_both_eras() -> None:
    """2026-07-28, versioning."""
    peer = open_peer("2025-06-18")
    stateless = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b", "_meta": META})))
    handshake = as_request(peer.receive(request(2, "resources/read", {"uri": "a:b"})))
    assert stateless.caller.rules.name == "2026-07-28"
    assert handshake.caller.rules.name == "2025-06-18"


def test_a_request_before_initialize_is_refused() -> None:
    assert error(new_peer().receive(request(1, "resources/list"))) == (1, -32600)


def test_a_call_in_the_same_write_as_initialize_is_served() -> None:
    peer = new_peer()
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    as_request(peer.receive(request(1, "initialize", params)))
    as_request(peer.receive(request(2, "resources/list")))


def test_ping_is_served_before_the_handshake() -> None:
    as_request(new_peer().receive(request(1, "ping")))


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_second_initialize_does_not_change_the_session(confirmed: bool) -> None:
    """Another revision is refused. The same revision is accepted, with the first client info."""
    peer = open_peer("2025-03-26") if confirmed else new_peer()
    if not confirmed:
        params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        peer.respond(as_request(peer.receive(request(0, "initialize", params))), {})
    before, phase = peer.session.caller, peer.session.phase
    for version in ("2025-11-25", "2024-11-05", "1900-01-01", "2026-07-28"):
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        assert error(peer.receive(request(5, "initialize", params))) == (5, -32600)
    other_info = {"name": "other", "version": "2"}
    params = {"protocolVersion": "2025-03-26", "capabilities": {"roots": {}, "sampling": {}}, "clientInfo": other_info}
    repeated = as_request(peer.receive(request(6, "initialize", params)))
    assert repeated.caller is before
    assert (peer.session.caller, peer.session.phase) == (before, phase)


def test_a_failed_initialize_leaves_the_session_new() -> None:
    peer = new_peer()
    assert error(peer.receive(request(1, "initialize", {}))) == (1, -32602)
    assert peer.session.phase is Phase.NEW


def test_initialized_without_initialize_does_not_open_the_session() -> None:
    peer = new_peer()
    assert peer.receive(notification("notifications/initialized")) is None
    assert error(peer.receive(request(1, "resources/list"))) == (1, -32600)


@pytest.mark.parametrize("missing_field", ["protocolVersion", "clientCapabilities"])
def test_a_stateless_request_without_a_required_field_is_refused(missing_field: str) -> None:
    meta = {k: v for k, v in META.items() if not k.endswith(missing_field)}
    # A request without a version belongs to the session, and was sent before `initialize`.
    code = -32600 if missing_field == "protocolVersion" else -32602
    assert error(new_peer().receive(request(1, "resources/list", {"_meta": meta}))) == (1, code)


@pytest.mark.parametrize("version", ["2025-11-25", "1900-01-01", "2099-01-01"])
def test_an_unsupported_stateless_revision_is_refused_with_the_supported_ones(version: str) -> None:
    meta = META | {"io.modelcontextprotocol/protocolVersion": version}
    event = new_peer().receive(request(1, "resources/list", {"_meta": meta}))
    assert error(event) == (1, -32022)
    data = json.loads(event.data)["error"]["data"]  # type: ignore[union-attr]
    assert data["requested"] == version and "2026-07-28" in data["supported"]


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
)
def test_methods_of_the_handshake_era_are_unknown_in_stateless_requests(method: str) -> None:
    params = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    }
    extra = params.get(method, {"uri": "a:b", "level": "info"})
    assert as_request(new_peer().receive(request(1, method, {**extra, "_meta": META}))).row is None


def test_a_duplicate_id_in_flight_is_refused_without_an_id() -> None:
    """The first request keeps its answer."""
    peer = open_peer()
    first = as_request(peer.receive(request(1, "resources/list")))
    assert error(peer.receive(request(1, "resources/list"))) == (None, -32600)
    assert peer.respond(first, t.EmptyResult()) is not None


def test_the_ids_1_and_the_string_1_are_distinct() -> None:
    peer = open_peer()
    number, text = as_request(peer.receive(request(1, "ping"))), as_request(peer.receive(request("1", "ping")))
    assert json.loads(bytes(peer.respond(number, t.EmptyResult()) or b""))["id"] == 1
    assert json.loads(bytes(peer.respond(text, t.EmptyResult()) or b""))["id"] == "1"


def test_an_id_is_free_again_after_its_answer() -> None:
    peer = open_peer()
    peer.respond(as_request(peer.receive(request(1, "ping"))), t.EmptyResult())
    as_request(peer.receive(request(1, "ping")))


def test_a_cancelled_request_is_never_answered() -> None:
    peer = open_peer()
    event = as_request(peer.receive(request(1, "resources/list")))
    assert peer.receive(notification("notifications/cancelled", {"requestId": 1})) == Cancellation(event)
    assert peer.respond(event, t.EmptyResult()) is None
    assert peer.fail(event, InternalError()) is None


@pytest.mark.parametrize("params", [{"requestId": 99}, {"requestId": "1"}, {"requestId": None}, {}, {"requestId": [1]}])
def test_a_cancellation_of_an_unknown_request_is_ignored(params: Any) -> None:
    peer = open_peer()
    as_request(peer.receive(request(1, "resources/list")))
    assert peer.receive(notification("notifications/cancelled", params)) is None
    assert list(peer.in_flight) == [1]


def test_a_late_response_does_not_answer_a_later_request_with_the_same_id() -> None:
    peer = open_peer()
    first = as_request(peer.receive(request(1, "ping")))
    peer.respond(first, t.EmptyResult())
    second = as_request(peer.receive(request(1, "ping")))
    assert peer.respond(first, t.EmptyResult()) is None
    assert peer.respond(second, t.EmptyResult()) is not None


def test_initialize_cannot_be_cancelled() -> None:
    peer = new_peer()
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    as_request(peer.receive(request(1, "initialize", params)))
    assert peer.receive(notification("notifications/cancelled", {"requestId": 1})) is None


def test_too_many_requests_in_flight_are_refused_with_their_id() -> None:
    peer = open_peer(in_flight=2)
    for id in (1, 2):
        as_request(peer.receive(request(id, "ping")))
    assert error(peer.receive(request(3, "ping"))) == (3, -32603)


@pytest.mark.parametrize("method", ["notifications/unheard-of", "notifications/resources/updated", "resources/list"])
def test_unknown_and_misplaced_notifications_are_ignored(method: str) -> None:
    assert open_peer().receive(notification(method)) is None


def test_a_known_notification_becomes_an_event() -> None:
    event = open_peer().receive(notification("notifications/roots/list_changed"))
    assert isinstance(event, Notification) and event.message.method == "notifications/roots/list_changed"


def test_a_response_is_matched_to_its_request_once() -> None:
    peer = open_peer()
    id, data = peer.request("roots/list", {}, "token")
    assert json.loads(data)["id"] == id
    answer = json.dumps({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}).encode()
    event = peer.receive(answer)
    assert isinstance(event, Response) and event.waiter == "token"
    assert peer.receive(answer) is None


def test_unexpected_responses_are_ignored() -> None:
    peer = open_peer()
    for id in (1, "x", 99):
        assert peer.receive(json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode()) is None


def test_an_overlong_line_is_refused_with_an_error() -> None:
    assert error(new_peer().receive(OVERLONG)) == (None, -32600)


def test_close_returns_the_requests_in_flight() -> None:
    peer = open_peer()
    event = as_request(peer.receive(request(1, "ping")))
    assert peer.close() == [event]
    assert peer.session.phase is Phase.CLOSED
    assert peer.respond(event, t.EmptyResult()) is None


# -- results and errors


def sealed_result(peer: ServerPeer, event: Request, result: Any) -> Any:
    data = peer.respond(event, result)
    assert data is not None
    return json.loads(b"".join(data) if isinstance(data, ChunkedMessage) else data)["result"]


def test_stateless_results_have_result_type_caching_hints_and_server_info() -> None:
    peer = new_peer()
    event = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b", "_meta": META})))
    event.ttl_ms, event.cache_scope = 5000, "public"
    assert sealed_result(peer, event, t.ReadResourceResult(contents=[])) == {
        "resultType": "complete",
        "ttlMs": 5000,
        "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}},
        "contents": [],
    }


def test_results_of_sessions_have_no_stateless_fields() -> None:
    peer = open_peer()
    event = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b"})))
    event.ttl_ms = 5000
    assert sealed_result(peer, event, t.ReadResourceResult(contents=[])) == {"contents": []}


def test_caching_hints_are_only_on_cacheable_results() -> None:
    peer = new_peer()
    event = as_request(peer.receive(request(1, "tools/call", {"name": "x", "_meta": META})))
    assert set(sealed_result(peer, event, t.CallToolResult(content=[]))) == {"resultType", "_meta", "content"}


def test_meta_of_a_result_is_merged_without_changing_the_result() -> None:
    peer = new_peer()
    result = t.ReadResourceResult(contents=[], meta={"mine": 1})
    event = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b", "_meta": META})))
    assert sealed_result(peer, event, result)["_meta"].keys() == {"mine", "io.modelcontextprotocol/serverInfo"}
    assert result.meta == {"mine": 1}


@pytest.mark.parametrize("stateless", [False, True])
def test_large_blobs_are_encoded_in_chunks(stateless: bool) -> None:
    blob = bytes(range(256)) * 2000
    contents = [
        t.ResourceContents(uri="a:1", mime_type="x/y", blob=blob, meta={"blob": ""}),
        t.ResourceContents(uri="a:2", text="small"),
        t.ResourceContents(uri="a:3", blob=blob + b"x"),
    ]
    peer = open_peer()
    params = {"uri": "a:b"} | ({"_meta": META} if stateless else {})
    event = as_request(peer.receive(request(1, "resources/read", params)))
    data = peer.respond(event, t.ReadResourceResult(contents=contents, meta={"m": 1}))
    assert isinstance(data, ChunkedMessage)
    text = b"".join(data)
    assert len(text) == len(data)
    got = json.loads(text)["result"]
    assert [base64.b64decode(c["blob"]) if "blob" in c else c["text"] for c in got["contents"]] == [
        blob,
        "small",
        blob + b"x",
    ]
    assert got["contents"][0]["_meta"] == {"blob": ""}
    assert got["_meta"]["m"] == 1
    assert ("resultType" in got) == stateless


def test_large_text_is_encoded_in_chunks() -> None:
    peer = open_peer()
    event = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b"})))
    text = "ä€" * 100_000
    data = peer.respond(event, t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", text=text)]))
    assert isinstance(data, ChunkedMessage)
    assert json.loads(b"".join(data))["result"]["contents"][0]["text"] == text


def test_raw_results_keep_unknown_members() -> None:
    peer = new_peer()
    event = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b", "_meta": META})))
    assert sealed_result(peer, event, msgspec.Raw(b'{"contents":[],"new":1}'))["new"] == 1


@pytest.mark.parametrize(("version", "code"), [("2024-11-05", -32002), ("2025-11-25", -32002), ("", -32602)])
def test_resource_not_found_has_the_error_code_of_the_revision(version: str, code: int) -> None:
    peer = open_peer(version) if version else new_peer()
    event = as_request(
        peer.receive(request(1, "resources/read", {"uri": "a:b"} | ({} if version else {"_meta": META})))
    )
    message = json.loads(peer.fail(event, ResourceNotFound("a:b")) or b"")
    assert (message["error"]["code"], message["error"]["data"]) == (code, {"uri": "a:b"})


def test_forbidden_and_missing_resources_return_the_same_error() -> None:
    peer = open_peer()
    missing = peer.fail(as_request(peer.receive(request(1, "resources/read", {"uri": "a:b"}))), ResourceNotFound("a:b"))
    forbidden = peer.fail(
        as_request(peer.receive(request(1, "resources/read", {"uri": "a:b"}))), PermissionDenied("secret")
    )
    assert missing == forbidden


def test_a_request_whose_result_cannot_be_encoded_can_be_answered_with_an_error() -> None:
    peer = open_peer()
    event = as_request(peer.receive(request(1, "resources/read", {"uri": "a:b"})))
    with pytest.raises(UnicodeEncodeError):
        peer.respond(event, t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", text="\ud800")]))
    assert peer.fail(event, InternalError()) is not None


# -- repeated members


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"resources/list"}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"resources/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b"},"params":{"uri":"a:c"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b","uri":"a:c"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b","\\u0075ri":"a:c"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
    ],
)
def test_a_repeated_member_is_refused(line: bytes) -> None:
    assert error(open_peer().receive(line))[1] == -32600


def test_a_repeated_uri_is_refused_in_a_request_with_meta() -> None:
    params = json.dumps({"uri": "a:b", "_meta": META}).replace('{"uri": "a:b"', '{"uri": "a:b", "uri": "a:c"')
    line = f'{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{params}}}'.encode()
    assert error(open_peer().receive(line))[1] == -32600


@pytest.mark.parametrize("repeated_field", ["protocolVersion", "clientCapabilities", "clientInfo"])
def test_a_repeated_meta_field_is_refused(repeated_field: str) -> None:
    meta = json.dumps(META)
    key = f'"io.modelcontextprotocol/{repeated_field}"'
    value = json.dumps(META[f"io.modelcontextprotocol/{repeated_field}"])
    line = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":' + f"{meta[:-1]},{key}:{value}}}}}}}"
    assert error(new_peer().receive(line.encode()))[1] == -32600


def test_the_client_name_in_meta_is_not_a_repeated_member() -> None:
    as_request(new_peer().receive(request(1, "tools/call", {"name": "x", "_meta": META})))
    line = request(1, "tools/call", {"name": "x", "_meta": META}).replace(b'"name": "x"', b'"name": "x", "name": "y"')
    assert error(new_peer().receive(line))[1] == -32600


def test_arguments_may_have_the_names_of_message_members() -> None:
    peer = open_peer()
    as_request(
        peer.receive(
            request(1, "tools/call", {"name": "x", "arguments": {"id": 1, "method": "m", "name": "n", "params": {}}})
        )
    )


# -- batches (2025-03-26)


def array(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def as_batch(event: Any) -> Batch:
    assert isinstance(event, Batch)
    return event


def test_a_batch_has_events_in_order_and_one_array_of_responses() -> None:
    peer = open_peer("2025-03-26")
    event = as_batch(
        peer.receive(array(request(1, "ping"), notification("notifications/roots/list_changed"), request(2, "ping")))
    )
    assert [type(e).__name__ for e in event.events] == ["Request", "Notification", "Request"]
    first, _, second = event.events
    assert event.record_answer(peer.respond(second, t.EmptyResult())) is None
    responses = event.record_answer(peer.respond(first, t.EmptyResult()))
    assert responses is not None
    assert [answer["id"] for answer in json.loads(b"".join(responses))] == [2, 1]
    assert not peer.in_flight


def test_each_invalid_entry_of_a_batch_has_its_own_error() -> None:
    peer = open_peer("2025-03-26")
    entries = (b"1", b"{}", request(1, "no/such"), request(2, "initialize", {}), b'{"jsonrpc":"2.0","id":3}')
    event = as_batch(peer.receive(b" \t" + array(*entries)))
    answers = [
        json.loads(b"".join(answer) if isinstance(answer, ChunkedMessage) else answer) for answer in event.answers
    ]
    assert [(answer.get("id"), answer["error"]["code"]) for answer in answers] == [
        (None, -32600),
        (None, -32600),
        (2, -32600),
        (3, -32600),
    ]
    (unknown,) = event.events  # refused by its handler
    assert (unknown.id, unknown.row) == (1, None)


def test_a_duplicate_id_in_a_batch_is_refused() -> None:
    event = as_batch(
        open_peer("2025-03-26").receive(array(request(1, "ping"), request(1, "ping"), request("1", "ping")))
    )
    assert [e.id for e in event.events] == [1, "1"]
    (refused,) = event.answers
    assert isinstance(refused, bytes)
    assert "id" not in json.loads(refused)


def test_a_request_cancelled_in_its_own_batch_is_not_started() -> None:
    peer = open_peer("2025-03-26")
    event = as_batch(peer.receive(array(request(1, "ping"), notification("notifications/cancelled", {"requestId": 1}))))
    assert (event.events, event.pending_count, event.join_answers()) == ([], 0, None)
    assert not peer.in_flight


def test_responses_in_a_batch_are_matched_to_their_requests() -> None:
    peer = open_peer("2025-03-26")
    id, _ = peer.request("roots/list", {}, "token")
    event = as_batch(peer.receive(array(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % id)))
    assert [e.waiter for e in event.events] == ["token"]


@pytest.mark.parametrize("data", [b"[]", b"[ ]", array(*[b"1"] * 9), b"[" * 200 + b"]" * 200])
def test_an_empty_too_long_or_too_deep_batch_is_refused_as_a_whole(data: bytes) -> None:
    assert error(open_peer("2025-03-26", batch=8).receive(data)) == (None, -32600)


@pytest.mark.parametrize("data", [b"[", b'["', b"[{]", b"[1,]", b"[1] x", b"[\xff]"])
def test_an_array_of_invalid_json_is_a_parse_error(data: bytes) -> None:
    assert error(open_peer("2025-03-26").receive(data)) == (None, -32700)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_batches_are_refused_in_other_revisions(version: str) -> None:
    assert error(open_peer(version).receive(array(request(1, "ping")))) == (None, -32600)
    assert error(new_peer().receive(array(request(1, "ping")))) == (None, -32600)


def test_mutated_batches_never_raise() -> None:
    rng = random.Random(7)
    good = array(request(1, "ping"), notification("x/y"), request("a", "resources/read", {"uri": "a:b"}))
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'[]{}",:\\\x001\xff')
        event = open_peer("2025-03-26").receive(bytes(data))
        if isinstance(event, Batch):
            assert event.pending_count == sum(isinstance(e, Request) for e in event.events)
        else:
            assert isinstance(event, Reply)


# -- every method, as a request and as a notification

WITH_META = {"_meta": META}
PARAMS: dict[str, Any] = {
    "none": None,
    "empty": {},
    "meta": WITH_META,
    "open meta": {"_meta": {"progressToken": 1, "x/y": {"z": []}}},
    "meta of another kind": {"_meta": []},
    "meta of other members": {"_meta": dict.fromkeys(META, 5)},
    "an array": [],
    "a text": "x",
    "everything": WITH_META
    | {"uri": "a:b", "name": "x", "arguments": {}, "cursor": "", "level": "info", "requestId": 9, "taskId": "x"}
    | {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    | {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}, "notifications": {}},
}


@pytest.mark.parametrize("params", PARAMS)
@pytest.mark.parametrize("method", [*sorted(CORE), "nobody/knows", "notifications/nobody/knows"])
def test_every_method_is_served_or_refused_with_and_without_an_id(method: str, params: str) -> None:
    """Regression: a notification method with an id and `_meta` raised, and the rest of the chunk was lost."""
    for peer in (new_peer(), open_peer("2025-03-26"), open_peer("2025-11-25")):
        phase = peer.session.phase
        event = peer.receive(request(1, method, PARAMS[params]))
        if isinstance(event, Request):
            assert (event.row is None) or not event.row.is_notification
            assert peer.fail(event, InternalError()) is not None
        else:
            id, code = error(event)
            assert (id, code in (-32600, -32601, -32602, -32022)) == (1, True)
        if method != "initialize":
            assert peer.session.phase is phase, "only `initialize` changes the phase of a session"
        assert isinstance(peer.receive(notification(method, PARAMS[params])), Notification | None)
        assert isinstance(peer.receive(request("after", "ping")), Request)


class FailingParams(msgspec.Struct):
    """Params of an extension whose validation raises an unexpected error."""

    value: int = 0

    def __post_init__(self) -> None:
        raise RuntimeError("secret")


add_method(Method("x.test/explosive", "client", FailingParams, t.EmptyResult))
add_method(Method("notifications/x.test/explosive", "client", FailingParams))


def test_an_unexpected_exception_during_decoding_is_an_internal_error() -> None:
    reported: list[str] = []

    def report(fault: Exception) -> InternalError:
        reported.append(str(fault))
        return InternalError("reference 1")

    peer = open_peer("2025-03-26")
    peer.report = report
    refused = peer.receive(request(1, "x.test/explosive", WITH_META))
    assert error(refused) == (1, -32603)
    assert isinstance(refused, Reply)
    assert b"secret" not in refused.data and b"reference" in refused.data
    assert peer.receive(notification("notifications/x.test/explosive")) is None
    messages = (request(2, "x.test/explosive"), notification("notifications/x.test/explosive"), request(3, "ping"))
    received = as_batch(peer.receive(array(*messages)))
    assert [event.id for event in received.events] == [3]
    assert [json.loads(answer)["id"] for answer in received.answers if isinstance(answer, bytes)] == [2]
    assert reported == ["secret"] * 4
    not_bytes: Any = 5
    assert error(peer.receive(not_bytes)) == (None, -32603)


@pytest.mark.parametrize("blank", [b" ", b"\t", b" \t \r", b"\r", b"\t" * 100_000])
def test_a_blank_line_is_ignored(blank: bytes) -> None:
    assert open_peer().receive(blank) is None
    assert error(open_peer().receive(blank + b"\x0b")) == (None, -32700)


# -- HTTP statuses of refusals, and requests to the client


def status(event: Any) -> int:
    assert isinstance(event, Reply)
    return event.status


def test_a_refusal_has_the_http_status_of_its_error() -> None:
    peer = open_peer(in_flight=1)
    peer.report = lambda fault: InternalError()
    not_bytes: Any = 5
    assert status(peer.receive(not_bytes)) == 500
    assert status(peer.receive(request(1, "x.test/explosive", WITH_META))) == 500
    assert status(peer.receive(b"{")) == 400
    assert status(peer.receive(OVERLONG)) == 400
    assert status(peer.receive(request(2, "resources/read", {"uri": 5}))) == 200
    as_request(peer.receive(request(3, "ping")))
    assert status(peer.receive(request(4, "ping"))) == 503


def test_a_refusing_peer_accepts_cancellations_but_no_requests() -> None:
    peer = open_peer()
    first = as_request(peer.receive(request(1, "ping")))
    peer.refusing = True
    refused = peer.receive(request(2, "ping"))
    assert error(refused) == (2, -32603)
    assert status(refused) == 503
    assert isinstance(peer.receive(notification("notifications/cancelled", {"requestId": 1})), Cancellation)
    peer.refusing = False
    assert as_request(peer.receive(request(2, "ping"))).id != first.id


def test_the_error_for_an_overlong_line_names_the_limit() -> None:
    refused = new_peer(message=1234).receive(OVERLONG)
    assert isinstance(refused, Reply)
    assert "1234 bytes" in json.loads(refused.data)["error"]["message"]


def test_requests_to_the_client_are_numbered_from_one() -> None:
    peer = open_peer()
    for number in (1, 2, 3):
        id, data = peer.request("roots/list", {}, number)
        assert (id, json.loads(data)["id"]) == (number, number)


def test_a_request_that_cannot_be_encoded_uses_no_id() -> None:
    peer = open_peer()
    with pytest.raises(TypeError):
        peer.request("roots/list", {"a": object()}, "bad")
    assert peer.request("roots/list", {}, "good")[0] == 1
    assert peer.forget_all() == ["good"]


def test_a_forgotten_request_is_no_longer_awaited() -> None:
    peer = open_peer()
    first, _ = peer.request("roots/list", {}, "first")
    second, _ = peer.request("roots/list", {}, "second")
    assert peer.forget(first)
    assert not peer.forget(first)
    assert not peer.forget(99)
    assert peer.receive(json.dumps({"jsonrpc": "2.0", "id": first, "result": {}}).encode()) is None
    assert peer.forget_all() == ["second"]
    assert peer.forget_all() == []
    assert not peer.forget(second)


def test_close_keeps_requests_to_the_client_for_forget_all() -> None:
    peer = open_peer()
    peer.request("roots/list", {}, "asked")
    as_request(peer.receive(request(1, "ping")))
    assert [event.id for event in peer.close()] == [1]
    assert peer.close() == []
    assert peer.forget_all() == ["asked"]
