"""Prompts: their definitions, arguments, messages and completions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET

from tests.server.driving import Wire, ask
from wharfinger import Image
from wharfinger import types as t
from wharfinger.errors import InvalidParams
from wharfinger.protocol.methods import METHODS
from wharfinger.protocol.request import Caller, Request
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.features.result_errors import UnusableResult
from wharfinger.server.signature.complete import Complete
from wharfinger.source import Source


def request(method: str, params: dict[str, Any]) -> Request:
    row = METHODS[method]
    raw = msgspec.Raw(msgspec.json.encode(params))
    return Request(
        1, method, row, row.decode_params(raw), raw, Caller(REVISIONS["2026-07-28"], None, t.ClientCapabilities()), None
    )


def get_prompt(function: Callable[..., Any], arguments: dict[str, str] | None = None) -> Any:
    async def run() -> t.GetPromptResult:
        prompts = Server("test", page_size=10).prompts
        params: dict[str, Any] = {"name": prompts.add(function, name="p").name}
        if arguments is not None:
            params["arguments"] = arguments
        return await prompts.fill(request("prompts/get", params))

    return msgspec.json.decode(msgspec.json.encode(asyncio.run(run())))


def prompt_message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": {"type": "text", "text": text}}


def briefing(vessel: str, days: Annotated[int, "How far back."] = 1) -> str:
    """Brief me.

    Args:
        vessel: Whose log.
    """
    return f"{vessel} {days + 1}"


def test_a_function_is_listed_with_its_arguments() -> None:
    definition = Server("test", page_size=10).prompts.add(briefing, title="Briefing").definition
    assert msgspec.json.decode(msgspec.json.encode(definition)) == {
        "name": "briefing",
        "title": "Briefing",
        "description": "Brief me.",
        "arguments": [
            {"name": "vessel", "description": "Whose log.", "required": True},
            {"name": "days", "description": "How far back."},
        ],
    }


def test_arguments_are_converted_to_the_types_of_the_parameters() -> None:
    assert get_prompt(briefing, {"vessel": "Mary", "days": "6"}) == {
        "messages": [prompt_message("Mary 7")],
        "description": "Brief me.",
    }
    assert get_prompt(briefing, {"vessel": "7"})["messages"] == [prompt_message("7 2")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (None, "vessel: missing"),
        ({"vessel": "x", "speed": "1"}, "speed: no such argument; the arguments are vessel, days"),
        ({"vessel": "x", "days": "s3cret"}, "days: expected an integer, got a string"),
    ],
)
def test_missing_unknown_and_malformed_arguments_are_invalid_params(
    arguments: dict[str, str] | None, message: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        get_prompt(briefing, arguments)
    assert (caught.value.code, caught.value.message) == (-32602, f"Invalid arguments: {message}")


def test_an_unknown_prompt_is_an_invalid_param() -> None:
    with pytest.raises(InvalidParams, match="Unknown prompt: x"):
        asyncio.run(Server("test", page_size=10).prompts.fill(request("prompts/get", {"name": "x"})))


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", [prompt_message("hi")]),
        (
            ["a", t.PromptMessage(role="assistant", content=t.TextContent(text="b"))],
            [prompt_message("a"), prompt_message("b", "assistant")],
        ),
        (t.TextContent(text="c"), [prompt_message("c")]),
        (t.GetPromptResult(messages=[]), []),
    ],
)
def test_return_values_become_messages(value: Any, messages: list[Any]) -> None:
    assert get_prompt(lambda: value)["messages"] == messages


def test_a_return_value_that_is_not_a_message_raises_type_error() -> None:
    with pytest.raises(TypeError, match="PromptMessage"):
        get_prompt(lambda: 3)


@pytest.mark.parametrize("content", [Image("gone.png"), t.TextContent(text="<coroutine object now at 0x7f00>")])
def test_the_error_for_a_result_that_an_author_made_names_the_function(content: Any) -> None:
    """A bug: only messages that were returned without a result were checked."""

    def look() -> t.GetPromptResult:
        return t.GetPromptResult(messages=[t.PromptMessage(role="user", content=content)])

    with pytest.raises(UnusableResult, match=rf"look\(\) \({re.escape(__file__)}:"):
        get_prompt(look)


def test_an_async_prompt_gets_its_context() -> None:
    async def f(ctx: Context) -> str:
        return str(ctx.request_id)

    assert get_prompt(f)["messages"] == [prompt_message("1")]


# --- completion -------------------------------------------------------------------------------------------------------


def ships(typed: str) -> list[str]:
    return [f"{typed}{number}" for number in range(150)]


async def days(typed: str, others: Mapping[str, str]) -> list[str]:
    return [others.get("vessel", "none") + typed]


def plan(
    vessel: Annotated[str, Complete(ships)],
    day: Annotated[str, Complete(days)],
    side: Literal["port", "starboard"],
    harbour: Annotated[str, Complete(("Hull", "Harwich", "Dover"))],
    free: str,
) -> str:
    return ""


class Charts(Source):
    templates = (t.ResourceTemplate(uri_template="chart://{+path}", name="chart"),)

    def matches(self, uri: str) -> bool:
        return False

    def complete(self, template: str, argument: str, value: str, context: Mapping[str, str]) -> list[str]:
        return [template, argument, value, *context]


def log(vessel: Annotated[str, Complete(ships)], day: str) -> str:
    return ""


def complete(ref: dict[str, str], name: str, value: str, others: dict[str, str] | None = None) -> Any:
    async def run() -> t.CompleteResult:
        server = Server("test")
        server.resources.add("log://{vessel}/{day}", log)
        server.resources.add("log://all", lambda: "")
        server.include(Charts())
        server.prompts.add(plan)
        params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": value}}
        if others is not None:
            params["context"] = {"arguments": others}
        return await server.completions.complete(request("completion/complete", params))

    return msgspec.json.decode(msgspec.json.encode(asyncio.run(run())))["completion"]


PLAN = {"type": "ref/prompt", "name": "plan"}
LOG = {"type": "ref/resource", "uri": "log://{vessel}/{day}"}


def test_at_most_100_values_are_sent_with_their_total() -> None:
    expected = {"values": [f"m{number}" for number in range(100)], "total": 150, "hasMore": True}
    assert complete(PLAN, "vessel", "m") == expected
    assert complete(LOG, "vessel", "m") == expected


def test_a_completer_may_use_the_other_arguments() -> None:
    assert complete(PLAN, "day", "mon", {"vessel": "Mary"}) == {"values": ["Marymon"], "total": 1, "hasMore": False}
    assert complete(PLAN, "day", "mon")["values"] == ["nonemon"]


def test_fixed_choices_are_completed_by_prefix() -> None:
    assert complete(PLAN, "side", "st")["values"] == ["starboard"]
    assert complete(PLAN, "harbour", "H")["values"] == ["Hull", "Harwich"]


def test_an_argument_without_a_completer_has_no_values() -> None:
    assert complete(PLAN, "free", "x") == {"values": [], "total": 0, "hasMore": False}
    assert complete(LOG, "day", "x")["values"] == []


def test_a_source_completes_its_own_templates() -> None:
    ref = {"type": "ref/resource", "uri": "chart://{+path}"}
    assert complete(ref, "path", "a/", {"k": "v"})["values"] == ["chart://{+path}", "path", "a/", "k"]


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ({"type": "ref/prompt", "name": "nothing"}, "x"),
        ({"type": "ref/resource", "uri": "log://{other}"}, "x"),
        ({"type": "ref/resource", "uri": "log://all"}, "x"),
        (PLAN, "x"),
        (LOG, "x"),
    ],
)
def test_an_unknown_prompt_template_or_argument_is_an_invalid_param(ref: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidParams):
        complete(ref, name, "")


def test_a_completer_with_an_invalid_signature_is_refused_at_registration() -> None:
    with pytest.raises(TypeError, match=r"must take \(typed\)"):
        Complete(lambda: ())
    with pytest.raises(TypeError, match=r"must take \(typed\)"):
        Complete(lambda a, b, c: [])
    assert Complete(lambda typed, others=None: []).takes_others


def test_descriptions_and_defaults_of_pydantic_fields_are_used() -> None:
    pydantic = pytest.importorskip("pydantic")
    server = Server("s")

    def plan(days, ship="Mary"):  # type: ignore[no-untyped-def]
        return f"{days} {ship}"

    plan.__annotations__.update(days=Annotated[int, pydantic.Field(description="How many.", default=3)])
    server.prompts.add(plan)
    (argument, _) = server.prompts.get("plan").definition.arguments
    assert (argument.description, argument.required) == ("How many.", UNSET)
    answer = asyncio.run(ask(server, "prompts/get", {"name": "plan"}))
    assert answer["result"]["messages"][0]["content"]["text"] == "3 Mary"


def test_a_disabled_prompt_is_unknown() -> None:
    server = Server("s")
    server.prompts.add(lambda: "x", name="p")
    server.prompts.disable("p")
    assert asyncio.run(ask(server, "prompts/get", {"name": "p"}))["error"]["code"] == -32602
    ref = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}}
    assert asyncio.run(ask(server, "completion/complete", ref))["error"]["code"] == -32602
    server.prompts.enable("p")
    assert asyncio.run(ask(server, "prompts/get", {"name": "p"}))["result"]["messages"]


@pytest.mark.parametrize("message", [{"role": "system", "content": "x"}, {"role": "user", "content": {"type": "no"}}])
def test_a_message_with_an_unknown_role_or_content_type_is_an_internal_error(message: dict[str, Any]) -> None:
    server = Server("s")
    server.prompts.add(lambda: [message], name="p")
    assert asyncio.run(ask(server, "prompts/get", {"name": "p"}))["error"]["code"] == -32603


@pytest.mark.parametrize("values", [3, "mary", None])
def test_an_invalid_completer_is_refused_at_registration(values: Any) -> None:
    with pytest.raises(TypeError, match=r"Complete\(\) takes a function or a list of strings"):
        Complete(values)


async def test_the_error_for_many_unknown_arguments_is_short() -> None:
    """With a line for each unknown argument, the error would be three times as long as the request."""
    server = Server("s")
    server.prompts.add(lambda a="": a, name="greet")
    error = (await ask(server, "prompts/get", {"name": "greet", "arguments": {f"k{n}": "x" for n in range(5_000)}}))[
        "error"
    ]
    assert error["code"] == -32602
    assert "k0: no such argument" in error["message"]
    assert len(error["message"]) < 1_000


# -- values that a prompt returns


async def returned_messages(value: Any, **options: Any) -> Any:
    """Return the messages of a prompt that returns this value, or the error."""
    server = Server("s")
    server.prompts.add(lambda: value, name="it", **options)
    answer = await ask(server, "prompts/get", {"name": "it"})
    return answer["result"]["messages"] if "result" in answer else answer["error"]


PICTURE = Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", [("user", "text")]),
        (["x", "y"], [("user", "text"), ("user", "text")]),
        (("x",), [("user", "text")]),
        ([], []),
        (PICTURE, [("user", "image")]),
        (["x", PICTURE], [("user", "text"), ("user", "image")]),
        ({"role": "assistant", "content": "x"}, [("assistant", "text")]),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, [("user", "text")]),
        ([{"role": "assistant", "content": PICTURE}], [("assistant", "image")]),
        (t.PromptMessage(role="assistant", content=PICTURE), [("assistant", "image")]),  # type: ignore[arg-type]
        (t.PromptMessage(role="assistant", content=t.TextContent(text="x")), [("assistant", "text")]),
        (
            t.GetPromptResult(messages=[t.PromptMessage(role="user", content=t.TextContent(text="x"))]),
            [("user", "text")],
        ),
        (
            t.GetPromptResult(messages=[t.PromptMessage(role="user", content=PICTURE)]),  # type: ignore[arg-type]
            [("user", "image")],
        ),
    ],
)
async def test_return_values_of_a_prompt_become_messages(value: Any, expected: list[tuple[str, str]]) -> None:
    messages = await returned_messages(value)
    assert [(message["role"], message["content"]["type"]) for message in messages] == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        {"role": "system", "content": "x"},
        {"role": "user", "content": "x", "more": 1},
        {"role": "user"},
        {"role": "user", "content": {"type": "nothing"}},
        {"role": "user", "content": 5},
        ["x", 5],
        "\ud800",
        t.TextContent(text=5),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_prompt_message_is_an_internal_error(value: Any) -> None:
    server = Server("s")
    server.prompts.add(lambda: value, name="it")
    async with Wire(server) as wire:
        answer = await wire.ask("prompts/get", {"name": "it"})
    assert answer["error"]["code"] == -32603


async def test_a_prompt_is_listed_with_its_registered_fields_only() -> None:
    server = Server("s", ttl=3.0, cache_scope="public")

    @server.prompt(title="T", description="D", meta={"k": 1}, icons=[t.Icon(src="https://a.test/i.png")])
    def full(place: str, when: str = "now") -> str:
        return place

    @server.prompt
    def bare() -> str:
        return "x"

    result = (await ask(server, "prompts/list"))["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (3000, "public")
    assert result["prompts"] == [
        {
            "name": "full",
            "title": "T",
            "description": "D",
            "arguments": [{"name": "place", "required": True}, {"name": "when"}],
            "icons": [{"src": "https://a.test/i.png"}],
            "_meta": {"k": 1},
        },
        {"name": "bare"},
    ]
    response = await ask(server, "prompts/get", {"name": "full", "arguments": {"other": "x"}})
    assert response["error"] == {
        "code": -32602,
        "message": "Invalid arguments: place: missing; other: no such argument; the arguments are place, when",
    }
    with pytest.raises(ValueError, match="A prompt needs a name"):
        server.prompts.add(lambda: "x", name="")
