"""The index finds every file of a source tree that `grep -il` finds."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wharfinger
from tests.conftest import ROOT
from tests.server.driving import make_request
from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger.content.folding import fold
from wharfinger.server.search import SearchRequest, search
from wharfinger.sources import files
from wharfinger.sources.search import index_search, search_index
from wharfinger.sources.search.index_store import OVERLAP_CHARACTERS, PART_CHARACTERS

PACKAGE = Path(wharfinger.__file__).parent
GREP = shutil.which("grep")
LOCALE = {**os.environ, "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def grep() -> str:
    """Return the path of GNU grep, which also ignores the case of letters beyond ASCII."""
    if GREP is None or b"GNU grep" not in subprocess.run([GREP, "--version"], capture_output=True, check=True).stdout:
        if os.environ.get("CI"):
            pytest.fail("These tests compare with GNU grep: install it (apt-get install grep).")
        pytest.skip("no GNU grep")
    return GREP


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this package and its documentation, with some files that are difficult to index."""
    root: Path = tmp_path_factory.mktemp("tree")
    shutil.copytree(PACKAGE, root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    if (ROOT / "docs").is_dir():
        shutil.copytree(ROOT / "docs", root / "docs")
    generated = root / "made"
    generated.mkdir()
    random_text = random.Random(5)
    letters = "abcdefghijklmnopqrstuvwxyz     ÆØÅæøåßſıΣσςЖж漢字\n"
    for number in range(20):
        (generated / f"random{number}.txt").write_text("".join(random_text.choices(letters, k=3_000)), "utf-8")
    (generated / "crlf.txt").write_bytes(b"first Line\r\nsecond line\r\n" * 2_000 + b"last Anchorage\r\n")
    (generated / "long_line.txt").write_text(
        "x" * (PART_CHARACTERS - 4) + "Harbourmaster" + "y" * PART_CHARACTERS + "Lighthouse" + "z" * 5_000
    )
    (generated / "borders.txt").write_text(
        "".join(("." * (PART_CHARACTERS - 7) + f"Buoy{number}Marker") for number in range(3)) + "." * OVERLAP_CHARACTERS
    )
    (generated / "utf16.txt").write_text("Pilotage in sixteen bits\r\n" * 50, "utf-16")
    (generated / "norwegian.txt").write_text("FJÆREN ØST FOR ÅLESUND\nSTRASSE Straße ΟΔΌΣ\n", "utf-8")
    (generated / "quotes.txt").write_text("it's \"quoted\" AND 'so' on * NEAR(a b) ^x \\ %d\n")
    (generated / "empty.txt").write_text("")
    return root


@pytest.fixture(scope="module")
def find(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], set[str]]]:
    """Return a function that returns the paths of all hits in the complete index."""
    loop = asyncio.new_event_loop()
    server = Server("grep")
    source = files(tree, label="tree")
    server.include(source)
    index = search_index(tmp_path_factory.mktemp("cache"))
    server.include(index)
    request: Any = None

    async def start() -> None:
        nonlocal request
        await server.start()
        request = make_request(server, "resources/list")
        await wait_until_async(lambda: not index.pending, "the files are indexed", seconds=120)

    async def find_paths(query: str) -> set[str]:
        hits = await search(
            server.services,
            server.resources,
            request,
            SearchRequest(query=query, limit=10_000),
            lambda done, message: None,
        )
        assert not hits.truncated
        return {hit.uri.partition("?")[0].removeprefix("file:///tree/") for hit in hits}

    reading_seconds, index_search.READING_SECONDS = index_search.READING_SECONDS, 60.0
    loop.run_until_complete(start())
    yield lambda query: loop.run_until_complete(find_paths(query))
    loop.run_until_complete(server.close())
    index_search.READING_SECONDS = reading_seconds
    loop.close()


def grep_paths(grep: str, tree: Path, term: str) -> set[str]:
    """Return the paths of the text files that contain `term`, by `grep -rilF`."""
    command = [grep, "-rilIF", "--", term, "."]
    process = subprocess.run(command, cwd=tree, env=LOCALE, capture_output=True, check=False)
    assert process.returncode in (0, 1), process.stderr
    return {line.removeprefix("./") for line in process.stdout.decode().splitlines()}


def phrase_query(term: str) -> str:
    """Return a query for exactly this text. A query cannot quote a quotation mark."""
    return term if '"' in term else f'"{term}"'


@pytest.mark.parametrize(
    "term",
    [
        "resource", "RESOURCE", "def ", "harbourmaster", "LIGHTHOUSE", "buoy0marker", "Buoy1", "buoy2MARKER",
        "anchorage", "fjæren", "ålesund", "Øst", "straße", "οδόσ", "жж", "漢字", "line\r", "it's", "near(a b)", "\\",
        "* n", "%d", "a b", "-->", "§", "x", "if", "no such thing at all", "...", "first line",
    ],
)  # fmt: skip
def test_every_file_that_grep_finds_by_a_term_is_found(grep: str, tree: Path, find: Any, term: str) -> None:
    assert grep_paths(grep, tree, term) <= find(phrase_query(term))


def test_every_file_that_grep_finds_by_a_random_term_is_found(grep: str, tree: Path, find: Any) -> None:
    texts = [path.read_text("utf-8") for path in sorted((tree / "made").glob("random*.txt"))]
    texts += [path.read_text("utf-8") for path in sorted((tree / "src").rglob("*.py"))[:80]]

    @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(texts).filter(bool), st.integers(0), st.integers(1, 40), st.booleans())
    def check(text: str, begin: int, length: int, swap_case: bool) -> None:
        begin %= len(text)
        term = re.split(r'[\n\r\0"]', text[begin : begin + length])[0]
        term = term.swapcase() if swap_case and len(term.swapcase()) == len(term) else term
        if not term.strip():
            return
        expected = grep_paths(grep, tree, term)
        assert expected <= find(phrase_query(term)), term

    check()


def test_every_hit_contains_all_words_of_the_query(tree: Path, find: Any) -> None:
    for query in ("resource", "template uri", "漢字", "qz"):
        for path in find(query):
            text = (
                fold(path + (tree / path).read_bytes().decode("utf-8", "replace")) if (tree / path).is_file() else path
            )
            assert all(word in text for word in query.split()), (query, path)


def test_a_text_in_utf16_is_found(find: Any) -> None:
    assert "made/utf16.txt" in find("sixteen bits")


def test_words_are_found_in_any_order(tree: Path, find: Any) -> None:
    assert find("ØST fjæren") == find("fjæren øst") == {"made/norwegian.txt"}
