"""Calls of an ASGI application in this process: its lifespan, its bounds and its faults."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wharfinger.errors import ConnectionFailed
from wharfinger.fetching import TooLarge
from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.sources.http_api.asgi_transport import AsgiTransport

URL = "http://localhost/a"


def transport(app: Any, *, timeout: float = 5, most: int = 1_000) -> AsgiTransport:
    return AsgiTransport(app, timeout=timeout, max_body_bytes=most)


def answering(*pieces: bytes, status: int = 200, headers: Any = ()) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    return app


def test_an_answer_in_pieces_is_joined_up_to_its_bound() -> None:
    async def check() -> None:
        found = await transport(answering(b"a", b"b", headers=[(b"X-A", b"1"), (b"x-a", b"2")]), most=2).request(
            "GET", URL
        )
        assert (found.status, found.headers, found.body) == (200, {"x-a": "1, 2"}, b"ab")
        with pytest.raises(TooLarge):
            await transport(answering(b"a", b"bc"), most=2).request("GET", URL)

    asyncio.run(check())


def test_an_application_gets_the_request_as_it_is() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.update(scope)
            seen["body"] = await receive()
            await answering()(scope, receive, send)

    async def check() -> None:
        await transport(app).request("POST", "http://localhost/a%2Fb/%C3%A9?q=%20", headers={"X-A": "1"}, body=b"hello")

    asyncio.run(check())
    assert (seen["path"], seen["raw_path"], seen["query_string"]) == ("/a/b/é", b"/a%2Fb/%C3%A9", b"q=%20")
    assert dict(seen["headers"]) == {b"host": b"localhost", b"x-a": b"1", b"content-length": b"5"}
    assert seen["body"] == {"type": "http.request", "body": b"hello", "more_body": False}


def test_an_application_that_never_answers_is_given_up() -> None:
    cancelled = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match=r"did not answer within 0\.1 s"):
            await transport(app, timeout=0.1).request("GET", URL)
        assert cancelled.is_set()

    asyncio.run(check())


def test_an_application_that_returns_without_an_answer_failed() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="ended without an answer"):
            await transport(app).request("GET", URL)

    asyncio.run(check())


def test_redirects_within_the_application_are_followed_up_to_their_bound() -> None:
    def redirecting(to: str) -> Any:
        return answering(status=307, headers=[(b"location", to.encode())])

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="more than 5 times"):
            await transport(redirecting("/b")).request("GET", URL)
        for elsewhere in ("https://localhost/a", "//elsewhere.test/", "http://localhost:81/", "http://["):
            with pytest.raises(ConnectionFailed, match="redirects elsewhere"):
                await transport(redirecting(elsewhere)).request("GET", URL)
        assert (await transport(redirecting("/b")).request("POST", URL)).status == 307

    asyncio.run(check())


def test_the_lifespan_is_that_of_the_transport_and_belongs_to_no_request() -> None:
    events: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            events.append(((await receive())["type"], CURRENT_ACCESS.get()))
            scope["state"]["ship"] = "mary"
            await send({"type": "lifespan.startup.complete"})
            events.append((await receive())["type"])
            await send({"type": "lifespan.shutdown.complete"})
            return
        events.append(scope["state"])
        await answering()(scope, receive, send)

    async def check() -> None:
        CURRENT_ACCESS.set(object())  # type: ignore[arg-type]
        called = transport(app)
        assert events == []
        await asyncio.gather(*(called.request("GET", URL) for _ in range(3)))
        await called.close()
        await called.close()

    asyncio.run(check())
    ship = {"ship": "mary"}
    assert events == [("lifespan.startup", None), ship, ship, ship, "lifespan.shutdown"]


def test_an_application_that_cannot_start_says_so() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "the password is hunter2"})

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="could not start") as error:
            await transport(app).request("GET", URL)
        assert "hunter2" not in str(error.value)

    asyncio.run(check())


def test_an_application_is_ended_if_the_request_that_starts_it_is_cancelled() -> None:
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def check() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(transport(app).request("GET", URL), 0.1)
        await asyncio.wait_for(ended.wait(), 5)

    asyncio.run(check())


def test_another_event_loop_starts_the_application_again() -> None:
    starts: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            starts.append((await receive())["type"])
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await answering(b"x")(scope, receive, send)

    called = transport(app)
    for _ in range(2):
        assert asyncio.run(called.request("GET", URL)).body == b"x"
    assert starts == ["lifespan.startup"] * 2
