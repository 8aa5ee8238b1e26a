"""Batches of 2025-03-26 on a byte stream and over HTTP: one array of answers, or no answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.transports.http_support import INITIALIZE, META, RawClient, ServerThread
from tests.transports.stream_support import StreamClient

BATCH_REVISION = "2025-03-26"
OTHER_REVISIONS = ["2024-11-05", "2025-06-18", "2025-11-25"]


def read_request(name: str, id: Any) -> Any:
    return {"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": f"test://{name}"}}


def notification(method: str, **params: Any) -> Any:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def ids(array: Any) -> list[Any]:
    return [answer.get("id") for answer in array]


async def test_the_answers_of_a_batch_are_sent_as_one_array() -> None:
    client = StreamClient(BATCH_REVISION)
    client.send(
        [
            read_request("a", 1),
            notification("notifications/roots/list_changed"),
            read_request("missing", "1"),
            7,
            read_request("a", 1),
        ]
    )
    (array,) = await client.messages()
    assert sorted(map(str, ids(array))) == ["1", "1", "None", "None"]
    assert {answer["error"]["code"] for answer in array if "error" in answer} == {-32600, -32002}
    client.server.connection_lost(None)


async def test_the_array_waits_for_its_last_answer_and_does_not_delay_other_requests() -> None:
    client = StreamClient(BATCH_REVISION)
    client.send([read_request("a", 1), read_request("wait", 2)])
    client.send(read_request("a", 3))
    assert ids(await client.messages()) == [3]
    client.service.gates[0].set()
    (array,) = await client.messages()
    assert sorted(ids(array)) == [1, 2]
    client.server.connection_lost(None)


async def test_a_cancelled_entry_is_left_out_and_an_empty_array_is_not_sent() -> None:
    client = StreamClient(BATCH_REVISION)
    client.send(
        [read_request("wait", 1), read_request("wait", 2), notification("notifications/cancelled", requestId=1)]
    )
    await client.messages()
    client.service.gates[-1].set()
    assert ids((await client.messages())[0]) == [2]
    client.send([read_request("wait", 1), notification("notifications/cancelled", requestId=1)])
    assert await client.messages() == []
    client.server.connection_lost(None)


async def test_an_entry_may_be_cancelled_by_the_next_line_of_the_same_chunk() -> None:
    client = StreamClient(BATCH_REVISION)
    cancel = json.dumps(notification("notifications/cancelled", requestId=1)).encode()
    client.server.data_received(
        json.dumps([read_request("wait", 1), read_request("a", 2)]).encode() + b"\n" + cancel + b"\n"
    )
    (array,) = await client.messages()
    assert ids(array) == [2]
    client.server.connection_lost(None)


async def test_a_batch_of_notifications_is_not_answered() -> None:
    client = StreamClient(BATCH_REVISION)
    client.send([notification("notifications/roots/list_changed"), notification("x/y")])
    assert await client.messages() == []
    client.server.connection_lost(None)


@pytest.mark.parametrize("body", [[], [read_request("a", n) for n in range(9)]])
async def test_an_empty_or_too_long_batch_is_refused(body: Any) -> None:
    client = StreamClient(BATCH_REVISION, batch=8)
    client.send(body)
    (refusal,) = await client.messages()
    assert (refusal["error"]["code"], "id" in refusal) == (-32600, False)
    client.server.connection_lost(None)


async def test_each_request_of_a_batch_nested_too_deeply_is_refused_with_its_id() -> None:
    """Regression: the refusal had no id, so the callers waited for their timeouts."""
    client = StreamClient(BATCH_REVISION, batch=2)
    await client.messages()
    deep = b'{"x":' + b"[" * 5000 + b'{"id":9,"method":"x"}' + b"]" * 5000 + b',"method":"ping","id":"b"}'
    response = b'{"id":3,"result":{}}'
    client.server.data_received(b'[{"id":1,"method":"ping"},' + response + b"," + deep + b",7]\n")
    (array,) = await client.messages()
    assert [(answer["id"], answer["error"]["code"]) for answer in array] == [(1, -32600), ("b", -32600)]
    client.server.data_received(b"[" + b",".join([deep] * 3) + b"]\n")
    client.server.data_received(b"[" * 5000 + b"]" * 5000 + b"\n")
    refusals = await client.messages()
    assert len(refusals) == 2
    for refusal in refusals:
        assert (refusal["error"]["code"], "id" in refusal) == (-32600, False)
    client.server.connection_lost(None)


async def test_initialize_in_a_batch_is_refused() -> None:
    client = StreamClient(BATCH_REVISION)
    client.send([{"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": INITIALIZE}])
    ((refusal,),) = await client.messages()
    assert (refusal["id"], refusal["error"]["code"]) == (9, -32600)
    client.server.connection_lost(None)


async def test_a_stateless_request_in_a_batch_is_refused() -> None:
    """2026-07-28 has no batches. A bug: over HTTP, no header of such a request was compared with it."""
    client = StreamClient(BATCH_REVISION)
    request = read_request("a", 9)
    request["params"]["_meta"] = META
    client.send([request, read_request("a", 10)])
    (answers,) = await client.messages()
    assert {answer["id"]: "error" in answer for answer in answers} == {9: True, 10: False}
    client.server.connection_lost(None)


async def test_the_entries_of_a_batch_count_as_requests_in_flight() -> None:
    client = StreamClient(BATCH_REVISION, in_flight=2)
    await client.messages()
    client.send([read_request("wait", n) for n in range(4)])
    await client.messages()
    for gate in client.service.gates:
        gate.set()
    (array,) = await client.messages()
    assert sorted(ids(array)) == [0, 1, 2, 3]
    assert ["error" in answer for answer in sorted(array, key=lambda answer: answer["id"])] == [
        False,
        False,
        True,
        True,
    ]
    client.server.connection_lost(None)


async def test_large_content_in_a_batch_is_complete() -> None:
    client = StreamClient(BATCH_REVISION)
    client.send([read_request("big", 1), read_request("a", 2), read_request("big", 3)])
    (array,) = await client.messages()
    assert sorted(ids(array)) == [1, 2, 3]
    client.server.connection_lost(None)


@pytest.mark.parametrize("version", OTHER_REVISIONS)
async def test_batches_are_refused_in_other_revisions(version: str) -> None:
    client = StreamClient(version)
    client.send([read_request("a", 1)])
    (refusal,) = await client.messages()
    assert refusal["error"]["code"] == -32600
    client.server.connection_lost(None)


async def test_an_incomplete_array_is_a_parse_error() -> None:
    client = StreamClient(BATCH_REVISION)
    client.server.data_received(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},\n')
    (refusal,) = await client.messages()
    assert refusal["error"]["code"] == -32700
    client.server.connection_lost(None)


# -- over HTTP


@pytest.fixture(scope="module")
def http() -> Iterator[ServerThread]:
    with ServerThread() as http:
        yield http


def open_session(client: RawClient, version: str = BATCH_REVISION) -> str:
    return client.call_in_session("", "initialize", INITIALIZE | {"protocolVersion": version}, 0).headers[
        "mcp-session-id"
    ]


def test_a_batch_over_http_is_answered_with_one_array(http: ServerThread) -> None:
    with http.connect() as client:
        session = open_session(client)
        client.post(
            [read_request("a", 1), read_request("missing", 2), notification("notifications/initialized"), 7],
            mcp_session_id=session,
        )
        reply = client.reply()
        assert (reply.status, sorted(map(str, ids(reply.json)))) == (200, ["1", "2", "None"])


def test_a_batch_with_a_notification_is_answered_as_a_stream(http: ServerThread) -> None:
    with http.connect() as client:
        session = open_session(client)
        client.post([read_request("a", 1), read_request("progress", 2), read_request("a", 3)], mcp_session_id=session)
        events = client.reply().events
        assert sorted(event["id"] for event in events if "id" in event) == [1, 2, 3]
        assert [event.get("method") for event in events].count("notifications/progress") == 3


def test_the_answers_before_the_first_notification_of_a_batch_are_sent_before_it(http: ServerThread) -> None:
    """A bug: they waited for the next answer, and were lost if the client left and they were too large to be kept."""
    with http.connect() as client:
        session = open_session(client)
        client.post([read_request("a", 1), read_request("wait-progress", 2)], mcp_session_id=session)
        client.head()
        assert client.event()["id"] == 1
        assert client.event()["method"] == "notifications/progress"


def test_a_batch_of_notifications_and_answers_is_accepted(http: ServerThread) -> None:
    with http.connect() as client:
        session = open_session(client)
        answer = {"jsonrpc": "2.0", "id": 9, "result": {}}
        client.post([notification("notifications/initialized"), answer], mcp_session_id=session)
        reply = client.reply()
        assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("body", [[], [1, 2]])
def test_a_batch_without_a_message_is_a_bad_request(http: ServerThread, body: Any) -> None:
    with http.connect() as client:
        session = open_session(client)
        client.post(body, mcp_session_id=session)
        reply = client.reply()
        assert reply.status == 400
        errors = reply.json if body else [reply.json]
        assert [error["error"]["code"] for error in errors] == [-32600] * max(len(body), 1)


def test_cancelled_entries_over_http_are_left_out(http: ServerThread) -> None:
    with http.connect() as client:
        session = open_session(client)
        client.post(
            [read_request("wait", 1), notification("notifications/cancelled", requestId=1), read_request("a", 2)],
            mcp_session_id=session,
        )
        assert ids(client.reply().json) == [2]
        client.post(
            [read_request("wait", 1), notification("notifications/cancelled", requestId=1)], mcp_session_id=session
        )
        reply = client.reply()
        assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("version", OTHER_REVISIONS)
def test_batches_over_http_are_refused_in_other_revisions(http: ServerThread, version: str) -> None:
    with http.connect() as client:
        session = open_session(client, version)
        client.post([read_request("a", 1)], mcp_session_id=session)
        assert (reply := client.reply()).status == 400
        assert reply.error == -32600


def test_initialize_in_a_batch_opens_no_session(http: ServerThread) -> None:
    with http.connect() as client:
        client.post([{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}])
        reply = client.reply()
        assert (reply.status, reply.error) == (400, -32600)
