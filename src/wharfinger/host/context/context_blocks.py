"""The blocks of a context: each is a text or a file of one resource, with its provenance.

Contents are from servers, so they may contain text that pretends to be the end of its block, or an instruction. In
the text for a model each block is enclosed in an element, and the closing tag is made harmless inside of it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, overload

import msgspec

from wharfinger.content.mime import by_signature
from wharfinger.content.text import many, printable

__all__ = ["Block", "ContextBlocks", "LeftOut", "block_text", "lines_text"]

Format = Literal["anthropic", "openai", "openai-responses", "gemini"]
Message = dict[str, Any]

MAX_LABEL_CHARACTERS = 2_000
_CLOSING = "</resource"


class Block(msgspec.Struct, kw_only=True):
    """A resource, or windows of it, as a model gets it."""

    uri: str
    """The URI of the resource, without a window."""
    server: str
    version: str
    """The server's version of the content or, if it gives none, a digest of what was read."""
    reason: str
    """Why it was chosen, as a sentence for people."""
    title: str = ""
    mime_type: str = ""
    text: str = ""
    data: bytes = b""
    """The bytes of an image or document, which then has no text."""
    lines: tuple[tuple[int, int], ...] = ()
    """The lines in `text`: the first and last line of each window. Empty for a file."""
    tokens: int = 0
    """Tokens of the block with its header, by the counter of the context."""
    cut: str = ""
    """A sentence that says which part of the resource is missing; empty if it is whole."""
    gone: bool = False
    """Whether the resource no longer exists, or may no longer be read."""


class LeftOut(msgspec.Struct, frozen=True):
    """A resource that was chosen and is not in the context."""

    uri: str
    server: str
    reason: str


class ContextBlocks(Sequence[Block]):
    """The context for a question: blocks, the most useful first. `Host.context` makes it."""

    def __init__(
        self,
        question: str,
        blocks: Sequence[Block],
        *,
        budget: int,
        left_out: Sequence[LeftOut] = (),
        notes: Sequence[str] = (),
        estimated: bool = True,
        refresh: Callable[[], Any] | None = None,
    ) -> None:
        self.question = question
        self.budget = budget
        self.left_out = list(left_out)
        """The resources that were chosen but are not here, with the reasons."""
        self.notes = list(notes)
        """Sentences about what was not searched or listed."""
        self.estimated = estimated
        """Whether tokens are an estimate, because no counter was given."""
        self.blocks = list(blocks)
        self._refresh = refresh

    @property
    def tokens(self) -> int:
        """Tokens of all blocks together."""
        return sum(block.tokens for block in self.blocks)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | Sequence[Block]:
        return self.blocks[index]

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def __repr__(self) -> str:
        about = "about " if self.estimated else ""
        return f"<ContextBlocks: {many(len(self), 'block')}, {about}{self.tokens:,} of {self.budget:,} tokens>"

    @property
    def text(self) -> str:
        """All blocks as one text. Files are named only."""
        return "\n\n".join(block_text(block) for block in self.blocks)

    def for_api(self, format: Format, blocks: Sequence[Block] | None = None) -> list[Message]:
        """Return the blocks as the parts of a message of the user, in the format of an API.

        Files that the API does not take become a text that names them. `blocks` are others than all, such as those
        from `changed`.

        Raises:
            ValueError: there is no such format.
        """
        if format not in _PARTS:
            raise ValueError(f"There is no format {format!r}; the formats are {', '.join(_PARTS)}.")
        text_part, file_part = _PARTS[format]
        parts: list[Message] = []
        for block in self.blocks if blocks is None else blocks:
            parts.append(text_part(block_text(block)))
            if block.data and (part := file_part(block)) is not None:
                parts.append(part)
        return parts

    async def changed(self) -> list[Block]:
        """Read the resources again, and return the blocks to send again: those whose content has changed.

        A resource that is gone is returned once, as a block without text (`Block.gone`). The context keeps the new
        blocks, so the next call reports only later changes. A resource that cannot be read now is not reported.
        """
        if self._refresh is None:
            return []
        changed: list[Block] = await self._refresh()
        return changed


def lines_text(lines: Sequence[tuple[int, int]]) -> str:
    """Return windows of lines as text: `12-40, 88-90`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lines)


def block_text(block: Block) -> str:
    """Return a block as text for a model: the content in an element with the URI and server."""
    facts = {"uri": block.uri, "server": block.server, "version": block.version}
    if block.cut and block.lines:
        facts["lines"] = lines_text(block.lines)
    facts["reason"] = block.reason
    head = " ".join(f"{name}={_quoted(value)}" for name, value in facts.items() if value)
    if block.gone:
        return f"<resource {head}>\n[{block.cut}]\n</resource>"
    text = _without_closing(block.text) if not block.data else f"[A file of the type {printable(block.mime_type)}.]"
    note = f"\n[{printable(block.cut, MAX_LABEL_CHARACTERS)}]" if block.cut else ""
    return f"<resource {head}>\n{text}{note}\n</resource>"


def _quoted(value: str) -> str:
    text = printable(value, MAX_LABEL_CHARACTERS)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return f'"{text}"'


def _without_closing(text: str) -> str:
    """Return the text with `<\\/resource` for each `</resource`, so that it cannot end its own block."""
    return text.replace(_CLOSING, "<\\/resource") if _CLOSING in text else text


# The parts of messages

_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_PDF = "application/pdf"


def _kind(block: Block) -> str:
    """Return the MIME type that the bytes show: APIs refuse the whole request for a file of another type."""
    return by_signature(block.data)


def _data_url(block: Block) -> str:
    return f"data:{_kind(block)};base64,{_base64(block)}"


def _base64(block: Block) -> str:
    return base64.b64encode(block.data).decode()


def _chat_file(block: Block) -> Message | None:
    if _kind(block) in _IMAGES:
        return {"type": "image_url", "image_url": {"url": _data_url(block)}}
    if _kind(block) == _PDF:
        return {"type": "file", "file": {"filename": _file_name(block), "file_data": _data_url(block)}}
    return None


def _responses_file(block: Block) -> Message | None:
    if _kind(block) in _IMAGES:
        return {"type": "input_image", "detail": "auto", "image_url": _data_url(block)}
    if _kind(block) == _PDF:
        return {"type": "input_file", "filename": _file_name(block), "file_data": _data_url(block)}
    return None


def _anthropic_file(block: Block) -> Message | None:
    if _kind(block) not in _IMAGES and _kind(block) != _PDF:
        return None
    source = {"type": "base64", "media_type": _kind(block), "data": _base64(block)}
    return {"type": "document" if _kind(block) == _PDF else "image", "source": source}


def _gemini_file(block: Block) -> Message | None:
    taken = _kind(block) in _IMAGES - {"image/gif"} or _kind(block) == _PDF
    return {"inlineData": {"mimeType": _kind(block), "data": _base64(block)}} if taken else None


def _file_name(block: Block) -> str:
    return printable(block.title.rpartition("/")[2], 100) or "document.pdf"


_PARTS: dict[str, tuple[Callable[[str], Message], Callable[[Block], Message | None]]] = {
    "anthropic": (lambda text: {"type": "text", "text": text}, _anthropic_file),
    "openai": (lambda text: {"type": "text", "text": text}, _chat_file),
    "openai-responses": (lambda text: {"type": "input_text", "text": text}, _responses_file),
    "gemini": (lambda text: {"text": text}, _gemini_file),
}
"""For each format, the part of a text, and the part of a file or None if the API does not take it."""
