"""Refuses unknown options of functions that declare their options as a `TypedDict`."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["check_option_names"]


def check_option_names(owner: str, names: Iterable[str], known: type) -> None:
    """Raise TypeError if `known`, a TypedDict, does not declare one of the names.

    The error suggests an option that is spelled alike. Its message begins with `owner`, such as "A tool".
    """
    declared = known.__annotations__
    unknown = next((name for name in names if name not in declared), None)
    if unknown is None:
        return
    import difflib  # imported on use: only to suggest a name

    near = difflib.get_close_matches(unknown, declared, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(declared))}."
    raise TypeError(f"{owner} has no option {unknown!r}: {hint}")
