"""Tool calls are found in every form of an answer, and invalid arguments are reported as faults of the call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.host.model_apis import MODEL_APIS, ModelToolCall, find_calls
from wharfinger.host.model_apis.tool_calls import CUT_CALL, MAX_ARGUMENT_CHARACTERS

CHAT = {"id": "c", "type": "function", "function": {"name": "tide", "arguments": '{"hour": 7}'}}
RESPONSE = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "tide", "arguments": '{"hour": 7}'}
ANTHROPIC = {"type": "tool_use", "id": "c", "name": "tide", "input": {"hour": 7}}
GEMINI = {"functionCall": {"id": "c", "name": "tide", "args": {"hour": 7}}}
CALL = ModelToolCall("c", "tide", {"hour": 7})

ANSWERS_WITH_A_CALL: list[tuple[str, Any]] = [
    ("openai", CHAT),
    ("openai", {"role": "assistant", "content": None, "tool_calls": [CHAT]}),
    ("openai", {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [CHAT]}}]}),
    ("openai", [CHAT]),
    ("openai-responses", RESPONSE),
    ("openai-responses", {"object": "response", "output": [{"type": "reasoning"}, RESPONSE]}),
    ("openai-responses", [{"type": "reasoning"}, RESPONSE, {"type": "message", "content": []}]),
    ("openai-responses", [{"type": "response.completed", "response": {"output": [RESPONSE]}}]),
    ("anthropic", ANTHROPIC),
    ("anthropic", {"role": "assistant", "content": [{"type": "text", "text": "x"}, ANTHROPIC]}),
    ("anthropic", {"type": "message", "role": "assistant", "content": [{"type": "thinking"}, ANTHROPIC]}),
    ("anthropic", [{"type": "text", "text": "x"}, ANTHROPIC]),
    ("gemini", GEMINI),
    ("gemini", GEMINI["functionCall"]),
    ("gemini", {"function_call": GEMINI["functionCall"]}),
    ("gemini", {"role": "model", "parts": [{"text": "x"}, GEMINI]}),
    ("gemini", [{"executableCode": {}}, {"codeExecutionResult": {}}, GEMINI]),
    ("gemini", {"candidates": [{"content": {"parts": [GEMINI]}}]}),
    ("gemini", [{"candidates": [{"content": {"parts": [part]}}]} for part in ({"text": "x"}, GEMINI)]),
]


@pytest.mark.parametrize(("format", "value"), ANSWERS_WITH_A_CALL)
def test_a_call_is_found_in_each_form_of_an_answer(format: str, value: Any) -> None:
    for answer in (value, json.dumps(value), json.dumps(value).encode()):
        api, calls = find_calls(answer)
        assert (api.name, calls) == (format, [CALL])
        assert find_calls(answer, format)[1] == [CALL]


@pytest.mark.parametrize(
    "members",
    [
        [{"index": 0, "id": "1"}, {"index": 0}, {"index": 0, "id": "2"}],
        [{"id": "1"}, {}, {"id": "2"}],
        [{"id": "1"}, {}, {"id": "1"}],
        [{}, {}, {}],
        [{"index": 0, "id": "1"}, {"index": 0, "id": "1"}, {"index": 1, "id": "1"}],
    ],
)
def test_streamed_calls_with_the_same_index_or_without_one_are_separate(members: list[dict[str, Any]]) -> None:
    functions = [{"name": "a", "arguments": '{"x"'}, {"arguments": ":1}"}, {"name": "b", "arguments": ""}]
    pieces = [{**member, "function": function} for member, function in zip(members, functions, strict=True)]
    _, calls = find_calls([{"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]} for piece in pieces])
    assert [(call.name, call.arguments) for call in calls] == [("a", {"x": 1}), ("b", {})]


@pytest.mark.parametrize("levels", [70, 2_000])
def test_json_of_too_many_levels_is_refused(levels: int) -> None:
    with pytest.raises(ValueError, match="levels"):
        find_calls('{"content":' * levels + "1" + "}" * levels)


def test_a_call_may_be_a_python_object() -> None:
    @dataclass
    class Function:
        name: str
        arguments: str

    @dataclass
    class Call:
        id: str
        function: Function
        type: str = "function"

    assert find_calls(Call("c", Function("tide", '{"hour": 7}')))[1] == [CALL]


ANSWERS_WITHOUT_CALLS: list[tuple[str, Any]] = [
    ("openai", {"choices": [{"message": {"role": "assistant", "content": "Yes."}}]}),
    ("openai", {"role": "assistant", "content": "Yes."}),
    ("openai", {"role": "assistant", "content": None, "refusal": "No."}),
    ("openai", {"choices": [{"message": {"role": "assistant", "content": None, "refusal": "No."}}]}),
    ("openai", {"choices": [{"message": {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}}]}),
    ("openai", {"choices": []}),
    ("openai", [{"choices": [{"delta": {"content": "Yes."}}]}, {"choices": [], "usage": {}}]),
    ("openai-responses", {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}]}),
    ("anthropic", {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Yes."}]}),
    ("gemini", {"candidates": [{"content": {"role": "model", "parts": [{"text": "Yes."}]}}]}),
    ("gemini", {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}),
    ("gemini", {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}),
    ("gemini", {"candidates": None, "prompt_feedback": {"block_reason": "SAFETY"}}),
    ("gemini", [{"candidates": [{"content": {"parts": [{"text": "Yes."}]}}]}, {"usage_metadata": {}}]),
]


@pytest.mark.parametrize(("format", "answer"), ANSWERS_WITHOUT_CALLS)
def test_an_answer_without_calls_gives_an_empty_list(format: str, answer: Any) -> None:
    api, calls = find_calls(answer)
    assert (api.name, calls) == (format, [])


@pytest.mark.parametrize(
    "answer",
    [
        *({"a": 1}, {"type": "tool_result"}, 3, "[1", '"text"', {"candidates": 3}, '"\ud800"'),
        # A bug: these were calls of Gemini's, without their arguments.
        *({"name": "tide", member: {"hour": 7}} for member in ("arguments", "input")),
        {"name": "tide", "arguments": '{"hour": 7}'},
    ],
)
def test_a_value_that_is_not_an_answer_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match=r"not an answer of a known model API\.$|is not JSON"):
        find_calls(answer)
    with pytest.raises(TypeError, match="object of its client"):
        find_calls(object())
    with pytest.raises(ValueError, match="not an answer of Anthropic Messages"):
        find_calls(CHAT, "anthropic")


@pytest.mark.parametrize("arguments", ["", " ", None, "{}"])
def test_empty_arguments_become_an_empty_object(arguments: Any) -> None:
    (call,) = find_calls({"type": "function", "id": "c", "function": {"name": "tide", "arguments": arguments}})[1]
    assert call == ModelToolCall("c", "tide", {})


@pytest.mark.parametrize(
    "arguments",
    ['{"hour": 7', "[7]", "7", '"x"', "null", "{'hour': 7}", "NaN", "[" * 2_000, '"\ud83d"'],
)
def test_arguments_that_are_not_an_object_give_a_fault_with_advice(arguments: str) -> None:
    (call,) = find_calls({"type": "function", "id": "c", "function": {"name": "tide", "arguments": arguments}})[1]
    if arguments == "null":
        assert call.arguments == {} and not call.fault
    else:
        assert "Call the tool again" in call.fault


def chat_answer(arguments: str) -> Any:
    calls = [CHAT, {"id": "d", "type": "function", "function": {"name": "tide", "arguments": arguments}}]
    return {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "length"}]}


def chat_chunks(arguments: str) -> Any:
    calls = [{**CHAT, "index": 0}, {"index": 1, "id": "d", "function": {"name": "tide", "arguments": arguments}}]
    deltas = [({"tool_calls": calls}, None), ({}, "length")]
    return [{"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]


def response_answer(arguments: str) -> Any:
    cut = {"type": "function_call", "status": "incomplete", "call_id": "d", "name": "tide", "arguments": arguments}
    return {"object": "response", "status": "incomplete", "output": [{**RESPONSE, "status": "completed"}, cut]}


def response_events(arguments: str) -> Any:
    done = [{"type": "response.output_item.done", "item": item} for item in ({"type": "reasoning"}, RESPONSE)]
    return [*done, {"type": "response.incomplete", "response": response_answer(arguments)}]


def anthropic_answer(arguments: Any) -> Any:
    content = [ANTHROPIC, {"type": "tool_use", "id": "d", "name": "tide", "input": arguments}]
    return {"type": "message", "role": "assistant", "stop_reason": "max_tokens", "content": content}


def anthropic_events(arguments: str) -> Any:
    return [
        {"type": "content_block_start", "index": 0, "content_block": ANTHROPIC},
        {"type": "content_block_start", "index": 1, "content_block": {**ANTHROPIC, "id": "d", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": arguments}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
    ]


@pytest.mark.parametrize(
    "answer",
    [
        *(
            form(text)
            for form in (chat_answer, chat_chunks, response_answer, response_events)
            for text in ("", '{"hour": 7')
        ),
        *(anthropic_events(text) for text in ("", '{"hour": 7')),
        *(anthropic_answer(value) for value in ({}, {"hour": 7})),
    ],
)
def test_the_last_call_of_an_answer_that_the_token_limit_cut_has_a_fault(answer: Any) -> None:
    """A bug: its arguments were reported as bad JSON, or it was run with those that had arrived."""
    assert find_calls(answer)[1] == [CALL, ModelToolCall("d", "tide", {}, CUT_CALL)]


@pytest.mark.parametrize("form", [chat_answer, chat_chunks])
def test_a_last_call_with_whole_arguments_has_no_fault_although_the_answer_is_cut(form: Any) -> None:
    assert find_calls(form('{"hour": 8}'))[1] == [CALL, ModelToolCall("d", "tide", {"hour": 8})]


def test_the_length_of_arguments_is_limited() -> None:
    for length, readable in ((MAX_ARGUMENT_CHARACTERS, True), (MAX_ARGUMENT_CHARACTERS + 1, False)):
        text = json.dumps({"x": "y" * (length - len('{"x": ""}'))})
        (call,) = find_calls({**RESPONSE, "arguments": text})[1]
        assert len(text) == length and bool(call.fault) is not readable


def test_custom_and_built_in_tool_calls_are_ignored() -> None:
    custom = {"id": "d", "type": "custom", "custom": {"name": "x", "input": "y"}}
    assert find_calls({"role": "assistant", "tool_calls": [custom, CHAT]})[1] == [CALL]
    search = {"type": "web_search_call", "id": "w", "status": "completed"}
    assert find_calls({"object": "response", "output": [search, RESPONSE]})[1] == [CALL]
    server_tool = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    assert find_calls({"role": "assistant", "content": [server_tool, ANTHROPIC]})[1] == [CALL]


FIELD_NAMES = (
    "type role content tool_calls function choices delta message output item input candidates parts functionCall args "
    "name id call_id arguments index partial_json content_block response"
)
TYPE_NAMES = (
    "function function_call tool_use message assistant reasoning text response.output_item.done response.completed "
    "content_block_start content_block_delta"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(TYPE_NAMES.split(" ")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELD_NAMES.split(" ")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(answer=JSON, format=st.none() | st.sampled_from(tuple(MODEL_APIS)))
def test_every_answer_is_parsed_or_raises_the_documented_error(answer: Any, format: str | None) -> None:
    try:
        calls = find_calls(json.dumps(answer), format)[1]
    except ValueError:
        return
    assert all(isinstance(call.name, str) and isinstance(call.arguments, dict) for call in calls)
