"""The blocks of a context: each is a text or a file of one resource, with its provenance.

Contents, MIME types and URIs are from servers, so they may contain text that pretends to be the end of its block, or an
instruction. In the text for a model each block is enclosed in an element `<resource …>`, and a `</resource` in it is
changed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, overload

import msgspec

from wharfinger.content.mime import by_signature
from wharfinger.content.text import many, printable
from wharfinger.host.model_apis import model_api
from wharfinger.host.model_apis.tool_outputs import FileOutput

__all__ = ["Block", "ContextBlocks", "LeftOut", "block_text", "lines_text"]

Format = Literal["anthropic", "openai", "openai-responses", "gemini"]
Part = dict[str, Any]
"""A part of a message, as the API takes it."""

MAX_LABEL_CHARACTERS = 2_000
_CLOSING = re.compile(r"<\s{0,8}/\s{0,8}(resource)", re.IGNORECASE)


class Block(msgspec.Struct, kw_only=True):
    """A resource, or windows of it, as a model gets it."""

    uri: str
    """The URI of the resource, without a window."""
    server: str
    version: str
    """The server's version of the content, or a digest of the content if the server gives no version."""
    reason: str
    """Why it was chosen, in words for people."""
    title: str = ""
    mime_type: str = ""
    text: str = ""
    data: bytes = b""
    """The bytes of an image or document, which then has no text."""
    lines: tuple[tuple[int, int], ...] = ()
    """The lines in `text`: the first and last line of each window. Empty for a file."""
    tokens: int = 0
    """Tokens of the block with its header, by the counter of the context."""
    missing: str = ""
    """A sentence that says which part of the resource is missing, or why all of it is missing; empty if it is whole."""
    gone: bool = False
    """Whether the resource no longer exists, or may no longer be read."""


class LeftOut(msgspec.Struct, frozen=True):
    """A resource that was chosen, but is not in the context."""

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
        refresh: Callable[[], Awaitable[list[Block]]] | None = None,
    ) -> None:
        self.question = question
        self.budget = budget
        self.left_out = list(left_out)
        """The resources that were chosen but are not here, with the reasons."""
        self.notes = list(notes)
        """Sentences about servers and resources that were not searched or listed."""
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
        """All blocks as one text. For a file, it has the type instead of the content."""
        return "\n\n".join(block_text(block) for block in self.blocks)

    def for_api(self, format: Format, blocks: Sequence[Block] | None = None) -> list[Part]:
        """Return the blocks as the parts of a user message, in the format of an API.

        A file that the API does not take is only described. `blocks` are the blocks to return instead of all, such as
        those from `changed`.

        Raises:
            ValueError: there is no such format.
        """
        api = model_api(format)
        parts: list[Part] = []
        for block in self.blocks if blocks is None else blocks:
            parts.append(api.part(block_text(block)))
            # APIs refuse the whole request if a file is not of its declared type, so its bytes decide.
            mime_type = by_signature(block.data)
            if block.data and mime_type in api.message_file_types:
                name = printable(block.title.rpartition("/")[2], 100)
                parts.append(api.part(FileOutput(block.data, mime_type, name)))
        return parts

    async def changed(self) -> list[Block]:
        """Read the resources again, and return the blocks to send again: those whose content has changed.

        A resource that is gone, has become empty, or no longer fits into the budget is returned once, as a block
        without text; its `missing` says why. The context keeps the new blocks, so the next call returns only later
        changes. A resource whose server cannot be asked now is not returned.
        """
        if self._refresh is None:
            return []
        return await self._refresh()


def lines_text(lines: Sequence[tuple[int, int]]) -> str:
    """Return windows of lines as text: `12-40, 88-90`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lines)


def block_text(block: Block) -> str:
    """Return a block as text for a model: the content in an element with the URI and server."""
    facts = {"uri": block.uri, "server": block.server, "version": block.version}
    if block.missing and block.lines:
        facts["lines"] = lines_text(block.lines)
    facts["reason"] = block.reason
    head = " ".join(f"{name}={_quoted(value)}" for name, value in facts.items() if value)
    content = f"[A file of the type {printable(block.mime_type)}.]" if block.data else block.text
    note = f"[{printable(block.missing, MAX_LABEL_CHARACTERS)}]" if block.missing else ""
    body = "\n".join(filter(None, (content, note)))
    body = _CLOSING.sub(r"<\\/\1", body)  # MIME types and URIs are the server's too: nothing in a block can end it
    return f"<resource {head}>\n{body}\n</resource>"


def _quoted(value: str) -> str:
    text = printable(value, MAX_LABEL_CHARACTERS)
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(sign, entity)
    return f'"{text}"'
