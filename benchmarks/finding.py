"""Whether a search finds the right place: 60 questions over three installed packages, beside the order of `grep -il`.

python benchmarks/finding.py [--half tuning|"held out"] [--missed]

search_questions.json has each question as an agent asks it (in words, by an identifier, an error message, a setting,
with a spelling mistake) and the places that answer it: a file, the line that begins the place, and how many lines it
has. The questions were written before the ranking was, and a half of them, chosen by a hash, was held out while it was
tuned. A question is answered if one of the first five results of the tool `search` shows a line of such a place.

For grep, the question is its words without stop words, and is answered if one of the first five files that have all of
them, in the order of their paths, is the right one: the line is not asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from wharfinger import Client, Server
from wharfinger.content.search_query import query_of
from wharfinger.sources import files, resource_tools
from wharfinger.sources.search import search_index

FIRST = 5
"""Results that are looked at."""
QUESTIONS = Path(__file__).parent / "search_questions.json"
TREES = {"aiohttp": ("aiohttp", "aiohttp"), "pytest": ("_pytest", "pytest"), "sqlalchemy": ("sqlalchemy", "SQLAlchemy")}
"""The package and the distribution of each tree."""
HALVES = ("tuning", "held out")


class Question(NamedTuple):
    """A question, and the lines that answer it, by file: `places` has `(file, first, last)`."""

    tree: str
    half: str
    query: str
    places: tuple[tuple[str, int, int], ...]

    def answered_by(self, file: str, lines: set[int]) -> bool:
        """Whether some lines of a file are an answer."""
        return any(file == path and lines & set(range(first, last + 1)) for path, first, last in self.places)


def root_of(tree: str) -> Path:
    """The folder of a tree."""
    found = importlib.util.find_spec(TREES[tree][0])
    assert found is not None, tree
    assert found.origin is not None, tree
    return Path(found.origin).parent


def questions() -> Iterator[Question]:
    """All questions, with the lines of their places in the packages that are installed."""
    for each in json.loads(QUESTIONS.read_text("utf-8")):
        places: list[tuple[str, int, int]] = []
        for place in each["places"]:
            lines = (root_of(each["tree"]) / place["file"]).read_text("utf-8").splitlines()
            begins = [at for at, line in enumerate(lines, 1) if line.strip().startswith(place["line"])]
            assert begins, f"{each['tree']}: {place['file']} has no line {place['line']!r}: mend {QUESTIONS.name}."
            places += [(place["file"], begin, begin + place["lines"] - 1) for begin in begins]
        yield Question(each["tree"], each["half"], each["query"], tuple(places))


class Shown(NamedTuple):
    """What one search showed."""

    files: list[tuple[str, set[int]]]
    """The file of each result, and the numbers of its lines."""
    characters: int
    note: str


async def asked(client: Client, question: Question) -> Shown:
    """What the tool `search` shows for a question."""
    result = await client.call_tool("search", {"query": question.query, "source": question.tree})
    said: Any = result.structured
    prefix = f"file:///{question.tree}/"
    found = [
        (
            hit["id"].partition("?")[0].removeprefix(prefix),
            {int(number) for number in re.findall(r"(?m)^(\d+)[:-]", hit.get("text", ""))},
        )
        for hit in said["results"]
    ]
    return Shown(found, len(json.dumps(said)), said.get("note", ""))


def rank_of(question: Question, shown: Shown) -> int:
    """The number of the first result that answers a question, from 1; 0 if none does."""
    fits = (number for number, (file, lines) in enumerate(shown.files, 1) if question.answered_by(file, lines))
    return next(fits, 0)


def grepped(question: Question) -> bool:
    """Whether a right file is among the first files that have all words, as `grep -il` shows them."""
    root = root_of(question.tree)
    words = [word.text for word in query_of(question.query).words]
    found: list[str] = []
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".pyi", ".pyx")):
        text = path.read_text("utf-8").lower()
        if all(word in text for word in words):
            found.append(path.relative_to(root).as_posix())
    return any(file in found[:FIRST] for file, _, _ in question.places)


async def answers(half: str = "") -> list[tuple[Question, Shown]]:
    """The questions of one half, or all, with what is shown for them."""
    with tempfile.TemporaryDirectory() as cache:
        server, index = Server("finding"), search_index(cache)
        for tree in TREES:
            server.include(files(root_of(tree), label=tree))
        server.include(index)
        server.include(resource_tools())
        async with Client(server) as client:
            while index.pending:
                await asyncio.sleep(0.02)
            wanted = [question for question in questions() if half in ("", question.half)]
            return [(question, await asked(client, question)) for question in wanted]


def main() -> None:
    """Ask all questions, and print how many are answered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=HALVES, default="")
    parser.add_argument("--missed", action="store_true", help="print the questions that are not answered")
    given = parser.parse_args()
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for _, name in TREES.values()))
    found = asyncio.run(answers(given.half))
    print(f"{'':24}{'first':>8}{'first 5':>10}{'grep -il':>10}{'characters':>12}")
    rows = [(half, "", half) for half in HALVES] + [(f"  {tree}", tree, "") for tree in TREES]
    for name, tree, half in rows:
        chosen = [(one, shown) for one, shown in found if tree in ("", one.tree) and half in ("", one.half)]
        if not chosen:
            continue
        ranks = [rank_of(question, shown) for question, shown in chosen]
        many = len(chosen)
        first, among = ranks.count(1) / many, sum(0 < rank <= FIRST for rank in ranks) / many
        grep = sum(grepped(question) for question, _ in chosen) / many
        size = sum(shown.characters for _, shown in chosen) // many
        print(f"{name:24}{first:>8.0%}{among:>10.0%}{grep:>10.0%}{size:>12,}")
    for question, shown in found if given.missed else ():
        if not 0 < (rank := rank_of(question, shown)) <= FIRST:
            print(f"\n{question.tree}: {question.query}  (result {rank or 'none'}) {shown.note}")
            for file, lines in shown.files[:FIRST]:
                print(f"    {file}:{','.join(map(str, sorted(lines)))}")


if __name__ == "__main__":
    main()
