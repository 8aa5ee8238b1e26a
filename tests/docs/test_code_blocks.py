"""Every code block of the README and of docs/ works as written. pages.py describes how each kind is run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import PageRun, blocks_of

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md")))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_code_block_of_the_page_works(page: Path, tmp_path: Path) -> None:
    """Our own requirement: a reader who copies a block gets what the page shows."""
    folder = tmp_path / "me"
    shutil.copytree(ROOT / "examples", folder / "examples")
    run = PageRun(folder, ROOT)
    try:
        for block in blocks_of(page):
            run.run(block)
    finally:
        run.close()


def test_a_console_block_with_wrong_output_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one; echo two\none\nthree\n```\n")
    with pytest.raises(AssertionError, match="and not"):
        PageRun(tmp_path, ROOT).run(next(blocks_of(page)))


def test_a_console_block_with_matching_output_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one; echo two; echo three\no…\n…\n$ echo 8000 | wc -l\n1\n```\n")
    PageRun(tmp_path, ROOT).run(next(blocks_of(page)))


def test_expected_times_and_durations_match_any_value(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo 23:59:58 read 12 ms\n10:31:07 read 0.4 ms\n```\n")
    PageRun(tmp_path, ROOT).run(next(blocks_of(page)))


def test_later_output_of_a_background_command_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console background\n$ echo one; read word; echo $word; sleep 60\none\n```\n```text printed\nnever\n```\n"
    )
    run = PageRun(tmp_path, ROOT)
    first, second = blocks_of(page)
    try:
        run.run(first)
        os.write(run.background[-1].fd, b"never\n")
        run.run(second)
    finally:
        run.close()


def test_a_block_in_an_unknown_language_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```cobol\nSTOP RUN.\n```\n")
    with pytest.raises(ValueError, match="cobol"):
        PageRun(tmp_path, ROOT).run(next(blocks_of(page)))
