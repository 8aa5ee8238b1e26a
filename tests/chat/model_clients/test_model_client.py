"""The client of each model API against a scripted endpoint: streaming, tools, pictures, retries, errors and limits."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.chat.scripted_endpoint import Call, Endpoint, Hold, Raw, Refusal, TokenLimit, endpoint
from wharfinger import types as t
from wharfinger.chat.model_clients import ModelAnswer, ModelClient, ModelError, choose_model, model_client
from wharfinger.chat.model_clients.model_client import make_decoder
from wharfinger.chat.model_clients.model_errors import ModelNotAuthorized, ModelUnreachable
from wharfinger.chat.model_clients.streamed_answer import MAX_TOOL_CALLS, AnswerRequest, ToolCallPieces
from wharfinger.host.model_apis.tool_calls import CUT_CALL

APIS = ("openai", "anthropic", "ollama")
PNG = b"\x89PNG\r\n\x1a\n0123"


@pytest.fixture(params=APIS)
def server(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    with endpoint(request.param) as started:
        yield started


def user(*content: t.SamplingContent) -> t.SamplingMessage:
    return t.SamplingMessage(role="user", content=list(content))


def text_block(text: str) -> t.TextContent:
    return t.TextContent(text=text)


def ask(server: Endpoint, *messages: t.SamplingMessage, **options: Any) -> tuple[ModelAnswer, list[str]]:
    """Send the messages (by default "hello") to the endpoint, and return the answer and its streamed pieces."""
    pieces: list[str] = []

    async def run() -> ModelAnswer:
        silence = options.pop("silence", 20.0)
        on_wait = options.pop("on_wait", None)
        choice = choose_model(server.model, server.environment)
        async with ModelClient(choice, silence=silence, on_wait=on_wait) as client:
            request = AnswerRequest(messages=list(messages) or [user(text_block("hello"))], **options)
            return await client.answer(request, pieces.append)

    return asyncio.run(asyncio.wait_for(run(), 30)), pieces


def test_an_answer_is_streamed_in_pieces_with_its_token_counts(server: Endpoint) -> None:
    server.answer("Low ", "water at ", "noon.")
    answer, pieces = ask(server, system="Be brief.")
    assert answer.text == "Low water at noon."
    assert pieces == ["Low ", "water at ", "noon."]
    assert (answer.usage.input, answer.usage.output, answer.stop_reason) == (100, 7, "endTurn")
    assert answer.model == "scripted-1"
    assert "Be brief." in server.last_texts and "hello" in server.last_texts


async def test_a_piece_arrives_before_the_answer_ends(server: Endpoint) -> None:
    hold = Hold()
    server.answer("first", hold, "second")

    pieces: asyncio.Queue[str] = asyncio.Queue()
    async with ModelClient(choose_model(server.model, server.environment)) as client:
        task = asyncio.create_task(client.answer(AnswerRequest(messages=[user(text_block("hi"))]), pieces.put_nowait))
        assert await asyncio.wait_for(pieces.get(), 10) == "first"
        assert not task.done()
        hold.release()
        assert (await task).text == "firstsecond"


async def test_cancelling_an_answer_closes_the_connection(server: Endpoint) -> None:
    hold = Hold()
    server.answer("first", hold, "second")

    pieces: asyncio.Queue[str] = asyncio.Queue()
    async with ModelClient(choose_model(server.model, server.environment)) as client:
        task = asyncio.create_task(client.answer(AnswerRequest(messages=[user(text_block("hi"))]), pieces.put_nowait))
        await pieces.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(hold.disconnected.wait, 10)


async def test_a_client_that_is_closed_during_an_answer_closes_after_it(server: Endpoint) -> None:
    """A bug: if the user changed the model, a server waited until the endpoint had been silent for long."""
    hold, arrived = Hold(), asyncio.Event()
    server.answer("first", hold, "second")
    client = ModelClient(choose_model(server.model, server.environment), silence=20.0)
    request = AnswerRequest(messages=[user(text_block("hi"))])
    answering = asyncio.ensure_future(client.answer(request, lambda piece: arrived.set()))
    await arrived.wait()
    await client.close()
    hold.release()
    assert (await answering).text == "firstsecond"
    assert client._session is None


def test_a_tool_call_and_its_result_survive_a_round_trip(server: Endpoint) -> None:
    server.answer("Let me look.", Call("harbour_tide", {"place": "pier 4", "depth": 2.5}, id="call-7"))
    tools = [{"type": "function", "function": {"name": "harbour_tide", "parameters": {"type": "object"}}}]
    if server.api == "anthropic":
        tools = [{"name": "harbour_tide", "input_schema": {"type": "object"}}]
    answer, _ = ask(server, tools=tools)
    assert server.requests[-1]["tools"] == tools
    (call,) = answer.calls
    assert (call.name, call.input) == ("harbour_tide", {"place": "pier 4", "depth": 2.5})
    assert answer.stop_reason == "toolUse"
    assert server.api == "ollama" or call.id == "call-7"

    result = t.ToolResultContent(
        tool_use_id=call.id, content=[text_block("3.1 m"), t.ImageContent(data=PNG, mime_type="image/png")]
    )
    server.answer("It is 3.1 m.")
    ask(
        server,
        user(text_block("the tide?")),
        t.SamplingMessage(role="assistant", content=answer.content),
        user(result),
    )
    messages = server.requests[-1]["messages"]
    picture = base64.b64encode(PNG).decode()
    if server.api == "openai":
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
        assert messages[1]["tool_calls"][0]["function"] == {
            "name": "harbour_tide",
            "arguments": '{"place":"pier 4","depth":2.5}',
        }
        assert messages[2] == {"role": "tool", "tool_call_id": "call-7", "content": "3.1 m"}
        assert messages[3]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{picture}"
    elif server.api == "anthropic":
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


def test_several_calls_have_different_ids(server: Endpoint) -> None:
    server.answer(Call("a", {"x": 1}, id="same"), Call("b", {}, id="same"))
    answer, _ = ask(server)
    assert [call.name for call in answer.calls] == ["a", "b"]
    assert len({call.id for call in answer.calls}) == 2


def test_calls_without_an_id_have_different_ids_in_the_whole_conversation(server: Endpoint) -> None:
    server.answer(Call("a", id=""), Call("b", id=""))
    server.answer(Call("a", id=""))
    calls = [*ask(server)[0].calls, *ask(server)[0].calls]
    assert [call.name for call in calls] == ["a", "b", "a"]
    assert len({call.id for call in calls}) == 3


@pytest.mark.parametrize(
    "members",
    [
        [{"index": 0, "id": "1"}, {"index": 0, "id": "2"}],
        [{"id": "1"}, {"id": "2"}],
        [{"id": "1"}, {"id": "1"}],
        [{"index": None, "id": "1"}, {"index": None, "id": "1"}],
        [{}, {}],
        [{"id": ""}, {"id": "2"}],
    ],
)
def test_calls_that_an_endpoint_gives_the_same_index_are_separate(members: list[dict[str, Any]]) -> None:
    with endpoint("openai") as server:
        chunks = [
            {"tool_calls": [{**member, "function": {"name": name, "arguments": f'{{"x":"{name}"}}'}}]}
            for member, name in zip(members, "ab", strict=True)
        ]
        data = [json.dumps({"choices": [{"index": 0, "delta": chunk}]}) for chunk in chunks]
        server.answer(*(Raw(f"data: {each}\n\n".encode()) for each in data))
        answer, _ = ask(server)
    assert [(call.name, call.input) for call in answer.calls] == [("a", {"x": "a"}), ("b", {"x": "b"})]
    assert len({call.id for call in answer.calls}) == 2


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "nothing"])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_arguments_that_are_not_an_object_are_reported(api: str, text: str) -> None:
    with endpoint(api) as server:
        server.answer(Call("tide", text=text))
        answer, _ = ask(server)
        assert "not a JSON object" in answer.invalid[answer.calls[0].id]


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_arguments_that_can_be_read_can_also_be_sent(api: str) -> None:
    """A bug: with some depths of nesting, the next request ended in a RecursionError."""
    client = ModelClient(choose_model(f"{api}/x", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))
    for depth in range(500, 1000):
        pieces = ToolCallPieces()
        pieces.add(0, "a", "f", '{"x":' + "[" * depth + "]" * depth + "}")
        calls, invalid = pieces.finish()
        message = t.SamplingMessage(role="assistant", content=[*calls])
        msgspec.json.encode(client._api.body(client.choice, AnswerRequest(messages=[message]), frozenset()))
        assert "a" in invalid or calls[0].input


@pytest.mark.parametrize("text", ["", '{"place": "pie'])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_call_that_the_token_limit_cut_is_reported_as_cut(api: str, text: str) -> None:
    """A bug: a part of the arguments was reported as bad JSON, and a call without any was run."""
    with endpoint(api) as server:
        server.answer(Call("depth", {"x": 1}, id="a"), Call("tide", text=text, id="b"), TokenLimit())
        answer, _ = ask(server)
    assert answer.stop_reason == "maxTokens"
    assert answer.invalid == {"b": CUT_CALL}


@pytest.mark.parametrize(
    ("api", "reason"),
    [("openai", "content_filter"), ("anthropic", "model_context_window_exceeded"), ("anthropic", "refusal")],
)
def test_a_call_that_ends_for_another_reason_is_reported_as_cut(api: str, reason: str) -> None:
    """A bug: a call whose arguments had not begun was run without any."""
    function = {"index": 0, "id": "a", "function": {"name": "tide"}}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "tide"}},
        {"type": "message_delta", "delta": {"stop_reason": reason}},
    ]
    if api == "openai":
        events = [{"choices": [{"delta": {"tool_calls": [function]}, "finish_reason": reason}]}]
    reader = ModelClient(choose_model(f"{api}/x", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))._api.reader()
    for event in events:
        reader.feed(json.dumps(event).encode())
    assert reader.finish().invalid == {"a": CUT_CALL}


def test_a_whole_call_before_the_token_limit_is_valid(server: Endpoint) -> None:
    server.answer(Call("depth", {"x": 1}), TokenLimit())
    answer, _ = ask(server)
    assert [call.input for call in answer.calls] == [{"x": 1}]
    assert answer.invalid == {}


@pytest.mark.parametrize("status", [429, 529, 503])
def test_a_request_is_retried_after_the_retry_after_time(server: Endpoint, status: int) -> None:
    waits: list[tuple[float, str]] = []
    server.answer(Refusal(status, "slow down", {"Retry-After": "1"}))
    server.answer("Fine.")
    started = time.monotonic()
    answer, _ = ask(server, on_wait=lambda seconds, reason: waits.append((seconds, reason)))
    assert answer.text == "Fine."
    assert waits == [(1.0, f"HTTP {status}")]
    assert time.monotonic() - started >= 1.0
    assert len(server.requests) == 2


def test_retries_are_bounded(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client, "FIRST_DELAY_SECONDS", 0.01)
    for _ in range(model_client.ATTEMPTS + 1):
        server.answer(Refusal(429, "slow down"))
    with pytest.raises(ModelUnreachable, match=r"429: slow down.*Ask again"):
        ask(server)
    assert len(server.requests) == model_client.ATTEMPTS


def test_a_long_retry_after_is_reported_without_a_retry(server: Endpoint) -> None:
    server.answer(Refusal(429, "quota", {"Retry-After": "3600"}))
    with pytest.raises(ModelUnreachable, match=r"It asks to wait 3,600 s"):
        ask(server)
    assert len(server.requests) == 1


def test_a_refused_key_is_not_quoted_in_the_error(server: Endpoint) -> None:
    key = choose_model(server.model, server.environment).key or "secret-of-ollama-1234"
    server.answer(Refusal(401, f"Incorrect API key provided: {key}, sent as Bearer {key}"))
    with pytest.raises(ModelNotAuthorized, match="API_KEY") as raised:
        ask(server)
    assert server.api == "ollama" or key not in str(raised.value)
    assert raised.value.exit_code == 4


@pytest.mark.parametrize("length", [280, 480])
def test_no_part_of_a_key_is_quoted_in_a_long_error(server: Endpoint, length: int) -> None:
    """A bug: a message that was cut within the key showed its beginning."""
    key = "plainwords" * 4
    message = f"{'x' * length} {key}"
    server.answer(Refusal(400, message if length > 300 else message.encode()))
    environment = {**server.environment, f"{server.api.upper()}_API_KEY": key}

    async def run() -> None:
        async with ModelClient(choose_model(server.model, environment)) as client:
            await client.answer(AnswerRequest(messages=[user(text_block("hi"))]))

    with pytest.raises(ModelError, match=r"xx \*\*\*") as raised:
        asyncio.run(run())
    assert "plain" not in str(raised.value)


def test_an_error_without_a_message_shows_its_json_and_the_member_that_is_refused() -> None:
    """Mistral's API sends such errors. A bug: they were shown as `no message`, and the request was not sent again."""
    body = {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"]}]}}
    with endpoint("openai") as server:
        server.answer(Refusal(422, json.dumps(body).encode()))
        server.answer("Fine.")
        assert ask(server, max_tokens=50)[0].text == "Fine."
        assert server.requests[1]["max_tokens"] == 50
        server.answer(Refusal(422, b'{"detail": "wrong shape"}'))
        with pytest.raises(ModelError, match=r'HTTP 422: \{"detail": "wrong shape"\}'):
            ask(server)


def test_the_query_of_a_base_url_stays_behind_the_path() -> None:
    """A bug: the path of the API became a part of the query."""
    with endpoint("openai") as server:
        server.answer("Fine.")
        environment = {**server.environment, "OPENAI_BASE_URL": f"{server.url}/v1?api-version=1"}

        async def run() -> str:
            async with ModelClient(choose_model(server.model, environment)) as client:
                return (await client.answer(AnswerRequest(messages=[user(text_block("hi"))]))).text

        assert asyncio.run(run()) == "Fine."


def test_a_host_that_cannot_be_encoded_is_reported() -> None:
    """A bug: it ended in a UnicodeError."""

    async def run() -> None:
        async with ModelClient(choose_model("openai/m", {"OPENAI_BASE_URL": "http://\xe9..test"})) as client:
            await client.answer(AnswerRequest(messages=[user(text_block("hi"))]))

    with pytest.raises(ModelUnreachable, match="test failed"):
        asyncio.run(run())


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
def test_the_error_of_a_refused_request_suggests_a_change(
    server: Endpoint, status: int, message: str, advice: str
) -> None:
    server.answer(Refusal(status, message, {"Location": "http://127.0.0.1:9/x"} if status == 307 else {}))
    with pytest.raises(ModelError, match=advice) as raised:
        ask(server)
    assert message in str(raised.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"Wartung bis zw\xf6lf Uhr", b'{"error": {"message": "zw\xf6lf"}}', b"[" * 9_000])
def test_a_refusal_that_is_not_json_is_reported_with_its_status(server: Endpoint, body: bytes) -> None:
    server.answer(Refusal(400, body))
    with pytest.raises(ModelError, match="400"):
        ask(server)


def test_a_field_that_the_endpoint_refuses_is_omitted_in_the_next_request() -> None:
    with endpoint("openai") as server:
        server.answer(Refusal(400, "Unrecognized request argument supplied: stream_options"))
        server.answer(Refusal(422, "max_completion_tokens: extra fields not permitted"))
        server.answer("Fine.")
        assert ask(server, max_tokens=50)[0].text == "Fine."
        assert "stream_options" not in server.requests[2]
        assert server.requests[2]["max_tokens"] == 50


def test_an_endpoint_that_stops_sending_is_reported(server: Endpoint) -> None:
    hold = Hold()
    server.answer("first", hold)
    with pytest.raises(ModelUnreachable, match=r"silent for 0\.2 s.*--model-timeout"):
        ask(server, silence=0.2)
    hold.release()


def test_an_unreachable_endpoint_is_reported_by_name(server: Endpoint) -> None:
    environment = {name: value.replace(server.url, "http://127.0.0.1:9") for name, value in server.environment.items()}

    async def run() -> None:
        async with ModelClient(choose_model(server.model, environment)) as client:
            await client.answer(AnswerRequest(messages=[user(text_block("hi"))]))

    with pytest.raises(
        ModelUnreachable, match=r"Cannot connect to http://127\.0\.0\.1:9.*(_BASE_URL|OLLAMA_HOST)"
    ) as raised:
        asyncio.run(run())
    assert raised.value.exit_code == 3


def test_an_incomplete_stream_is_an_error() -> None:
    streams = {
        "openai": b'data: {"choices":[{"delta":{"content":"half"}}]}\n\n',
        "anthropic": b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"half"}}\n\n',
        "ollama": b'{"message":{"content":"half"},"done":false}\n',
    }
    for api, data in streams.items():
        client = ModelClient(choose_model(f"{api}/x", {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))
        reader = client._api.reader()
        content_type = "" if api == "ollama" else "text/event-stream"
        assert [reader.feed(piece) for piece in make_decoder(content_type)(data)] == ["half"]
        with pytest.raises(ModelError, match="in the middle of the answer"):
            reader.finish()


@pytest.mark.parametrize(
    "data", [b"<html>\n\n", b"data: nonsense\n\n", b"data: [1]\n\n", b"[[[[\n\n", b'data: {"a":"\xff"}\n\n']
)
def test_an_answer_of_another_api_is_reported(server: Endpoint, data: bytes) -> None:
    if server.api == "ollama":
        data = data.removeprefix(b"data: ")
    elif not data.startswith(b"data"):
        data = b"data: " + data
    server.answer(Raw(data))
    with pytest.raises(ModelError, match="not the JSON of its API"):
        ask(server)


@pytest.mark.parametrize("chunk_size", [1, 7, 10_000])
def test_an_answer_that_is_not_streamed_may_have_several_lines(chunk_size: int) -> None:
    """A bug: its first line alone was taken for the answer."""
    body = {"choices": [{"message": {"content": "Fine."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 4}}
    data = json.dumps(body, indent=1).encode() + b"\n" + json.dumps(body).encode() + b"\n{\n"
    decode = make_decoder("application/json")
    pieces = [piece for at in range(0, len(data), chunk_size) for piece in decode(data[at : at + chunk_size])]
    assert [json.loads(piece) for piece in pieces] == [body, body]
    assert decode(b"") == [b"{"]


def test_an_error_inside_the_stream_is_reported(server: Endpoint) -> None:
    server.answer(
        Raw(
            {
                "openai": b'data: {"error":{"message":"cuda died"}}\n\n',
                "anthropic": b'data: {"type":"error","error":{"type":"overloaded_error","message":"cuda died"}}\n\n',
                "ollama": b'{"error":"cuda died"}\n',
            }[server.api]
        )
    )
    with pytest.raises(ModelError, match="cuda died"):
        ask(server)


def test_too_many_calls_are_an_error(server: Endpoint) -> None:
    server.answer(*(Call("a", id=str(number)) for number in range(MAX_TOOL_CALLS)))
    assert len(ask(server)[0].calls) == MAX_TOOL_CALLS
    server.answer(*(Call("a", id=str(number)) for number in range(MAX_TOOL_CALLS + 1)))
    with pytest.raises(ModelError, match=f"more than {MAX_TOOL_CALLS} tools"):
        ask(server)


def test_a_line_beyond_the_maximum_size_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client, "MAX_EVENT_BYTES", 1000)
    for api in APIS:
        with endpoint(api) as server:
            server.answer(Raw(b"data: " + b"x" * 2000))
            with pytest.raises(ModelError, match=r"larger than 1,000 bytes"):
                ask(server)


def test_ollama_gets_a_context_window_that_fits_the_conversation() -> None:
    with endpoint("ollama") as server:
        server.answer("short")
        ask(server)
        assert "num_ctx" not in server.requests[-1]["options"]
        server.answer("long")
        ask(server, user(text_block("word " * 5000)))
        assert server.requests[-1]["options"]["num_ctx"] == 16384


@pytest.mark.parametrize(
    "content",
    [t.ToolUseContent(id="1", name="write", input={"text": "word " * 5000}), t.TextContent(text="潮" * 8000)],
    ids=["arguments", "Chinese"],
)
def test_the_window_of_ollama_fits_arguments_and_texts_of_other_alphabets(content: t.SamplingContent) -> None:
    """A bug: arguments of calls were not counted, and a Chinese character as a third of a token."""
    with endpoint("ollama") as server:
        server.answer("long")
        ask(server, t.SamplingMessage(role="assistant", content=[content]))
        assert server.requests[-1]["options"]["num_ctx"] == 16384


@pytest.mark.parametrize("in_result", [True, False])
def test_ollama_gets_a_label_only_with_pictures_of_results(in_result: bool) -> None:
    """A bug: a picture without text, as a server may send it by sampling, had the label of a tool's result."""
    picture = t.ImageContent(data=PNG, mime_type="image/png")
    content = t.ToolResultContent(tool_use_id="1", content=[picture]) if in_result else picture
    with endpoint("ollama") as server:
        server.answer("a chart")
        ask(server, user(content))
        message = server.requests[-1]["messages"][-1]
    assert message["images"] == [base64.b64encode(PNG).decode()]
    assert message["content"] == ("Pictures in the results:" if in_result else "")


def test_an_id_of_another_api_is_sent_to_anthropic_in_letters_that_it_accepts() -> None:
    """A bug: after `/model` such a conversation was refused, as ids may only have letters, digits, `_` and `-`."""
    ids = ["functions.read:0", "functions.read:1", "toolu_01-x"]
    calls = [t.ToolUseContent(id=id, name="read", input={}) for id in ids]
    results = [t.ToolResultContent(tool_use_id=id, content=[text_block("4 m")]) for id in ids]
    with endpoint("anthropic") as server:
        server.answer("Fine.")
        ask(server, user(text_block("hi")), t.SamplingMessage(role="assistant", content=[*calls]), user(*results))
        _, called, answered = server.requests[-1]["messages"]
    sent = [block["id"] for block in called["content"]]
    assert sent == [block["tool_use_id"] for block in answered["content"]]
    assert len(set(sent)) == 3 and sent[2] == ids[2]
    assert all(re.fullmatch("[A-Za-z0-9_-]+", id) for id in sent)


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_an_invented_name_of_a_tool_is_sent_in_letters_that_the_api_accepts(api: str) -> None:
    """A bug: the API refused each later question of the conversation."""
    names = {"functions.read file": "functions_read_file", "": "unknown", "read-it_2": "read-it_2", "x" * 90: "x" * 64}
    calls = [t.ToolUseContent(id=str(number), name=name, input={}) for number, name in enumerate(names)]
    results = [t.ToolResultContent(tool_use_id=call.id, content=[text_block("There is none.")]) for call in calls]
    with endpoint(api) as server:
        server.answer("Fine.")
        ask(server, user(text_block("hi")), t.SamplingMessage(role="assistant", content=[*calls]), user(*results))
        called = next(message for message in server.requests[-1]["messages"] if message["role"] == "assistant")
    sent = called["content"] if api == "anthropic" else [call["function"] for call in called["tool_calls"]]
    assert [call["name"] for call in sent] == list(names.values())
