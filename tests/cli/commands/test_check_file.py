"""`wharfinger check -f` asks each source, and does not wait for one that does not answer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from wharfinger.cli import main
from wharfinger.cli.commands.check_file import source_problems
from wharfinger.source import Source, SourceUnavailable
from wharfinger.sources.registry import PreparedSource, parse_word


class Answering(Source):
    name = uri = "quay"
    closed = False

    def probe(self) -> object:
        return None

    async def close(self) -> None:
        self.closed = True


class Failing(Answering):
    async def probe(self) -> object:
        raise SourceUnavailable("The quay at postgresql://me:hunter2@quay/db is closed.")


class Blocking(Answering):
    patience = 0.2

    def __init__(self) -> None:
        self.released = threading.Event()

    def probe(self) -> object:
        return self.released.wait(50)


class NeverStarting(Answering):
    patience = 0.2

    async def start(self) -> None:
        await asyncio.Event().wait()


def test_each_source_without_an_answer_is_reported_in_the_order_of_the_file() -> None:
    """Regression: a probe that blocked its thread kept the command until it returned."""
    blocking = Blocking()
    sources = [Failing(), blocking, Answering(), NeverStarting()]
    word = parse_word("docs")
    problems = source_problems([PreparedSource(word, source) for source in sources])
    assert not blocking.released.is_set()
    blocking.released.set()
    name = PreparedSource(word, blocking).name
    assert problems[0].startswith(f"{name} is not available: The quay at")
    assert "hunter2" not in problems[0]
    assert problems[1:] == [f"{name} does not answer within 0.2 s."] * 2
    assert sources[2].closed
    assert sources[3].closed


def test_all_sources_that_do_not_exist_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wharfinger.toml"
    file.write_text('sources = ["north", ".", "south"]\n')
    assert main(["check", "-f", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"wharfinger: There is no folder {tmp_path / 'north'}.\n  | There is no folder {tmp_path / 'south'}.\n"
    )
