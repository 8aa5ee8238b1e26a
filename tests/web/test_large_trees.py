"""The page over a folder of 100,000 files."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.web.conftest import RunningPage, Tab, run_page

FILES = 100_000
BUSY_MILLISECONDS = 3_000
"""The longest time of the shortest of three attempts on a busy machine. An idle one takes less than 200 ms to open a
folder, and a second to find a name or to show a change; 50,000 rows in the browser would take many seconds."""

MEASURE = """([act, rows, text]) => new Promise((resolve) => {
  const began = performance.now();
  const found = () => {
    const all = [...document.querySelectorAll('[role=treeitem]')];
    if (text ? !all.some((row) => row.textContent.includes(text)) : all.length < rows) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
  };
  const observer = new MutationObserver(found);
  observer.observe(document.body, {subtree: true, childList: true, characterData: true});
  if (act.click) {
    [...document.querySelectorAll('[role=treeitem]')].find((row) => row.textContent.includes(act.click)).click();
  } else if (act.words !== undefined) {
    const input = document.querySelector('#search');
    input.value = act.words;
    input.dispatchEvent(new Event('input'));
  }
})"""
"""Act in the page, and return the milliseconds until the rows are painted. Playwright's own waits take longer."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    for folder in range(100):
        (root / "data" / f"flat-{folder:02}").mkdir(parents=True)
    for number in range(FILES):
        # The first folder has half of all files.
        folder_name = "flat-00" if number % 2 else f"flat-{number // 2 % 99 + 1:02}"
        (root / "data" / folder_name / f"file-{number:06}.txt").touch()
    return root


@pytest.fixture(scope="module")
def page(root: Path) -> Generator[RunningPage]:
    with run_page("browse", "--no-open", "--port", "0", "data", cwd=root) as running_page:
        yield running_page


@pytest.fixture(scope="module")
def tab(page: RunningPage, browser: Any) -> Generator[Tab]:
    """Open one tab for all tests, since the token of the URL works only once."""
    context = browser.new_context(viewport={"width": 1200, "height": 760})
    tab = Tab(context.new_page())
    tab.page.set_default_timeout(20_000)
    tab.open(page.url, "data")
    tab.row("flat-00").wait_for(timeout=120_000)
    wait_until(
        lambda: tab.row("flat-00").locator(".detail").inner_text() == "50,000", "the list is complete", seconds=120
    )
    yield tab
    assert tab.script_errors == []
    context.close()


def count_rows(tab: Tab) -> int:
    return int(tab.page.locator("[role=treeitem]").count())


def check_times(label: str, measure: Callable[[], float]) -> None:
    """Measure three times, and check that the shortest time is within the bound of a busy machine."""
    times = [measure() for _ in range(3)]
    print(label, *(f"{milliseconds:.0f} ms" for milliseconds in times))
    assert min(times) < BUSY_MILLISECONDS


@pytest.mark.timeout(300)
def test_a_folder_of_50_000_files_opens_with_200_rows(tab: Tab) -> None:
    before = count_rows(tab)

    def open_and_close() -> float:
        milliseconds: float = tab.page.evaluate(MEASURE, [{"click": "flat-00"}, before + 201, ""])
        assert count_rows(tab) - before == 201  # 200 files, and the row that shows more
        tab.choose("flat-00")
        wait_until(lambda: count_rows(tab) == before, "the folder closes")
        return milliseconds

    check_times("opened in", open_and_close)


@pytest.mark.timeout(300)
def test_a_change_becomes_visible_soon(tab: Tab, root: Path) -> None:
    tab.choose("flat-00")
    tab.row("file-000001.txt").first.click()
    tab.panel.locator(".facts", has_text="read in").wait_for()
    file = root / "data" / "flat-00" / "file-000001.txt"
    numbers = iter(range(3))

    def change() -> float:
        text = f"change {next(numbers)}"
        started_at = time.monotonic()
        file.write_text(text)
        tab.panel.locator("pre", has_text=text).wait_for()
        return (time.monotonic() - started_at) * 1000

    check_times("changed in", change)
    tab.choose("flat-00")
    wait_until(lambda: tab.page.locator(".row-resource").count() == 0, "the folder closes")


@pytest.mark.timeout(300)
def test_a_folder_shows_200_more_rows_at_a_time_until_the_tree_has_2_000(tab: Tab) -> None:
    tab.choose("flat-00")
    tab.page.locator(".row-more").wait_for()
    more = tab.page.locator(".row-more", has_text="Show 200 more")
    while more.count():
        before = count_rows(tab)
        more.click()
        tab.page.locator("[role=treeitem]").nth(before + 199).wait_for(state="attached")
    assert 1_800 < count_rows(tab) <= 2_000
    assert tab.page.locator(".row-more").inner_text().strip().endswith("Search for the others")


@pytest.mark.timeout(300)
def test_a_name_among_100_000_is_found_soon(tab: Tab) -> None:
    names = iter(("file-077777", "file-000123", "file-099998"))

    def search() -> float:
        name = next(names)
        milliseconds: float = tab.page.evaluate(MEASURE, [{"words": name}, 0, name])
        tab.page.evaluate(MEASURE, [{"words": ""}, 0, "flat-00"])
        return milliseconds

    check_times("found in", search)


@pytest.mark.timeout(300)
def test_names_are_found_while_the_list_is_read_again(tab: Tab, root: Path) -> None:
    """A search does not wait for the new list: it is answered when the new file cannot be found yet."""
    rows = tab.page.locator("[role=treeitem]")

    def is_found_before_the_new_file(number: int) -> bool:
        new, name = f"new-{number}.txt", f"file-07777{number}"
        (root / "data" / "flat-01" / new).touch()
        time.sleep(0.5)  # the server now reads the list of 100,000 files again, for some seconds
        milliseconds: float = tab.page.evaluate(MEASURE, [{"words": name}, 0, name])
        print(f"found meanwhile in {milliseconds:.0f} ms")
        tab.page.locator("#search").fill(new)
        wait_until(lambda: not rows.filter(has_text=name).count(), "the new words are searched")
        is_new_found = bool(rows.filter(has_text=new).count())
        tab.page.evaluate(MEASURE, [{"words": ""}, 0, "flat-00"])
        return not is_new_found

    assert any(is_found_before_the_new_file(number) for number in range(3))  # another attempt if the machine stalled
