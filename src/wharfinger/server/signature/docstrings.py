"""Reads docstrings in the styles of Google, numpy and Sphinx: the text before the first section, and a description of
each parameter.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from wharfinger.server.signature.annotations import unwrap_partial

__all__ = ["description_of", "parse_docstring"]

# Patterns are not compiled here: that takes 3 ms, and most processes never parse a section.
_ARGUMENT_SECTIONS = frozenset(
    ("args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters")
)
_SECTIONS = _ARGUMENT_SECTIONS | {
    "attributes", "example", "examples", "note", "notes", "raises", "references", "return", "returns", "see also",
    "warning", "warnings", "yield", "yields",
}  # fmt: skip
MAX_TEXTS = 256
"""The maximum number of parsed docstrings that are cached. The cache helps functions that share a docstring."""
_GOOGLE = r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)"
_NUMPY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"
_SPHINX = r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
_SPHINX_OTHER = r":(?:type|return|returns|rtype|raise|raises|except|exception|var|ivar|cvar|vartype|meta)\b[^:]*:.*"


def parse_docstring(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    """Return the text of a docstring before its first section, and the description of each parameter."""
    text = getattr(unwrap_partial(function), "__doc__", None)  # a partial's own docstring describes `partial`
    return _parse(text) if text else ("", {})


@functools.lru_cache(MAX_TEXTS)
def _parse(text: str) -> tuple[str, Mapping[str, str]]:
    lines = inspect.cleandoc(text).splitlines()
    start = next((number for number in range(len(lines)) if _section_at(lines, number)), len(lines))
    descriptions: dict[str, str] = {}
    number = start
    while number < len(lines):
        line, title = lines[number], _section_at(lines, number)
        if line.startswith(":"):
            number = _read_sphinx(lines, number, descriptions)
        elif title in _ARGUMENT_SECTIONS:
            underlined = _is_underlined(lines, number)
            number = (_read_numpy if underlined else _read_google)(lines, number + 1 + underlined, descriptions)
        else:
            number += 1
    return "\n".join(lines[:start]).strip(), descriptions


def description_of(function: Callable[..., Any]) -> str:
    """Return the text of a docstring before its first section."""
    return parse_docstring(function)[0]


def _section_at(lines: list[str], number: int) -> str:
    """Return the name of the section that a line begins, in lower case, or an empty string for any other line."""
    line = lines[number]
    if line.startswith(":") and (re.match(_SPHINX, line) or re.match(_SPHINX_OTHER, line)):
        return "sphinx"
    name, colon, rest = line.partition(":")
    name = name.rstrip().lower()
    if rest.strip() or name not in _SECTIONS:
        return ""
    return name if colon or _is_underlined(lines, number) else ""


def _is_underlined(lines: list[str], number: int) -> bool:
    below = lines[number + 1].strip() if number + 1 < len(lines) else ""
    return len(below) > 2 and set(below) == {"-"}


def _read_google(lines: list[str], number: int, descriptions: dict[str, str]) -> int:
    """Read an indented section, `name (type): text`. Returns the number of the line after it."""
    name, depth = "", 0
    while number < len(lines):
        line = lines[number]
        indent = len(line) - len(line.lstrip())
        if line and not indent:
            return number
        if line.strip():
            depth = depth or indent
            argument = re.fullmatch(_GOOGLE, line.strip()) if indent <= depth else None
            if argument:
                name = argument[1]
                descriptions[name] = argument[2]
            elif name:
                descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
        number += 1
    return number


def _read_numpy(lines: list[str], number: int, descriptions: dict[str, str]) -> int:
    """Read an underlined section, `name : type` with indented text below. Returns the number of the line after it."""
    names: list[str] = []
    while number < len(lines) and not _section_at(lines, number):
        line = lines[number]
        if line and not line[0].isspace():
            argument = re.fullmatch(_NUMPY, line.strip())
            names = [name.strip(" *") for name in argument[1].split(",")] if argument else []
            descriptions.update(dict.fromkeys(names, ""))
        elif line.strip():
            for name in names:
                descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
        number += 1
    return number


def _read_sphinx(lines: list[str], number: int, descriptions: dict[str, str]) -> int:
    """Read one field, `:param type name: text`, with indented lines below. Returns the number of the line after it."""
    argument = re.fullmatch(_SPHINX, lines[number])
    text = [argument[2]] if argument else []
    number += 1
    while number < len(lines) and lines[number][:1].isspace():
        text.append(lines[number].strip())
        number += 1
    if argument:
        descriptions[argument[1]] = " ".join(filter(None, text))
    return number
