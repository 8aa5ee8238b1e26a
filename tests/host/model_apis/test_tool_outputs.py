"""The output that a model gets for a tool result, at each limit and one beyond it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.host.model_apis.checkers import message_faults
from tests.host.model_apis.harbour import PDF, PNG
from wharfinger import types as t
from wharfinger.host.model_apis import MODEL_APIS, ModelToolCall, OutputLimits, ToolOutput, tool_output
from wharfinger.host.model_apis.tool_outputs import IMAGES, MAX_FILE_BYTES, MAX_FILES, failed_output

CALL = ModelToolCall("c", "tide", {})
LIMITS = OutputLimits(file_types=frozenset(IMAGES))


def output(*blocks: Any, limits: OutputLimits = LIMITS, **fields: Any) -> ToolOutput:
    return tool_output(CALL, t.CallToolResult(content=list(blocks), **fields), limits)


def text(value: str) -> t.TextContent:
    return t.TextContent(text=value)


def image(data: bytes = PNG, mime_type: str = "image/png") -> t.ImageContent:
    return t.ImageContent(data=data, mime_type=mime_type)


def test_texts_are_joined_and_files_keep_their_position() -> None:
    result = output(text("a"), text("b"), image(), text("c"))
    assert result.parts[0] == "a\nb" and result.parts[2] == "c"
    assert [file.data for file in result.files] == [PNG]
    assert result.text == "a\nb\nc"


def test_100_000_texts_are_joined_quickly() -> None:
    """A bug: the time grew with the square of their number, so a server could block a host for minutes."""
    began = time.monotonic()
    result = output(*[text("x" * 100)] * 100_000)
    assert time.monotonic() - began < 10
    assert "of 10,099,999 characters" in result.text


@pytest.mark.parametrize("blocks", [(), (text(""),), (text(" \n"),)])
def test_an_empty_result_is_described(blocks: tuple[Any, ...]) -> None:
    assert output(*blocks).parts == ["(The tool returned nothing.)"]
    assert output(*blocks, structured_content={"a": 1}).parts == ['{"a":1}']
    assert output(text("a"), structured_content={"a": 1}).parts == ["a"]


@pytest.mark.parametrize(("length", "cut"), [(1_000, False), (1_001, True)])
def test_a_text_is_complete_up_to_the_limit(length: int, cut: bool) -> None:
    result = output(text("x" * length), limits=OutputLimits(max_characters=1_000))
    assert result.text.startswith("x" * 1_000) and ("[Cut: 1,000 of 1,001 characters." in result.text) is cut
    assert failed_output(CALL, "x" * length, OutputLimits(max_characters=1_000)).text.endswith("[…]") is cut


def test_a_long_text_is_cut_at_a_line_with_advice_to_continue() -> None:
    requests: list[tuple[int, int]] = []

    def advise(text: str, shown_characters: int) -> str:
        requests.append((len(text), shown_characters))
        return "Ask again."

    lines = "0123456789\n" * 20
    blocks = [text("first"), text(lines)]
    result = tool_output(
        CALL, t.CallToolResult(content=blocks), OutputLimits(max_characters=100), how_to_continue=advise
    )
    assert requests == [(6 + len(lines), 94)]  # "first", a line break, and eight lines
    assert result.text.endswith("0123456789\n\n[Cut: 94 of 226 characters. Ask again.]")


@pytest.mark.parametrize(("size", "sent"), [(MAX_FILE_BYTES, True), (MAX_FILE_BYTES + 1, False)])
def test_an_image_is_sent_up_to_the_maximum_size(size: int, sent: bool) -> None:
    result = output(image(PNG + bytes(size - len(PNG))))
    assert bool(result.files) is sent and ("the limit is 3.6 MiB" in result.text) is not sent


@pytest.mark.parametrize(("number", "left_out"), [(MAX_FILES, 0), (MAX_FILES + 1, 1)])
def test_the_number_of_images_is_limited(number: int, left_out: int) -> None:
    result = output(*[image()] * number)
    assert len(result.files) == MAX_FILES
    assert (f"[{left_out} more images" in result.text) is bool(left_out)


def test_the_type_of_an_image_comes_from_its_bytes() -> None:
    assert output(image(mime_type="image/jpeg")).files[0].mime_type == "image/png"
    assert output(image(mime_type="application/octet-stream")).files[0].mime_type == "image/png"
    assert output(image(b"<svg/>")).parts == ["[(image/png, 6 B) is not sent: its bytes are of another type.]"]
    assert "takes no such file" in output(image(b"<svg/>", "image/svg+xml")).text
    assert "takes no such file" in output(image(), limits=OutputLimits()).text


def test_sound_and_unknown_blocks_are_described() -> None:
    assert "(audio/wav, 3 B) is not sent" in output(t.AudioContent(data=b"wav", mime_type="audio/wav")).text
    assert output(t.UnknownContent({"type": "smell", "of": "tar"})).text == '{"type":"smell","of":"tar"}'


def test_resources_are_described_with_their_uris() -> None:
    embedded = t.EmbeddedResource(resource=t.ResourceContents(uri="log://today", text="all well"))
    assert output(embedded).text == "[log://today]\nall well"
    link = t.ResourceLink(uri="a://b", name="n", title="T\u202e", description="D", mime_type="text/plain", size=2_048)
    assert output(link).text == "Resource: T? <a://b> (text/plain, 2.0 KiB): D"


def test_content_for_the_user_only_is_not_sent_to_the_model() -> None:
    for audience, sent in ((["user"], False), (["user", "assistant"], True), (["assistant"], True), ([], True)):
        block = t.TextContent(text="secret", annotations=t.Annotations(audience=audience))  # type: ignore[arg-type]
        assert ("secret" in output(block).text) is sent


def test_a_block_of_an_unknown_type_for_the_user_only_is_not_sent_to_the_model() -> None:
    """A bug: the model got it."""
    blocks = [t.UnknownContent(type="chart", annotations={"audience": audience}) for audience in (["user"], [], 3)]
    first, *others = output(*blocks).text.split("\n")
    assert first == "[A part of the result is meant for the user only.]"
    assert all("chart" in text for text in others) and len(others) == 2


def test_structured_content_is_sent_if_all_blocks_are_for_the_user_only() -> None:
    """A bug: the model got only the note about the blocks."""
    block = t.TextContent(text="secret", annotations=t.Annotations(audience=["user"]))
    note = "[A part of the result is meant for the user only.]"
    assert output(block, structured_content={"a": 1}).parts == [f'{note}\n{{"a":1}}']
    assert output(block, text("b"), structured_content={"a": 1}).parts == [f"{note}\nb"]
    assert output(block).parts == [note]


@pytest.mark.parametrize("format", MODEL_APIS)
def test_every_output_makes_messages_that_the_api_accepts(format: str) -> None:
    api = MODEL_APIS[format]
    limits = OutputLimits(file_types=api.file_types)
    document = t.EmbeddedResource(resource=t.ResourceContents(uri="a://b", mime_type="application/pdf", blob=PDF))
    results = [
        t.CallToolResult(content=[]),
        t.CallToolResult(content=[image()]),
        t.CallToolResult(content=[document, text("x"), image()]),
        t.CallToolResult(content=[image(), text("broken")], is_error=True),
    ]
    outputs = [
        tool_output(ModelToolCall(f"c{number}", "tide", {}), result, limits) for number, result in enumerate(results)
    ]
    answers: dict[str, list[Any]] = {
        "openai": [{"role": "assistant", "tool_calls": [{"id": item.call.id} for item in outputs]}],
        "openai-responses": [{"type": "function_call", "call_id": item.call.id} for item in outputs],
        "anthropic": [{"role": "assistant", "content": [{"type": "tool_use", "id": item.call.id} for item in outputs]}],
        "gemini": [{"parts": [{"functionCall": {"name": "tide", "id": item.call.id}} for item in outputs]}],
    }
    assert message_faults(format, [*answers[format], *api.messages(outputs)]) == []
    assert api.messages([]) == []


def test_a_failed_result_for_anthropic_says_that_its_files_are_not_sent() -> None:
    failed = t.CallToolResult(content=[image(), text("broken"), image()], is_error=True)
    outputs = [tool_output(CALL, failed, OutputLimits(file_types=MODEL_APIS["anthropic"].file_types))]
    (message,) = MODEL_APIS["anthropic"].messages(outputs)
    assert message["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": CALL.id,
            "content": [{"type": "text", "text": "broken\n[2 files not sent, because the call failed]"}],
            "is_error": True,
        }
    ]
