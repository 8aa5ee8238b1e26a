"""Compare transcripts without the texts that may be reworded: `python tests/transcripts/compare.py OLD [NEW]`.

OLD and NEW are folders of transcripts. NEW defaults to this folder. `--revision REV` reads the old transcripts from a
commit instead. The output has the number of texts left out by kind, the texts that changed, and all other differences.
The exit code is 1 if there are other differences.

Messages of errors, texts of failed tools, descriptions, reasons of cancellations and remarks are left out. Values that
differ each time are already blanks in the files.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
KINDS = ("error.message", "description", "tool error text", "remark", "reason of a cancellation")
CONTEXT_CHARACTERS = (60, 200)
"""Characters that are shown before and after the first difference of two lines."""

Transcripts = Mapping[str, str]
"""The text of each file by its path, such as `2025-11-25/tools.txt`."""


class Normalised(NamedTuple):
    """A line of a transcript without the texts that may be reworded, and those texts with their kind."""

    text: str
    removed: tuple[tuple[str, str], ...]


class Difference(NamedTuple):
    """A line that differs after normalising. The number is 0 and the text "" on a side without the line."""

    file: str
    old_number: int
    old: str
    new_number: int
    new: str


class Comparison(NamedTuple):
    """The result of comparing two sets of transcripts."""

    removed: Counter[str]
    """The number of texts left out of the old transcripts, by kind."""
    changed: Counter[tuple[str, str, str]]
    """The number of replacements, by kind, old text and new text."""
    differences: list[Difference]


def normalise(line: str, kept: Sequence[str] = ()) -> Normalised:
    """Return a line without the texts of every kind except those `kept`.

    A message that is not compact JSON is not changed, since its form is compared too.
    """
    if line.startswith("#") and "remark" not in kept:
        return Normalised("#", (("remark", line),))
    try:
        message = json.loads(line[2:])
    except ValueError:
        return Normalised(line, ())
    if dump(message) != line[2:]:
        return Normalised(line, ())
    removed: list[tuple[str, str]] = []
    for holder, member, kind in replaceable_texts(message):
        if kind not in kept:
            removed.append((kind, holder[member]))
            holder[member] = "…"
    return Normalised(line[:2] + dump(message), tuple(removed))


def dump(message: Any) -> str:
    """Encode a message in the server's form."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def replaceable_texts(value: Any) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield each string of a message that may be reworded: the object that has it, its member and its kind."""
    if isinstance(value, list):
        for item in value:
            yield from replaceable_texts(item)
    elif isinstance(value, dict):
        error = value.get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            yield error, "message", "error.message"
        if isinstance(value.get("description"), str):
            yield value, "description", "description"
        if value.get("method") == "notifications/cancelled" and isinstance(value.get("params", {}).get("reason"), str):
            yield value["params"], "reason", "reason of a cancellation"
        if value.get("isError") is True:
            for block in value.get("content", ()):
                if isinstance(block.get("text"), str):
                    yield block, "text", "tool error text"
        for member, item in value.items():
            data_of_author = member == "structuredContent" or (member == "arguments" and isinstance(item, dict))
            if not data_of_author:  # the arguments of a prompt are a list of definitions
                yield from replaceable_texts(item)


def compare(old: Transcripts, new: Transcripts, kept: Sequence[str] = ()) -> Comparison:
    """Return the texts that were left out, the ones that changed, and all other differences."""
    result = Comparison(Counter(), Counter(), [])
    for file in sorted(old.keys() | new.keys()):
        compare_file(file, old.get(file, ""), new.get(file, ""), kept, result)
    return result


def compare_file(file: str, old: str, new: str, kept: Sequence[str], result: Comparison) -> None:
    """Add the findings of one file to a result."""
    befores, afters = ([normalise(line, kept) for line in text.splitlines()] for text in (old, new))
    result.removed.update(kind for line in befores for kind, _ in line.removed)
    matcher = difflib.SequenceMatcher(None, [line.text for line in befores], [line.text for line in afters], False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        pairs = zip_longest(range(start, end), range(new_start, new_end))
        if tag == "equal":
            for before, after in pairs:
                for (kind, words_before), (_, words_after) in zip(
                    befores[before].removed, afters[after].removed, strict=True
                ):
                    if words_before != words_after:
                        result.changed[kind, words_before, words_after] += 1
        else:
            for before, after in pairs:
                old_line = (0, "") if before is None else (before + 1, befores[before].text)
                new_line = (0, "") if after is None else (after + 1, afters[after].text)
                result.differences.append(Difference(file, *old_line, *new_line))


def from_folder(folder: Path) -> Transcripts:
    """Read the transcripts of a folder.

    Raises:
        FileNotFoundError: the folder has none.
    """
    found = {file.relative_to(folder).as_posix(): file.read_text("utf-8") for file in sorted(folder.glob("*/*.txt"))}
    if not found:
        raise FileNotFoundError(f"{folder} has no transcripts")
    return found


def from_revision(revision: str) -> Transcripts:
    """Read the transcripts of a commit.

    Raises:
        subprocess.CalledProcessError: the commit does not exist or has none.
    """
    path = FOLDER.relative_to(ROOT).as_posix()
    command = ["git", "archive", "--format=tar", revision, path]
    archive = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file is not None and member.name.endswith(".txt"):
                found[member.name.removeprefix(f"{path}/")] = file.read().decode()
    return found


def report(result: Comparison) -> Iterator[str]:
    """Yield the lines of a report."""
    yield "Left out:"
    for kind in KINDS:
        changed = sum(times for (of, _, _), times in result.changed.items() if of == kind)
        yield f"  {kind}: {result.removed[kind]}, of which {changed} changed"
    for (kind, old, new), times in sorted(result.changed.items()):
        yield f"{kind} ({times}×):\n  - {old}\n  + {new}"
    for difference in result.differences:
        yield from difference_lines(difference)
    yield f"{len(result.differences)} other differences"


def difference_lines(difference: Difference) -> Iterator[str]:
    """Yield the lines of a difference: its position, and both sides from shortly before it."""
    old, new = difference.old, difference.new
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - CONTEXT_CHARACTERS[0]) if old and new else 0
    yield f"{difference.file}:{difference.old_number or '-'}:{difference.new_number or '-'}"
    for sign, line in (("-", old), ("+", new)):
        if line:
            end = same + CONTEXT_CHARACTERS[1]
            yield f"  {sign} {'…' if start else ''}{line[start:end]}{'…' if len(line) > end else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the transcripts that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2], prog="compare.py")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="OLD and NEW; only NEW with --revision")
    parser.add_argument("--revision", help="take the old transcripts from this commit")
    parser.add_argument("--keep", action="append", default=[], choices=KINDS, help="compare this kind of words, too")
    options = parser.parse_args(arguments)
    folders: list[Path] = options.folders
    if not 0 <= len(folders) - (options.revision is None) <= 1:
        parser.error("give OLD, or --revision, and at most one more folder")
    try:
        old = from_revision(options.revision) if options.revision else from_folder(folders.pop(0))
        result = compare(old, from_folder(folders[0] if folders else FOLDER), options.keep)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    print("\n".join(report(result)))
    return 1 if result.differences else 0


if __name__ == "__main__":
    sys.exit(main())
