"""Reads the YAML block at the start of a SKILL.md as a JSON object.

Anything that JSON cannot express, or that YAML readers read differently, is an error: aliases, tags of other types,
keys that are not text, duplicate keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from math import inf, isfinite
from typing import Any

import msgspec

from wharfinger.errors import MissingExtra

__all__ = ["MAX_FRONTMATTER_BYTES", "BadFrontmatter", "need_yaml", "read_frontmatter"]

MAX_FRONTMATTER_BYTES = 64 * 1024
"""The maximum number of bytes from the start of the file to the end of the block."""
MAX_DEPTH = 32

_END = re.compile(rb"\r?\n---[ \t]*(?:\r?\n|\Z)")
_START = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")


class BadFrontmatter(ValueError):
    """The file has no block, or the block is not a JSON object; `str()` says what to change."""


def need_yaml(purpose: str) -> None:
    """Raise MissingExtra if PyYAML is not installed; `purpose` says what needs it, such as `Publishing skills`."""
    try:
        import_module("yaml")
    except ImportError:
        raise MissingExtra("skills", purpose) from None


def read_frontmatter(data: bytes) -> dict[str, Any]:
    """Read the block at the start of `data` (YAML 1.2, core schema).

    Raises:
        BadFrontmatter: there is no block, or it is not a JSON object.
    """
    import yaml

    text = _find_block(data)
    try:
        value = yaml.load(text, Loader=_loader())  # noqa: S506  # the loader builds only values of JSON
        _check_values(value)
        msgspec.json.encode(value)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be read"
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 2}"  # the block begins in the second line of the file
        raise BadFrontmatter(f"its frontmatter is not YAML: {problem}{place}") from None
    except RecursionError:
        raise BadFrontmatter("its frontmatter is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise BadFrontmatter(f"its frontmatter cannot be written as JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadFrontmatter("its frontmatter is not a mapping: write lines such as `name: …`")
    return value  # pyright: ignore[reportUnknownVariableType]  # the keys are checked


def _find_block(data: bytes) -> str:
    start = _START.match(data)
    if start is None:
        raise BadFrontmatter("it does not begin with frontmatter: a line `---`, YAML, and a line `---`")
    end = _END.search(data, start.end() - 1, MAX_FRONTMATTER_BYTES)  # the block may be empty
    if end is None:
        raise BadFrontmatter(f"its frontmatter has no end, a line `---`, within {MAX_FRONTMATTER_BYTES // 1024} KiB")
    try:
        return data[start.end() : end.start()].decode()
    except UnicodeDecodeError:
        raise BadFrontmatter("its frontmatter is not UTF-8") from None


def _check_values(value: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(key, str):
                raise ValueError(f"the key {key!r} is not text: put it in quotes")
            _check_values(item, depth + 1)
    elif isinstance(value, float) and not isfinite(value):
        raise ValueError("a number is too large, infinite or NaN")
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            _check_values(item, depth + 1)


@cache
def _loader() -> Any:
    """Return a PyYAML loader for the core schema of YAML 1.2. PyYAML itself reads 1.1, where `no` is false."""
    import yaml
    from yaml.composer import ComposerError
    from yaml.constructor import ConstructorError

    tag = "tag:yaml.org,2002:"

    safe: Any = yaml.SafeLoader

    class Loader(safe):  # type: ignore[misc]  # PyYAML has no types
        """Loads only types that JSON has."""

        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # as in the class that it extends
        yaml_constructors: dict[str, Any] = {}  # noqa: RUF012

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ComposerError(None, None, "aliases are not supported", self.peek_event().start_mark)
            return safe.compose_node(self, parent, index)

        def mapping(self, node: Any) -> dict[Any, Any]:
            if not isinstance(node, yaml.MappingNode):
                raise ConstructorError(None, None, "this is not a mapping", node.start_mark)
            members: dict[Any, Any] = {}
            for key_node, value_node in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str | int | float | bool | None):
                    raise ConstructorError(None, None, "a key is not text", key_node.start_mark)
                if key in members:
                    raise ConstructorError(None, None, f"{key!r} occurs twice", key_node.start_mark)
                members[key] = self.construct_object(value_node, deep=True)
            return members

        def sequence(self, node: Any) -> list[Any]:
            if not isinstance(node, yaml.SequenceNode):
                raise ConstructorError(None, None, "this is not a sequence", node.start_mark)
            return [self.construct_object(item, deep=True) for item in node.value]

        def unknown(self, node: Any) -> Any:
            raise ConstructorError(None, None, f"the tag {node.tag} is not supported", node.start_mark)

    def scalar(make: Callable[[str], Any]) -> Callable[[Any, Any], Any]:
        def construct(loader: Any, node: Any) -> Any:
            return make(loader.construct_scalar(node))

        return construct

    for name, pattern, first in _SCALARS:
        Loader.add_implicit_resolver(tag + name, re.compile(pattern), [*first])
    for name, make in _MAKERS.items():
        Loader.add_constructor(tag + name, scalar(make))
    Loader.add_constructor(tag + "map", Loader.mapping)
    Loader.add_constructor(tag + "seq", Loader.sequence)
    Loader.add_constructor(None, Loader.unknown)
    return Loader


_SCALARS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", tuple("tTfF")),
    ("null", r"(?:~|null|Null|NULL|)\Z", ("~", "n", "N", "")),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", tuple("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", tuple("-+0123456789.")),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z", tuple("-+.")),
)
"""The types of plain scalars (YAML 1.2.2, §10.3.2): type, pattern, first characters. All others are text."""


def _integer(text: str) -> int:
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _real(text: str) -> float:
    """Return a number. NaN becomes infinity: `_check_values` refuses both."""
    return inf if text.lstrip("+-")[:2].lower() in (".i", ".n") else float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is not a boolean")
    return text.lower() == "true"


def _null(text: str) -> None:
    return None


_MAKERS: dict[str, Callable[[str], Any]] = {
    "bool": _boolean,
    "null": _null,
    "int": _integer,
    "float": _real,
    "str": str,
}
