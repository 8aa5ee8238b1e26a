"""Reads an OpenAPI document into JSON values, within bounds.

A document may be hostile, so it is checked in this order:

1. The size in bytes.
2. The syntax. JSON is tried first. YAML is read with JSON's types only: an unquoted date or `on` is a string, and tags
   of other types are refused.
3. The number of values. Those of a YAML alias count each time it is used, so that ten aliases of ten aliases of ten …
   are refused instead of visited. So is a document that contains itself, or is nested too deeply.

A reference (`$ref`) is followed only if it begins with `#/`: nothing is fetched.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import msgspec

from wharfinger.content.decoded_json import as_list, as_object
from wharfinger.content.text import printable
from wharfinger.errors import MissingExtra
from wharfinger.source import UnusableSource

if TYPE_CHECKING:
    from yaml import Node

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "MAX_YAML_BYTES",
    "JsonObject",
    "UnresolvedReference",
    "check_version",
    "parse_document",
    "resolve",
]

MAX_DOCUMENT_BYTES = 32 << 20
"""Largest document in JSON. GitHub's has 13 MB."""
MAX_YAML_BYTES = 8 << 20
"""Largest document in YAML, which takes a hundred times as long to read."""
MAX_VALUES = 2_000_000
"""Maximum number of values in a document; those of a YAML alias count at each use. GitHub's has 400,000."""
MAX_DOCUMENT_DEPTH = 128
MAX_REFERENCES = 16
"""The maximum number of references that lead from one to the next. A longer chain is treated as a circle."""
MAX_MERGED_MEMBERS = 100_000
"""Maximum number of members that all objects of a YAML document together get from others (`<<`)."""
MAX_MERGED_OBJECTS = 100
"""Maximum number of objects that one object is merged with (`<<`)."""
MAX_POINTER_CHARACTERS = 1_000

JsonObject = dict[str, Any]


class UnresolvedReference(ValueError):
    """A reference leads out of the document, to nothing, or in a circle."""


def parse_document(data: bytes, name: str) -> JsonObject:
    """Return the document as JSON values. `name` says in errors where it comes from.

    Raises:
        UnusableSource: it is too large, or is not an object in JSON or YAML. Text that begins with `{` or `[` is only
            read as JSON.
        MissingExtra: it is YAML, and PyYAML is not installed.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise UnusableSource(f"{name} has more than {MAX_DOCUMENT_BYTES >> 20} MiB, which is too large for a document.")
    data = data.removeprefix(codecs.BOM_UTF8)
    document: Any
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if data.lstrip()[:1] in (b"{", b"["):
            raise UnusableSource(f"{name} cannot be read as JSON: {str(error)[:200]}.") from None
        document = _parse_yaml(data, name)
    return check_values(document, name)


def check_values(document: Any, name: str) -> JsonObject:
    """Return a document, if it is an object within the bounds.

    Raises:
        UnusableSource: it is not.
    """
    if not isinstance(document, dict):
        raise UnusableSource(f"{name} is not an OpenAPI document: it is not an object.")
    count = 0
    stack: list[tuple[Any, int]] = [(document, 1)]
    while stack:
        value, depth = stack.pop()
        inner = [*as_object(value).values(), *as_list(value)]
        count += len(inner)
        if count > MAX_VALUES or (inner and depth > MAX_DOCUMENT_DEPTH):
            bound = f"{MAX_VALUES:,} values" if count > MAX_VALUES else f"{MAX_DOCUMENT_DEPTH} levels"
            raise UnusableSource(f"{name} has more than {bound}: publish a part of it.")
        stack += [(each, depth + 1) for each in inner if isinstance(each, (dict, list))]
    return cast("JsonObject", document)


def check_version(root: Mapping[str, Any], name: str) -> str:
    """Return `3.0` or `3.1`.

    Raises:
        UnusableSource: the document is of another version, or is not an OpenAPI document.
    """
    version = root.get("openapi")
    if isinstance(version, str) and (found := re.match(r"3\.[01](?=\.|\Z)", version)):
        return found[0]
    if "swagger" in root:
        raise UnusableSource(f"{name} is Swagger 2.0: convert it to OpenAPI 3.0 or 3.1 first.")
    if isinstance(version, str):
        raise UnusableSource(f"{name} is OpenAPI {printable(version)}: only 3.0 and 3.1 can be published.")
    raise UnusableSource(f"{name} is not an OpenAPI document: it has no member 'openapi' with a version.")


def resolve(root: JsonObject, node: Any) -> Any:
    """Return the value that `$ref` in a value refers to, or the value itself if it is not a reference.

    Raises:
        UnresolvedReference: it leads out of the document, to nothing, or in a circle.
    """
    for _ in range(MAX_REFERENCES + 1):
        reference = as_object(node).get("$ref")
        if not isinstance(reference, str):
            return node
        node = _target(root, reference)
    raise UnresolvedReference("references lead in a circle")


def _target(root: JsonObject, reference: str) -> Any:
    reference_text = printable(reference, 100)
    if not reference.startswith("#/") or len(reference) > MAX_POINTER_CHARACTERS:
        raise UnresolvedReference(f"{reference_text} is not in the document, and nothing is fetched")
    node: Any = root
    for part in unquote(reference[2:]).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        members, items = as_object(node), as_list(node)
        if name in members:
            node = members[name]
        elif re.fullmatch("0|[1-9][0-9]{0,5}", name) and int(name) < len(items):
            node = items[int(name)]
        else:
            raise UnresolvedReference(f"there is nothing at {reference_text}")
    return node


# YAML

_MERGE = "tag:yaml.org,2002:merge"
_PLAIN_VALUES: tuple[tuple[str, str, str], ...] = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]{1,300}", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        "-+0123456789.",
    ),
    (_MERGE, r"<<", "<"),
)
"""Unquoted scalars that are not strings: a tag, a pattern, and the first characters.

They are those of the core schema (YAML 1.2 §10.3.2), without octal and hexadecimal numbers, NaN and infinity; and `<<`.
Null is added below.
"""
_TYPES = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map"))
"""The tags of JSON's types. Others, such as `!!pairs`, make values that JSON does not have."""


def _parse_yaml(data: bytes, name: str) -> Any:
    if len(data) > MAX_YAML_BYTES:
        raise UnusableSource(
            f"{name} has more than {MAX_YAML_BYTES >> 20} MiB, which is too large for YAML: convert it to JSON."
        )
    try:
        import yaml
    except ImportError:
        raise MissingExtra("openapi", "Reading a document in YAML") from None
    try:
        loader = _loader_class()(data)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, TypeError, LookupError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200] or "it is nested too deeply"
        raise UnusableSource(f"{name} can be read neither as JSON nor as YAML: {printable(reason, 200)}.") from None


def _loader_class() -> Any:
    """Return a loader class that makes JSON's types only, with bounded merges, and strings as names of members."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        merged_members = 0

        def flatten_mapping(self, node: Node) -> None:
            values = [value for key, value in node.value if key.tag == _MERGE]
            objects = [
                each for value in values for each in (value.value if isinstance(value, yaml.SequenceNode) else (value,))
            ]
            if len(objects) > MAX_MERGED_OBJECTS:
                raise yaml.YAMLError(f"more than {MAX_MERGED_OBJECTS} objects are merged into one")
            for each in objects:  # counted before PyYAML copies their members
                if isinstance(each, yaml.MappingNode):
                    self.flatten_mapping(each)
                    self.merged_members += len(each.value)
                if self.merged_members > MAX_MERGED_MEMBERS:
                    raise yaml.YAMLError(f"more than {MAX_MERGED_MEMBERS:,} members are merged")
            super().flatten_mapping(node)

        def construct_mapping(self, node: Node, deep: bool = False) -> JsonObject:
            if isinstance(node, yaml.MappingNode):
                self.flatten_mapping(node)  # first, so that the names of merged members are strings too
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.YAMLError("a name of a member is not a text")
                key.tag = "tag:yaml.org,2002:str"
            return cast("JsonObject", super().construct_mapping(node, deep))

        def construct_int(self, node: Any) -> int:  # PyYAML's own method reads 010 as octal, as in YAML 1.1
            return int(self.construct_scalar(node))

        def construct_float(self, node: Any) -> float:
            number = float(self.construct_scalar(node))
            if not math.isfinite(number):
                raise yaml.YAMLError("a number is out of range")
            return number

    Loader.yaml_implicit_resolvers = {"n": [], "N": [], "~": [], "": []}
    for tag, pattern, first in _PLAIN_VALUES:
        Loader.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), list(first))
    Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""])
    Loader.yaml_constructors = {tag: make for tag, make in base.yaml_constructors.items() if tag in (*_TYPES, None)}
    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_int)
    Loader.add_constructor("tag:yaml.org,2002:float", Loader.construct_float)
    return Loader
