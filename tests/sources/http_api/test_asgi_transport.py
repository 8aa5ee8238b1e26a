"""Requests to an ASGI application in this process: lifespan, limits and faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from fastapi.responses import StreamingResponse
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse

from wharfinger.errors import ConnectionFailed
from wharfinger.fetching import TooLarge
from wharfinger.policy.current import CURRENT_ACCESS
from wharfinger.sources.http_api.asgi_transport import AsgiTransport

URL = "http://localhost/a"


def transport(app: Any, *, timeout: float = 5, max_body_bytes: int = 1_000) -> AsgiTransport:
    return AsgiTransport(app, timeout=timeout, max_body_bytes=max_body_bytes)


def app_that_sends(*chunks: bytes, status: int = 200, headers: Any = ()) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})

    return app


def test_the_chunks_of_a_response_are_joined_up_to_the_limit() -> None:
    async def check() -> None:
        found = await transport(
            app_that_sends(b"a", b"b", headers=[(b"X-A", b"1"), (b"x-a", b"2")]), max_body_bytes=2
        ).request("GET", URL)
        assert (found.status, found.headers, found.body) == (200, {"x-a": "1, 2"}, b"ab")
        with pytest.raises(TooLarge):
            await transport(app_that_sends(b"a", b"bc"), max_body_bytes=2).request("GET", URL)

    asyncio.run(check())


def test_a_response_over_the_limit_is_reported_if_the_application_hides_the_error() -> None:
    """Regression: Starlette's StreamingResponse raised ClientDisconnect instead, which became an answer of 500."""

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"abc"

        await StreamingResponse(chunks())(scope, receive, send)

    async def swallow(scope: Any, receive: Any, send: Any) -> None:
        with suppress(OSError):
            await app_that_sends(b"abc")(scope, receive, send)

    async def check(app: Any) -> None:
        with pytest.raises(TooLarge, match="more than 2 bytes"):
            await transport(app, max_body_bytes=2).request("GET", URL)

    asyncio.run(check(stream))
    asyncio.run(check(swallow))


def test_an_application_receives_the_request_unchanged() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.update(scope)
            seen["body"] = await receive()
            await app_that_sends()(scope, receive, send)

    async def check() -> None:
        await transport(app).request("POST", "http://localhost/a%2Fb/%C3%A9?q=%20", headers={"X-A": "1"}, body=b"hello")

    asyncio.run(check())
    assert (seen["path"], seen["raw_path"], seen["query_string"]) == ("/a/b/é", b"/a%2Fb/%C3%A9", b"q=%20")
    assert dict(seen["headers"]) == {b"host": b"localhost", b"x-a": b"1", b"content-length": b"5"}
    assert seen["body"] == {"type": "http.request", "body": b"hello", "more_body": False}


def test_a_request_that_is_not_answered_in_time_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            try:
                await asyncio.sleep(60)
            finally:
                cancelled.set()

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match=r"did not answer within 1 s"):
            await transport(app, timeout=1).request("GET", URL)
        assert cancelled.is_set()

    asyncio.run(check())


def test_an_answer_does_not_wait_for_the_background_tasks_of_the_application() -> None:
    """A bug: it did, so that a long one failed the call."""
    finish, events = asyncio.Event(), list[str]()

    async def work() -> None:
        await finish.wait()
        events.append("worked")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            events.append("ended")
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await PlainTextResponse("x", background=BackgroundTask(work))(scope, receive, send)

    async def check() -> None:
        asgi = transport(app, timeout=20)
        assert (await asgi.request("GET", URL)).body == b"x"
        assert events == []
        finish.set()
        await asgi.close()  # after the work

    asyncio.run(check())
    assert events == ["worked", "ended"]


def test_an_application_may_fail_after_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await app_that_sends(b"x")(scope, receive, send)
            raise ValueError("the anchor is lost")

    async def check() -> None:
        asgi = transport(app)
        assert (await asgi.request("GET", URL)).body == b"x"
        await asgi.close()

    asyncio.run(check())
    assert "failed at GET /a" in caplog.text


def test_an_application_that_returns_without_an_answer_is_an_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="ended without an answer"):
            await transport(app).request("GET", URL)

    asyncio.run(check())


def test_redirects_within_the_application_are_followed_up_to_the_limit() -> None:
    def app_that_redirects(location: str) -> Any:
        return app_that_sends(status=307, headers=[(b"location", location.encode())])

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="more than 5 times"):
            await transport(app_that_redirects("/b")).request("GET", URL)
        for elsewhere in ("https://localhost/a", "//elsewhere.test/", "http://localhost:81/", "http://["):
            with pytest.raises(ConnectionFailed, match="redirects elsewhere"):
                await transport(app_that_redirects(elsewhere)).request("GET", URL)
        assert (await transport(app_that_redirects("/b")).request("POST", URL)).status == 307

    asyncio.run(check())


def test_the_lifespan_runs_once_and_without_the_context_of_a_request() -> None:
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
        await app_that_sends()(scope, receive, send)

    async def check() -> None:
        CURRENT_ACCESS.set(object())  # type: ignore[arg-type]
        asgi = transport(app)
        assert events == []
        await asyncio.gather(*(asgi.request("GET", URL) for _ in range(3)))
        await asgi.close()
        await asgi.close()

    asyncio.run(check())
    ship = {"ship": "mary"}
    assert events == [("lifespan.startup", None), ship, ship, ship, "lifespan.shutdown"]


def test_a_failed_startup_is_reported_without_its_message() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "the password is hunter2"})

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="could not start") as error:
            await transport(app).request("GET", URL)
        assert "hunter2" not in str(error.value)

    asyncio.run(check())


def test_an_application_that_continues_after_a_failed_startup_is_ended() -> None:
    """A bug: each request left a task that ran until the end of the process."""
    ended = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
            await send({"type": "lifespan.startup.failed"})
            await receive()
        finally:
            ended.set()

    async def check() -> None:
        with pytest.raises(ConnectionFailed, match="could not start"):
            await transport(app).request("GET", URL)
        await asyncio.wait_for(ended.wait(), 20)

    asyncio.run(check())


def test_an_application_is_ended_if_the_request_that_starts_it_is_cancelled() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def check() -> None:
        request = asyncio.ensure_future(transport(app).request("GET", URL))
        await started.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(ended.wait(), 20)

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
            await app_that_sends(b"x")(scope, receive, send)

    asgi = transport(app)
    for _ in range(2):
        assert asyncio.run(asgi.request("GET", URL)).body == b"x"
    assert starts == ["lifespan.startup"] * 2


def test_concurrent_first_requests_start_the_application_once_in_each_event_loop() -> None:
    """Regression: the lock of the first event loop failed the requests of the second one."""
    starts: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            starts.append((await receive())["type"])
            await asyncio.sleep(0)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await app_that_sends(b"x")(scope, receive, send)

    asgi = transport(app)

    async def check() -> None:
        found = await asyncio.gather(*(asgi.request("GET", URL) for _ in range(3)))
        assert [response.body for response in found] == [b"x"] * 3
        await asgi.close()

    for _ in range(2):
        asyncio.run(check())
    assert starts == ["lifespan.startup"] * 2
