"""A reader with a budget gets windows within it, and the joined windows are still the whole content."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wharfinger.source import Source
from wharfinger.sources import files, logs, sql
from wharfinger.sources.windows.window import NEXT, PREVIOUS, WINDOW_BYTES, BytesContent, read_content
from wharfinger.sources.windows.window_budget import (
    cell_bytes,
    first_that_fit,
    has_budget,
    window_budget,
    window_bytes,
    within_budget,
)

BUDGET = 1_000


def read_windows(source: Source, uri: str | None, key: str = NEXT) -> list[str]:
    """Return the texts of a window and of all that follow it, each read with the budget."""
    texts: list[str] = []
    while uri:
        with window_budget(BUDGET):
            result: Any = source.read(uri)
        texts.append(result.contents[0].text)
        uri = (result.contents[0].meta or {}).get(key)
        if not texts[-1]:
            break
    return texts


def test_a_budget_applies_only_within_its_context() -> None:
    assert (has_budget(), window_bytes(), within_budget(5), cell_bytes(99)) == (False, WINDOW_BYTES, 5, 99)
    with window_budget(160):
        assert (has_budget(), window_bytes(), within_budget(161), within_budget(159), cell_bytes(99)) == (
            True,
            160,
            160,
            159,
            10,
        )
        with window_budget(20):
            assert window_bytes() == 20
        assert window_bytes() == 160
    assert not has_budget()


@pytest.mark.parametrize(
    ("room", "fitting"), [(-1, ["abc"]), (3, ["abc"]), (4, ["abc"]), (5, ["abc", "de"]), (99, ["abc", "de"])]
)
def test_the_first_texts_that_fit_are_at_least_one(room: int, fitting: list[str]) -> None:
    assert first_that_fit(["abc", "de"], room) == fitting
    assert first_that_fit([], room) == []


def test_concurrent_reads_have_separate_budgets() -> None:
    async def read(size: int) -> int:
        with window_budget(size):
            await asyncio.sleep(0)
            return await asyncio.to_thread(window_bytes)

    async def main() -> list[int]:
        return list(await asyncio.gather(read(10), read(20)))

    assert asyncio.run(main()) == [10, 20]


@pytest.mark.parametrize(("size", "windowed"), [(BUDGET, False), (BUDGET + 1, True)])
def test_only_a_text_above_the_budget_is_split_into_windows(size: int, windowed: bool) -> None:
    data = BytesContent(b"a line\n" * (size // 7) + b"x" * (size % 7))
    with window_budget(BUDGET):
        (content, *_) = read_content("file:///a.txt", "file:///a.txt", "a.txt", data, None)
    assert (content.text == data.data.decode()) is not windowed
    assert (NEXT in (content.meta or {})) is windowed
    assert len(content.text or "") <= BUDGET


def test_binary_data_is_read_whole() -> None:
    data = BytesContent(bytes(range(256)) * 10)
    with window_budget(BUDGET):
        (content,) = read_content("file:///a.bin", "file:///a.bin", "a.bin", data, None)
    assert content.blob == data.data


QUERIES: dict[str, Callable[[str], str]] = {
    "": lambda full_text: full_text,
    "?lines=11-400": lambda full_text: "".join(full_text.splitlines(keepends=True)[10:400]),
    "?bytes=100-9999": lambda full_text: full_text[100:10_000],
    "?tail=3": lambda full_text: "".join(full_text.splitlines(keepends=True)[-3:]),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("kind", ["files", "logs"])
def test_joined_windows_within_a_budget_start_with_the_requested_text(tmp_path: Path, kind: str, query: str) -> None:
    """The last window links to the text after the requested range, so only the beginning is compared."""
    root = tmp_path / "boats"
    root.mkdir()
    full_text = "".join(f"2026-11-20T10:00:00Z INFO line {number}\n" for number in range(500))
    (root / "app.log").write_text(full_text)
    source: Source = files(root) if kind == "files" else logs(root / "*.log")
    first_query = "?lines=1-" if kind == "logs" and not query else query
    texts = read_windows(source, f"{source.uri}/app.log{first_query}")
    assert all(len(text) <= BUDGET for text in texts)
    assert "".join(texts).startswith(QUERIES[query](full_text))
    assert len(texts) > 3 or query == "?tail=3"


def test_previous_links_lead_from_the_end_of_a_log_to_its_beginning(tmp_path: Path) -> None:
    full_text = "".join(f"2026-11-20T10:00:00Z INFO line {number}\n" for number in range(500))
    (tmp_path / "app.log").write_text(full_text)
    texts = read_windows(logs(tmp_path / "*.log", label="boats"), "log://boats/app.log", PREVIOUS)
    assert "".join(reversed(texts)) == full_text
    assert all(0 < len(text) <= BUDGET for text in texts[:-1])


def test_a_tail_of_a_line_above_the_budget_has_the_end_of_that_line(tmp_path: Path) -> None:
    (tmp_path / "tides.txt").write_text("€" * BUDGET + "\n")
    (text,) = read_windows(files(tmp_path, label="boats"), "file:///boats/tides.txt?tail=1", "")
    assert text == "€" * 333 + "\n"


def test_previous_links_within_a_long_line_begin_with_a_character(tmp_path: Path) -> None:
    (tmp_path / "tides.txt").write_text("€" * BUDGET + "\n")
    texts = read_windows(files(tmp_path, label="boats"), "file:///boats/tides.txt?bytes=1500-", PREVIOUS)
    assert "".join(reversed(texts[1:])) == "€" * 500


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_previous_links_lead_through_a_text_in_any_script(tmp_path: Path, encoding: str) -> None:
    """Each window begins and ends with a whole character, and they do not become narrower."""
    full_text = "".join(f"строка {number} 🚢\n" * (number % 3) for number in range(900))
    (tmp_path / "tides.txt").write_text(full_text, encoding, newline="")
    texts = read_windows(files(tmp_path, label="boats"), "file:///boats/tides.txt?tail=1", PREVIOUS)
    assert "".join(reversed(texts)) == full_text
    assert len(texts) < len(full_text.encode(encoding)) / BUDGET * 1.2 + 2


@pytest.mark.parametrize("query", ["", "?limit=400"])
def test_rows_are_split_into_windows_and_long_values_are_cut(tmp_path: Path, query: str) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT)")
        connection.executemany(
            "INSERT INTO notes VALUES (?, ?)", [(n, "x" * (5_000 if n == 7 else 9)) for n in range(300)]
        )
    connection.close()
    texts = read_windows(sql(f"sqlite:///{tmp_path}/shop.db", label="shop"), f"sqlite://shop/notes/rows{query}")
    lines = "".join(texts).splitlines()
    assert len(lines) == 300
    assert '"cut":true' in lines[7]
    assert len(lines[7]) < 200
    assert len(texts) > 2
