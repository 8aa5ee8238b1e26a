"""The page over a folder of 100,000 files."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

import pytest

from tests.web.conftest import RunningPage, Tab, serving, wait_until

FILES = 100_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningPage]:
    root = tmp_path_factory.mktemp("large")
    for folder in range(100):
        (root / "data" / f"flat-{folder:02}").mkdir(parents=True)
    for number in range(FILES):
        # One folder has half of all files.
        place = "flat-00" if number % 2 else f"flat-{number // 2 % 99 + 1:02}"
        (root / "data" / place / f"file-{number:06}.txt").touch()
    with serving("browse", "--no-open", "--port", "0", "data", cwd=root) as running:
        yield running


@pytest.mark.timeout(300)
def test_a_folder_of_50_000_files_opens_with_200_rows(page: RunningPage, new_tab: Callable[..., Tab]) -> None:
    tab: Tab = new_tab()
    tab.page.set_default_timeout(120_000)
    tab.open(page.url, "data")
    tab.row("flat-00").wait_for()
    wait_until(lambda: tab.row("flat-00").locator(".detail").inner_text() == "50,000", "the list is not complete", 120)
    times: list[float] = []
    for name in ("flat-00", "flat-01", "flat-02"):
        before = tab.page.locator("[role=treeitem]").count()
        began = time.monotonic()
        tab.choose(name)
        tab.page.locator(".row-resource").nth(199).wait_for()
        times.append(time.monotonic() - began)
        assert tab.page.locator("[role=treeitem]").count() - before == 201  # and the row for more
        tab.choose(name)
        wait_until(lambda before=before: tab.page.locator("[role=treeitem]").count() == before, "it does not close")
    print("opened in", *(f"{one * 1000:.0f} ms" for one in times))
    tab.choose("flat-00")
    tab.page.locator(".row-more").wait_for()
    assert tab.page.locator(".row-resource").count() == 200
    tab.page.locator(".row-more").click()
    wait_until(lambda: tab.page.locator(".row-resource").count() == 400, "no more rows")
    more = tab.page.locator(".row-more", has_text="Show 200 more")
    while more.count():
        before = tab.page.locator("[role=treeitem]").count()
        more.click()
        wait_until(lambda before=before: tab.page.locator("[role=treeitem]").count() >= before + 200, "no more rows")
    assert 1_800 < tab.page.locator("[role=treeitem]").count() <= 2_000
    assert tab.page.locator(".row-more").inner_text().strip().endswith("Search for the others")
    began = time.monotonic()
    tab.page.locator("#search").fill("file-077777")
    wait_until(lambda: any("file-077777" in row for row in tab.rows()), "not found")
    print(f"found in {(time.monotonic() - began) * 1000:.0f} ms")
    assert tab.problems == []
