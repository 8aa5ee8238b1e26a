"""Whether the default rules choose the right resource: 40 questions about this repository, beside two simple rules.

python benchmarks/choosing_context.py [--half tuning|"held out"] [--missed] [--budget N]

context_questions.json has each question as a person asks it, and the places that answer it: a file, and the beginning
of a line in it. The questions were written before the rules were. Half of them, chosen by a hash, were held out while
the rules were tuned. A server publishes docs/, src/ and examples/ of this repository, as `wharfinger serve` does.

A question counts as answered if a block of the context is from the right file; `line` is the share of questions for
which a block also shows one of the lines. The simple rules fill the budget with whole files, the last one cut: the
newest first, and in the order of the list. `without tool` is the same server without its tool `search`: the host then
searches by names, and reads the files whose names fit best.

The exit status is 1 if the rules answer less than 75 % of the held-out half, or no more than a simple rule does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from wharfinger import Server
from wharfinger.host import Host
from wharfinger.host.catalogue import Catalogue
from wharfinger.host.catalogue_lists import modified_at
from wharfinger.host.context import Choice, ContextBlocks, ContextRequest, Select, build_context, rules
from wharfinger.host.context.selection_rules import is_for_models
from wharfinger.sources import files, resource_tools
from wharfinger.sources.search import search_index

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = ROOT / "benchmarks" / "context_questions.json"
TREES = ("docs", "src", "examples")
HALVES = ("tuning", "held out")
REQUIRED_SHARE = 0.75
BUDGET = 8_000


class Question(NamedTuple):
    """A question, and the places that answer it: `(URI, line)`."""

    half: str
    text: str
    places: tuple[tuple[str, int], ...]


def questions() -> list[Question]:
    """All questions, with the lines of their places as the files are now."""
    found: list[Question] = []
    for each in json.loads(QUESTIONS.read_text("utf-8")):
        places: list[tuple[str, int]] = []
        for place in each["places"]:
            lines = (ROOT / place["file"]).read_text("utf-8").splitlines()
            at = [number for number, line in enumerate(lines, 1) if place["line"] in line]
            assert at, f"{place['file']} has no line {place['line']!r}: mend {QUESTIONS.name}."
            places += [(f"file:///{place['file']}", number) for number in at]
        found.append(Question(each["half"], each["question"], tuple(places)))
    return found


@asynccontextmanager
async def repository(*, tools: bool = True) -> AsyncGenerator[Catalogue]:
    """The catalogue of a server that publishes this repository."""
    with tempfile.TemporaryDirectory() as cache:
        server, index = Server("repository"), search_index(cache)
        for tree in TREES:
            server.include(files(ROOT / tree, label=tree))
        if tools:
            server.include(index)
            server.include(resource_tools())
        async with Host({"repository": server}) as host:
            await host.ready()
            while tools and index.pending:
                await asyncio.sleep(0.02)
            yield host.catalogue


async def newest_first(request: ContextRequest) -> Iterable[Choice]:
    """Whole files, the newest first."""
    entries = await request.catalogue.entries(templates=False)
    entries.sort(key=lambda entry: str(modified_at(entry) or ""), reverse=True)
    return await until_full(request, [entry.uri for entry in entries if is_for_models(entry)])


async def in_order(request: ContextRequest) -> Iterable[Choice]:
    """Whole files, in the order of the list."""
    entries = await request.catalogue.entries(templates=False)
    return await until_full(request, [entry.uri for entry in entries if is_for_models(entry)])


async def until_full(request: ContextRequest, uris: Iterable[str]) -> list[Choice]:
    """As many files as the budget has room for."""
    left = float(request.budget)
    choices: list[Choice] = []
    for uri in uris:
        entry = (await request.catalogue.find(uri))[0]
        size = getattr(entry.resource, "size", 0) or 0
        choices.append(Choice(uri, entry.server, weight=max(1.0, min(left, size / 3.5))))
        left -= size / 3.5
        if left <= 0:
            break
    return choices


RULES: dict[str, Select] = {"rules": rules(), "newest first": newest_first, "in order until full": in_order}


def answers(question: Question, context: ContextBlocks) -> tuple[bool, bool]:
    """Whether a block is from the right file, and whether one shows a right line."""
    right = [block for block in context if any(block.uri == uri for uri, _ in question.places)]
    shown = any(
        first <= line <= last for block in right for uri, line in question.places if uri == block.uri
        for first, last in block.lines
    )  # fmt: skip
    return bool(right), shown


async def ask(
    wanted: list[Question], select: Select, budget: int, *, tools: bool = True
) -> list[tuple[Question, ContextBlocks, float]]:
    """The contexts for some questions, with the seconds that each took."""
    found: list[tuple[Question, ContextBlocks, float]] = []
    async with repository(tools=tools) as catalogue:
        for question in wanted:
            began = time.perf_counter()
            context = await build_context(catalogue, question.text, budget=budget, select=select)
            found.append((question, context, time.perf_counter() - began))
    return found


def main() -> int:
    """Ask all questions, and print how many are answered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=HALVES, default="")
    parser.add_argument("--missed", action="store_true", help="print the questions that are not answered")
    parser.add_argument("--budget", type=int, default=BUDGET)
    given = parser.parse_args()
    wanted = [question for question in questions() if given.half in ("", question.half)]
    print(f"{'':24}{'half':10}{'answered':>10}{'line':>8}{'blocks':>8}{'tokens':>8}{'seconds':>9}")
    shares: dict[tuple[str, str], float] = {}
    for name, select, tools in [
        *((name, select, True) for name, select in RULES.items()),
        ("rules, without tool", rules(), False),
    ]:
        found = asyncio.run(ask(wanted, select, given.budget, tools=tools))
        for half in HALVES:
            chosen = [one for one in found if one[0].half == half]
            if not chosen:
                continue
            right = [answers(question, context) for question, context, _ in chosen]
            many = len(chosen)
            shares[name, half] = answered = sum(one for one, _ in right) / many
            lines = sum(line for _, line in right) / many
            blocks, tokens = sum(len(one[1]) for one in chosen) / many, sum(one[1].tokens for one in chosen) // many
            seconds = sum(one[2] for one in chosen) / many
            print(f"{name:24}{half:10}{answered:>10.0%}{lines:>8.0%}{blocks:>8.1f}{tokens:>8,}{seconds:>9.2f}")
        for question, context, _ in found if given.missed and name == "rules" else ():
            if not all(answers(question, context)):
                print(f"\n{question.half}: {question.text}  (wanted {question.places[0]})")
                for block in context:
                    print(f"    {block.uri} {block.lines} {block.tokens}")
    held = [shares.get((name, "held out"), 0.0) for name in RULES]
    failed = "held out" in (given.half or "held out") and (held[0] < REQUIRED_SHARE or held[0] <= max(held[1:]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
