"""Content blocks of unknown types are kept, and malformed blocks are refused."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger import types

HOLOGRAM = b'{"type":"hologram","depth":3}'


def test_an_unknown_block_keeps_all_its_members() -> None:
    block = types.decode_content(HOLOGRAM)
    assert block == types.UnknownContent({"type": "hologram", "depth": 3})
    assert isinstance(block, types.UnknownContent)
    assert block.type == "hologram"
    assert msgspec.json.encode(block) == HOLOGRAM


def test_known_block_becomes_its_struct() -> None:
    assert types.decode_content(b'{"type":"text","text":"a"}') == types.TextContent(text="a")


@pytest.mark.parametrize("raw", [b'{"type":"text"}', b'{"text":"a"}', b"[]", b'{"type":5}'])
def test_malformed_block_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        types.decode_content(raw)


def test_unknown_block_in_a_tool_result_leaves_the_rest_typed() -> None:
    raw = b'{"content":[{"type":"text","text":"a"},' + HOLOGRAM + b'],"isError":true,"structuredContent":null}'
    expected = types.CallToolResult(
        content=[types.TextContent(text="a"), types.UnknownContent({"type": "hologram", "depth": 3})],
        structured_content=None,
        is_error=True,
    )
    assert types.decode_call_tool_result(raw) == expected


def test_unknown_content_in_a_prompt_leaves_the_rest_typed() -> None:
    raw = b'{"messages":[{"role":"user","content":' + HOLOGRAM + b"}]}"
    message = types.PromptMessage(role="user", content=types.UnknownContent({"type": "hologram", "depth": 3}))
    assert types.decode_get_prompt_result(raw) == types.GetPromptResult(messages=[message])


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"content":5}', b'{"content":[],"isError":1}', b'{"content":[{"type":"text"}]}']
)
def test_malformed_tool_result_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        types.decode_call_tool_result(raw)


@pytest.mark.parametrize("raw", [b"{}", b'{"messages":[{"role":"system","content":' + HOLOGRAM + b"}]}"])
def test_malformed_prompt_is_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        types.decode_get_prompt_result(raw)


def test_bytes_are_base64_on_the_wire_only() -> None:
    image = types.ImageContent(data=b"\x00\xff", mime_type="image/png")
    wire = b'{"type":"image","data":"AP8=","mimeType":"image/png"}'
    assert msgspec.json.encode(image) == wire
    assert types.decode_content(wire) == image


def test_blob_is_the_last_member() -> None:
    """A long blob can be written in pieces only if it comes last."""
    contents = types.ResourceContents(uri="file:///a", mime_type="image/png", meta={"k": 1}, blob=b"\x00")
    assert msgspec.json.encode(contents).endswith(b'"blob":"AA=="}')
    whole = types.ReadResourceResult(contents=[contents], meta={}, ttl_ms=0, cache_scope="private")
    assert msgspec.json.encode(whole).endswith(b'"blob":"AA=="}]}')
