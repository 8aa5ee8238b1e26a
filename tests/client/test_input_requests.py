"""Input requests of a server: the same handlers answer requests and input_required results in every revision."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from wharfinger import Client, Context, Server, ToolError
from wharfinger import types as t
from wharfinger.client.input_handlers import InputHandlers
from wharfinger.errors import (
    ConnectionLost,
    Declined,
    InvalidParams,
    InvalidResponse,
    MethodNotFound,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    URLElicitationRequired,
    remote_error,
)
from wharfinger.protocol.jsonrpc import Message, encode
from wharfinger.protocol.revisions import REVISIONS, SUPPORTED

ELICITING = tuple(name for name in SUPPORTED if REVISIONS[name].elicits)
ELICITING_URLS = tuple(name for name in SUPPORTED if REVISIONS[name].elicits_urls)


class Quay(msgspec.Struct):
    side: Literal["north", "south"]
    tugs: int = 1


def eliciting_server() -> Server:
    server = Server("asking")

    @server.tool
    async def berth(ctx: Context) -> str:
        quay = await ctx.elicit("Which quay?", Quay)
        return f"{quay.side} {quay.tugs}"

    @server.tool
    async def twice(ctx: Context) -> str:
        first = await ctx.elicit("Which quay?", Quay)
        second = await ctx.elicit("And then?", Quay)
        return f"{first.side} {second.side}"

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit_url("Pay the harbour.", "https://pay.test/bill")
        return "paid"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("What is a quay?", max_tokens=9)).text

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    return server


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def returning(answer: Any) -> Any:
    async def handler(question: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return handler


@pytest.mark.parametrize("revision", ELICITING)
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"side": "north"}, "north 1"),
        ({"side": "north", "tugs": 3}, "north 3"),
        (Quay("south", 2), "south 2"),
        (t.ElicitResult(action="accept", content={"side": "south"}), "south 1"),
    ],
)
def test_a_form_is_answered_with_fields_and_defaults(revision: str, answer: Any, expected: str) -> None:
    async def test() -> None:
        async with Client(eliciting_server(), revision=revision, elicitation=returning(answer)) as client:
            assert (await client.call_tool("berth")).text == expected

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
@pytest.mark.parametrize("answer", ["decline", "cancel", Declined()])
def test_a_declined_or_cancelled_form_raises_a_tool_error(revision: str, answer: Any) -> None:
    async def test() -> None:
        async with Client(eliciting_server(), revision=revision, elicitation=returning(answer)) as client:
            with pytest.raises(ToolError, match="cancelled" if answer == "cancel" else "declined"):
                await client.call_tool("berth")

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
def test_concurrent_calls_with_several_rounds_do_not_mix_their_answers(revision: str) -> None:
    sides = {"Which quay?": "north", "And then?": "south"}

    async def test() -> None:
        async def choose(question: t.ElicitRequestParams) -> dict[str, Any]:
            return {"side": sides[question.message]}

        async with Client(eliciting_server(), revision=revision, elicitation=choose) as client:
            calls = [client.call_tool("twice") for _ in range(10)]
            assert {result.text for result in await asyncio.gather(*calls)} == {"north south"}

    run(test())


@pytest.mark.parametrize("revision", ELICITING_URLS)
@pytest.mark.parametrize(("answer", "outcome"), [(True, "paid"), (False, "declined"), ("cancel", "cancelled")])
def test_url_elicitation_needs_consent(revision: str, answer: Any, outcome: str) -> None:
    async def test() -> None:
        seen: list[str] = []

        async def consent(question: t.ElicitRequestParams) -> Any:
            seen.append(str(question.url))
            return answer

        async with Client(eliciting_server(), revision=revision, consent=consent) as client:
            if outcome == "paid":
                assert (await client.call_tool("pay")).text == "paid"
            else:
                with pytest.raises(ToolError, match=outcome):
                    await client.call_tool("pay")
        assert seen == ["https://pay.test/bill"]

    run(test())


@pytest.mark.parametrize("consents", [True, False, None])
def test_a_call_is_repeated_after_its_url_elicitation(consents: bool | None) -> None:
    server = Server("gate")
    calls: list[int] = []

    @server.tool
    async def enter() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise URLElicitationRequired("Sign in.", "https://gate.test/in", elicitation_id="7")
        return "in"

    async def consent(question: t.ElicitRequestParams) -> bool:
        assert (question.url, question.elicitation_id) == ("https://gate.test/in", "7")
        asyncio.get_running_loop().call_later(0.05, server.elicitation_complete, "7")
        return consents is True

    async def test() -> None:
        async with Client(server, revision="2025-11-25", consent=None if consents is None else consent) as client:
            if consents:
                assert (await client.call_tool("enter")).text == "in"
            else:
                with pytest.raises((RemoteError, ToolError), match="Sign in" if consents is False else "a URL"):
                    await client.call_tool("enter")
        assert len(calls) == (2 if consents else 1)

    run(test())


@pytest.mark.parametrize("revision", SUPPORTED)
def test_sampling_is_answered_with_text_or_a_result(revision: str) -> None:
    async def test() -> None:
        async with Client(eliciting_server(), revision=revision, sampling=returning("A wall.")) as client:
            assert (await client.call_tool("think")).text == "A wall."
        whole = t.CreateMessageResult(model="m", role="assistant", content=t.TextContent(text="A pier."))
        async with Client(eliciting_server(), revision=revision, sampling=returning(whole)) as client:
            assert (await client.call_tool("think")).text == "A pier."

    run(test())


@pytest.mark.parametrize("revision", SUPPORTED)
def test_roots_are_paths_or_a_function(revision: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with Client(eliciting_server(), revision=revision, roots=[tmp_path, "file:///charts"]) as client:
            assert (await client.call_tool("where", returns=list[str])).data == [tmp_path.as_uri(), "file:///charts"]

        async def roots() -> list[t.Root]:
            return [t.Root(uri="file:///moving")]

        async with Client(eliciting_server(), revision=revision, roots=roots) as client:
            assert (await client.call_tool("where", returns=list[str])).data == ["file:///moving"]
            client.roots_changed()

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
def test_tools_that_need_an_undeclared_capability_fail(revision: str) -> None:
    async def test() -> None:
        async with Client(eliciting_server(), revision=revision) as client:
            for tool in ("berth", "think", "where"):
                with pytest.raises((ToolError, RemoteError)):
                    await client.call_tool(tool)

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
def test_a_call_does_not_time_out_while_its_elicitation_is_pending(revision: str) -> None:
    async def test() -> None:
        async def answer_slowly(_: t.ElicitRequestParams) -> Any:
            await asyncio.sleep(0.4)
            return {"side": "north"}

        async with Client(eliciting_server(), revision=revision, elicitation=answer_slowly, timeout=0.25) as client:
            assert (await client.call_tool("berth")).text == "north 1"

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
def test_an_unanswered_elicitation_fails_after_max_timeout(revision: str) -> None:
    async def test() -> None:
        async def never(_: t.ElicitRequestParams) -> Any:
            await asyncio.Event().wait()

        async with Client(eliciting_server(), revision=revision, elicitation=never) as client:
            with pytest.raises(RequestTimeout):
                await client.call_tool("berth", max_timeout=0.1)

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
def test_closing_the_client_ends_a_call_whose_elicitation_is_pending(revision: str) -> None:
    async def test() -> None:
        asked, ended = asyncio.Event(), asyncio.Event()

        async def ask(question: Any) -> Any:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with Client(eliciting_server(), revision=revision, elicitation=ask) as client:
            call = asyncio.ensure_future(client.call_tool("berth"))
            await asked.wait()
        with pytest.raises(ConnectionLost):
            await call
        await ended.wait()

    run(test())


@pytest.mark.parametrize("revision", ELICITING)
def test_a_cancelled_call_cancels_its_elicitation(revision: str) -> None:
    async def test() -> None:
        asked, gone = asyncio.Event(), asyncio.Event()

        async def never(_: t.ElicitRequestParams) -> Any:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()

        async with Client(eliciting_server(), revision=revision, elicitation=never) as client:
            call = asyncio.ensure_future(client.call_tool("berth"))
            await asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await gone.wait()

    run(test())


# Single requests.


def request(method: str, **params: Any) -> Message:
    return Message("2.0", 1, method, params=msgspec.Raw(encode(params)))


FORM: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
URL = {"message": "?", "mode": "url", "url": "https://a.test"}
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 1}
USE: dict[str, Any] = {"role": "assistant", "content": {"type": "tool_use", "id": "1", "name": "x", "input": {}}}


@pytest.mark.parametrize(
    ("handlers", "message", "error"),
    [
        ({}, request("elicitation/create", **FORM), MethodNotFound),
        ({}, request("sampling/createMessage", **SAMPLE), MethodNotFound),
        ({}, request("roots/list"), MethodNotFound),
        ({"roots": []}, request("made/up"), MethodNotFound),
        ({"elicitation": returning({})}, request("elicitation/create", **URL), InvalidParams),
        ({"consent": returning(True)}, request("elicitation/create", **FORM), InvalidParams),
        ({"elicitation": returning({})}, request("elicitation/create", message="?"), InvalidParams),
        ({"elicitation": returning({})}, request("elicitation/create"), InvalidParams),
        ({"sampling": returning("")}, request("sampling/createMessage", **SAMPLE, tools=[]), InvalidParams),
        ({"sampling": returning("")}, request("sampling/createMessage", messages=[USE], maxTokens=1), InvalidParams),
    ],
)
def test_an_invalid_or_undeclared_request_is_refused(
    handlers: dict[str, Any], message: Message, error: type[ProtocolError]
) -> None:
    with pytest.raises(error):
        asyncio.run(InputHandlers(**handlers).answer_request(message))


@pytest.mark.parametrize("answer", ["yes", {"action": "accept"}, ["cancel"], None])
def test_an_answer_of_a_consent_handler_that_has_no_meaning_is_reported(answer: Any) -> None:
    with pytest.raises(TypeError, match="A consent handler returns True, False, 'decline' or 'cancel', not"):
        asyncio.run(InputHandlers(consent=returning(answer)).answer_request(request("elicitation/create", **URL)))


def test_refused_sampling_has_the_code_of_the_specification() -> None:
    with pytest.raises(ProtocolError) as refused:
        asyncio.run(
            InputHandlers(sampling=returning(Declined())).answer_request(request("sampling/createMessage", **SAMPLE))
        )
    assert refused.value.code == -1


def test_an_error_of_another_server_is_not_forwarded() -> None:
    error = remote_error(-32602, "secret of another server")
    with pytest.raises(ProtocolError) as reported:
        asyncio.run(InputHandlers(elicitation=returning(error)).answer_request(request("elicitation/create", **FORM)))
    assert "secret" not in str(reported.value)


@pytest.mark.parametrize(
    ("handlers", "declared"),
    [
        ({}, {}),
        ({"elicitation": returning({})}, {"elicitation": {"form": {}}}),
        ({"consent": returning({})}, {"elicitation": {"url": {}}}),
        ({"sampling": returning({})}, {"sampling": {}}),
        ({"sampling": returning({}), "sampling_tools": True}, {"sampling": {"tools": {}}}),
        ({"roots": ["/a"]}, {"roots": {"listChanged": True}}),
    ],
)
def test_handlers_determine_the_capabilities(handlers: dict[str, Any], declared: dict[str, Any]) -> None:
    assert msgspec.to_builtins(InputHandlers(**handlers).capabilities) == declared


@pytest.mark.parametrize("handlers", [{"elicitation": 1}, {"roots": "/a"}, {"roots": 1}, {"sampling_tools": True}])
def test_an_invalid_handler_is_refused_by_the_constructor(handlers: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Client(eliciting_server(), **handlers)


def test_an_undeclared_input_request_in_a_result_fails_the_call() -> None:
    with pytest.raises(InvalidResponse, match="roots/list"):
        asyncio.run(InputHandlers().answer_questions({"a": t.ListRootsRequest()}))
