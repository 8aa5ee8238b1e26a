"""Every link in the documentation to a file of the project or to a heading of a page has a target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.test_code_blocks import PAGES

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the headings of a page as URL fragments."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_has_a_target(page: Path) -> None:
    """Our own requirement: a reader finds no broken link."""
    broken: list[str] = []
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.is_relative_to(ROOT) or not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken
