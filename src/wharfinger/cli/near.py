"""What was probably meant where a name is unknown; it refuses to know what the names are of."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["choices", "nearest"]

MOST = 12
"""Names that are listed."""
LONGEST = 200
"""Characters of a name that are compared: peers choose names, and comparing takes the square of their length."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the name that is most like this one, empty if none is."""
    from difflib import get_close_matches

    by_folded = {one[:LONGEST].casefold(): one for one in names}
    found = get_close_matches(name[:LONGEST].casefold(), by_folded, 1, 0.6)
    return by_folded[found[0]] if found else ""


def choices(name: str, names: Iterable[str], there: str = "There is") -> str:
    """Say ` Did you mean 'x'?`, or list the names after `there`; empty if there are none. It begins with a blank."""
    known = list(dict.fromkeys(names))
    meant = nearest(name, known)
    if meant:
        return f" Did you mean {meant!r}?"
    if not known:
        return ""
    more = f", and {len(known) - MOST:,} more" if len(known) > MOST else ""
    return f" {there}: {', '.join(known[:MOST])}{more}."
