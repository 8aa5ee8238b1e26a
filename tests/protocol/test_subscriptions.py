"""Change notifications with and without the tag of a listen request, filters, and what a watched URI covers."""

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
    covers,
    list_changed,
    listen_result,
    lists_of,
    meta_of,
    task_changed,
    updated,
)

TAG = {"io.modelcontextprotocol/subscriptionId": 7}
FIELDS = {
    "resources": "resources_list_changed",
    "tools": "tools_list_changed",
    "prompts": "prompts_list_changed",
}


def decode_notification(data: bytes) -> tuple[str, Any]:
    message = json.loads(data)
    assert message["jsonrpc"] == "2.0"
    assert "id" not in message
    return message["method"], message.get("params")


@pytest.mark.parametrize("uri", ["a:b", 'a:"_meta":0'])
def test_resource_update_is_encoded_with_and_without_a_tag(uri: str) -> None:
    encode_with, method = updated(uri), "notifications/resources/updated"
    assert decode_notification(encode_with(None)) == (method, {"uri": uri})
    assert decode_notification(encode_with(encode(meta_of(7)))) == (method, {"uri": uri, "_meta": TAG})


@pytest.mark.parametrize("name", LISTS)
def test_list_change_is_encoded_with_and_without_a_tag(name: str) -> None:
    encode_with, method = list_changed(name), f"notifications/{name}/list_changed"
    assert decode_notification(encode_with(None)) == (method, None)
    assert decode_notification(encode_with(encode(meta_of(7)))) == (method, {"_meta": TAG})


def test_a_task_notification_has_the_whole_task() -> None:
    state = b'{"taskId":"x","status":"working"}'
    task = {"taskId": "x", "status": "working"}
    assert decode_notification(task_changed(state, None)) == ("notifications/tasks", task)
    assert decode_notification(task_changed(state, encode(meta_of(7)))) == (
        "notifications/tasks",
        {"_meta": TAG} | task,
    )


@pytest.mark.parametrize(
    ("watched", "uri", "covered"),
    [
        ("file:///a", "file:///a", True),
        ("file:///a", "file:///a/b/c", True),
        ("file:///a/", "file:///a/b", True),
        ("file:///a", "file:///a?lines=1-9", True),
        ("file:///a", "file:///a#end", True),
        ("file:///a", "file:///ab", False),
        ("file:///a/b", "file:///a", False),
        ("file:///a/", "file:///a", False),
        ("git://", "git://a", True),
    ],
)
def test_a_watched_uri_covers_itself_its_parts_and_what_is_below_it(watched: str, uri: str, covered: bool) -> None:
    assert covers(watched, uri) is covered


@pytest.mark.parametrize("id", [7, "7"])
def test_a_tag_keeps_the_type_of_the_id(id: int | str) -> None:
    assert listen_result(id).meta == meta_of(id) == {"io.modelcontextprotocol/subscriptionId": id}


@pytest.mark.parametrize("name", LISTS)
def test_the_acknowledgement_has_only_the_granted_parts_of_the_filter(name: str) -> None:
    requested = t.SubscriptionFilter(**{FIELDS[name]: True}, **{FIELDS[n]: False for n in LISTS if n != name})
    assert lists_of(requested) == [name]
    assert lists_of(t.SubscriptionFilter()) == []
    assert acknowledgement([name], []) == t.SubscriptionFilter(**{FIELDS[name]: True})
    assert json.loads(encode(acknowledgement([], []))) == {}
    filter = acknowledgement([], ["a:b"], ["x"])
    assert (filter.resource_subscriptions, filter.task_ids) == (["a:b"], ["x"])
    assert acknowledgement([], [], []).task_ids is UNSET
