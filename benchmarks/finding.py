"""Measures how often a search finds the right place: 60 questions about three packages, compared with `grep -il`.

python benchmarks/finding.py [--half tuning|"held out"] [--missed]

search_questions.json has each question as an agent asks it (in words, by an identifier, an error message, a setting,
with a spelling mistake) and the places that answer it: a file, the line that begins the place, and how many lines it
has. The questions were written before the ranking, and half of them, chosen by a hash, were held out while it was
tuned. A question is answered if one of the first five results of the tool `search` shows a line of such a place.

grep searches for the words of the question without stop words. It answers the question if one of the first five files
that have all of them, in the order of their paths, is the right one: the line does not matter.
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
"""The number of results that count."""
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
        """Return whether any of these lines of a file answers the question."""
        return any(file == path and lines & set(range(first, last + 1)) for path, first, last in self.places)


def root_of(tree: str) -> Path:
    """Return the folder of a tree."""
    spec = importlib.util.find_spec(TREES[tree][0])
    assert spec is not None, tree
    assert spec.origin is not None, tree
    return Path(spec.origin).parent


def questions() -> Iterator[Question]:
    """Yield all questions, with the line numbers of their places in the installed packages."""
    for each in json.loads(QUESTIONS.read_text("utf-8")):
        places: list[tuple[str, int, int]] = []
        for place in each["places"]:
            lines = (root_of(each["tree"]) / place["file"]).read_text("utf-8").splitlines()
            begins = [at for at, line in enumerate(lines, 1) if line.strip().startswith(place["line"])]
            assert begins, f"{each['tree']}: {place['file']} has no line {place['line']!r}: correct {QUESTIONS.name}."
            places += [(place["file"], begin, begin + place["lines"] - 1) for begin in begins]
        yield Question(each["tree"], each["half"], each["query"], tuple(places))


class SearchResult(NamedTuple):
    """The result of one search."""

    files: list[tuple[str, set[int]]]
    """The file of each result, and the numbers of its lines."""
    characters: int
    note: str


async def ask(client: Client, question: Question) -> SearchResult:
    """Search for a question with the tool `search`."""
    result = await client.call_tool("search", {"query": question.query, "source": question.tree})
    structured: Any = result.structured
    prefix = f"file:///{question.tree}/"
    found = [
        (
            hit["id"].partition("?")[0].removeprefix(prefix),
            {int(number) for number in re.findall(r"(?m)^(\d+)[:-]", hit.get("text", ""))},
        )
        for hit in structured["results"]
    ]
    return SearchResult(found, len(json.dumps(structured)), structured.get("note", ""))


def rank_of(question: Question, result: SearchResult) -> int:
    """Return the number of the first result that answers a question, from 1, or 0 if none does."""
    fits = (number for number, (file, lines) in enumerate(result.files, 1) if question.answered_by(file, lines))
    return next(fits, 0)


def grep_answers(question: Question) -> bool:
    """Return whether a right file is among the first files with all words, in the order of `grep -il`."""
    root = root_of(question.tree)
    words = [word.text for word in query_of(question.query).words]
    found: list[str] = []
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".pyi", ".pyx")):
        text = path.read_text("utf-8").lower()
        if all(word in text for word in words):
            found.append(path.relative_to(root).as_posix())
    return any(file in found[:FIRST] for file, _, _ in question.places)


async def answers(half: str = "") -> list[tuple[Question, SearchResult]]:
    """Search for the questions of one half, or all. Returns them with their results."""
    with tempfile.TemporaryDirectory() as cache:
        server, index = Server("finding"), search_index(cache)
        for tree in TREES:
            server.include(files(root_of(tree), label=tree))
        server.include(index)
        server.include(resource_tools())
        async with Client(server) as client:
            while index.pending:
                await asyncio.sleep(0.02)
            asked = [question for question in questions() if half in ("", question.half)]
            return [(question, await ask(client, question)) for question in asked]


def main() -> None:
    """Ask all questions, and print how many are answered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=HALVES, default="")
    parser.add_argument("--missed", action="store_true", help="print the questions that are not answered")
    options = parser.parse_args()
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for _, name in TREES.values()))
    found = asyncio.run(answers(options.half))
    print(f"{'':24}{'first':>8}{'first 5':>10}{'grep -il':>10}{'characters':>12}")
    rows = [(half, "", half) for half in HALVES] + [(f"  {tree}", tree, "") for tree in TREES]
    for name, tree, half in rows:
        chosen = [(one, result) for one, result in found if tree in ("", one.tree) and half in ("", one.half)]
        if not chosen:
            continue
        ranks = [rank_of(question, result) for question, result in chosen]
        count = len(chosen)
        first, among = ranks.count(1) / count, sum(0 < rank <= FIRST for rank in ranks) / count
        grep = sum(grep_answers(question) for question, _ in chosen) / count
        size = sum(result.characters for _, result in chosen) // count
        print(f"{name:24}{first:>8.0%}{among:>10.0%}{grep:>10.0%}{size:>12,}")
    for question, result in found if options.missed else ():
        if not 0 < (rank := rank_of(question, result)) <= FIRST:
            print(f"\n{question.tree}: {question.query}  (result {rank or 'none'}) {result.note}")
            for file, lines in result.files[:FIRST]:
                print(f"    {file}:{','.join(map(str, sorted(lines)))}")


if __name__ == "__main__":
    main()
