"""Pictures for a model have the type of their bytes; anything else that claims to be one is only described."""

from __future__ import annotations

import pytest

from wharfinger import types as t
from wharfinger.chat.model_clients.message_parts import block_text, picture_of, result_parts

PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = (b"<svg onload=alert(1)>", b"<!doctype html><script>", b"%PDF-1.7 /JavaScript", b"", b"GIF8")


@pytest.mark.parametrize("data", HOSTILE)
def test_what_only_claims_to_be_a_picture_is_described(data: bytes) -> None:
    image = t.ImageContent(data=data, mime_type="image/png")
    resource = t.EmbeddedResource(resource=t.ResourceContents(uri="evil://a", blob=data, mime_type="image/png"))
    for block in (image, resource):
        assert picture_of(block) is None
        assert "not shown]" in block_text(block)
        text, pictures = result_parts(t.ToolResultContent(tool_use_id="1", content=[block]))
        assert pictures == [] and "not shown]" in text


def test_a_picture_of_another_type_has_its_own() -> None:
    found = picture_of(t.ImageContent(data=PNG, mime_type="image/jpeg"))
    assert found is not None and found.mime_type == "image/png"
    assert picture_of(t.ImageContent(data=PNG, mime_type="text/html")) is None
    assert picture_of(t.TextContent(text="<svg/>")) is None
