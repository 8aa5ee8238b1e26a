"""The requests that every server gets, and the right answers, independent of the transport."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Params = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """One kind of request. `check` returns whether a decoded result is right; it is called before the timing."""

    name: str
    about: str
    method: str
    params: tuple[Params, ...]
    """Request number i uses `params[i % len(params)]`."""
    check: Callable[[Result, Params], bool]
    in_flight: int = 1
    mib: float = 0
    """The size of an answer's payload. If it is set, the report shows MB/s."""
    most: int = 10**9
    """The maximum number of requests in one measurement, so that a slow peer does not take too long."""


def _text_is(text: str) -> Callable[[Result, Params], bool]:
    return lambda result, _: bool(result["contents"][0]["text"] == text)


def _is_item(result: Result, params: Params) -> bool:
    return bool(json.loads(result["contents"][0]["text"])["id"] == params["uri"][-3:])


def _is_sum(result: Result, params: Params) -> bool:
    return bool(result["content"][0]["text"] == str(sum(params["arguments"].values())) and not result.get("isError"))


def _blob_of(mib: int) -> Callable[[Result, Params], bool]:
    def check(result: Result, _: Params) -> bool:
        return base64.b64decode(result["contents"][0]["blob"]) == bytes(range(256)) * 4096 * mib

    return check


_STATIC_TEXT = ("The quick brown fox jumps over the lazy dog. " * 40)[:1024]
_STATIC = ({"uri": "bench://static"},)
_ITEMS = tuple({"uri": f"bench://item/{n:03}"} for n in range(1000))
_SUMS = tuple({"name": "add", "arguments": {"a": n, "b": 1000 - 2 * n}} for n in range(1000))
_READ, _CALL = "resources/read", "tools/call"

WORKLOADS = (
    Workload("static", "read 1 KiB of text, one at a time", _READ, _STATIC, _text_is(_STATIC_TEXT)),
    Workload("static-32", "the same, 32 in flight", _READ, _STATIC, _text_is(_STATIC_TEXT), 32),
    Workload("item", "read through a template, one at a time", _READ, _ITEMS, _is_item),
    Workload("item-32", "the same, 32 in flight", _READ, _ITEMS, _is_item, 32),
    Workload("call", "call a tool of two integers, one at a time", _CALL, _SUMS, _is_sum),
    Workload("call-32", "the same, 32 in flight", _CALL, _SUMS, _is_sum, 32),
    Workload(
        "list", "list 1,000 resources in one page", "resources/list", ({},), lambda r, _: len(r["resources"]) == 1000
    ),
    Workload("blob-1", "read a blob of 1 MiB", _READ, ({"uri": "bench://blob/1"},), _blob_of(1), mib=1),
    Workload("blob-50", "read a blob of 50 MiB", _READ, ({"uri": "bench://blob/50"},), _blob_of(50), mib=50, most=5),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}
