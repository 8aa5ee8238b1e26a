"""Content blocks that a revision does not know are replaced by text in a copy of the result."""

from __future__ import annotations

from msgspec import Raw

from wharfinger import types as t
from wharfinger.protocol.downgrade import is_object, without_unknown_blocks
from wharfinger.protocol.revisions import REVISIONS

AUDIO = t.AudioContent(data=b"abc", mime_type="audio/wav", annotations=t.Annotations(priority=1.0))
LINK = t.ResourceLink(uri="a://b", name="b")
TEXT = t.TextContent(text="x")


def test_each_revision_lists_its_unknown_blocks() -> None:
    assert {name: set(rules.unknown_blocks) for name, rules in REVISIONS.items() if rules.unknown_blocks} == {
        "2024-11-05": {"audio", "resource_link"},
        "2025-03-26": {"resource_link"},
    }


def test_only_unknown_blocks_are_replaced_in_a_copy() -> None:
    result = t.CallToolResult(content=[AUDIO, LINK, TEXT], structured_content={"a": 1})
    replaced = without_unknown_blocks(result, frozenset(("resource_link",)))
    assert replaced.content == [AUDIO, t.TextContent(text="[b](a://b)"), TEXT]
    assert replaced.structured_content == {"a": 1}
    assert result.content == [AUDIO, LINK, TEXT]
    (audio_text, _, _) = without_unknown_blocks(result, frozenset(("audio",))).content
    assert audio_text.annotations == t.Annotations(priority=1.0)
    assert "audio/wav, 3 bytes" in audio_text.text


def test_a_result_without_unknown_blocks_is_the_same_object() -> None:
    unknown_blocks = frozenset(("audio", "resource_link"))
    for result in (
        t.CallToolResult(content=[TEXT]),
        t.GetPromptResult(messages=[t.PromptMessage(role="user", content=TEXT)]),
        t.ListToolsResult(tools=[]),
    ):
        assert without_unknown_blocks(result, unknown_blocks) is result


def test_blocks_of_a_prompt_are_replaced_one_by_one() -> None:
    result = t.GetPromptResult(
        description="d",
        messages=[
            t.PromptMessage(role="user", content=AUDIO),
            t.PromptMessage(role="assistant", content=TEXT),
            t.PromptMessage(role="user", content=LINK),
        ],
    )
    replaced = without_unknown_blocks(result, frozenset(("audio",)))
    assert [message.role for message in replaced.messages] == ["user", "assistant", "user"]
    assert [message.content for message in replaced.messages[1:]] == [TEXT, LINK]
    assert isinstance(replaced.messages[0].content, t.TextContent)
    assert replaced.description == "d"
    assert result.messages[0].content is AUDIO


def test_a_resource_link_is_replaced_by_its_title_and_description() -> None:
    for link, text in (
        (t.ResourceLink(uri="a:b", name="n"), "[n](a:b)"),
        (t.ResourceLink(uri="a:b", name="n", title="T"), "[T](a:b)"),
        (t.ResourceLink(uri="a:b", name="n", description="D"), "[n](a:b): D"),
    ):
        (block,) = without_unknown_blocks(t.CallToolResult(content=[link]), frozenset(("resource_link",))).content
        assert block == t.TextContent(text=text)


def test_is_object_is_true_only_for_json_objects() -> None:
    for structured, expected in (
        ({}, True),
        ({"a": 1}, True),
        (Raw(b'{"a":1}'), True),
        (TEXT, True),
        ([], False),
        (None, False),
        ("{", False),
        (Raw(b"[]"), False),
    ):
        assert is_object(structured) is expected
