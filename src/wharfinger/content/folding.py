"""Text as a search compares it: without regard to case, one character for one, and what the words of a query are."""

from __future__ import annotations

import re

__all__ = ["MAX_QUERY_WORDS", "fold", "words_of"]

MAX_QUERY_WORDS = 16
"""Words of a query that count."""

_WORD = re.compile(r'"([^"]+)"|(\S+)')


def fold(text: str) -> str:
    """The text with every character as its lower case, as long as before.

    Characters that `grep -i` takes for the same become the same: those of one upper case, such as `s` and `ſ`. What
    would become two characters stays one (`ß`), so that a place in the folded text is the same place in the text.
    """
    return text.lower() if text.isascii() else text.translate(_FOLDED)


class _Folded(dict[int, int]):
    """Found out when a character is seen for the first time."""

    def __missing__(self, code: int) -> int:
        character = chr(code)
        upper = character.upper()
        lower = (upper if len(upper) == 1 else character).lower()
        self[code] = folded = ord(lower) if len(lower) == 1 else code
        return folded


_FOLDED = _Folded()


def words_of(query: str) -> tuple[str, ...]:
    """The words of a query, folded, each once; what stands between double quotes is one of them."""
    found = (fold(quoted or word) for quoted, word in _WORD.findall(query))
    return tuple(dict.fromkeys(found))[:MAX_QUERY_WORDS]
