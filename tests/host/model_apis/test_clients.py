"""Conversations of a host through the real clients of the four APIs, at endpoints that check what the clients send."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.host.model_apis.api_clients import ask
from tests.host.model_apis.endpoints import Endpoint, Step, serving
from tests.host.model_apis.harbour import LOG, PDF, PNG, harbour, host, library
from wharfinger.host import Approval, Host
from wharfinger.host.model_apis import MODEL_APIS

FORMATS = tuple(MODEL_APIS)
pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)  # google-genai
Object = dict[str, Any]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


async def run_conversation(
    format: str, steps: list[Step], *, stream: bool = False, on: Host | None = None, **options: Any
) -> tuple[str, Endpoint]:
    """Let a model follow these steps, and return its last words and the endpoint that received the requests."""
    async with serving([*steps, "There is room."]) as endpoint, on or host() as used:
        await used.ready()
        return await ask(format, endpoint.url, used, stream=stream, **options), endpoint


def sent_results(format: str, request: Object) -> list[tuple[str, bool]]:
    """Return the text of each result in the last request, and whether it is an error."""
    found: list[tuple[str, bool]] = []
    if format == "openai":
        for message in request["messages"]:
            if message["role"] == "tool":
                found.append((message["content"], message["content"].startswith("Error: ")))
    elif format == "openai-responses":
        for item in request["input"]:
            if item.get("type") == "function_call_output":
                output = item["output"]
                parts = [{"text": output}] if isinstance(output, str) else output
                text = "\n".join(part.get("text", "") for part in parts)
                found.append((text, text.startswith("Error: ")))
    elif format == "anthropic":
        for block in [b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]]:
            if block["type"] == "tool_result":
                text = "\n".join(part.get("text", "") for part in block["content"])
                found.append((text, block.get("is_error", False)))
    else:
        for part in [part for content in request["contents"] for part in content["parts"]]:
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                found.append((response.get("output", response.get("error")), "error" in response))
    return found


def sent_files(format: str, request: Object) -> list[bytes]:
    """Return the bytes of all images and documents in a request."""
    found: list[bytes] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for key, member in value.items():
                if key in ("data", "url", "image_url", "file_data") and isinstance(member, str):
                    text = member.rpartition(",")[2].replace("-", "+").replace("_", "/")
                    found.append(base64.b64decode(text))
                else:
                    look(member)
        elif isinstance(value, list):
            for member in value:
                look(member)

    look(request.get("messages") or request.get("input") or request.get("contents"))
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("format", FORMATS)
def test_calls_are_run_and_their_results_are_accepted(format: str, stream: bool) -> None:
    async def test() -> None:
        steps: list[Step] = [
            [("harbour_berth", {"ship": "Amber", "hours": 3})],
            [("harbour_refuse", {"ship": "Mary"}), ("harbour_berth", {"ship": "Mary"})],
        ]
        words, endpoint = await run_conversation(format, steps, stream=stream)
        assert words == "There is room."
        first, second, third = sent_results(format, endpoint.requests[-1])
        assert json.loads(first[0]) == {"ship": "Amber", "berth": "north 4"} and not first[1]
        assert "The Mary is not expected." in second[0] and second[1]
        assert json.loads(third[0])["ship"] == "Mary" and not third[1]

    run(test())


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_arguments_reach_the_tool_as_its_schema_has_them(format: str, strict: bool) -> None:
    """Strict mode makes a model write null for what is optional."""
    if strict and MODEL_APIS[format].strict_rules is None:
        return

    async def test() -> None:
        server = harbour()
        used = Host({"harbour": server})
        arguments = {"ship": "Amber", "draught": None, "hours": None} if strict else {"ship": "Amber"}
        _, endpoint = await run_conversation(format, [[("berth", arguments)]], on=used, strict=strict)
        assert server.calls == [{"ship": "Amber", "draught": None, "hours": 1}]  # type: ignore[attr-defined]
        assert sent_results(format, endpoint.requests[-1])[0][1] is False

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_images_documents_and_links_arrive(format: str) -> None:
    async def test() -> None:
        steps: list[Step] = [[("harbour_photograph", {"quay": "north"}), ("harbour_chart", {})]]
        _, endpoint = await run_conversation(format, steps, resources=True)
        sent = sent_files(format, endpoint.requests[-1])
        assert sent == ([PNG] if format == "openai" else [PNG, PDF])
        (picture, _), (chart, _) = sent_results(format, endpoint.requests[-1])
        assert "The north quay at noon" in picture
        assert "Log of today <log://today> (text/plain, 156 KiB)" in chart
        assert 'read_resource {"uri":"log://today","server":"harbour"}' in chart
        assert ("(application/pdf, 15 B) is not sent" in chart) is (format == "openai")

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_a_model_that_takes_only_text_gets_no_file(format: str) -> None:
    async def test() -> None:
        _, endpoint = await run_conversation(format, [[("harbour_photograph", {"quay": "north"})]], files=False)
        assert sent_files(format, endpoint.requests[-1]) == []
        assert "(image/png, 70 B) is not sent" in sent_results(format, endpoint.requests[-1])[0][0]

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_calls_of_one_answer_run_concurrently_and_keep_their_order(format: str) -> None:
    async def test() -> None:
        steps: list[Step] = [[("harbour_meet", {"number": n}) for n in (3, 1, 2)]]
        _, endpoint = await run_conversation(format, steps)
        assert [text for text, _ in sent_results(format, endpoint.requests[-1])] == ["3", "1", "2"]

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_a_name_that_the_api_refuses_is_mapped_back(format: str) -> None:
    async def test() -> None:
        server, other = harbour(), harbour()

        @other.tool(name="9/lives.of-a-cat")
        async def lives(cat: str) -> str:
            return f"{cat} has 9"

        async with Host({"only": other}) as used:
            await used.ready()
            tools = await used.tools(format=format)
            name = next(name for name, original in tools.names.items() if original.startswith("9"))
        assert server is not other and name != "9_lives_of-a-cat"
        _, endpoint = await run_conversation(format, [[(name, {"cat": "Tom"})]], on=Host({"only": other}))
        assert sent_results(format, endpoint.requests[-1]) == [("Tom has 9", False)]

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_invalid_calls_of_a_model_are_results_with_advice(format: str) -> None:
    async def test() -> None:
        steps: list[Step] = [
            [("harbour_birth", {"ship": "Amber"}), ("harbour_berth", {"ship": 3}), ("harbour_berth", {})],
        ]
        _, endpoint = await run_conversation(format, steps)
        unknown, wrong, missing = sent_results(format, endpoint.requests[-1])
        assert "There is no tool 'harbour_birth' now. Did you mean 'harbour_berth'?" in unknown[0] and unknown[1]
        assert "ship" in wrong[0] and wrong[1]
        assert "ship" in missing[0] and missing[1]

    run(test())


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
def test_arguments_that_are_not_a_json_object_are_an_error_result(format: str) -> None:
    async def test() -> None:
        steps: list[Step] = [[("harbour_berth", '{"ship": "Am'), ("harbour_berth", "[1]"), ("harbour_chart", "")]]
        _, endpoint = await run_conversation(format, steps)
        cut, array, empty = sent_results(format, endpoint.requests[-1])
        assert "not JSON" in cut[0] and "Call the tool again" in cut[0]
        assert "not a JSON object" in array[0]
        assert "Log of today" in empty[0] and not empty[1]

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_a_call_that_is_not_approved_is_a_result(format: str) -> None:
    async def test() -> None:
        asked: list[str] = []

        def approve(approval: Approval) -> bool:
            asked.append(approval.public_name)
            return False

        used = host(approve=approve)
        _, endpoint = await run_conversation(format, [[("harbour_berth", {"ship": "Amber"})]], on=used)
        assert asked == ["harbour_berth"]
        assert sent_results(format, endpoint.requests[-1])[0][1]

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_a_long_result_is_cut_and_its_rest_can_be_read(format: str) -> None:
    async def test() -> None:
        async with host() as used:
            await used.ready()
            tools = await used.tools(format=format, resources=True)
            log = next(name for name, original in tools.names.items() if original == "harbour_read_log")
            text, call = "", (log, {})
            for _ in range(20):
                async with serving([[call], "end"]) as endpoint:
                    await ask(format, endpoint.url, used, stream=False, resources=True)
                    shown = sent_results(format, endpoint.requests[-1])[0][0]
                head, found, note = shown.rpartition("\n[Cut: ")
                if not found:
                    break
                assert len(head) <= 40_000
                text += head
                name, _, arguments = note.partition("call ")[2].rpartition(".]")[0].partition(" with ")
                call = (name, json.loads(arguments))
            assert text + shown == LOG

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_result_of_a_tool_with_filters_advises_to_use_them(format: str) -> None:
    async def test() -> None:
        async with host() as used:
            await used.ready()
            tools = await used.tools(format=format)
            log = next(name for name, original in tools.names.items() if original == "harbour_read_log")
            async with serving([[(log, {})], "end"]) as endpoint:
                await ask(format, endpoint.url, used, stream=False, max_characters=1_000)
                text = sent_results(format, endpoint.requests[-1])[0][0]
        head, _, note = text.rpartition("\n[Cut: ")
        assert head == LOG[: len(head)] and 800 <= len(head) <= 1_000
        assert note.endswith(
            f"of 150,000 characters. To get another part, call {log} again with another value of limit.]"
        )

    run(test())


@pytest.mark.parametrize("format", FORMATS)
def test_resources_are_tools_if_requested(format: str) -> None:
    async def test() -> None:
        steps: list[Step] = [
            [("list_resources", {}), ("search_resources", {"query": "log of today"})],
            [("read_resource", {"uri": "ship://mary"}), ("read_resource", {"uri": "picture://quay"})],
            [("read_resource", {"uri": "log://none"}), ("list_resources", {"server": "nowhere"})],
        ]
        _, endpoint = await run_conversation(format, steps, resources=True)
        listed, found, ship, _, missing, nowhere = sent_results(format, endpoint.requests[-1])
        assert "log://today Log of today (text/plain, server library)" in listed[0]
        assert "ship://{name} ship (server library): What is known of a ship" in listed[0]
        assert found[0].startswith("log://today")
        assert ship[0] == "mary: 40 m"
        assert sent_files(format, endpoint.requests[-1]) == [PNG]
        assert missing[1] and "log://none" in missing[0]
        assert nowhere[1] and "There is no server 'nowhere'" in nowhere[0]

    run(test())


def test_a_tool_that_was_not_given_is_refused() -> None:
    async def test() -> None:
        async with host() as used:
            await used.ready()
            tools = await used.tools(format="anthropic", servers=["library"])
            call = {"type": "tool_use", "id": "t", "name": "harbour_berth", "input": {"ship": "Amber"}}
            (message,) = await used.call(call, tools=tools)
            assert (
                message["content"][0]["is_error"] and "There is no tool" in message["content"][0]["content"][0]["text"]
            )
            (message,) = await used.call(call)
            assert "is_error" not in message["content"][0]
            with pytest.raises(ValueError, match="no server 'x'"):
                await used.tools(format="anthropic", servers=["x"])
            with pytest.raises(ValueError, match="formats are openai"):
                await used.tools(format="x")
            with pytest.raises(ValueError, match="no strict mode"):
                await used.tools(format="gemini", strict=True)

    run(test())


def test_a_tool_of_a_server_takes_precedence_over_a_tool_of_the_host_with_its_name() -> None:
    async def test() -> None:
        server = library()

        @server.tool
        async def read_resource(uri: str) -> str:
            return f"own {uri}"

        async with Host({"only": server}) as used:
            await used.ready()
            tools = await used.tools(format="gemini", resources=True)
            assert {"read_resource", "host_read_resource"} <= tools.names.keys()
            for name, text in (("read_resource", "own ship://a"), ("host_read_resource", "a: 40 m")):
                (content,) = await used.call({"functionCall": {"name": name, "args": {"uri": "ship://a"}}})
                assert content["parts"][0]["functionResponse"]["response"] == {"output": text}

    run(test())


def test_an_answer_with_too_many_calls_runs_as_many_as_it_may() -> None:
    async def test() -> None:
        async with host() as used:
            await used.ready()
            calls = [
                {"id": f"c{n}", "type": "function", "function": {"name": "library_none", "arguments": "{}"}}
                for n in range(129)
            ]
            messages = await used.call_all({"role": "assistant", "tool_calls": calls})
            assert len(messages) == 129
            assert "There is no tool" in messages[127]["content"] and "may have 128 calls" in messages[128]["content"]

    run(test())
