"""Counts tokens: with the function that the application gives, or by an estimate."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["CountTokens", "estimate_tokens", "file_tokens"]

CountTokens = Callable[[str], int]
"""Returns the number of tokens of a text."""

CHARACTERS_PER_TOKEN = 3.5
"""For ASCII text. English prose has about 4 and program code about 3, so the estimate is too high for prose."""
IMAGE_TOKENS = 1_600
"""A large image costs about this much: https://docs.anthropic.com/en/docs/build-with-claude/vision#calculate-image-costs"""
BYTES_PER_TOKEN = 75
"""For a document such as a PDF: a page of 150 kB costs about 2,000 tokens."""

_OTHER = re.compile(r"[^\x00-\x7f]")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: one for 3.5 ASCII characters, and one for each other character.

    Tokenizers differ, so give the counter of your model if the budget must be exact.
    """
    others = 0 if text.isascii() else len(_OTHER.findall(text))
    return round((len(text) - others) / CHARACTERS_PER_TOKEN) + others


def file_tokens(mime_type: str, size: int) -> int:
    """Return about how many tokens an image or a document of this many bytes costs."""
    return IMAGE_TOKENS if mime_type.startswith("image/") else max(IMAGE_TOKENS, size // BYTES_PER_TOKEN)
