"""Hostile JSON-RPC messages as a table: a description, the smallest size, and how to build one of any size."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from tests.transports.http_support import META

__all__ = ["LINES", "REQUESTS", "Kind"]


class Kind(NamedTuple):
    """One kind of input. `build(n)` returns it at size n. It is sent at 1, 10 and 100 times `size`."""

    size: int
    build: Callable[[int], bytes]


def request(method: str, params: str, id: str = '"hostile"') -> bytes:
    """Return a stateless request. Its params are text, since they may be JSON that no encoder writes."""
    meta = json.dumps(META, separators=(",", ":"))
    return f'{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{meta},{params}}}}}'.encode()


def call_take(anything: str) -> bytes:
    """Return a call that sends any JSON to the tool `take`."""
    return request("tools/call", f'"name":"take","arguments":{{"anything":{anything}}}')


def read(uri: str) -> bytes:
    return request("resources/read", f'"uri":{json.dumps(uri)}')


def members(n: int, name: str = "k%d", value: str = "0") -> str:
    return ",".join(f'"{name % i if "%" in name else name}":{value}' for i in range(n))


# At 100 times their size, most have 1 to 4 MiB, and 4 MiB is the limit of a message.
REQUESTS = {
    # JSON
    "members, each twice, one of them escaped": Kind(
        1_000, lambda n: call_take(f'{{"\\u0061":0,{members(n)},{members(n)}}}')
    ),
    "members, one of them escaped": Kind(2_000, lambda n: call_take(f'{{"\\u0061":0,{members(n)}}}')),
    "members named id": Kind(3_000, lambda n: call_take(f"{{{members(n, 'id')}}}")),
    "members named params, each in an object": Kind(
        2_000, lambda n: call_take("[" + ",".join(['{"params":0}'] * n) + "]")
    ),
    "members of params": Kind(2_000, lambda n: request("ping", members(n))),
    "members of _meta": Kind(
        2_000,
        lambda n: f'{{"jsonrpc":"2.0","id":"hostile","method":"ping","params":{{"_meta":{{{members(n)}}}}}}}'.encode(),
    ),
    "nested arrays": Kind(15_000, lambda n: call_take("[" * n + "]" * n)),
    "nested objects": Kind(5_000, lambda n: call_take('{"a":' * n + "0" + "}" * n)),
    "nested arrays, never closed": Kind(30_000, lambda n: call_take("[" * n)),
    "brackets in strings": Kind(10_000, lambda n: call_take('["' + "[" * n + '","\\"' + "{" * n + '"]')),
    "escaped quotes": Kind(15_000, lambda n: call_take('"' + '\\"' * n + '"')),
    "escaped characters": Kind(5_000, lambda n: call_take('"' + "\\u0000" * n + '"')),
    "lone surrogates": Kind(5_000, lambda n: call_take('"' + "\\ud800" * n + '"')),
    "characters beyond ASCII": Kind(10_000, lambda n: call_take(json.dumps("\U0001f6a2" * n, ensure_ascii=False))),
    "bytes that are not UTF-8": Kind(30_000, lambda n: call_take('"%s"' % ("x" * n)).replace(b"x", b"\xff")),
    "empty objects": Kind(10_000, lambda n: call_take("[" + ",".join(["{}"] * n) + "]")),
    "digits of an integer": Kind(30_000, lambda n: call_take("1" * n)),
    "digits of a fraction": Kind(30_000, lambda n: call_take("0." + "1" * n)),
    "digits of an exponent": Kind(30_000, lambda n: call_take("1e" + "9" * n)),
    "numbers beyond a float": Kind(5_000, lambda n: call_take("[" + ",".join(["1e400"] * n) + "]")),
    "digits of an id": Kind(30_000, lambda n: request("ping", '"a":0', "1" * n)),
    "characters of an id": Kind(30_000, lambda n: request("ping", '"a":0', '"' + "i" * n + '"')),
    "characters of a method": Kind(30_000, lambda n: request("m" * n, '"a":0')),
    "slashes of a method": Kind(30_000, lambda n: request("/" * n, '"a":0')),
    # arguments
    "wrong items of a list": Kind(
        5_000,
        lambda n: request("tools/call", f'"name":"take","arguments":{{"values":[{",".join(["""{"a":0}"""] * n)}]}}'),
    ),
    "wrong values of an object": Kind(
        2_000, lambda n: request("tools/call", f'"name":"take","arguments":{{"named":{{{members(n, value="[]")}}}}}')
    ),
    "unknown arguments": Kind(2_000, lambda n: request("tools/call", f'"name":"take","arguments":{{{members(n)}}}')),
    "wrong items for a given schema": Kind(
        5_000,
        lambda n: request("tools/call", f'"name":"take_by_schema","arguments":{{"words":[{",".join(["0"] * n)}]}}'),
    ),
    "a text for a pattern of a given schema": Kind(
        100, lambda n: request("tools/call", f'"name":"take_by_schema","arguments":{{"words":["{"a" * n}b"]}}')
    ),
    "wrong members for a given schema": Kind(
        2_000, lambda n: request("tools/call", f'"name":"take_by_schema","arguments":{{{members(n, value="[]")}}}')
    ),
    "characters of a tool's name": Kind(30_000, lambda n: request("tools/call", f'"name":"{"t" * n}"')),
    "arguments of a prompt": Kind(
        2_000, lambda n: request("prompts/get", f'"name":"plan","arguments":{{{members(n)}}}')
    ),
    "characters of a prompt's argument": Kind(
        30_000, lambda n: request("prompts/get", f'"name":"plan","arguments":{{"route":"{"x" * n}"}}')
    ),
    "characters to complete": Kind(
        30_000,
        lambda n: request(
            "completion/complete",
            '"ref":{"type":"ref/resource","uri":"growth://{first}-{second}-{third}.{last}"},'
            f'"argument":{{"name":"first","value":"{"x" * n}"}}',
        ),
    ),
    "characters of a template to complete": Kind(
        10_000,
        lambda n: request(
            "completion/complete",
            f'"ref":{{"type":"ref/resource","uri":"a://{"{b}" * n}"}},"argument":{{"name":"b","value":"x"}}',
        ),
    ),
    "context of a completion": Kind(
        2_000,
        lambda n: request(
            "completion/complete",
            '"ref":{"type":"ref/prompt","name":"plan"},"argument":{"name":"route","value":"x"},'
            f'"context":{{"arguments":{{{members(n, value=chr(34) * 2)}}}}}',
        ),
    ),
    # URIs and templates
    "hyphens of a URI with three variables": Kind(10_000, lambda n: read("growth://" + "-" * n)),
    "hyphens and dots of a URI with four variables": Kind(10_000, lambda n: read("growth://" + "-." * n)),
    "commas of a URI": Kind(10_000, lambda n: read("words://" + "," * n + "/x")),
    "segments of a URI": Kind(10_000, lambda n: read("path://host" + "/a" * n)),
    "empty segments of a URI": Kind(10_000, lambda n: read("path://host" + "/" * n + "%2F")),
    "steps up of a URI": Kind(10_000, lambda n: read("any://" + "../" * n)),
    "escapes of a URI": Kind(10_000, lambda n: read("any://" + "%2F" * n)),
    "invalid escapes of a URI": Kind(10_000, lambda n: read("any://" + "%" * n)),
    "members of a URI's query": Kind(10_000, lambda n: read("query://host?" + "first=1&" * n)),
    "ampersands of a URI's query": Kind(10_000, lambda n: read("query://host?" + "&" * n)),
    "a URI without a scheme": Kind(30_000, lambda n: read("x" * n)),
    "a URI of only a scheme": Kind(30_000, lambda n: read("x" * n + "://")),
    # sealed texts
    "characters of a cursor": Kind(30_000, lambda n: request("resources/list", f'"cursor":"{"A" * n}"')),
    "characters of a state": Kind(
        30_000, lambda n: request("tools/call", f'"name":"ask","arguments":{{}},"requestState":"{"A" * n}"')
    ),
    "responses to input requests that were never sent": Kind(
        1_000,
        lambda n: request(
            "tools/call",
            '"name":"ask","arguments":{{}},"inputResponses":{{{}}}'.format(members(n, value='{"action":"accept"}')),
        ),
    ),
    "entries of a batch": Kind(10_000, lambda n: b"[" + b",".join([b"{}"] * n) + b"]"),
    "brackets of a batch": Kind(10_000, lambda n: b"[" * n + b"]" * n),
    "characters of a progress token": Kind(
        30_000,
        lambda n: request("ping", '"a":0').replace(b'"_meta":{', b'"_meta":{"progressToken":"%b",' % (b"p" * n)),
    ),
    "capabilities of a client": Kind(
        1_000,
        lambda n: request("ping", '"a":0').replace(
            b'Capabilities":{}', b'Capabilities":{"experimental":{%b}}' % members(n, value="{}").encode()
        ),
    ),
}
"""Requests. Each is answered once, with a result or an error."""

LINES = {
    "empty lines": Kind(20_000, lambda n: b"\n" * n),
    "lines of spaces": Kind(400, lambda n: (b" " * 99 + b"\n") * n),
    "carriage returns": Kind(20_000, lambda n: b"\r\n" * n),
    "responses to requests that were never sent": Kind(1_000, lambda n: b'{"jsonrpc":"2.0","id":7,"result":{}}\n' * n),
    "errors without an id": Kind(1_000, lambda n: b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"stray"}}\n' * n),
    "cancellations of requests that are not pending": Kind(
        1_000,
        lambda n: b"".join(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}\n' % i for i in range(n)
        ),
    ),
    "progress of requests that were never sent": Kind(
        1_000,
        lambda n: b"".join(
            b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1}}\n' % i
            for i in range(n)
        ),
    ),
    "unknown notifications": Kind(
        1_000, lambda n: b"".join(b'{"jsonrpc":"2.0","method":"notifications/n%d"}\n' % i for i in range(n))
    ),
    "URIs to listen to": Kind(
        1_000,
        lambda n: (
            request(
                "subscriptions/listen",
                f'"notifications":{{"resourceSubscriptions":{json.dumps([f"any://{i}" for i in range(n)])}}}',
            )
            + b'\n{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"hostile"}}\n'
        ),
    ),
}
"""Lines of a stream that get no answer."""
