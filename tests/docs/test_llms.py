"""docs/llms.txt, the list of pages for language models, is up to date."""

from __future__ import annotations

import runpy

from tests.conftest import ROOT


def test_list_of_pages_is_up_to_date() -> None:
    """If this fails, run `python tools/llms.py`."""
    render = runpy.run_path(str(ROOT / "tools" / "llms.py"))["render"]
    assert (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8") == render()


def test_every_page_is_listed_with_a_summary() -> None:
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("**/*.md"):
        path = page.relative_to(ROOT / "docs").as_posix()
        (line,) = [line for line in text.splitlines() if f"]({path}): " in line]
        assert len(line.partition("): ")[2]) > 20
