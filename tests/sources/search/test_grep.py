"""The index finds every file that the real `grep -il` finds, in a real tree."""

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
from tests.server.driving import opened
from wharfinger import Server
from wharfinger.content.folding import fold
from wharfinger.server.search import SearchRequest, search
from wharfinger.sources import files
from wharfinger.sources.search import index_search, search_index
from wharfinger.sources.search.index_store import OVERLAP_CHARACTERS, PART_CHARACTERS

ROOT = Path(wharfinger.__file__).parent
DOCS = ROOT.parent.parent / "docs"
GREP = shutil.which("grep")
LOCALE = {**os.environ, "LC_ALL": "C.UTF-8"}


@pytest.fixture(scope="module")
def grep() -> str:
    """The real one, which ignores case beyond ASCII."""
    if GREP is None or b"GNU grep" not in subprocess.run([GREP, "--version"], capture_output=True, check=True).stdout:
        if os.environ.get("CI"):
            pytest.fail("These tests compare with GNU grep: install it (apt-get install grep).")
        pytest.skip("no GNU grep")
    return GREP


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This package and its documentation, with some difficult files."""
    root: Path = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT, root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    if DOCS.is_dir():
        shutil.copytree(DOCS, root / "docs")
    made = root / "made"
    made.mkdir()
    random_text = random.Random(5)
    letters = "abcdefghijklmnopqrstuvwxyz     ÆØÅæøåßſıΣσςЖж漢字\n"
    for number in range(20):
        (made / f"random{number}.txt").write_text("".join(random_text.choices(letters, k=3_000)), "utf-8")
    (made / "crlf.txt").write_bytes(b"first Line\r\nsecond line\r\n" * 2_000 + b"last Anchorage\r\n")
    (made / "long_line.txt").write_text(
        "x" * (PART_CHARACTERS - 4) + "Harbourmaster" + "y" * PART_CHARACTERS + "Lighthouse" + "z" * 5_000
    )
    (made / "borders.txt").write_text(
        "".join(("." * (PART_CHARACTERS - 7) + f"Buoy{number}Marker") for number in range(3)) + "." * OVERLAP_CHARACTERS
    )
    (made / "utf16.txt").write_text("Pilotage in sixteen bits\r\n" * 50, "utf-16")
    (made / "norwegian.txt").write_text("FJÆREN ØST FOR ÅLESUND\nSTRASSE Straße ΟΔΌΣ\n", "utf-8")
    (made / "quotes.txt").write_text("it's \"quoted\" AND 'so' on * NEAR(a b) ^x \\ %d\n")
    (made / "empty.txt").write_text("")
    return root


@pytest.fixture(scope="module")
def find(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], set[str]]]:
    """Paths of what a search finds, all of it, when the index is complete."""
    loop = asyncio.new_event_loop()
    server = Server("grep")
    source = files(tree, label="tree")
    server.include(source)
    index = search_index(tmp_path_factory.mktemp("cache"))
    server.include(index)
    request: Any = None

    async def begin() -> None:
        nonlocal request
        await server.start()
        request = opened(server, "resources/list")
        while index.pending:
            await asyncio.sleep(0.02)

    async def found(query: str) -> set[str]:
        hits = await search(
            server.services,
            server.resources,
            request,
            SearchRequest(query=query, limit=10_000),
            lambda done, message: None,
        )
        assert not hits.truncated
        return {hit.uri.partition("?")[0].removeprefix("file:///tree/") for hit in hits}

    finding_seconds, index_search.READING_SECONDS = index_search.READING_SECONDS, 60.0
    loop.run_until_complete(begin())
    yield lambda query: loop.run_until_complete(found(query))
    loop.run_until_complete(server.close())
    index_search.READING_SECONDS = finding_seconds
    loop.close()


def grepped(grep: str, tree: Path, term: str) -> set[str]:
    """What `grep -ril` finds in text, by a fixed string."""
    command = [grep, "-rilIF", "--", term, "."]
    done = subprocess.run(command, cwd=tree, env=LOCALE, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {line.removeprefix("./") for line in done.stdout.decode().splitlines()}


def quoted(term: str) -> str:
    """Return a query for exactly this text, if a query can express it."""
    return term if '"' in term else f'"{term}"'


@pytest.mark.parametrize(
    "term",
    [
        "resource", "RESOURCE", "def ", "harbourmaster", "LIGHTHOUSE", "buoy0marker", "Buoy1", "buoy2MARKER",
        "anchorage", "fjæren", "ålesund", "Øst", "straße", "οδόσ", "жж", "漢字", "line\r", "it's", "near(a b)", "\\",
        "* n", "%d", "a b", "-->", "§", "x", "if", "no such thing at all", "...", "first line",
    ],
)  # fmt: skip
def test_a_term_is_found_wherever_grep_finds_it(grep: str, tree: Path, find: Any, term: str) -> None:
    assert grepped(grep, tree, term) <= find(quoted(term))


def test_lines_that_grep_finds_by_a_random_term_are_found(grep: str, tree: Path, find: Any) -> None:
    texts = [path.read_text("utf-8") for path in sorted((tree / "made").glob("random*.txt"))]
    texts += [path.read_text("utf-8") for path in sorted((tree / "src").rglob("*.py"))[:80]]

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(texts).filter(bool), st.integers(0), st.integers(1, 40), st.booleans())
    def check(text: str, at: int, length: int, upper: bool) -> None:
        at %= len(text)
        term = re.split(r'[\n\r\0"]', text[at : at + length])[0]
        term = term.swapcase() if upper and len(term.swapcase()) == len(term) else term
        if not term.strip():
            return
        expected = grepped(grep, tree, term)
        assert expected <= find(quoted(term)), term

    check()


def test_hits_have_the_words(tree: Path, find: Any) -> None:
    for query in ("resource", "template uri", "漢字", "qz"):
        for path in find(query):
            text = (
                fold(path + (tree / path).read_bytes().decode("utf-8", "replace")) if (tree / path).is_file() else path
            )
            assert all(word in text for word in query.split()), (query, path)


def test_a_text_in_utf16_is_found_too(find: Any) -> None:
    assert "made/utf16.txt" in find("sixteen bits")


def test_words_are_found_in_any_order(tree: Path, find: Any) -> None:
    assert find("ØST fjæren") == find("fjæren øst") == {"made/norwegian.txt"}
