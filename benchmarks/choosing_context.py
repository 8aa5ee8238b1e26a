"""Measures how often the default rules choose the right resource: 40 questions, compared with two simple rules.

python benchmarks/choosing_context.py [--half tuning|"held out"] [--missed] [--budget N]

context_questions.json has questions about this repository as people ask them, and the places that answer each: a file,
and a part of a line in it. The questions were written before the rules were. Half of them, chosen by a hash, were held
out while the rules were tuned. A server publishes docs/, src/ and examples/ of this repository, as `wharfinger serve`
does.

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
    """Return all questions, with the current line numbers of their places."""
    result: list[Question] = []
    for each in json.loads(QUESTIONS.read_text("utf-8")):
        places: list[tuple[str, int]] = []
        for place in each["places"]:
            lines = (ROOT / place["file"]).read_text("utf-8").splitlines()
            numbers = [number for number, line in enumerate(lines, 1) if place["line"] in line]
            assert numbers, f"{place['file']} has no line {place['line']!r}: correct {QUESTIONS.name}."
            places += [(f"file:///{place['file']}", number) for number in numbers]
        result.append(Question(each["half"], each["question"], tuple(places)))
    return result


@asynccontextmanager
async def repository(*, tools: bool = True) -> AsyncGenerator[Catalogue]:
    """Run a server that publishes this repository. Yields its catalogue."""
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
    """Choose whole files, the newest first."""
    entries = await request.catalogue.entries(templates=False)
    entries.sort(key=lambda entry: str(modified_at(entry) or ""), reverse=True)
    return await until_full(request, [entry.uri for entry in entries if is_for_models(entry)])


async def in_order(request: ContextRequest) -> Iterable[Choice]:
    """Choose whole files, in the order of the list."""
    entries = await request.catalogue.entries(templates=False)
    return await until_full(request, [entry.uri for entry in entries if is_for_models(entry)])


async def until_full(request: ContextRequest, uris: Iterable[str]) -> list[Choice]:
    """Choose files until the budget is used up."""
    remaining = float(request.budget)
    choices: list[Choice] = []
    for uri in uris:
        entry = (await request.catalogue.find(uri))[0]
        size = getattr(entry.resource, "size", 0) or 0
        choices.append(Choice(uri, entry.server, weight=max(1.0, min(remaining, size / 3.5))))
        remaining -= size / 3.5
        if remaining <= 0:
            break
    return choices


RULES: dict[str, Select] = {"rules": rules(), "newest first": newest_first, "in order until full": in_order}


def answers(question: Question, context: ContextBlocks) -> tuple[bool, bool]:
    """Return whether a block is from the right file, and whether one shows a right line."""
    right = [block for block in context if any(block.uri == uri for uri, _ in question.places)]
    shown = any(
        first <= line <= last for block in right for uri, line in question.places if uri == block.uri
        for first, last in block.lines
    )  # fmt: skip
    return bool(right), shown


async def ask(
    asked: list[Question], select: Select, budget: int, *, tools: bool = True
) -> list[tuple[Question, ContextBlocks, float]]:
    """Build the contexts for some questions. Returns them with the seconds that each took."""
    contexts: list[tuple[Question, ContextBlocks, float]] = []
    async with repository(tools=tools) as catalogue:
        for question in asked:
            began = time.perf_counter()
            context = await build_context(catalogue, question.text, budget=budget, select=select)
            contexts.append((question, context, time.perf_counter() - began))
    return contexts


def main() -> int:
    """Ask all questions, and print how many are answered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", choices=HALVES, default="")
    parser.add_argument("--missed", action="store_true", help="print the questions that are not answered")
    parser.add_argument("--budget", type=int, default=BUDGET)
    options = parser.parse_args()
    asked = [question for question in questions() if options.half in ("", question.half)]
    print(f"{'':24}{'half':10}{'answered':>10}{'line':>8}{'blocks':>8}{'tokens':>8}{'seconds':>9}")
    shares: dict[tuple[str, str], float] = {}
    for name, select, tools in [
        *((name, select, True) for name, select in RULES.items()),
        ("rules, without tool", rules(), False),
    ]:
        contexts = asyncio.run(ask(asked, select, options.budget, tools=tools))
        for half in HALVES:
            chosen = [entry for entry in contexts if entry[0].half == half]
            if not chosen:
                continue
            right = [answers(question, context) for question, context, _ in chosen]
            count = len(chosen)
            shares[name, half] = answered = sum(file for file, _ in right) / count
            lines = sum(line for _, line in right) / count
            blocks = sum(len(context) for _, context, _ in chosen) / count
            tokens = sum(context.tokens for _, context, _ in chosen) // count
            seconds = sum(taken for _, _, taken in chosen) / count
            print(f"{name:24}{half:10}{answered:>10.0%}{lines:>8.0%}{blocks:>8.1f}{tokens:>8,}{seconds:>9.2f}")
        for question, context, _ in contexts if options.missed and name == "rules" else ():
            if not all(answers(question, context)):
                print(f"\n{question.half}: {question.text}  (expected {question.places[0]})")
                for block in context:
                    print(f"    {block.uri} {block.lines} {block.tokens}")
    held = [shares.get((name, "held out"), 0.0) for name in RULES]
    failed = "held out" in (options.half or "held out") and (held[0] < REQUIRED_SHARE or held[0] <= max(held[1:]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
