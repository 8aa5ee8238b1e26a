"""Finding files by name and by text, within bounds of time, files and bytes; knows no URIs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from wharfinger import types as t
from wharfinger.content.folding import fold
from wharfinger.content.mime import SNIFFED_BYTES, by_name, by_signature, decode_text
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import Hit, Hits
from wharfinger.sources.folder.safe_open import NotServed, holds, open_file
from wharfinger.sources.folder.tree import FileTree, Parts, TreeEntry

__all__ = ["FileMatch", "Results", "SearchBounds", "hits_of", "search_tree"]

SNIPPET = 200  # characters


class SearchBounds(NamedTuple):
    """How much one search may cost; when one of them is reached, what was found so far is the result."""

    seconds: float = 2.0
    files: int = 200_000  # looked at by name
    bytes: int = 64 << 20  # read in all
    file_bytes: int = 1 << 20  # read of one file


class FileMatch(NamedTuple):
    """A file or directory that fits, and the line that shows it."""

    parts: Parts
    directory: bool
    snippet: str


class Results(NamedTuple):
    """What was found, best first; `truncated` says which bound ended the search, if one did."""

    found: list[FileMatch]
    cut: str


class _Budget:
    def __init__(self, bounds: SearchBounds) -> None:
        self.bounds = bounds
        self.ends = time.monotonic() + bounds.seconds
        self.files = 0
        self.bytes = 0

    def spent(self) -> str:
        if time.monotonic() > self.ends:
            return f"after {self.bounds.seconds:g} s"
        if self.files >= self.bounds.files:
            return f"after {self.bounds.files:,} files"
        if self.bytes >= self.bounds.bytes:
            return f"after {self.bounds.bytes >> 20} MiB of text"
        return ""


def hits_of(tree: FileTree, query: str, limit: int, describe: Callable[[Parts], t.Resource]) -> Hits:
    """What is found as hits, each with its resource; what is gone meanwhile, or is not published, is left out."""
    results = search_tree(tree, query, limit)
    hits = Hits()
    hits.truncated = results.cut
    for found in results.found:
        try:
            resource = describe(found.parts)
        except (ResourceNotFound, InvalidArgument):
            continue
        hits.append(Hit(uri=resource.uri, title=str(resource.title), snippet=found.snippet, resource=resource))
    return hits


def search_tree(tree: FileTree, query: str, limit: int, bounds: SearchBounds | None = None) -> Results:
    """Look for all words of `query`, in any case: in paths, then in the text of files.

    Paths come first, those whose last part fits best; then texts, in the order of the list.
    """
    bounds = bounds or SearchBounds()
    words = [fold(word) for word in query.split()[:16]]
    if not words or limit < 1:
        return Results([], "")
    budget = _Budget(bounds)
    names, cut = _by_name(tree, query.strip(), words, budget)
    names.sort(key=lambda ranked: (ranked[0], len(ranked[1].parts)))
    found = [hit for _, hit in names[:limit]]
    if len(found) < limit and not cut:
        cut = _by_text(tree, words, limit, found, budget)
    return Results(found, cut if len(found) < limit else "")


def _by_name(tree: FileTree, query: str, words: list[str], budget: _Budget) -> tuple[list[tuple[int, FileMatch]], str]:
    """Everything whose path fits, with its rank, and the bound that was reached."""
    ranked: list[tuple[int, FileMatch]] = []
    wanted = query.casefold()
    cut = ""
    for entry in tree.walk():
        budget.files += 1
        if budget.files % 256 == 0 and (cut := budget.spent()):
            break
        path = fold("/".join(entry.parts))
        if path and all(word in path for word in words):
            ranked.append((_rank(entry, wanted), FileMatch(entry.parts, entry.directory, "")))
    return ranked, cut


def _rank(entry: TreeEntry, wanted: str) -> int:
    name = entry.name.casefold()
    if name == wanted or name.rpartition(".")[0] == wanted:
        return 0
    return 1 if name.startswith(wanted) else 2 if wanted in name else 3


def _by_text(tree: FileTree, words: list[str], limit: int, found: list[FileMatch], budget: _Budget) -> str:
    """Add files whose text fits; the bound that was reached, if one was."""
    known = {hit.parts for hit in found}
    for entry in tree.walk():
        if entry.directory or entry.parts in known:
            continue
        if cut := budget.spent():
            return cut
        text = _read_text(entry, budget)
        folded = fold(text)
        if text and all(word in folded for word in words):
            found.append(FileMatch(entry.parts, False, _snippet(text, folded.find(words[0]), len(words[0]))))
            if len(found) >= limit:
                return ""
    return ""


def _read_text(entry: TreeEntry, budget: _Budget) -> str:
    if _is_binary_name(entry.name):
        return ""
    try:
        with holds():
            descriptor = open_file(entry.handle, entry.name)
    except NotServed:
        return ""
    try:
        head = os.read(descriptor, SNIFFED_BYTES)
        if (b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))) or by_signature(head):
            budget.bytes += len(head)
            return ""
        data = head
        while len(data) < budget.bounds.file_bytes and (
            more := os.read(descriptor, budget.bounds.file_bytes - len(data))
        ):
            data += more
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    budget.bytes += len(data)
    decoded = decode_text(data)
    return decoded[0] if decoded else data.decode("utf-8", "replace") if b"\0" not in data else ""


def _is_binary_name(name: str) -> bool:
    return by_name(name).startswith(("image/p", "image/j", "image/g", "image/w", "audio/", "video/", "font/"))


def _snippet(text: str, at: int, length: int) -> str:
    """The line of a match, with its number, cut to what fits."""
    begin = max(text.rfind("\n", 0, at) + 1, at - SNIPPET // 2)
    end = text.find("\n", at + length)
    line = text[begin : min(end if end >= 0 else len(text), begin + SNIPPET)]
    return f"{text.count(chr(10), 0, at) + 1}: {line.strip()}"
