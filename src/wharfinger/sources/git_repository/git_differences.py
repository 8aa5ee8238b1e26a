"""What differs between two contents as a unified diff, within bounds of size and work. Runs no diff driver.

Refuses to know where contents come from.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from wharfinger.content import mime
from wharfinger.content.text import shown
from wharfinger.errors import InvalidArgument
from wharfinger.sources.git_repository.objects import PureMissing, PureReader
from wharfinger.sources.git_repository.parsing import GitTreeEntry
from wharfinger.sources.git_repository.trees import TreeChange, is_module
from wharfinger.sources.windows.window import Data, RandomAccess

__all__ = ["difference"]

LARGEST = 1 << 20  # bytes of a content that is compared line by line
MIDDLE = 4_000  # lines of both sides, behind the same beginning and before the same end, that are compared
WORK = 20_000_000  # comparisons of lines, about; some seconds
CONTEXT = 3  # lines around what differs

Code = tuple[int, int, int, int]
"""Lines of the old content, from and to, that lines of the new one replace."""


def difference(objects: PureReader, change: TreeChange) -> str:
    """One path's change as text: what git prints, but for names that would not be safe to show."""
    lines = list(_head(change))
    lines += _body(objects, change)
    return "\n".join(lines) + "\n"


def _head(change: TreeChange) -> Iterator[str]:
    path = _name(change.path)
    yield f"diff --git a/{_name(change.moved or change.path)} b/{path}"
    if change.moved is not None:
        yield f"rename from {_name(change.moved)}"
        yield f"rename to {path}"
    old, new = change.old, change.new
    if old is None and new is not None:
        yield f"new file mode {new.mode:06o}"
    elif old is not None and new is None:
        yield f"deleted file mode {old.mode:06o}"
    elif old is not None and new is not None and old.mode != new.mode:
        yield f"old mode {old.mode:06o}"
        yield f"new mode {new.mode:06o}"
    if (old and old.oid) != (new and new.oid):
        yield f"index {old.oid[:12] if old else '0' * 12}..{new.oid[:12] if new else '0' * 12}"


def _name(path: bytes) -> str:
    return shown(os.fsdecode(path))


def _body(objects: PureReader, change: TreeChange) -> list[str]:
    old, new = change.old, change.new
    if old is not None and new is not None and old.oid == new.oid:
        return []
    try:
        before, after = _content(objects, old), _content(objects, new)
    except InvalidArgument as error:
        return [error.message]
    for side in (before, after):
        if side.size > LARGEST:
            return [f"Contents of {before.size:,} and {after.size:,} bytes differ, and are too large to compare."]
    try:
        texts = [mime.decode_text(side.read(0, side.size)) for side in (before, after)]
    except InvalidArgument as error:
        return [error.message]
    if texts[0] is None or texts[1] is None:
        return [f"Binary contents of {before.size:,} and {after.size:,} bytes differ."]
    a, b = _lines(texts[0][0]), _lines(texts[1][0])
    names = [f"--- {'/dev/null' if old is None else 'a/' + _name(change.moved or change.path)}"]
    names.append(f"+++ {'/dev/null' if new is None else 'b/' + _name(change.path)}")
    return names + _hunks(a, b)


def _content(objects: PureReader, entry: GitTreeEntry | None) -> RandomAccess:
    if entry is None:
        return Data(b"")
    if is_module(entry.mode):
        return Data(f"Subproject commit {entry.oid}\n".encode())
    try:
        return objects.content(entry.oid)
    except PureMissing:
        return Data(f"(The object {entry.oid} is not in this repository.)\n".encode())


def _lines(text: str) -> list[str]:
    """Lines with their ends; of the last one there may be none."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + parts[-1:] * bool(parts[-1])


def _hunks(a: list[str], b: list[str]) -> list[str]:
    """The hunks between two texts."""
    begin = 0
    while begin < min(len(a), len(b)) and a[begin] == b[begin]:
        begin += 1
    end = 0
    while end < min(len(a), len(b)) - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    codes = [
        (i1 + begin, i2 + begin, j1 + begin, j2 + begin)
        for i1, i2, j1, j2 in _codes(a[begin : len(a) - end], b[begin : len(b) - end])
    ]
    lines: list[str] = []
    for group in _grouped(codes):
        lines += _hunk(a, b, group)
    return lines


def _codes(a: list[str], b: list[str]) -> list[Code]:
    """What is replaced by what; everything at once where finding out more would take too long."""
    counted = Counter(b)
    often = len(b) // 100 + 1  # lines that are everywhere are no landmarks for the matcher either
    pairs = sum(many for line in a if (many := counted[line]) <= often or len(b) < 200)
    if len(a) + len(b) > MIDDLE or pairs * min(len(a), len(b)) > WORK:
        return [(0, len(a), 0, len(b))]
    codes = SequenceMatcher(None, a, b).get_opcodes()
    return [(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in codes if tag != "equal"]


def _grouped(codes: list[Code]) -> list[list[Code]]:
    """The changes, those together whose contexts touch."""
    groups: list[list[Code]] = []
    for code in codes:
        if groups and code[0] - groups[-1][-1][1] <= 2 * CONTEXT:
            groups[-1].append(code)
        else:
            groups.append([code])
    return groups


def _hunk(a: list[str], b: list[str], group: list[Code]) -> list[str]:
    i1, i2 = max(0, group[0][0] - CONTEXT), min(len(a), group[-1][1] + CONTEXT)
    j1, j2 = max(0, group[0][2] - CONTEXT), min(len(b), group[-1][3] + CONTEXT)
    body: list[str] = []
    at = i1
    for old_begin, old_end, new_begin, new_end in group:
        body += _signed(" ", a[at:old_begin])
        body += _signed("-", a[old_begin:old_end])
        body += _signed("+", b[new_begin:new_end])
        at = old_end
    body += _signed(" ", a[at:i2])
    return [f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@", *body]


def _signed(sign: str, lines: list[str]) -> list[str]:
    signed = [sign + line[:-1] for line in lines if line.endswith("\n")]
    if lines and not lines[-1].endswith("\n"):
        signed += [sign + lines[-1], "\\ No newline at end of file"]
    return signed


def _range(begin: int, end: int) -> str:
    """Where a hunk is on one side: its first line and how many; of none, the line before."""
    return f"{begin + 1 if end > begin else begin},{end - begin}"
