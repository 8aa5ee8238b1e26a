"""A server on stdio that sends hostile answers: `hostile_server.py KIND SIZE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

TOOL = {"name": "t", "inputSchema": {"type": "object", "properties": {}}}


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def members(n: int) -> str:
    return ",".join(f'"k{i}":0' for i in range(n))


# Unexpected lines before the answer to a call.
LINES_BEFORE_ANSWER: dict[str, Callable[[int], str]] = {
    "blank-lines": lambda n: "\n" * n,
    "no-json": lambda n: "hello\n" * n,
    "stray-answers": lambda n: "".join(f'{{"jsonrpc":"2.0","id":{i + 900},"result":{{}}}}\n' for i in range(n)),
    "stray-errors": lambda n: '{"jsonrpc":"2.0","error":{"code":-32700,"message":"stray"}}\n' * n,
    "notifications": lambda n: '{"jsonrpc":"2.0","method":"notifications/unknown"}\n' * n,
    "log-messages": lambda n: (
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug","data":"x"}}\n' * n
    ),
    "updates": lambda n: "".join(
        f'{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"a://{i}"}}}}\n'
        for i in range(n)
    ),
    "list-changes": lambda n: '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n' * n,
    "progress": lambda n: "".join(
        f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{i % 5},"progress":{i}}}}}\n'
        for i in range(n)
    ),
    "requests": lambda n: "".join(f'{{"jsonrpc":"2.0","id":"s{i}","method":"ping"}}\n' for i in range(n)),
    "long-line": lambda n: "x" * n + "\n",
    "nested-line": lambda n: "[" * n + "\n",
    "stderr": lambda n: print("x" * 100 * n, file=sys.stderr) or "",
}
# The result of a call, as JSON.
RESULTS: dict[str, Callable[[int], str]] = {
    "text": lambda n: json.dumps(text("x" * n)),
    "escapes": lambda n: '{"content":[{"type":"text","text":"' + "\\u0000" * n + '"}]}',
    "controls": lambda n: json.dumps(text("\x1b[31m" * n)),
    "contents": lambda n: json.dumps({"content": [{"type": "text", "text": "x"}] * n}),
    "unknown-contents": lambda n: json.dumps({"content": [{"type": "unknown", "x": {}}] * n}),
    "links": lambda n: json.dumps({"content": [{"type": "resource_link", "uri": "a:b", "name": "b"}] * n}),
    "base64": lambda n: json.dumps({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA" * n}]}),
    "no-base64": lambda n: json.dumps({"content": [{"type": "image", "mimeType": "image/png", "data": "*" * n}]}),
    "nested": lambda n: '{"content":[],"structuredContent":{"a":' + "[" * n + "]" * n + "}}",
    "members": lambda n: '{"content":[],"structuredContent":{' + members(n) + "}}",
    "digits": lambda n: '{"content":[],"structuredContent":{"a":' + "1" * n + "}}",
    "meta": lambda n: '{"content":[],"_meta":{' + members(n) + "}}",
}


def tools(kind: str, n: int, cursor: str | None) -> dict[str, Any]:
    if kind == "pages":
        page_number = int(cursor or 0) + 1
        return {"tools": [], "nextCursor": str(page_number)} if page_number < n else {"tools": [TOOL]}
    if kind == "tools":
        return {"tools": [TOOL | {"name": f"t{i}"} for i in range(n)] + [TOOL]}
    if kind == "schema":
        return {"tools": [TOOL | {"inputSchema": {"type": "object", "properties": {f"k{i}": {} for i in range(n)}}}]}
    if kind == "nested-schema":
        schema: dict[str, Any] = {}
        for _ in range(n):
            schema = {"type": "object", "properties": {"a": schema}}
        return {"tools": [TOOL | {"outputSchema": schema or {"type": "object"}}]}
    if kind == "pattern":
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a|a)*$"}}}
        return {"tools": [TOOL | {"outputSchema": schema}]}
    if kind == "description":
        return {"tools": [TOOL | {"description": "x\x1b[31m" * n}]}
    return {"tools": [TOOL]}


def answer(kind: str, n: int, method: str, params: dict[str, Any]) -> str:
    """Return the result or error member of an answer."""
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "h" * (n if kind == "name" else 1), "version": "1"},
            "instructions": "i" * (n if kind == "instructions" else 1),
        }
        return '"result":' + json.dumps(result)
    if method == "tools/list":
        return '"result":' + json.dumps(tools(kind, n, params.get("cursor")))
    if method == "tools/call":
        if kind == "error":
            return '"error":' + json.dumps({"code": -32603, "message": "e" * n})
        if kind == "error-data":
            return '"error":{"code":-32603,"message":"e","data":{' + members(n) + "}}"
        if kind == "pattern":
            return '"result":' + json.dumps({"content": [], "structuredContent": {"a": "a" * n + "b"}})
        return '"result":' + RESULTS.get(kind, lambda n: json.dumps(text("done")))(n)
    return '"error":{"code":-32601,"message":"Method not found"}'


def main(kind: str, size: int) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            if message["method"] == "tools/call" and kind in LINES_BEFORE_ANSWER:
                sys.stdout.write(LINES_BEFORE_ANSWER[kind](size))
            sys.stdout.write(
                f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},'
                f"{answer(kind, size, message['method'], message.get('params', {}))}}}\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    sys.setrecursionlimit(100_000)
    main(sys.argv[1], int(sys.argv[2]))
