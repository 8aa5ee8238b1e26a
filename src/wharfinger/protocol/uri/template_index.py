"""`TemplateIndex`: finds the template that a URI matches, without trying all of them.

Templates are grouped by their first literal text. If a group is large, a tree of path segments selects those that can
match: one edge for each literal segment, and one for all segments with a variable. At a node, templates are looked up
by the literal text with which the rest of the URI begins and ends. Of all that match, the most specific template wins:

1. the longest literal text before the first variable,
2. then the fewest variables that may span segments,
3. then the most literal text in all,
4. then the fewest variables.

Two templates that are equal in all four and can match the same URI are refused, so that the order of registration does
not matter.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from wharfinger.errors import WharfingerError
from wharfinger.protocol.uri.matcher import Placeholder
from wharfinger.protocol.uri.template import UriTemplate, Value, canonical_uri

__all__ = ["AmbiguousTemplate", "TemplateIndex"]

T = TypeVar("T")
MAX_LINEAR_TEMPLATES = 8
"""The templates of a group are tried one by one if there are at most this many; a larger group uses the tree."""
Rank = tuple[int, int, int, int]


class AmbiguousTemplate(WharfingerError, ValueError):
    """Two templates match the same URIs, and neither is more specific; `texts` holds both."""

    texts: tuple[str, str]

    def __init__(self, present: str, added: str) -> None:
        self.texts = (present, added)
        super().__init__(
            f"The URI template {added!r} is as specific as {present!r} and can match the same URIs: "
            f"give them different literal segments, or merge them into one."
        )


class TemplateIndex(Generic[T]):
    """A mapping from URI templates to values.

    Finding takes time proportional to the templates whose literal segments match, not to all templates.
    """

    __slots__ = ("_by_prefix", "_entries", "_lengths", "_root")

    def __init__(self) -> None:
        self._by_prefix: dict[str, list[_Entry[T]]] = {}
        """Templates by the literal text before the first variable; the most specific first."""
        self._lengths: list[int] = []
        """The lengths of the keys of `_by_prefix`, the longest first."""
        self._root: _Node[T] = _Node()
        self._entries: dict[str, _Entry[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[UriTemplate, T]]:
        """Return all templates in the order in which they were added, with their values."""
        return iter([(entry.template, entry.value) for entry in self._entries.values()])

    def get(self, text: str) -> T | None:
        """Return the value of the template with exactly this text; None if there is none."""
        entry = self._entries.get(text)
        return None if entry is None else entry.value

    def add(self, template: UriTemplate | str, value: T, *, allow_ambiguous: bool = False) -> None:
        """Add a template.

        With `allow_ambiguous` the template is not compared with the others: comparing two takes time proportional to
        the product of their lengths. Use it for untrusted templates, if it does not matter which of several is found.

        Raises:
            InvalidTemplate: `template` is text and does not parse.
            UnmatchableTemplate: the template does not say where a variable ends.
            AmbiguousTemplate: another template is as specific and can match the same URIs, or has the same text.
        """
        entry = _Entry(UriTemplate(template) if isinstance(template, str) else template, value)
        _ = entry.template.matcher  # raises UnmatchableTemplate now, rather than in `find`
        if entry.template.text in self._entries:
            raise AmbiguousTemplate(entry.template.text, entry.template.text)
        for other in () if allow_ambiguous else self._root.nearby(entry.edges):
            if other.rank == entry.rank and _may_clash(other, entry) and other.template.overlaps(entry.template):
                raise AmbiguousTemplate(other.template.text, entry.template.text)
        self._root.reach(entry.edges).insert(entry)
        self._entries[entry.template.text] = entry
        insort(self._by_prefix.setdefault(entry.prefix, []), entry, key=_by_rank)
        if len(entry.prefix) not in self._lengths:
            self._lengths = sorted((*self._lengths, len(entry.prefix)), reverse=True)

    def remove(self, template: UriTemplate | str) -> T:
        """Remove a template and return its value.

        Raises:
            KeyError: there is no template with this text.
        """
        entry = self._entries.pop(template if isinstance(template, str) else template.text)
        self._root.prune(entry, 0)
        self._by_prefix[entry.prefix].remove(entry)
        if not self._by_prefix[entry.prefix]:
            del self._by_prefix[entry.prefix]
            self._lengths = sorted({len(prefix) for prefix in self._by_prefix}, reverse=True)
        return entry.value

    def find(self, uri: str, *, check: bool = True) -> tuple[T, dict[str, Value]] | None:
        """Return the value of the most specific template that matches, and its variables; None if none matches.

        `UriTemplate.match` describes `check`.
        """
        if not self._entries:  # as in a server that has only sources
            return None
        canonical = canonical_uri(uri)
        if canonical is None:
            return None
        for length in self._lengths:
            entries = self._by_prefix.get(canonical[:length])
            if entries is None:
                continue
            many = len(entries) > MAX_LINEAR_TEMPLATES
            if many:  # the tree also has the templates with a shorter first literal
                entries = sorted(self._root.candidates(canonical), key=_by_rank)
            for entry in entries:
                if entry.core not in canonical:
                    continue
                values = entry.template.match_canonical(canonical, check=check)
                if values is not None:
                    return entry.value, values
            if many:
                break
        return None


class _Entry(Generic[T]):
    """A template and its value, with the literal texts by which it is found."""

    __slots__ = ("core", "edges", "ending", "head", "prefix", "rank", "tail", "template", "value")

    def __init__(self, template: UriTemplate, value: T) -> None:
        self.template = template
        self.value = value
        first = template.atoms[0] if template.atoms else ""
        self.prefix = first if isinstance(first, str) else ""
        """The literal text before the first variable."""
        self.edges, self.head = _edges(template)
        self.tail = template.atoms[-1] if template.atoms and isinstance(template.atoms[-1], str) else ""
        """The literal text after the last variable."""
        self.ending = _ending(template)
        self.core = max((atom for atom in template.atoms[1:] if isinstance(atom, str)), key=len, default="")
        """The longest literal text after `prefix`."""
        self.rank = _rank_of(template)


def _may_clash(one: _Entry[T], other: _Entry[T]) -> bool:
    """Return False quickly for pairs whose beginnings or ends differ, so that adding many similar templates is fast."""
    if not (one.tail.endswith(other.tail) or other.tail.endswith(one.tail)):
        return False
    if not (one.ending.endswith(other.ending) or other.ending.endswith(one.ending)):
        return False
    return len(one.edges) != len(other.edges) or one.head.startswith(other.head) or other.head.startswith(one.head)


def _ending(template: UriTemplate) -> str:
    """Return the literal text before an optional query at the end, if no earlier part can contain "?"; else empty."""
    *before, last = template.atoms or ("",)
    if not isinstance(last, Placeholder) or not before or not isinstance(before[-1], str) or last.opener != "?":
        return ""
    is_first = all("?" not in (atom if isinstance(atom, str) else atom.chars | set(atom.opener)) for atom in before)
    return before[-1] if is_first else ""


def _by_rank(entry: _Entry[T]) -> Rank:
    return entry.rank


def _rank_of(template: UriTemplate) -> Rank:
    """Return the four measures of how specific a template is (see the head of this module); less is more specific."""
    placeholders = [atom for atom in template.atoms if isinstance(atom, Placeholder)]
    literals = [atom for atom in template.atoms if isinstance(atom, str)]
    before = template.atoms[0] if template.atoms else ""
    return (
        -len(before) if isinstance(before, str) else 0,
        sum(_may_span(placeholder) for placeholder in placeholders),
        -sum(map(len, literals)),
        len(template.variables),
    )


def _may_span(placeholder: Placeholder) -> bool:
    """Return whether a placeholder is part of the path and may contain several segments."""
    return "/" in placeholder.opener or ("/" in placeholder.chars and not placeholder.opener)


def _edges(template: UriTemplate) -> tuple[tuple[str | None, ...], str]:
    """Return the complete segments before a placeholder that may span several, and the head of the rest.

    A segment with a variable is None. The head is the literal text from there to the next variable.
    """
    edges: list[str | None] = []
    head, plain = "", True
    for atom in template.atoms:
        if isinstance(atom, Placeholder):
            if "/" in atom.chars or "/" in atom.opener:
                break
            plain = False
            continue
        first, *rest = atom.split("/")
        if plain:
            head += first
        for segment in rest:
            edges.append(head if plain else None)
            head, plain = segment, True
    return tuple(edges), head


class _Node(Generic[T]):
    """A node of the tree. `entries` are grouped by the lengths of head and tail, then by their texts."""

    __slots__ = ("children", "entries")

    def __init__(self) -> None:
        self.children: dict[str | None, _Node[T]] = {}
        self.entries: dict[tuple[int, int], dict[tuple[str, str], list[_Entry[T]]]] = {}

    def reach(self, edges: tuple[str | None, ...]) -> _Node[T]:
        """Return the node at the end of these edges; missing nodes are created."""
        node = self
        for edge in edges:
            node = node.children.setdefault(edge, _Node())
        return node

    def insert(self, entry: _Entry[T]) -> None:
        lengths = len(entry.head), len(entry.tail)
        self.entries.setdefault(lengths, {}).setdefault((entry.head, entry.tail), []).append(entry)

    def prune(self, entry: _Entry[T], depth: int) -> None:
        """Remove an entry, and every node that is then empty."""
        if depth < len(entry.edges):
            child = self.children[entry.edges[depth]]
            child.prune(entry, depth + 1)
            if not child.children and not child.entries:
                del self.children[entry.edges[depth]]
            return
        lengths, texts = (len(entry.head), len(entry.tail)), (entry.head, entry.tail)
        self.entries[lengths][texts].remove(entry)
        if not self.entries[lengths][texts]:
            del self.entries[lengths][texts]
        if not self.entries[lengths]:
            del self.entries[lengths]

    def candidates(self, uri: str) -> list[_Entry[T]]:
        """Return the entries whose literal segments, head and tail match."""
        entries: list[_Entry[T]] = []
        todo: list[tuple[_Node[T], int]] = [(self, 0)]
        while todo:
            node, position = todo.pop()
            for (head_length, tail_length), by_texts in node.entries.items():
                head = uri[position : position + head_length]
                tail = uri[len(uri) - tail_length :]
                entries += by_texts.get((head, tail), ())
            if not node.children:
                continue
            end = uri.find("/", position)
            if end < 0:
                continue
            for edge in (uri[position:end], None):
                child = node.children.get(edge)
                if child is not None:
                    todo.append((child, end + 1))
        return entries

    def nearby(self, edges: tuple[str | None, ...]) -> Iterator[_Entry[T]]:
        """Yield the entries that may match the same URI as one with these edges: on the way to its node, or below."""
        todo: list[tuple[_Node[T], int]] = [(self, 0)]
        while todo:
            node, depth = todo.pop()
            for by_texts in node.entries.values():
                for entries in by_texts.values():
                    yield from entries
            if depth >= len(edges) or edges[depth] is None:
                todo += [(child, depth + 1) for child in node.children.values()]
                continue
            for edge in (edges[depth], None):
                child = node.children.get(edge)
                if child is not None:
                    todo.append((child, depth + 1))
