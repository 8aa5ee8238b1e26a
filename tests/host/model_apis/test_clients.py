"""Conversations through the official clients of the four model APIs, with stub endpoints that check each request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.host.model_apis.api_clients import ask
from tests.host.model_apis.endpoints import Endpoint, Step, serve
from tests.host.model_apis.harbour import LOG, PDF, PNG, harbour, library, make_host
from wharfinger.host import ApprovalRequest, Host
from wharfinger.host.model_apis import MODEL_APIS

FORMATS = tuple(MODEL_APIS)
# google-genai inherits from aiohttp.ClientSession.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
Object = dict[str, Any]


async def run_conversation(
    format: str, steps: list[Step], *, stream: bool = False, host: Host | None = None, **options: Any
) -> tuple[str, Endpoint]:
    """Run a conversation in which the model follows the steps, and return its last answer and the endpoint."""
    async with serve([*steps, "There is room."]) as endpoint, host or make_host() as running_host:
        await running_host.ready()
        return await ask(format, endpoint.url, running_host, stream=stream, **options), endpoint


def sent_results(format: str, request: Object) -> list[tuple[str, bool]]:
    """Return the text of each result in the last request, and whether it is an error."""
    results: list[tuple[str, bool]] = []
    if format == "openai":
        for message in request["messages"]:
            if message["role"] == "tool":
                results.append((message["content"], message["content"].startswith("Error: ")))
    elif format == "openai-responses":
        for item in request["input"]:
            if item.get("type") == "function_call_output":
                output = item["output"]
                parts = [{"text": output}] if isinstance(output, str) else output
                text = "\n".join(part.get("text", "") for part in parts)
                results.append((text, text.startswith("Error: ")))
    elif format == "anthropic":
        for block in [b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]]:
            if block["type"] == "tool_result":
                text = "\n".join(part.get("text", "") for part in block["content"])
                results.append((text, block.get("is_error", False)))
    else:
        for part in [part for content in request["contents"] for part in content["parts"]]:
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                results.append((response.get("output", response.get("error")), "error" in response))
    return results


def sent_files(format: str, request: Object) -> list[bytes]:
    """Return the bytes of all images and documents in a request."""
    files: list[bytes] = []

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            for key, member in value.items():
                if key in ("data", "url", "image_url", "file_data") and isinstance(member, str):
                    text = member.rpartition(",")[2].replace("-", "+").replace("_", "/")
                    files.append(base64.b64decode(text))
                else:
                    collect(member)
        elif isinstance(value, list):
            for member in value:
                collect(member)

    collect(request.get("messages") or request.get("input") or request.get("contents"))
    return files


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("format", FORMATS)
async def test_calls_are_run_and_the_api_accepts_their_results(format: str, stream: bool) -> None:
    steps: list[Step] = [
        [("harbour_berth", {"ship": "Amber", "hours": 3})],
        [("harbour_refuse", {"ship": "Mary"}), ("harbour_berth", {"ship": "Mary"})],
    ]
    answer, endpoint = await run_conversation(format, steps, stream=stream)
    assert answer == "There is room."
    first, second, third = sent_results(format, endpoint.requests[-1])
    assert json.loads(first[0]) == {"ship": "Amber", "berth": "north 4"} and not first[1]
    assert "The Mary is not expected." in second[0] and second[1]
    assert json.loads(third[0])["ship"] == "Mary" and not third[1]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("format", FORMATS)
async def test_a_tool_gets_arguments_that_match_its_schema(format: str, strict: bool) -> None:
    """In strict mode, a model writes null for an optional argument."""
    if strict and MODEL_APIS[format].strict_rules is None:
        return

    server = harbour()
    host = Host({"harbour": server})
    arguments = {"ship": "Amber", "draught": None, "hours": None} if strict else {"ship": "Amber"}
    _, endpoint = await run_conversation(format, [[("berth", arguments)]], host=host, strict=strict)
    assert server.calls == [{"ship": "Amber", "draught": None, "hours": 1}]  # type: ignore[attr-defined]
    assert sent_results(format, endpoint.requests[-1])[0][1] is False


@pytest.mark.parametrize("format", FORMATS)
async def test_images_documents_and_links_are_sent_to_the_model(format: str) -> None:
    steps: list[Step] = [[("harbour_photograph", {"quay": "north"}), ("harbour_chart", {})]]
    _, endpoint = await run_conversation(format, steps, resources=True)
    sent = sent_files(format, endpoint.requests[-1])
    assert sent == ([PNG] if format == "openai" else [PNG, PDF])
    (picture, _), (chart, _) = sent_results(format, endpoint.requests[-1])
    assert "The north quay at noon" in picture
    assert "Log of today <log://today> (text/plain, 156 KiB)" in chart
    assert 'read_resource {"uri":"log://today","server":"harbour"}' in chart
    assert ("(application/pdf, 15 B) is not sent" in chart) is (format == "openai")


@pytest.mark.parametrize("format", FORMATS)
async def test_no_files_are_sent_to_a_model_that_takes_only_text(format: str) -> None:
    _, endpoint = await run_conversation(format, [[("harbour_photograph", {"quay": "north"})]], files=False)
    assert sent_files(format, endpoint.requests[-1]) == []
    assert "(image/png, 70 B) is not sent" in sent_results(format, endpoint.requests[-1])[0][0]


@pytest.mark.parametrize("format", FORMATS)
async def test_calls_of_one_answer_run_concurrently_and_keep_their_order(format: str) -> None:
    steps: list[Step] = [[("harbour_meet", {"number": n}) for n in (3, 1, 2)]]
    _, endpoint = await run_conversation(format, steps)
    assert [text for text, _ in sent_results(format, endpoint.requests[-1])] == ["3", "1", "2"]


@pytest.mark.parametrize("format", FORMATS)
async def test_a_name_that_the_api_refuses_is_replaced_and_mapped_back(format: str) -> None:
    server = harbour()

    @server.tool(name="9/lives.of-a-cat")
    async def lives(cat: str) -> str:
        return f"{cat} has 9"

    async with Host({"only": server}) as host:
        await host.ready()
        tools = await host.tools(format=format)
        name = next(name for name, original in tools.names.items() if original.startswith("9"))
    assert name != "9_lives_of-a-cat"
    _, endpoint = await run_conversation(format, [[(name, {"cat": "Tom"})]], host=Host({"only": server}))
    assert sent_results(format, endpoint.requests[-1]) == [("Tom has 9", False)]


@pytest.mark.parametrize("format", FORMATS)
async def test_invalid_calls_get_error_results_with_advice(format: str) -> None:
    steps: list[Step] = [
        [("harbour_birth", {"ship": "Amber"}), ("harbour_berth", {"ship": 3}), ("harbour_berth", {})],
    ]
    _, endpoint = await run_conversation(format, steps)
    unknown, invalid, missing = sent_results(format, endpoint.requests[-1])
    assert "There is no tool 'harbour_birth' now. Did you mean 'harbour_berth'?" in unknown[0] and unknown[1]
    assert "ship" in invalid[0] and invalid[1]
    assert "ship" in missing[0] and missing[1]


@pytest.mark.parametrize("format", ["openai", "openai-responses"])
async def test_arguments_that_are_not_a_json_object_get_an_error_result(format: str) -> None:
    steps: list[Step] = [[("harbour_berth", '{"ship": "Am'), ("harbour_berth", "[1]"), ("harbour_chart", "")]]
    _, endpoint = await run_conversation(format, steps)
    cut, array, empty = sent_results(format, endpoint.requests[-1])
    assert "not JSON" in cut[0] and "Call the tool again" in cut[0]
    assert "not a JSON object" in array[0]
    assert "Log of today" in empty[0] and not empty[1]


@pytest.mark.parametrize("format", FORMATS)
async def test_a_call_that_is_not_approved_gets_an_error_result(format: str) -> None:
    names: list[str] = []

    def approve(approval: ApprovalRequest) -> bool:
        names.append(approval.public_name)
        return False

    host = make_host(approve=approve)
    _, endpoint = await run_conversation(format, [[("harbour_berth", {"ship": "Amber"})]], host=host)
    assert names == ["harbour_berth"]
    assert sent_results(format, endpoint.requests[-1])[0][1]


@pytest.mark.parametrize("format", FORMATS)
async def test_a_long_result_is_cut_and_the_rest_can_be_requested(format: str) -> None:
    async with make_host() as host:
        await host.ready()
        tools = await host.tools(format=format, resources=True)
        log_tool = next(name for name, original in tools.names.items() if original == "harbour_read_log")
        text, call = "", (log_tool, {})
        for _ in range(20):
            async with serve([[call], "end"]) as endpoint:
                await ask(format, endpoint.url, host, stream=False, resources=True)
                result = sent_results(format, endpoint.requests[-1])[0][0]
            part, separator, note = result.rpartition("\n[Cut: ")
            if not separator:
                break
            assert len(part) <= 40_000
            text += part
            name, _, arguments = note.partition("call ")[2].rpartition(".]")[0].partition(" with ")
            call = (name, json.loads(arguments))
        assert text + result == LOG


@pytest.mark.parametrize("format", FORMATS)
async def test_a_cut_result_suggests_the_filters_of_the_tool(format: str) -> None:
    async with make_host() as host:
        await host.ready()
        tools = await host.tools(format=format)
        log_tool = next(name for name, original in tools.names.items() if original == "harbour_read_log")
        async with serve([[(log_tool, {})], "end"]) as endpoint:
            await ask(format, endpoint.url, host, stream=False, max_characters=1_000)
            text = sent_results(format, endpoint.requests[-1])[0][0]
    head, _, note = text.rpartition("\n[Cut: ")
    assert head == LOG[: len(head)] and 800 <= len(head) <= 1_000
    assert note.endswith(
        f"of 150,000 characters. To get another part, call {log_tool} again with another value of limit.]"
    )


@pytest.mark.parametrize("format", FORMATS)
async def test_resources_are_offered_as_tools_if_requested(format: str) -> None:
    steps: list[Step] = [
        [("list_resources", {}), ("search_resources", {"query": "log of today"})],
        [("read_resource", {"uri": "ship://mary"}), ("read_resource", {"uri": "picture://quay"})],
        [("read_resource", {"uri": "log://none"}), ("list_resources", {"server": "nowhere"})],
    ]
    _, endpoint = await run_conversation(format, steps, resources=True)
    resource_list, search, ship, _, missing, nowhere = sent_results(format, endpoint.requests[-1])
    assert "log://today Log of today (text/plain, server library)" in resource_list[0]
    assert "ship://{name} ship (server library): What is known of a ship" in resource_list[0]
    assert search[0].startswith("log://today")
    assert ship[0] == "mary: 40 m"
    assert sent_files(format, endpoint.requests[-1]) == [PNG]
    assert missing[1] and "log://none" in missing[0]
    assert nowhere[1] and "There is no server 'nowhere'" in nowhere[0]


async def test_a_tool_that_was_not_offered_is_refused() -> None:
    async with make_host() as host:
        await host.ready()
        tools = await host.tools(format="anthropic", servers=["library"])
        call = {"type": "tool_use", "id": "t", "name": "harbour_berth", "input": {"ship": "Amber"}}
        (message,) = await host.call(call, tools=tools)
        assert message["content"][0]["is_error"] and "There is no tool" in message["content"][0]["content"][0]["text"]
        (message,) = await host.call(call)
        assert "is_error" not in message["content"][0]
        with pytest.raises(ValueError, match="no server 'x'"):
            await host.tools(format="anthropic", servers=["x"])
        with pytest.raises(ValueError, match="formats are openai"):
            await host.tools(format="x")
        with pytest.raises(ValueError, match="no strict mode"):
            await host.tools(format="gemini", strict=True)


async def test_a_server_tool_takes_precedence_over_a_host_tool_of_the_same_name() -> None:
    server = library()

    @server.tool
    async def read_resource(uri: str) -> str:
        return f"own {uri}"

    async with Host({"only": server}) as host:
        await host.ready()
        tools = await host.tools(format="gemini", resources=True)
        assert {"read_resource", "host_read_resource"} <= tools.names.keys()
        for name, text in (("read_resource", "own ship://a"), ("host_read_resource", "a: 40 m")):
            (content,) = await host.call({"functionCall": {"name": name, "args": {"uri": "ship://a"}}})
            assert content["parts"][0]["functionResponse"]["response"] == {"output": text}


async def test_calls_beyond_the_limit_of_an_answer_get_error_results() -> None:
    async with make_host() as host:
        await host.ready()
        calls = [
            {"id": f"c{n}", "type": "function", "function": {"name": "library_none", "arguments": "{}"}}
            for n in range(129)
        ]
        messages = await host.call_all({"role": "assistant", "tool_calls": calls})
        assert len(messages) == 129
        assert "There is no tool" in messages[127]["content"] and "may have 128 calls" in messages[128]["content"]
