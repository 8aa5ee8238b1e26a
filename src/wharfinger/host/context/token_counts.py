"""Counts tokens: with the function that the application gives, or by an estimate."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["CountTokens", "estimate_tokens", "file_tokens"]

CountTokens = Callable[[str], int]
"""Returns the number of tokens of a text."""

CHARACTERS_PER_TOKEN = 3.5
"""Characters per token of ASCII text. English prose has about 4, so it is overestimated; program code has about 3."""
IMAGE_TOKENS = 1_600
"""The approximate tokens of a large image: https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs"""
BYTES_PER_TOKEN = 75
"""Bytes per token of a document such as a PDF: a page of 150 kB costs about 2,000 tokens."""

_OTHER = re.compile(r"[^\x00-\x7f]")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for every 3.5 ASCII characters, and one for each other character.

    Tokenizers differ, so give the counter of your model if the budget must be exact.
    """
    other_characters = 0 if text.isascii() else len(_OTHER.findall(text))
    return round((len(text) - other_characters) / CHARACTERS_PER_TOKEN) + other_characters


def file_tokens(mime_type: str, size: int) -> int:
    """Return about how many tokens an image or a document of this many bytes costs."""
    return IMAGE_TOKENS if mime_type.startswith("image/") else max(IMAGE_TOKENS, size // BYTES_PER_TOKEN)
