"""What kind of content some bytes are."""

from __future__ import annotations

__all__ = ["is_text", "sniff"]


def sniff(data: bytes) -> str:
    """A MIME type for bytes of which nothing is known."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "application/octet-stream" if b"\0" in data else "text/plain"


def is_text(mime_type: str) -> bool:
    """Whether contents of this type are sent as text."""
    return mime_type.startswith("text/") or mime_type.endswith(("/json", "+json", "/xml", "+xml", "/yaml", "/toml", "/javascript"))
