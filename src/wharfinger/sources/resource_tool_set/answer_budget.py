"""The budget of an answer: how much text one call of a tool returns, and where a longer text is cut.

An answer has at most 10,000 tokens, unless the caller sets another number. The windows of a source end within the
budget, and name the next one (`windows.window_budget`). Everything else is cut here: a text at the end of a paragraph,
line, JSON element or word; lists and rows after an element. An answer that was cut ends with the call that continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from wharfinger.content.decoded_json import is_mapping
from wharfinger.errors import ToolError

__all__ = ["DEFAULT_TOKENS", "MAX_TOKENS", "Budget", "count_fitting", "end_of_part", "json_length", "short_cell"]

DEFAULT_TOKENS = 10_000
"""Tokens of an answer, unless the caller sets another number."""
MIN_TOKENS = 500
MAX_TOKENS = 100_000
CHARACTERS_PER_TOKEN = 4
"""An estimate, because tokenizers differ; `wharfinger doctor` uses the same."""
NOTES_CHARACTERS = 1_000
"""Characters of an answer that are reserved for the next call and other remarks, without the URIs in them."""
CELL_CHARACTERS = 2_000
"""Maximum number of characters of one value, if the rows together are too long for the budget."""

_ENDS: tuple[tuple[str, float], ...] = (
    ("\n\n", 0.9), ("\n", 0.5), ("},", 0.5), (",", 0.8), (" ", 0.8),
)  # fmt: skip
"""The separators after which a text may be cut, the best first. With each is the share of the room that the text before
it must fill: if it fills less, the next separator is tried."""


class Budget(NamedTuple):
    """The size of an answer in tokens."""

    tokens: int = DEFAULT_TOKENS

    @classmethod
    def of(cls, tokens: int) -> Budget:
        """Return the budget for the number of tokens that a caller set.

        Raises:
            ToolError: the number is out of bounds.
        """
        if not MIN_TOKENS <= tokens <= MAX_TOKENS:
            raise ToolError(f"max_tokens is {tokens:,}: give a number from {MIN_TOKENS} to {MAX_TOKENS:,}.")
        return cls(tokens)

    @property
    def characters(self) -> int:
        """Characters of the whole answer."""
        return self.tokens * CHARACTERS_PER_TOKEN

    def room(self, uri: str) -> int:
        """Return the characters left for the text at a URI; the rest is for the remarks, which repeat the URI."""
        return self.characters - min(self.characters // 2, NOTES_CHARACTERS + 2 * len(uri))

    @property
    def argument(self) -> str:
        """The argument that sets the same budget in the next call, or an empty string for the default."""
        return "" if self.tokens == DEFAULT_TOKENS else f" and max_tokens={self.tokens}"


def end_of_part(text: str, begin: int, room: int) -> int:
    """Return the end of a part that begins at `begin` and has at most `room` characters."""
    end = begin + room
    if end >= len(text):
        return len(text)
    for separator, share in _ENDS:
        position = text.rfind(separator, begin + int(room * share), end)
        if position >= 0:
            return position + len(separator)
    return end


def json_length(value: Any) -> int:
    """Return the number of characters of a value as JSON."""
    return len(msgspec.json.encode(value).decode())


def count_fitting(items: Sequence[Any], room: int) -> int:
    """Return the number of items that fit into `room` characters as a JSON list; at least one, if any."""
    for number, item in enumerate(items):
        room -= json_length(item) + 1
        if room < 0:
            return max(1, number)
    return len(items)


def short_cell(value: Any, max_characters: int) -> Any:
    """Return a value of a row; one longer than `max_characters` becomes its beginning and its length."""
    if isinstance(value, str):
        return _cut_text(value, max_characters)
    if is_mapping(value) and "cut" in value and isinstance(text := value.get("text"), str):
        return {**value, "text": text[:max_characters]}  # the source cut it already
    nested = msgspec.json.encode(value).decode() if type(value) in (dict, list) else ""
    return _cut_text(nested, max_characters) if len(nested) > max_characters else value


def _cut_text(text: str, max_characters: int) -> Any:
    return (
        text if len(text) <= max_characters else {"text": text[:max_characters], "cut": True, "characters": len(text)}
    )
