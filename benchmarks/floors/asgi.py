"""The floor over HTTP: a bare ASGI application on every path, under uvicorn with httptools and uvloop."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

from core import answer

JSON = (b"content-type", b"application/json")
SESSION = (b"mcp-session-id", b"0123456789abcdef")


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["method"] != "POST":  # no stream to listen to, and no session to end
        await send({"type": "http.response.start", "status": 405, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return
    event = await receive()
    body = event.get("body", b"")
    while event.get("more_body"):
        event = await receive()
        body += event["body"]
    out = answer(body)
    if out is None:
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})
        return
    headers = [JSON, (b"content-length", b"%d" % len(out))]
    if b'"initialize"' in body:
        headers.append(SESSION)
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": out})


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[2]),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_level="warning",
        access_log=False,
    )
