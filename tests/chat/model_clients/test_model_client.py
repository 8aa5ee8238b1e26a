"""The client of each model API with a scripted endpoint: streaming, tools, pictures, retries, errors and bounds."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chat.scripted_endpoint import Call, Endpoint, Hold, Raw, Refuse, endpoint
from wharfinger import types as t
from wharfinger.chat.model_clients import ModelAnswer, ModelClient, ModelError, choose_model, model_client
from wharfinger.chat.model_clients.model_client import make_decoder, seconds_to_wait
from wharfinger.chat.model_clients.model_errors import ModelNotAuthorized, ModelUnreachable
from wharfinger.chat.model_clients.streamed_answer import MAX_TOOL_CALLS, AnswerRequest

APIS = ("openai", "anthropic", "ollama")
PNG = b"\x89PNG\r\n\x1a\n0123"


@pytest.fixture(params=APIS)
def scripted(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    with endpoint(request.param) as started:
        yield started


def user(*content: t.SamplingContent) -> t.SamplingMessage:
    return t.SamplingMessage(role="user", content=list(content))


def text_block(text: str) -> t.TextContent:
    return t.TextContent(text=text)


def ask(scripted: Endpoint, *messages: t.SamplingMessage, **options: Any) -> tuple[ModelAnswer, list[str]]:
    """Send messages to the endpoint, by default "hello", and return the answer and its pieces."""
    pieces: list[str] = []

    async def run() -> ModelAnswer:
        silence = options.pop("silence", 20.0)
        on_wait = options.pop("on_wait", None)
        choice = choose_model(scripted.model, scripted.environment)
        async with ModelClient(choice, silence=silence, on_wait=on_wait) as client:
            request = AnswerRequest(messages=list(messages) or [user(text_block("hello"))], **options)
            return await client.answer(request, pieces.append)

    return asyncio.run(asyncio.wait_for(run(), 30)), pieces


def test_an_answer_comes_in_pieces_with_its_tokens(scripted: Endpoint) -> None:
    scripted.answer("Low ", "water at ", "noon.")
    answer, pieces = ask(scripted, system="Be brief.")
    assert answer.text == "Low water at noon."
    assert pieces == ["Low ", "water at ", "noon."]
    assert (answer.usage.input, answer.usage.output, answer.stop_reason) == (100, 7, "endTurn")
    assert answer.model == "scripted-1"
    assert "Be brief." in scripted.last_texts and "hello" in scripted.last_texts


def test_a_piece_arrives_before_the_answer_ends(scripted: Endpoint) -> None:
    hold = Hold()
    scripted.answer("first", hold, "second")

    async def run() -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()
        async with ModelClient(choose_model(scripted.model, scripted.environment)) as client:
            task = asyncio.create_task(client.answer(AnswerRequest(messages=[user(text_block("hi"))]), seen.put_nowait))
            assert await asyncio.wait_for(seen.get(), 10) == "first"
            assert not task.done()
            hold.release()
            assert (await task).text == "firstsecond"

    asyncio.run(run())


def test_cancelling_an_answer_closes_the_connection(scripted: Endpoint) -> None:
    hold = Hold()
    scripted.answer("first", hold, "second")

    async def run() -> None:
        seen: asyncio.Queue[str] = asyncio.Queue()
        async with ModelClient(choose_model(scripted.model, scripted.environment)) as client:
            task = asyncio.create_task(client.answer(AnswerRequest(messages=[user(text_block("hi"))]), seen.put_nowait))
            await seen.get()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await asyncio.to_thread(hold.gone.wait, 10)

    asyncio.run(run())


def test_a_tool_call_and_its_result_survive_a_round_trip(scripted: Endpoint) -> None:
    scripted.answer("Let me look.", Call("harbour_tide", {"place": "pier 4", "depth": 2.5}, id="call-7"))
    tools = [{"type": "function", "function": {"name": "harbour_tide", "parameters": {"type": "object"}}}]
    if scripted.api == "anthropic":
        tools = [{"name": "harbour_tide", "input_schema": {"type": "object"}}]
    answer, _ = ask(scripted, tools=tools)
    assert scripted.requests[-1]["tools"] == tools
    (call,) = answer.calls
    assert (call.name, call.input) == ("harbour_tide", {"place": "pier 4", "depth": 2.5})
    assert answer.stop_reason == "toolUse"
    assert scripted.api == "ollama" or call.id == "call-7"

    result = t.ToolResultContent(
        tool_use_id=call.id, content=[text_block("3.1 m"), t.ImageContent(data=PNG, mime_type="image/png")]
    )
    scripted.answer("It is 3.1 m.")
    ask(
        scripted,
        user(text_block("the tide?")),
        t.SamplingMessage(role="assistant", content=answer.content),
        user(result),
    )
    messages = scripted.requests[-1]["messages"]
    picture = base64.b64encode(PNG).decode()
    if scripted.api == "openai":
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
        assert messages[1]["tool_calls"][0]["function"] == {
            "name": "harbour_tide",
            "arguments": '{"place":"pier 4","depth":2.5}',
        }
        assert messages[2] == {"role": "tool", "tool_call_id": "call-7", "content": "3.1 m"}
        assert messages[3]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{picture}"
    elif scripted.api == "anthropic":
        assert messages[1]["content"][1] == {
            "type": "tool_use", "id": "call-7", "name": "harbour_tide", "input": {"place": "pier 4", "depth": 2.5},
        }  # fmt: skip
        (block,) = messages[2]["content"]
        assert block["tool_use_id"] == "call-7"
        assert block["content"][0] == {"type": "text", "text": "3.1 m"}
        assert block["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": picture}
    else:
        assert messages[2] == {"role": "tool", "tool_name": "harbour_tide", "content": "3.1 m"}
        assert messages[3]["images"] == [picture]


def test_several_calls_have_different_ids(scripted: Endpoint) -> None:
    scripted.answer(Call("a", {"x": 1}, id="same"), Call("b", {}, id="same"))
    answer, _ = ask(scripted)
    assert [call.name for call in answer.calls] == ["a", "b"]
    assert len({call.id for call in answer.calls}) == 2


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "nothing"])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_arguments_that_are_not_an_object_are_reported(api: str, text: str) -> None:
    with endpoint(api) as scripted:
        scripted.answer(Call("tide", text=text))
        answer, _ = ask(scripted)
        assert "not a JSON object" in answer.invalid[answer.calls[0].id]


@pytest.mark.parametrize("status", [429, 529, 503])
def test_an_overloaded_endpoint_is_retried_after_the_time_that_it_names(scripted: Endpoint, status: int) -> None:
    waits: list[tuple[float, str]] = []
    scripted.answer(Refuse(status, "slow down", {"Retry-After": "1"}))
    scripted.answer("Fine.")
    started = time.monotonic()
    answer, _ = ask(scripted, on_wait=lambda seconds, reason: waits.append((seconds, reason)))
    assert answer.text == "Fine."
    assert waits == [(1.0, f"HTTP {status}")]
    assert time.monotonic() - started >= 1.0
    assert len(scripted.requests) == 2


def test_retries_are_bounded(scripted: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client, "FIRST_DELAY_SECONDS", 0.01)
    for _ in range(model_client.ATTEMPTS + 1):
        scripted.answer(Refuse(429, "slow down"))
    with pytest.raises(ModelUnreachable, match=r"429: slow down.*Ask again"):
        ask(scripted)
    assert len(scripted.requests) == model_client.ATTEMPTS


def test_a_long_retry_after_is_reported_instead(scripted: Endpoint) -> None:
    scripted.answer(Refuse(429, "quota", {"Retry-After": "3600"}))
    with pytest.raises(ModelUnreachable, match=r"It asks to wait 3,600 s"):
        ask(scripted)
    assert len(scripted.requests) == 1


def test_a_refused_key_is_not_repeated(scripted: Endpoint) -> None:
    key = choose_model(scripted.model, scripted.environment).key or "secret-of-ollama-1234"
    scripted.answer(Refuse(401, f"Incorrect API key provided: {key}, sent as Bearer {key}"))
    with pytest.raises(ModelNotAuthorized, match="API_KEY") as caught:
        ask(scripted)
    assert scripted.api == "ollama" or key not in str(caught.value)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("status", "message", "advice"),
    [
        (404, "model 'scripted-1' not found", "ollama pull|name of the model"),
        (400, "This model's maximum context length is 8192 tokens", "/clear"),
        (413, "request too large", "/clear"),
        (400, "scripted-1 does not support tools", "--no-tools"),
        (307, "elsewhere", "not followed"),
    ],
)
def test_a_refusal_says_what_to_change(scripted: Endpoint, status: int, message: str, advice: str) -> None:
    scripted.answer(Refuse(status, message, {"Location": "http://127.0.0.1:9/x"} if status == 307 else {}))
    with pytest.raises(ModelError, match=advice) as caught:
        ask(scripted)
    assert message in str(caught.value)
    assert len(scripted.requests) == 1


def test_a_member_that_an_endpoint_refuses_is_left_out() -> None:
    with endpoint("openai") as scripted:
        scripted.answer(Refuse(400, "Unrecognized request argument supplied: stream_options"))
        scripted.answer(Refuse(422, "max_completion_tokens: extra fields not permitted"))
        scripted.answer("Fine.")
        assert ask(scripted, max_tokens=50)[0].text == "Fine."
        assert "stream_options" not in scripted.requests[2]
        assert scripted.requests[2]["max_tokens"] == 50


def test_a_missing_answer_is_reported(scripted: Endpoint) -> None:
    hold = Hold()
    scripted.answer("first", hold)
    with pytest.raises(ModelUnreachable, match=r"silent for 0\.2 s.*--model-timeout"):
        ask(scripted, silence=0.2)
    hold.release()


def test_an_unreachable_endpoint_is_reported_by_name(scripted: Endpoint) -> None:
    environment = {
        name: value.replace(scripted.url, "http://127.0.0.1:9") for name, value in scripted.environment.items()
    }

    async def run() -> None:
        async with ModelClient(choose_model(scripted.model, environment)) as client:
            await client.answer(AnswerRequest(messages=[user(text_block("hi"))]))

    with pytest.raises(
        ModelUnreachable, match=r"Cannot connect to http://127\.0\.0\.1:9.*(_BASE_URL|OLLAMA_HOST)"
    ) as caught:
        asyncio.run(run())
    assert caught.value.exit_code == 3


def test_a_stream_that_breaks_off_is_an_error() -> None:
    broken = {
        "openai": b'data: {"choices":[{"delta":{"content":"half"}}]}\n\n',
        "anthropic": b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"half"}}\n\n',
        "ollama": b'{"message":{"content":"half"},"done":false}\n',
    }
    for api, data in broken.items():
        client = ModelClient(choose_model(f"{api}/x", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))
        reader = client._api.reader()
        kind = "" if api == "ollama" else "text/event-stream"
        assert [reader.feed(piece) for piece in make_decoder(kind)(data)] == ["half"]
        with pytest.raises(ModelError, match="in the middle of the answer"):
            reader.finish()


@pytest.mark.parametrize("data", [b"<html>\n\n", b"data: nonsense\n\n", b"data: [1]\n\n", b"[[[[\n\n"])
def test_an_answer_of_another_api_is_reported(scripted: Endpoint, data: bytes) -> None:
    if scripted.api == "ollama":
        data = data.removeprefix(b"data: ")
    elif not data.startswith(b"data"):
        data = b"data: " + data
    scripted.answer(Raw(data))
    with pytest.raises(ModelError, match="not the JSON of its API"):
        ask(scripted)


def test_an_error_inside_the_stream_is_reported(scripted: Endpoint) -> None:
    scripted.answer(
        Raw(
            {
                "openai": b'data: {"error":{"message":"cuda died"}}\n\n',
                "anthropic": b'data: {"type":"error","error":{"type":"overloaded_error","message":"cuda died"}}\n\n',
                "ollama": b'{"error":"cuda died"}\n',
            }[scripted.api]
        )
    )
    with pytest.raises(ModelError, match="cuda died"):
        ask(scripted)


def test_too_many_calls_are_an_error(scripted: Endpoint) -> None:
    scripted.answer(*(Call("a", id=str(number)) for number in range(MAX_TOOL_CALLS)))
    assert len(ask(scripted)[0].calls) == MAX_TOOL_CALLS
    scripted.answer(*(Call("a", id=str(number)) for number in range(MAX_TOOL_CALLS + 1)))
    with pytest.raises(ModelError, match=f"more than {MAX_TOOL_CALLS} tools"):
        ask(scripted)


def test_an_endless_line_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client, "MAX_EVENT_BYTES", 1000)
    for api in APIS:
        with endpoint(api) as scripted:
            scripted.answer(Raw(b"data: " + b"x" * 2000))
            with pytest.raises(ModelError, match=r"larger than 1,000 bytes"):
                ask(scripted)


def test_ollama_gets_a_window_in_which_the_conversation_fits() -> None:
    with endpoint("ollama") as scripted:
        scripted.answer("short")
        ask(scripted)
        assert "num_ctx" not in scripted.requests[-1]["options"]
        scripted.answer("long")
        ask(scripted, user(text_block("word " * 5000)))
        assert scripted.requests[-1]["options"]["num_ctx"] == 16384


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("0", 0.0), ("12", 12.0), ("1.5", 1.5), ("-1", None), ("soon", None), ("9" * 40, None),
     ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0)],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert seconds_to_wait(text, 10.0) == seconds
