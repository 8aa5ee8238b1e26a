"""Folds the case of text for search."""

from __future__ import annotations

__all__ = ["fold"]


def fold(text: str) -> str:
    """Return the text in lower case, with the same length.

    Characters with the same upper case, such as `s` and `ſ`, become equal, as in `grep -i`. A character that would
    become two (`ß`) stays, so that positions in both texts are the same.
    """
    return text.lower() if text.isascii() else text.translate(_FOLDED)


class _Folded(dict[int, int]):
    """A table for `str.translate` that computes each entry when its character first occurs."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        self[code] = folded = ord(lower) if len(lower) == 1 else code
        return folded


_FOLDED = _Folded()
