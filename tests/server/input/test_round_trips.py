"""Input requests of handlers in every revision: rounds and their state, replay, limits and errors."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import gc
import json
import warnings
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.server.driving import ALL, META, STATELESS, make_request
from tests.server.input.fake_client import ALL_CAPABILITIES, ROOTS, ErrorResponse, FakeClient, accept, model_answer
from wharfinger import Cancelled, Context, Declined, Depends, Elicit, Roots, Sample, Server
from wharfinger import types as t
from wharfinger.errors import MissingClientCapability, NoAnswer, URLElicitationRequired
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.request import InputNeeded
from wharfinger.server.input import round_trips as rounds
from wharfinger.server.input.input_requests import ElicitUrl

FORM_REVISIONS = ("2025-06-18", "2025-11-25", STATELESS)
"""The revisions that have elicitation."""
URL_REVISIONS = ("2025-11-25", STATELESS)
LIST_REVISIONS = ("2025-11-25", STATELESS)
"""The revisions in which a sampling message may have a list of blocks."""


class Person(msgspec.Struct):
    name: str


def accept_all(input_request: Any) -> Any:
    """Return the answer of a user who accepts every input request."""
    if input_request["method"] == "roots/list":
        return ROOTS
    if input_request["method"] == "sampling/createMessage":
        return model_answer()
    properties = input_request["params"].get("requestedSchema", {}).get("properties", {})
    return (
        accept(**{name: example_value(schema) for name, schema in properties.items()})
        if properties
        else {"action": "accept"}
    )


def example_value(schema: Any) -> Any:
    return {"string": "Ann", "boolean": True, "integer": 3, "number": 2.5, "array": []}[schema["type"]]


def server_with_tool(**options: Any) -> Callable[[Any], Server]:
    """Return a decorator that makes a server with one tool, `it`."""

    def decorate(function: Any) -> Server:
        server = Server("s", **options)
        server.tool(name="it")(function)
        return server

    return decorate


# -- one function in every revision


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_elicit_returns_a_value_of_the_requested_type(revision: str) -> None:
    seen: list[Any] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        seen.append(await ctx.elicit("Who are you?", Person, key="user_name"))
        return f"Hello, {seen[-1].name}!"

    async with FakeClient(server, revision, accept_all) as client:
        assert await client.text("it") == "Hello, Ann!"
    assert seen == [Person("Ann")]
    assert client.input_requests == [
        {
            "method": "elicitation/create",
            "params": {
                "message": "Who are you?",
                "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            },
        }
    ]


@dataclasses.dataclass
class Berth:
    quay: Literal["north", "south"]
    tugs: int = 1


class Line(TypedDict):
    text: str


SCHEMAS: list[tuple[Any, Any, Any]] = [
    (Person, {"name": "Ann"}, Person("Ann")),
    (Berth, {"quay": "south"}, Berth("south")),
    (Line, {"text": "x"}, {"text": "x"}),
    (str, {"value": ""}, ""),
    (int, {"value": 5}, 5),
    (bool, {"value": False}, False),
    (Literal["a", "b"], {"value": "b"}, "b"),
    ({"type": "object", "properties": {"x": {"type": "number"}}}, {"x": 1.5}, {"x": 1.5}),
]


@pytest.mark.parametrize("revision", FORM_REVISIONS)
@pytest.mark.parametrize(("schema", "content", "value"), SCHEMAS, ids=[str(schema)[:20] for schema, *_ in SCHEMAS])
async def test_elicit_decodes_the_answer_for_each_kind_of_schema(
    revision: str, schema: Any, content: Any, value: Any
) -> None:
    seen: list[Any] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        seen.append(await ctx.elicit("?", schema))
        return "done"

    async with FakeClient(server, revision, lambda input_request: accept(**content)) as client:
        assert await client.text("it") == "done"
    assert seen == [value]


@pytest.mark.parametrize("revision", ALL)
async def test_sampling_and_roots_work_in_every_revision(revision: str) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        answer = await ctx.sample("What is the capital of France?", max_tokens=100, system="Be short.")
        (root,) = await ctx.roots()
        return f"{answer.text} {answer.model} {root.uri} {root.name}"

    async with FakeClient(server, revision, accept_all) as client:
        assert await client.text("it") == "Paris m file:///home Home"
    assert client.input_requests[0]["params"] == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}],
        "maxTokens": 100,
        "systemPrompt": "Be short.",
    }
    assert client.input_requests[1] == {"method": "roots/list", "params": {}}


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_ask_sends_several_input_requests_at_once(revision: str) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        answers = await ctx.ask(
            user_name=Elicit("Who?", Person), greeting=Sample("Greet", max_tokens=50), client_roots=Roots()
        )
        return f"{answers['user_name'].name} {answers['greeting'].text} {len(answers['client_roots'])}"

    async with FakeClient(server, revision, accept_all) as client:
        assert await client.text("it") == "Ann Paris 1"
    assert len(client.input_requests) == 3
    assert client.rounds == (2 if revision == STATELESS else 0)


async def test_answers_of_concurrent_input_requests_may_arrive_in_any_order() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.ask(a=Roots(), b=Roots())
        return "done"

    async with FakeClient(server, "2025-11-25", accept_all) as client:
        id = client.wire.send_request("tools/call", {"name": "it"})
        first, second = await client.wire.wait_for_notifications(2)
        for input_request in (second, first):
            client.answer_in_session(input_request)
        assert (await client.wire.answer(id))["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_prompts_and_resources_can_send_input_requests(revision: str) -> None:
    server = Server("s")

    @server.prompt
    async def briefing(ctx: Context) -> str:
        return f"about {await ctx.elicit('What?', str, key='user_context')}"

    @server.resource("log:{x}")
    async def log(x: str, ctx: Context) -> str:
        return f"{x} {await ctx.elicit('How?', str)}"

    async with FakeClient(server, revision, accept_all) as client:
        reply = await client.request("prompts/get", {"name": "briefing"})
        assert reply["result"]["messages"][0]["content"]["text"] == "about Ann"
        reply = await client.request("resources/read", {"uri": "log:1"})
        assert reply["result"]["contents"][0]["text"] == "1 Ann"


# -- declined and cancelled input requests


@pytest.mark.parametrize("revision", FORM_REVISIONS)
@pytest.mark.parametrize(("action", "error"), [("decline", Declined), ("cancel", Cancelled)])
async def test_a_declined_or_cancelled_elicitation_raises_or_returns_none_with_or_none(
    revision: str, action: str, error: type[Exception]
) -> None:
    caught: list[Any] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        caught.append(await ctx.elicit("First?", str, or_none=True))
        try:
            await ctx.elicit("Second?", str)
        except NoAnswer as no_answer:
            caught.append(type(no_answer))
        await ctx.elicit("Third?", str)
        return "never"

    @server.prompt
    async def briefing(ctx: Context) -> str:
        return str(await ctx.elicit("Fourth?", str))

    async with FakeClient(server, revision, lambda input_request: {"action": action}) as client:
        result = await client.call("it")
        assert result["isError"]
        verb = {"decline": "declined", "cancel": "cancelled"}[action]
        assert result["content"][0]["text"] == f"The user {verb}: Third?"
        reply = await client.request("prompts/get", {"name": "briefing"})
        assert reply["error"] == {"code": -32603, "message": f"The user {verb}: Fourth?"}
    assert caught[-2:] == [None, error]
    assert len(client.input_requests) == 4  # a declined input request is not sent again


async def test_one_of_several_input_requests_may_be_declined() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        answers = await ctx.ask(a=Elicit("A?", str, or_none=True), b=Elicit("B?", str))
        return f"{answers['a']} {answers['b']}"

    def answer(input_request: Any) -> Any:
        return {"action": "decline"} if input_request["params"]["message"] == "A?" else accept(value="b")

    for revision in FORM_REVISIONS:
        async with FakeClient(server, revision, answer) as client:
            assert await client.text("it") == "None b"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ErrorResponse(-1, "User rejected sampling"), "The client declined: User rejected sampling"),
        (ErrorResponse(-32601, "?"), "The client answered with an error: ? (error -32601)"),
    ],
)
async def test_an_error_response_of_the_client_fails_the_call(error: ErrorResponse, text: str) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        return (await ctx.sample("?")).text

    def reject(input_request: Any) -> Any:
        raise error

    async with FakeClient(server, "2025-11-25", reject) as client:
        result = await client.call("it")
        assert (result["isError"], result["content"][0]["text"]) == (True, text)


# -- client capabilities and revisions

CAPABILITY_CASES: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (lambda ctx: ctx.elicit("?", str), {}, {"elicitation": {}}),
    (lambda ctx: ctx.elicit("?", str), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    (lambda ctx: ctx.elicit_url("?", "https://x"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
    (lambda ctx: ctx.sample("?"), {"elicitation": {}}, {"sampling": {}}),
    (lambda ctx: ctx.sample("?", tools=[]), {"sampling": {}}, {"sampling": {"tools": {}}}),
    (lambda ctx: ctx.sample("?", tool_choice="auto"), {"sampling": {}}, {"sampling": {"tools": {}}}),
    (lambda ctx: ctx.sample("?", include_context="thisServer"), {"sampling": {}}, {"sampling": {"context": {}}}),
    (lambda ctx: ctx.roots(), {"sampling": {}}, {"roots": {}}),
    (lambda ctx: ctx.ask(a=Sample("?"), b=Roots()), {"sampling": {}}, {"roots": {}}),
]
"""Input requests, the capabilities that the client declares, and those that the error reports as required."""


@pytest.mark.parametrize(("ask", "declared", "required"), CAPABILITY_CASES)
async def test_an_input_request_without_the_client_capability_fails(ask: Any, declared: Any, required: Any) -> None:
    caught: list[Any] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        try:
            await ask(ctx)
        except MissingClientCapability as error:
            caught.append(error.data)
            raise
        return ""

    @server.prompt
    async def briefing(ctx: Context) -> str:
        await ask(ctx)
        return ""

    async with FakeClient(server, STATELESS, capabilities=declared) as client:
        for method, params in (("tools/call", {"name": "it"}), ("prompts/get", {"name": "briefing"})):
            error = (await client.request(method, params))["error"]
            assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": required})
    async with FakeClient(server, "2025-11-25", capabilities=declared) as client:
        result = await client.call("it")
        assert result["isError"]
        assert "does not offer" in result["content"][0]["text"]
        error = (await client.request("prompts/get", {"name": "briefing"}))["error"]
        assert error["code"] == -32603
        assert client.input_requests == []
    assert caught == [{"requiredCapabilities": required}] * 2


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_an_input_request_that_the_revision_lacks_is_not_sent(revision: str) -> None:
    senders = {
        "elicit": lambda ctx: ctx.elicit("?", str),
        "url": lambda ctx: ctx.elicit_url("?", "https://x"),
        "tools": lambda ctx: ctx.sample("?", tools=[]),
    }
    server = Server("s")
    for name, ask in senders.items():
        server.tools.add(functools.partial(call_with_context, ask), name=name)
    async with FakeClient(server, revision, accept_all) as client:
        for name in senders:
            if (name, revision) == ("elicit", "2025-06-18"):
                continue
            result = await client.call(name)
            assert result["isError"], name
            assert f"which {revision} does not have" in result["content"][0]["text"]
        assert client.input_requests == []


async def call_with_context(ask: Any, ctx: Context) -> str:
    await ask(ctx)
    return "asked"


async def test_subscribing_sends_no_input_requests() -> None:
    server = Server("s")

    @server.resource("log:{x}")
    async def log(x: str, ctx: Context) -> str:
        return str(await ctx.elicit("?", str))

    async with FakeClient(server, "2025-11-25") as client:
        assert "result" in await client.send("resources/subscribe", {"uri": "log:1"})
        assert client.input_requests == []


async def test_a_sync_function_cannot_send_input_requests() -> None:
    server = Server("s")
    caught: list[str] = []

    @server.tool
    def plain(ctx: Context) -> str:
        try:
            return str(ctx.elicit("?", str))
        except RuntimeError as error:
            caught.append(str(error))
            return "caught"

    @server.prompt
    def other(ctx: Context) -> str:
        ctx.info("this is not a question")
        return plain(ctx)

    async with FakeClient(server, "2026-07-28") as client:
        assert (await client.call("plain"))["content"][0]["text"] == "caught"
        await client.send("prompts/get", {"name": "other"})
        assert client.input_requests == []
    assert len(caught) == 2
    assert "Context.elicit() must be awaited, which only an async function can do" in caught[0]


# -- repeated runs


async def test_code_before_an_input_request_runs_again_except_in_once() -> None:
    runs: list[str] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        runs.append("begin")
        first_charge = await ctx.once("charge", charge)
        await ctx.elicit("First?", str)
        second_charge = await ctx.once("charge", charge)
        await ctx.elicit("Second?", str)
        return f"{first_charge} {second_charge}"

    async def charge() -> int:
        runs.append("charge")
        return 5

    async with FakeClient(server, STATELESS, accept_all) as client:
        assert await client.text("it") == "5 5"
        assert (client.rounds, runs) == (3, ["begin", "charge", "begin", "begin"])
        runs.clear()
        assert await client.text("it") == "5 5"
        assert runs.count("charge") == 1
    async with FakeClient(server, "2025-11-25", accept_all) as client:
        runs.clear()
        assert await client.text("it") == "5 5"
        assert runs == ["begin", "charge"]


class Quote(msgspec.Struct):
    price: int


@pytest.mark.parametrize("revision", ["2025-11-25", STATELESS])
async def test_once_restores_values_in_their_types(revision: str) -> None:
    seen: list[Any] = []

    def annotated() -> Quote:
        return Quote(1)

    @server_with_tool()
    async def server(ctx: Context) -> str:
        values = [
            await ctx.once("a", annotated),
            await ctx.once("b", lambda: Quote(2), kind=Quote),
            await ctx.once("c", lambda: Quote(3)),
            await ctx.once("d", lambda: None),
        ]
        seen.append(values)
        await ctx.elicit("?", str)
        return ""

    async with FakeClient(server, revision, accept_all) as client:
        await client.call("it")
    runs = 2 if revision == STATELESS else 1
    assert seen == [[Quote(1), Quote(2), {"price": 3}, None]] * runs


async def test_once_refuses_nan_and_restores_paths_and_lists_of_models() -> None:
    """A bug: a NaN was None in every run, and the other two were refused."""

    class Model(pydantic.BaseModel):
        path: Path

    def models() -> list[Model]:
        return [Model(path=Path("a"))]

    @server_with_tool()
    async def server(ctx: Context) -> str:
        with pytest.raises(TypeError, match="NaN"):
            await ctx.once("x", lambda: float("nan"))
        assert await ctx.once("y", lambda: Path("a"), kind=Path) == Path("a")
        assert await ctx.once("z", models) == models()
        return "fine"

    async with FakeClient(server, STATELESS, accept_all) as client:
        assert await client.text("it") == "fine"


async def test_once_raises_for_values_that_json_cannot_encode() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        with pytest.raises(TypeError, match=r"result of once\('x', …\) must be encodable as JSON"):
            await ctx.once("x", object)
        with pytest.raises(ZeroDivisionError):
            await ctx.once("y", lambda: 1 // 0)
        return str(await ctx.once("y", lambda: 7))

    async with FakeClient(server) as client:
        assert await client.text("it") == "7"


async def test_once_runs_once_for_concurrent_tasks_of_a_call() -> None:
    calls: list[int] = []

    async def slow() -> int:
        calls.append(1)
        await asyncio.sleep(0)
        return len(calls)

    @server_with_tool()
    async def server(ctx: Context) -> str:
        return str(await asyncio.gather(*(ctx.once("x", slow) for _ in range(3))))

    async with FakeClient(server) as client:
        assert await client.text("it") == "[1, 1, 1]"


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_input_requests_in_a_task_group_are_sent_together(revision: str) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(ctx.elicit("One?", str))
            second = group.create_task(ctx.elicit("Two?", str))
        return f"{first.result()} {second.result()}"

    async with FakeClient(server, revision, accept_all) as client:
        assert await client.text("it") == "Ann Ann"
        assert len(client.input_requests) == 2
        assert client.rounds == (2 if revision == STATELESS else 0)


async def test_progress_only_increases_and_each_log_is_sent_once_over_all_runs() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        ctx.report_progress(1)
        ctx.info("begin")
        await ctx.once("x", lambda: ctx.info("inside"))
        await ctx.elicit("?", str)
        ctx.info("middle")
        ctx.report_progress(0.5)
        ctx.report_progress(2)
        await ctx.elicit("!", str)
        ctx.info("end")
        ctx.report_progress(3)
        return "done"

    for revision in FORM_REVISIONS:
        async with FakeClient(server, revision, accept_all) as client:
            meta = {"progressToken": 1, f"{META}logLevel": "debug"}
            reply = await client.request("tools/call", {"name": "it", "_meta": meta})
            assert reply["result"]["content"][0]["text"] == "done"
            sent = [note["params"].get("data", note["params"].get("progress")) for note in client.notifications]
            assert sent == [1, "begin", "inside", "middle", 2, "end", 3]


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_a_resource_read_within_a_call_has_its_own_input_requests(revision: str) -> None:
    server = Server("s")

    @server.resource("in:{x}")
    async def inner(x: str, ctx: Context) -> str:
        value = await ctx.once("k", lambda: x)
        return f"{value} {await ctx.elicit(f'Inner {x}?', str, key='name')}"

    @server.tool
    async def it(ctx: Context) -> str:
        value = await ctx.once("k", lambda: "mine")
        name = await ctx.elicit("Outer?", str, key="name")
        texts = [(await ctx.read_resource(f"in:{x}")).contents[0].text for x in "ab"]
        return f"{value} {name} {texts}"

    async with FakeClient(
        server, revision, lambda input_request: accept(value=input_request["params"]["message"])
    ) as client:
        assert await client.text("it") == "mine Outer? ['a Inner a?', 'b Inner b?']"
        assert len(client.input_requests) == 3


async def test_generated_keys_have_the_kind_of_input_request_and_a_number() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.ask(who=Elicit("Who?", str), where=Roots())
        await ctx.elicit("A?", str)
        await ctx.elicit("B?", str, key="elicit-2")
        await ctx.elicit("C?", str)
        await ctx.sample("D?")
        return ""

    keys: list[str] = []

    def answer(input_request: Any) -> Any:
        keys.append(input_request["key"])
        return accept_all(input_request)

    async with FakeClient(server, STATELESS, answer) as client:
        await client.call("it")
    assert keys == ["who", "where", "elicit-1", "elicit-2", "elicit-3", "sample-1"]


# -- request state


async def first_round(client: FakeClient, **arguments: Any) -> Any:
    return (await client.send("tools/call", {"name": "it", "arguments": arguments}))["result"]


def confirmation_server(**options: Any) -> Server:
    """Return a server whose tools elicit a confirmation."""

    @server_with_tool(**options)
    async def server(ctx: Context, n: int = 0, o: dict[str, int] | None = None) -> str:
        await ctx.elicit("Pay?", bool, key="confirm")
        return "state-ok"

    @server.tool
    async def other(ctx: Context, n: int = 0) -> str:
        await ctx.elicit("Pay?", bool, key="confirm")
        return "other"

    return server


CONFIRMATION = {"inputResponses": {"confirm": accept(value=True)}}


async def test_a_state_is_valid_only_for_its_own_call() -> None:
    server = confirmation_server(secret="s")
    async with (
        FakeClient(server, principal="ann") as ann,
        FakeClient(server, principal="bob") as bob,
        FakeClient(confirmation_server(secret="t"), principal="ann") as other_server,
    ):
        state = (await first_round(ann, n=1))["requestState"]
        valid = {"name": "it", "arguments": {"n": 1}, "requestState": state, **CONFIRMATION}
        assert (await ann.send("tools/call", valid))["result"]["content"][0]["text"] == "state-ok"
        invalid: list[tuple[FakeClient, dict[str, Any]]] = [
            (bob, valid),
            (other_server, valid),
            (ann, {**valid, "arguments": {"n": 2}}),
            (ann, {**valid, "arguments": {}}),
            (ann, {**valid, "name": "other"}),
            (ann, {**valid, "requestState": state + "-TAMPERED"}),
            (ann, {**valid, "requestState": state[:-4]}),
            (ann, {**valid, "requestState": ""}),
            (ann, {**valid, "requestState": "é"}),
        ]
        for client, params in invalid:
            assert (await client.send("tools/call", params))["error"]["code"] == -32602, params
        # A retry may send the members of an object in another order.
        state = (await first_round(ann, n=1, o={"a": 1, "b": 2}))["requestState"]
        reordered = {"name": "it", "arguments": {"o": {"b": 2, "a": 1}, "n": 1}, "requestState": state, **CONFIRMATION}
        assert "result" in await ann.send("tools/call", reordered)


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_a_state_with_a_changed_bit_is_refused(data: st.DataObject) -> None:
    async def run() -> None:
        server = confirmation_server(secret="s")
        async with FakeClient(server) as client:
            sealed = base64.urlsafe_b64decode((await first_round(client))["requestState"] + "==")
            bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
            changed = bytearray(sealed)
            changed[bit // 8] ^= 1 << bit % 8
            state = base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
            reply = await client.send("tools/call", {"name": "it", "requestState": state, **CONFIRMATION})
            assert reply["error"]["code"] == -32602

    asyncio.run(run())


async def test_an_expired_state_is_refused_before_the_function_runs() -> None:
    runs: list[int] = []

    @server_with_tool(limits=Limits(state_time=-1.0))
    async def server(ctx: Context) -> str:
        runs.append(1)
        await ctx.elicit("?", str, key="confirm")
        return ""

    async with FakeClient(server) as client:
        state = (await first_round(client))["requestState"]
        error = (await client.send("tools/call", {"name": "it", "requestState": state}))["error"]
        assert error["code"] == -32602
        assert "expired" in error["message"]
    assert runs == [1]


async def test_the_number_of_rounds_is_limited() -> None:
    @server_with_tool(limits=Limits(rounds=3))
    async def server(ctx: Context) -> str:
        for number in range(10):
            await ctx.elicit(f"{number}?", str)
        return ""

    async with FakeClient(server, STATELESS, accept_all) as client:
        error = await client.call("it")
        assert error["code"] == -32603
        assert "asked 3 times" in error["message"]
        assert client.rounds == 4
    async with FakeClient(server, "2025-11-25", accept_all) as client:
        assert "content" in await client.call("it")


async def test_the_number_of_input_requests_of_a_session_call_is_limited() -> None:
    @server_with_tool(limits=Limits(questions=3))
    async def server(ctx: Context) -> str:
        for number in range(10):
            await ctx.elicit(f"{number}?", str)
        return ""

    async with FakeClient(server, "2025-11-25", accept_all) as client:
        error = await client.call("it")
        assert error["code"] == -32603
        assert "asked 3 questions" in error["message"]
        assert len(client.input_requests) == 3


async def test_the_size_of_the_state_is_limited() -> None:
    @server_with_tool(limits=Limits(state=2000))
    async def server(ctx: Context, size: int) -> str:
        await ctx.once("x", lambda: "x" * size)
        await ctx.elicit("?", str)
        return "done"

    async with FakeClient(server, STATELESS, accept_all) as client:
        assert await client.text("it", size=500) == "done"
        error = await client.call("it", size=2000)
        assert (error["code"], "limits.state" in error["message"]) == (-32603, True)


async def test_the_limit_of_the_state_can_be_more_than_4_mib() -> None:
    """A bug: the server refused to open such a state that it had sealed itself."""

    @server_with_tool(limits=Limits(state=8 << 20, message=16 << 20))
    async def server(ctx: Context) -> str:
        await ctx.once("x", lambda: "x" * (4 << 20))
        await ctx.elicit("?", str)
        return "done"

    async with FakeClient(server, STATELESS, accept_all) as client:
        assert await client.text("it") == "done"


async def test_missing_and_invalid_answers_are_requested_again() -> None:
    server = confirmation_server()
    async with FakeClient(server) as client:
        first = await first_round(client)
        state = first["requestState"]
        answers: list[Any] = [12345, {"action": "yes"}, accept(), accept(value="x"), {"action": "accept"}]
        for responses in ({}, {"wrong": accept(value=True)}, *({"confirm": answer} for answer in answers)):
            for state_params in ({"requestState": state}, {}):
                params = {"name": "it", "inputResponses": responses, **state_params}
                result = (await client.send("tools/call", params))["result"]
                assert result["resultType"] == "input_required", responses
                assert result["inputRequests"] == first["inputRequests"]
        assert (await client.send("tools/call", {"name": "it", "requestState": state}))["result"]["inputRequests"]
        reply = await client.send("tools/call", {"name": "it", "inputResponses": None})
        assert reply["error"]["code"] == -32602
        extra = {"inputResponses": {**CONFIRMATION["inputResponses"], "more": accept(x=1)}, "requestState": state}
        assert (await client.send("tools/call", {"name": "it", **extra}))["result"]["resultType"] == "complete"


async def test_answers_for_explicit_keys_may_be_sent_with_the_first_call() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.elicit("A?", bool, key="confirm")
        await ctx.elicit("B?", bool)
        return "done"

    async with FakeClient(server) as client:
        both = {"inputResponses": {"confirm": accept(value=True), "elicit-1": accept(value=True)}}
        result = (await client.send("tools/call", {"name": "it", **both}))["result"]
        assert list(result["inputRequests"]) == ["elicit-1"]


async def test_an_answer_to_a_different_input_request_is_ignored() -> None:
    messages: list[str] = ["A?", "B?"]

    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.elicit(messages.pop(0), bool, key="confirm")
        return "done"

    async with FakeClient(server) as client:
        state = (await first_round(client))["requestState"]
        result = (await client.send("tools/call", {"name": "it", "requestState": state, **CONFIRMATION}))["result"]
        assert result["inputRequests"]["confirm"]["params"]["message"] == "B?"


async def test_sessions_ignore_request_state_and_input_responses() -> None:
    async with FakeClient(confirmation_server(), "2025-11-25", accept_all) as client:
        reply = await client.request("tools/call", {"name": "it", "requestState": "x", **CONFIRMATION})
        assert reply["result"]["content"][0]["text"] == "state-ok"
        assert len(client.input_requests) == 1


async def test_each_round_has_its_own_state() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        name = await ctx.elicit("Step 1: What is your name?", Person, key="step1")
        return f"{name.name} {await ctx.elicit('Step 2: Colour?', str, key='step2')}"

    async with FakeClient(server) as client:
        first = await first_round(client)
        params = {"requestState": first["requestState"], "inputResponses": {"step1": accept(name="Ann")}}
        second = (await client.send("tools/call", {"name": "it", **params}))["result"]
        assert (list(first["inputRequests"]), list(second["inputRequests"])) == (["step1"], ["step2"])
        assert first["requestState"] != second["requestState"]
        params = {"requestState": second["requestState"], "inputResponses": {"step2": accept(value="blue")}}
        last = await client.send("tools/call", {"name": "it", **params})
        assert last["result"]["content"][0]["text"] == "Ann blue"
        assert "ttlMs" not in first


# -- URL elicitation


@pytest.mark.parametrize("revision", URL_REVISIONS)
async def test_elicit_url_returns_true_when_the_user_accepts(revision: str) -> None:
    server = Server("s")

    @server.tool
    async def it(ctx: Context) -> str:
        agreed = await ctx.elicit_url("Sign in", "https://example.test/in", elicitation_id="id-1")
        server.elicitation_complete("id-1")
        return str(agreed)

    async with FakeClient(server, revision, accept_all) as client:
        assert await client.text("it") == "True"
        params = {"message": "Sign in", "mode": "url", "url": "https://example.test/in"}
        completed = []
        if revision == "2025-11-25":
            params["elicitationId"] = "id-1"
            completed = [{"elicitationId": "id-1"}]
        assert client.input_requests == [{"method": "elicitation/create", "params": params}]
        assert [note["params"] for note in client.notifications] == completed
        assert not server.elicitation_complete("id-1")


@pytest.mark.parametrize("revision", ALL)
async def test_url_elicitation_required_is_reported_as_the_revision_defines_it(revision: str) -> None:
    signed_in: list[int] = []
    server = Server("s")

    @server.tool
    async def it(ctx: Context) -> str:
        return await require_sign_in()

    @server.tool
    async def with_an_argument(n: int = 1) -> str:
        return await require_sign_in()

    @server.tool
    async def without_arguments() -> str:
        return await require_sign_in()

    part = Server("part")
    server.include(part)

    @server.resource("plain:x")
    @part.resource("part:x")
    async def require_sign_in() -> str:
        if not signed_in:
            raise URLElicitationRequired("Sign in first.", "https://example.test/in", elicitation_id="e")
        return "in"

    def answer(input_request: Any) -> Any:
        signed_in.append(1)
        return {"action": "accept"}

    async with FakeClient(server, revision, answer) as client:
        reply = await client.request("tools/call", {"name": "it"})
        elicitation = {
            "mode": "url",
            "message": "Sign in first.",
            "url": "https://example.test/in",
            "elicitationId": "e",
        }
        if revision == "2025-11-25":
            assert reply["error"] == {
                "code": -32042,
                "message": "Sign in first.",
                "data": {"elicitations": [elicitation]},
            }
            assert server.elicitation_complete("e")
            await client.wire.wait_for_notifications()
            assert [note["params"] for note in client.notifications] == [{"elicitationId": "e"}]
        elif revision == STATELESS:
            assert reply["result"]["content"][0]["text"] == "in"
            del elicitation["elicitationId"]
            assert [input_request["params"] for input_request in client.input_requests] == [elicitation]
        else:
            assert f"which {revision} does not have" in reply["result"]["content"][0]["text"]
        for name in ("with_an_argument", "without_arguments"):  # functions without a context take a shorter code path
            signed_in.clear()
            reply = await client.request("tools/call", {"name": name})
            if revision == "2025-11-25":
                assert reply["error"]["data"] == {"elicitations": [elicitation]}
            elif revision == STATELESS:
                assert reply["result"]["content"][0]["text"] == "in"
            else:
                assert f"which {revision} does not have" in reply["result"]["content"][0]["text"]
        for uri in ("plain:x", "part:x"):
            signed_in.clear()
            reply = await client.request("resources/read", {"uri": uri})
            if revision == STATELESS:
                assert reply["result"]["contents"][0]["text"] == "in"
            else:
                assert reply["error"]["code"] == (-32042 if revision == "2025-11-25" else -32603)


async def test_a_required_url_elicitation_is_sent_again_until_it_is_declined() -> None:
    actions = ["accept", "accept", "decline"]

    @server_with_tool()
    async def server(ctx: Context) -> str:
        raise URLElicitationRequired("Sign in.", "https://example.test/in")

    async with FakeClient(server, STATELESS, lambda input_request: {"action": actions.pop(0)}) as client:
        assert await client.text("it") == "The user declined: Sign in."
        assert client.rounds == 4
    async with FakeClient(server, STATELESS, capabilities={"elicitation": {}}) as client:
        assert (await client.call("it"))["code"] == -32021
    async with FakeClient(server, "2025-11-25") as client:
        ids = [(await client.call("it"))["data"]["elicitations"][0]["elicitationId"] for _ in "ab"]
        assert ids[0] != ids[1]


# -- sampling


def test_sample_refuses_tool_uses_without_matching_results() -> None:
    use = t.ToolUseContent(id="1", name="x", input={})
    result = t.ToolResultContent(tool_use_id="1", content=[])
    question = t.SamplingMessage(role="user", content=t.TextContent(text="?"))
    uses = t.SamplingMessage(role="assistant", content=[use])
    answers = t.SamplingMessage(role="user", content=[result])
    Sample([question, uses, answers], tools=[])
    for messages in (
        [question, uses],
        [question, uses, question],
        [question, answers],
        [question, uses, t.SamplingMessage(role="user", content=[result, t.TextContent(text="and")])],
        [question, uses, t.SamplingMessage(role="assistant", content=[result])],
        [question, uses, t.SamplingMessage(role="user", content=[result, result])],
        [],
    ):
        with pytest.raises(ValueError, match=r"message|tool"):
            Sample(messages)
    with pytest.raises(ValueError, match="max_tokens"):
        Sample("?", max_tokens=0)


@pytest.mark.parametrize("revision", ALL)
async def test_sampling_messages_are_encoded_for_the_revision(revision: str) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        blocks = [t.TextContent(text="a"), t.ImageContent(data=b"b", mime_type="image/png")]
        await ctx.sample(["one", t.SamplingMessage(role="user", content=blocks)], model_preferences="small")
        return "done"

    async with FakeClient(server, revision, accept_all) as client:
        assert await client.text("it") == "done"
        params = client.input_requests[0]["params"]
        kinds = [
            [block["type"] for block in message["content"]]
            if isinstance(message["content"], list)
            else message["content"]["type"]
            for message in params["messages"]
        ]
        assert kinds == (["text", ["text", "image"]] if revision in LIST_REVISIONS else ["text", "text", "image"])
        assert params["modelPreferences"] == {"hints": [{"name": "small"}]}


async def test_audio_in_sampling_fails_in_2024_11_05() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.sample(t.AudioContent(data=b"b", mime_type="audio/wav"))
        return "done"

    async with FakeClient(server, "2024-11-05", accept_all) as client:
        assert (await client.call("it"))["isError"]
    async with FakeClient(server, "2025-03-26", accept_all) as client:
        assert await client.text("it") == "done"


@pytest.mark.parametrize("answer", [{"roots": [{"uri": "https://x"}]}, {"roots": 1}, {}])
async def test_invalid_roots_fail_the_call_or_are_requested_again(answer: Any) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        return str(await ctx.roots())

    async with FakeClient(server, "2025-11-25", lambda input_request: answer) as client:
        assert "is not what was asked for" in await client.text("it")
    async with FakeClient(server, STATELESS, lambda input_request: answer) as client:
        assert (await client.call("it"))["code"] == -32603
        assert client.rounds == server.limits.rounds + 1


# -- waiting in a session


async def test_a_lost_connection_cancels_the_call_and_its_input_requests() -> None:
    ended: list[str] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        try:
            await ctx.ask(a=Roots(), b=Elicit("?", str))
        finally:
            ended.append("ended")
        return ""

    client = FakeClient(server, "2025-11-25")
    async with client:
        before = asyncio.all_tasks()
        client.wire.send_request("tools/call", {"name": "it"})
        await client.wire.wait_for_notifications(2)
        assert len(client.wire.stream.peer._awaited) == 2
    assert ended == ["ended"]
    assert client.wire.stream.peer._awaited == {}
    assert asyncio.all_tasks() <= before


async def test_end_of_input_during_an_input_request_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        return str(await ctx.elicit("?", str))

    async with FakeClient(server, "2025-11-25") as client:
        id = client.wire.send_request("tools/call", {"name": "it"})
        await client.wire.wait_for_notifications(1)
        client.wire.stream.eof_received()
        await client.wire.stream.ended
        assert client.wire.answers[int, id]["result"]["isError"] is True
    assert not caplog.records


async def test_cancelling_a_call_cancels_its_input_requests() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.ask(a=Roots(), b=Elicit("?", str))
        return ""

    async with FakeClient(server, "2025-11-25") as client:
        before = asyncio.all_tasks()
        id = client.wire.send_request("tools/call", {"name": "it"})
        input_requests = list(await client.wire.wait_for_notifications(2))
        client.wire.notify("notifications/cancelled", {"requestId": id})
        await client.wire.wait_for_notifications(4)
        cancelled_ids = [note["params"]["requestId"] for note in client.notifications]
        assert sorted(cancelled_ids) == sorted(input_request["id"] for input_request in input_requests)
        assert client.wire.stream.peer._awaited == {}
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0)


async def test_cancelling_a_call_before_it_sends_input_requests_leaves_no_tasks_or_warnings() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.ask(a=Roots(), b=Elicit("?", str))
        return ""

    async with FakeClient(server, "2025-11-25") as client:
        before = asyncio.all_tasks()
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            for _ in range(3):
                id = client.wire.send_request("tools/call", {"name": "it"})
                client.wire.notify("notifications/cancelled", {"requestId": id})
                while asyncio.all_tasks() - before:
                    await asyncio.sleep(0)
            gc.collect()
        assert [str(warning.message) for warning in caught_warnings] == []
        assert client.wire.stream.peer._awaited == {}
        assert (await client.wire.ask("ping"))["result"] == {}


async def test_the_timeout_of_a_handler_is_paused_while_it_waits_for_input() -> None:
    server = Server("s")

    @server.tool(timeout=0.05)
    async def it(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.roots())
            group.create_task(ctx.roots())
        await ctx.roots()
        return "done"

    @server.tool(timeout=0.05)
    async def slow(ctx: Context) -> str:
        await ctx.roots()
        await asyncio.sleep(10)
        return "never"

    async with FakeClient(server, "2025-11-25", accept_all) as client:
        id = client.wire.send_request("tools/call", {"name": "it"})
        for number in range(3):
            await client.wire.wait_for_notifications(max(number + 1, 2))
            await asyncio.sleep(0.1)  # longer than the timeout of the tool
            client.answer_in_session(client.wire.notifications[number])
        assert (await client.wire.answer(id))["result"]["content"][0]["text"] == "done"
    async with FakeClient(server, "2025-11-25", accept_all) as client:
        assert "took longer than 0.05 s" in (await client.call("slow"))["content"][0]["text"]


async def test_a_call_fails_if_the_client_does_not_answer_in_time() -> None:
    @server_with_tool(limits=Limits(answer_time=0.02))
    async def server(ctx: Context) -> str:
        await ctx.roots()
        return ""

    async with FakeClient(server, "2025-11-25") as client:
        reply = await client.send("tools/call", {"name": "it"})
        assert "did not answer" in reply["result"]["content"][0]["text"]
        assert client.wire.stream.peer._awaited == {}


class OneWayChannel:
    """A channel that carries no requests to the client, unlike the transports of the handshake era."""

    def __init__(self, multiplexed: bool) -> None:
        self.multiplexed = multiplexed

    def send(self, request: Any, message: bytes) -> bool:
        return True

    def ask(self, request: Any, method: str, params: Any) -> None:
        return None


async def test_input_requests_on_a_channel_without_requests_fail_in_sessions() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        await ctx.roots()
        return ""

    request = make_request(server, "tools/call", {"name": "it"}, "2025-11-25", channel=OneWayChannel(multiplexed=True))
    request.caller = msgspec.structs.replace(
        request.caller, capabilities=msgspec.convert(ALL_CAPABILITIES, t.ClientCapabilities)
    )
    result = await server.handlers["tools/call"](request)
    assert "does not carry requests" in result.content[0].text
    stateless = make_request(
        server,
        "tools/call",
        {"name": "it", "_meta": {f"{META}clientCapabilities": ALL_CAPABILITIES}},
        channel=OneWayChannel(multiplexed=True),
    )
    with pytest.raises(InputNeeded):
        await server.handlers["tools/call"](stateless)


# -- replay


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_replay_runs_the_handler_again_after_each_input_request_in_every_revision(revision: str) -> None:
    runs: list[int] = []

    @server_with_tool(replay=True)
    async def server(ctx: Context) -> str:
        runs.append(1)
        value = await ctx.once("x", lambda: len(runs))
        answers = await ctx.ask(a=Elicit("A?", str), b=Roots())
        name = await ctx.elicit("B?", str)
        try:
            await ctx.sample("?")
        except Declined:
            return f"{value} {answers['a']} {name} declined"
        return f"{value} {answers['a']} {name} sampled"

    def answer(input_request: Any) -> Any:
        if input_request["method"] == "sampling/createMessage" and revision != STATELESS:
            raise ErrorResponse(-1)
        return accept_all(input_request)

    async with FakeClient(server, revision, answer) as client:
        outcome = "sampled" if revision == STATELESS else "declined"
        assert await client.text("it") == f"1 Ann Ann {outcome}"
        assert len(runs) == 4
        assert len(client.input_requests) == 4


async def test_dependencies_are_closed_when_a_run_ends_with_an_input_request() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def database() -> Any:
        events.append("open")
        try:
            yield "db"
        finally:
            events.append("closed")

    @server_with_tool()
    async def server(ctx: Context, db: Annotated[str, Depends(database)]) -> str:
        return f"{db} {await ctx.elicit('?', str)}"

    async with FakeClient(server, STATELESS, accept_all) as client:
        assert await client.text("it") == "db Ann"
    assert events == ["open", "closed", "open", "closed"]


@pytest.mark.parametrize("revision", FORM_REVISIONS)
@pytest.mark.parametrize("replay", [False, True])
async def test_tools_of_an_included_server_send_input_requests(revision: str, replay: bool) -> None:
    runs: list[int] = []

    @server_with_tool()
    async def part(ctx: Context) -> str:
        runs.append(1)
        return str(await ctx.elicit("?", str)) + str(await ctx.elicit("!", str))

    whole = Server("whole", replay=replay)
    whole.include(part, prefix="part")
    async with FakeClient(whole, revision, accept_all) as client:
        assert await client.text("part_it") == "AnnAnn"
    assert len(runs) == (3 if replay or revision == STATELESS else 1)


# -- generated states

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, st.lists(JSON, max_size=3), st.text(max_size=5), st.text(max_size=5))
@settings(max_examples=examples(60), deadline=None)
def test_a_state_restores_all_values_and_is_valid_only_for_its_principal(
    argument: Any, other_argument: Any, values: list[Any], principal: str, other_principal: str
) -> None:
    runs: list[list[Any]] = []

    @server_with_tool(secret="s", limits=Limits(state=10**6))
    async def server(ctx: Context, x: Any) -> str:
        restored = [await ctx.once(str(number), lambda value=value: value) for number, value in enumerate(values)]
        runs.append([*restored, await ctx.elicit("A?", str)])
        await ctx.elicit("B?", str)
        return "done"

    async def run() -> None:
        async with FakeClient(server, STATELESS, accept_all, principal=principal) as client:
            assert await client.text("it", x=argument) == "done"
            assert runs == [[*values, "Ann"]] * 2
            state = (await first_round(client, x=argument))["requestState"]
        for subject, x in ((other_principal, argument), (principal, other_argument)):
            same = subject == principal and json.dumps(x, sort_keys=True) == json.dumps(argument, sort_keys=True)
            async with FakeClient(server, principal=subject) as client:
                reply = await client.send("tools/call", {"name": "it", "arguments": {"x": x}, "requestState": state})
                assert ("result" in reply) == same

    asyncio.run(run())


# -- limits and invalid arguments


def test_invalid_urls_and_max_tokens_of_zero_are_refused() -> None:
    for url in ("", "https", "https:", "://example.test"):
        with pytest.raises(ValueError, match="is not a URL that a user can open"):
            ElicitUrl("Sign in", url)
    ElicitUrl("Sign in", "mailto:x")
    with pytest.raises(ValueError, match="max_tokens is 0: a model needs at least one"):
        Sample("?", max_tokens=0)
    Sample("?", max_tokens=1)


def test_sample_names_the_tool_results_that_do_not_match() -> None:
    question = t.SamplingMessage(role="user", content=t.TextContent(text="?"))

    def uses(*ids: str) -> t.SamplingMessage:
        return t.SamplingMessage(role="assistant", content=[t.ToolUseContent(id=id, name="x", input={}) for id in ids])

    def results(*ids: str, role: Any = "user") -> t.SamplingMessage:
        return t.SamplingMessage(role=role, content=[t.ToolResultContent(tool_use_id=id, content=[]) for id in ids])

    Sample([question, uses("a", "b"), results("b", "a"), question], tools=[])
    for messages, fault in (
        ([question, uses("a", "b"), results("a")], "do not match: b."),
        ([question, uses("a"), results("a", "c")], "do not match: c."),
        ([question, uses("a"), results("a", "a")], "two results of the same tool use"),
        ([question, uses("a"), question], "do not match: a."),
        ([question, uses("b", "a")], "follows these: a, b."),
        ([question, uses("a"), results("a", role="assistant")], "in a user message"),
    ):
        with pytest.raises(ValueError, match=fault):
            Sample(messages, tools=[])


@pytest.mark.parametrize("revision", FORM_REVISIONS)
async def test_an_answer_with_an_unknown_action_is_refused_or_requested_again(revision: str) -> None:
    actions = ["perhaps", "accept"]

    @server_with_tool()
    async def server(ctx: Context) -> str:
        return await ctx.elicit("?", str)

    async with FakeClient(
        server, revision, lambda input_request: {"action": actions.pop(0), "content": {"value": "x"}}
    ) as client:
        text = await client.text("it")
    if revision == STATELESS:
        assert (text, len(client.input_requests)) == ("x", 2)
    else:
        assert "action: must be one of accept, decline, cancel" in text


class Model(pydantic.BaseModel):
    full_name: str


async def test_once_restores_pydantic_models_and_returns_other_values_as_json() -> None:
    seen: list[Any] = []

    def model() -> Model:
        return Model(full_name="Ann")

    def unchecked() -> Callable[[], int]:
        return {"a": [1]}  # type: ignore[return-value]

    @server_with_tool()
    async def server(ctx: Context) -> str:
        seen.append([await ctx.once("a", model), await ctx.once("b", unchecked), await ctx.once("c", lambda: [1, "x"])])
        await ctx.elicit("?", str)
        return ""

    async with FakeClient(server, STATELESS, accept_all) as client:
        await client.call("it")
    assert seen == [[Model(full_name="Ann"), {"a": [1]}, [1, "x"]]] * 2


class AliasedModel(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName")


async def test_once_restores_models_with_aliases_and_returns_what_is_no_model_as_json() -> None:
    """A bug: both raised a validation error of pydantic."""
    seen: list[Any] = []

    def aliased() -> AliasedModel:
        return AliasedModel(fullName="Ann")

    def unchecked() -> Model:
        return {"a": [1]}  # type: ignore[return-value]

    @server_with_tool()
    async def server(ctx: Context) -> str:
        seen.append([await ctx.once("a", aliased), await ctx.once("b", unchecked)])
        await ctx.elicit("?", str)
        return ""

    async with FakeClient(server, STATELESS, accept_all) as client:
        await client.call("it")
    assert seen == [[AliasedModel(fullName="Ann"), {"a": [1]}]] * 2


async def test_pending_url_elicitations_are_limited_and_the_oldest_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "MAX_ELICITATION_SESSIONS", 2)
    server = Server("s")

    @server.tool
    async def it(id: str) -> str:
        raise URLElicitationRequired("Sign in.", "https://example.test/in", elicitation_id=id)

    async with FakeClient(server, "2025-11-25") as client:
        for id in "abc":
            await client.call("it", id=id)
        assert [server.elicitation_complete(id) for id in "abc"] == [False, True, True]
    assert server.services.elicitation_sessions == {}
    async with FakeClient(server, STATELESS, lambda input_request: {"action": "decline"}) as client:
        await client.call("it", id="d")
    assert server.services.elicitation_sessions == {}


async def test_replay_fails_on_a_channel_that_carries_no_requests() -> None:
    @server_with_tool(replay=True)
    async def server(ctx: Context) -> str:
        return await ctx.elicit("?", str)

    request = make_request(server, "tools/call", {"name": "it"}, "2025-11-25", channel=OneWayChannel(multiplexed=False))
    request.caller = msgspec.structs.replace(
        request.caller, capabilities=msgspec.convert(ALL_CAPABILITIES, t.ClientCapabilities)
    )
    with pytest.raises(NoAnswer, match="its connection does not carry requests"):
        await server.handlers["tools/call"](request)


async def test_a_replayed_run_raises_the_errors_of_earlier_input_requests() -> None:
    @server_with_tool(replay=True)
    async def server(ctx: Context) -> str:
        outcomes = []
        for number in range(3):
            try:
                outcomes.append(await ctx.elicit(f"{number}?", str))
            except NoAnswer as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        return "; ".join(outcomes)

    def answer(input_request: Any) -> Any:
        number = input_request["params"]["message"][0]
        if number == "0":
            raise ErrorResponse(-32603, "broken")
        return {"action": "decline"} if number == "1" else accept(value="x")

    async with FakeClient(server, "2025-11-25", answer) as client:
        assert await client.text("it") == (
            "NoAnswer: The client answered with an error: broken (error -32603); Declined: The user declined: 1?; x"
        )
        assert len(client.input_requests) == 3


async def test_repeated_keys_are_made_unique() -> None:
    seen: list[str] = []

    @server_with_tool()
    async def server(ctx: Context) -> str:
        for key in ("form-2", None, None, "a", "a", "a-2", "a-2", "a"):
            await ctx.elicit("?", str, key=key)
        return "done"

    def answer(input_request: Any) -> Any:
        seen.append(input_request["key"])
        return accept(value="x")

    async with FakeClient(server, STATELESS, answer) as client:
        assert await client.text("it") == "done"
    assert len(set(seen)) == len(seen) == 8
    assert seen[0] == "form-2" and seen[3] == "a" and seen[4] == "a-2"


async def test_a_state_of_exactly_the_limit_is_accepted_and_one_character_more_fails() -> None:
    async def call_with_limit(limit: int) -> Any:
        @server_with_tool(limits=Limits(state=limit))
        async def server(ctx: Context) -> str:
            await ctx.once("x", lambda: "x" * 500)
            return await ctx.elicit("?", str)

        async with FakeClient(server, STATELESS, accept_all) as client:
            return await client.send("tools/call", {"name": "it", "arguments": {}})

    size = len((await call_with_limit(100_000))["result"]["requestState"])
    assert len((await call_with_limit(size))["result"]["requestState"]) == size
    error = (await call_with_limit(size - 1))["error"]
    assert f"longer than {size - 1} characters (limits.state)" in error["message"]


async def test_logs_are_sent_once_if_a_later_run_skips_a_function_of_once() -> None:
    @server_with_tool()
    async def server(ctx: Context) -> str:
        def work() -> int:
            ctx.info("in once")
            ctx.info("still in once")
            return 1

        ctx.info("before")
        await ctx.once("x", work)
        ctx.info("between")
        await ctx.elicit("One?", str)
        ctx.info("after one")
        await ctx.once("x", work)
        await ctx.elicit("Two?", str)
        ctx.info("after two")
        return "done"

    async with FakeClient(server, STATELESS, accept_all) as client:
        result = await client.request(
            "tools/call", {"name": "it", "arguments": {}, "_meta": {f"{META}logLevel": "debug"}}
        )
        assert result["result"]["content"][0]["text"] == "done"
        logs = [note["params"]["data"] for note in client.notifications if note["method"] == "notifications/message"]
        assert logs == ["before", "in once", "still in once", "between", "after one", "after two"]
