"""What a model gets of a tool's result, at each bound and one beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.host.model_apis.checkers import message_faults
from tests.host.model_apis.harbour import PDF, PNG
from wharfinger import types as t
from wharfinger.host.model_apis import MODEL_APIS, ModelToolCall, OutputLimits, ToolOutput, tool_output
from wharfinger.host.model_apis.tool_outputs import IMAGES, MAX_FILE_BYTES, MAX_FILES, failed_output

CALL = ModelToolCall("c", "tide", {})
LIMITS = OutputLimits(file_types=frozenset(IMAGES))


def output(*blocks: Any, limits: OutputLimits = LIMITS, **members: Any) -> ToolOutput:
    return tool_output(CALL, t.CallToolResult(content=list(blocks), **members), limits)


def text(value: str) -> t.TextContent:
    return t.TextContent(text=value)


def image(data: bytes = PNG, kind: str = "image/png") -> t.ImageContent:
    return t.ImageContent(data=data, mime_type=kind)


def test_texts_are_joined_and_files_stay_in_their_places() -> None:
    found = output(text("a"), text("b"), image(), text("c"))
    assert found.parts[0] == "a\nb" and found.parts[2] == "c"
    assert [file.data for file in found.files] == [PNG]
    assert found.text == "a\nb\nc"


@pytest.mark.parametrize("blocks", [(), (text(""),), (text(" \n"),)])
def test_no_result_is_empty(blocks: tuple[Any, ...]) -> None:
    assert output(*blocks).parts == ["(The tool returned nothing.)"]
    assert output(*blocks, structured_content={"a": 1}).parts == ['{"a":1}']
    assert output(text("a"), structured_content={"a": 1}).parts == ["a"]


@pytest.mark.parametrize(("length", "cut"), [(1_000, False), (1_001, True)])
def test_a_text_is_whole_up_to_the_limit(length: int, cut: bool) -> None:
    found = output(text("x" * length), limits=OutputLimits(max_characters=1_000))
    assert found.text.startswith("x" * 1_000) and ("[Cut: 1,000 of 1,001 characters." in found.text) is cut
    assert failed_output(CALL, "x" * length, OutputLimits(max_characters=1_000)).text.endswith("[…]") is cut


def test_a_text_is_cut_at_a_line_and_says_how_to_continue() -> None:
    asked: list[tuple[int, int]] = []

    def how(whole: str, shown: int) -> str:
        asked.append((len(whole), shown))
        return "Ask again."

    lines = "0123456789\n" * 20
    blocks = [text("first"), text(lines)]
    found = tool_output(CALL, t.CallToolResult(content=blocks), OutputLimits(max_characters=100), how_to_continue=how)
    assert asked == [(6 + len(lines), 94)]  # "first", a line break, and eight lines
    assert found.text.endswith("0123456789\n\n[Cut: 94 of 226 characters. Ask again.]")


@pytest.mark.parametrize(("size", "sent"), [(MAX_FILE_BYTES, True), (MAX_FILE_BYTES + 1, False)])
def test_an_image_is_sent_up_to_its_size(size: int, sent: bool) -> None:
    found = output(image(PNG + bytes(size - len(PNG))))
    assert bool(found.files) is sent and ("the limit is 3.6 MiB" in found.text) is not sent


@pytest.mark.parametrize(("number", "left_out"), [(MAX_FILES, 0), (MAX_FILES + 1, 1)])
def test_the_number_of_images_is_bounded(number: int, left_out: int) -> None:
    found = output(*[image()] * number)
    assert len(found.files) == MAX_FILES
    assert (f"[{left_out} more images" in found.text) is bool(left_out)


def test_the_type_of_an_image_comes_from_its_bytes() -> None:
    assert output(image(kind="image/jpeg")).files[0].mime_type == "image/png"
    assert output(image(kind="application/octet-stream")).files[0].mime_type == "image/png"
    assert output(image(b"<svg/>")).parts == ["[(image/png, 6 B) is not sent: its bytes are of another type.]"]
    assert "takes no such file" in output(image(b"<svg/>", "image/svg+xml")).text
    assert "takes no such file" in output(image(), limits=OutputLimits()).text


def test_sound_and_unknown_blocks_are_described() -> None:
    assert "(audio/wav, 3 B) is not sent" in output(t.AudioContent(data=b"wav", mime_type="audio/wav")).text
    assert output(t.UnknownContent({"type": "smell", "of": "tar"})).text == '{"type":"smell","of":"tar"}'


def test_resources_are_described_with_their_uris() -> None:
    whole = t.EmbeddedResource(resource=t.ResourceContents(uri="log://today", text="all well"))
    assert output(whole).text == "[log://today]\nall well"
    link = t.ResourceLink(uri="a://b", name="n", title="T\u202e", description="D", mime_type="text/plain", size=2_048)
    assert output(link).text == "Resource: T? <a://b> (text/plain, 2.0 KiB): D"


def test_content_for_the_user_only_is_not_sent_to_the_model() -> None:
    for audience, shown in ((["user"], False), (["user", "assistant"], True), (["assistant"], True), ([], True)):
        block = t.TextContent(text="secret", annotations=t.Annotations(audience=audience))  # type: ignore[arg-type]
        assert ("secret" in output(block).text) is shown


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
        "openai": [{"role": "assistant", "tool_calls": [{"id": one.call.id} for one in outputs]}],
        "openai-responses": [{"type": "function_call", "call_id": one.call.id} for one in outputs],
        "anthropic": [{"role": "assistant", "content": [{"type": "tool_use", "id": one.call.id} for one in outputs]}],
        "gemini": [{"parts": [{"functionCall": {"name": "tide", "id": one.call.id}} for one in outputs]}],
    }
    assert message_faults(format, [*answers[format], *api.messages(outputs)]) == []
    assert api.messages([]) == []
