"""Change notifications as bytes, tagged for the stream of a listen request and bare."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from wharfinger import types as t
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.subscriptions import (
    LISTS,
    acknowledgement,
    list_changed,
    listen_result,
    lists_of,
    tag,
    task_changed,
    updated,
)

TAG = {"io.modelcontextprotocol/subscriptionId": 7}
FIELDS = {
    "resources": "resources_list_changed",
    "tools": "tools_list_changed",
    "prompts": "prompts_list_changed",
}


def sent(data: bytes) -> tuple[str, Any]:
    message = json.loads(data)
    assert message["jsonrpc"] == "2.0"
    assert "id" not in message
    return message["method"], message.get("params")


@pytest.mark.parametrize("uri", ["a:b", 'a:"_meta":0'])
def test_resource_update_is_encoded_with_and_without_a_tag(uri: str) -> None:
    notice, method = updated(uri), "notifications/resources/updated"
    assert sent(notice(None)) == (method, {"uri": uri})
    assert sent(notice(encode(tag(7)))) == (method, {"uri": uri, "_meta": TAG})


@pytest.mark.parametrize("name", LISTS)
def test_list_change_is_encoded_with_and_without_a_tag(name: str) -> None:
    notice, method = list_changed(name), f"notifications/{name}/list_changed"
    assert sent(notice(None)) == (method, None)
    assert sent(notice(encode(tag(7)))) == (method, {"_meta": TAG})


def test_changed_task_is_sent_whole() -> None:
    state = b'{"taskId":"x","status":"working"}'
    whole = {"taskId": "x", "status": "working"}
    assert sent(task_changed(state, None)) == ("notifications/tasks", whole)
    assert sent(task_changed(state, encode(tag(7)))) == ("notifications/tasks", {"_meta": TAG} | whole)


@pytest.mark.parametrize("id", [7, "7"])
def test_tag_keeps_the_kind_of_the_id(id: int | str) -> None:
    assert listen_result(id).meta == tag(id) == {"io.modelcontextprotocol/subscriptionId": id}


@pytest.mark.parametrize("name", LISTS)
def test_unsupported_parts_of_a_filter_are_not_granted(name: str) -> None:
    wanted = t.SubscriptionFilter(**{FIELDS[name]: True}, **{FIELDS[n]: False for n in LISTS if n != name})
    assert lists_of(wanted) == [name]
    assert lists_of(t.SubscriptionFilter()) == []
    assert acknowledgement([name], []) == t.SubscriptionFilter(**{FIELDS[name]: True})
    assert json.loads(encode(acknowledgement([], []))) == {}
    whole = acknowledgement([], ["a:b"], ["x"])
    assert (whole.resource_subscriptions, whole.task_ids) == (["a:b"], ["x"])
    assert acknowledgement([], [], []).task_ids is UNSET
