"""The page in a real browser, over real servers. These tests also take the screenshots of the documentation.

`SCREENSHOTS=docs/pictures` keeps the screenshots in this folder; without it they are deleted with the test's folder.
"""

from __future__ import annotations

import json
import os
import re
import struct
import time
import wave
import zlib
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, absent
from tests.waiting import wait_until
from tests.web.conftest import RunningPage, Tab, run_page

NewTab = Callable[..., Tab]
EXAMPLES = ROOT / "examples"

SERVER_PROGRAM = '''
import asyncio
from pathlib import Path
from typing import Annotated, Literal

from wharfinger import Context, Server
from wharfinger.types import CallToolResult

server = Server("harbour", instructions="Ask for the tide before you plan a trip.")


@server.tool
async def sound(
    place: Literal["quay", "mole"], metres: float, ctx: Context, times: int = 3, dry_run: bool = False,
    remarks: list[str] | None = None, extra: dict[str, int] | None = None,
) -> str:
    """Measure the depth of water."""
    for number in range(times):
        await ctx.report_progress(number + 1, times, f"sounding {number + 1}")
        while times == 9 and not Path("seen").exists():  # until the test has seen the progress
            await asyncio.sleep(0.05)
    return f"{place}: {metres + 1} m, {times} times, {remarks}, {extra}, {dry_run}"


@server.tool
async def moor(ctx: Context, vessel: str) -> str:
    """Moor a vessel, after a question."""
    answer = await ctx.elicit(f"Where shall {vessel} moor?", Berth)
    return f"{vessel} at berth {answer.number}" if answer is not None else "nowhere"


@server.tool
async def sink() -> str:
    """Fail."""
    raise ValueError("the hull is open")


@server.tool
async def berths() -> CallToolResult:
    """List the berths, as data alone."""
    return CallToolResult(content=[], structured_content={"quay": [1, None], "open": True})


@server.prompt
def plan(vessel: str, day: str = "today") -> str:
    """Plan a trip."""
    return f"Plan a trip of {vessel} for {day}."


@server.resource("tide://{port}/now")
def tide(port: str) -> str:
    return f"The tide at {port} is 3.2 m."
'''


def png(width: int, height: int) -> bytes:
    """Return a picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x0b\x57\xa4" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with one file of each type."""
    root = tmp_path_factory.mktemp("harbour")
    data = root / "harbour"
    (data / "deep" / "er").mkdir(parents=True)
    (data / "guide.md").write_text(
        "# Harbour guide\n\n| port | depth |\n|---|---|\n| Whitby | 5.2 |\n\n- **moor** here\n"
    )
    (data / "tides.csv").write_text("port,height\n" + "".join(f"Whitby,{number}\n" for number in range(450)))
    (data / "log.txt").write_text("".join(f"line {number}\n" for number in range(1, 1201)))
    (data / "berths.json").write_text('{"berths": [1, 2, {"free": true}]}')
    (data / "chart.png").write_bytes(png(60, 40))
    with wave.open(str(data / "horn.wav"), "wb") as horn:
        horn.setnchannels(1)
        horn.setsampwidth(2)
        horn.setframerate(8000)
        horn.writeframes(b"\0\0" * 800)
    (data / "form.pdf").write_bytes(PDF)
    (data / "page.html").write_text(
        '<h1>Shown</h1><script>document.body.innerHTML = "ran"</script><img src=x onerror="parent.document.title=1">'
    )
    (data / "raw.bin").write_bytes(bytes(range(256)))
    (data / "deep" / "er" / "note.txt").write_text("found in the deep: bollard\n")
    return root


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """The folder in which screenshots are saved."""
    return Path(os.environ.get("SCREENSHOTS", tmp_path))


@pytest.fixture(scope="module")
def page(folder: Path) -> Generator[RunningPage]:
    (folder / "server.py").write_text(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Berth:\n    number: int\n\n" + SERVER_PROGRAM
    )
    with run_page("browse", "--no-open", "--port", "0", "harbour", "server.py", cwd=folder) as running_page:
        yield running_page


_storage_states: dict[str, Any] = {}
"""The cookies of the first tab of each page."""


@pytest.fixture
def tab(page: RunningPage, new_tab: NewTab) -> Tab:
    """Open a tab with the cookies of the first one, since the token of the URL works only once."""
    options = {"storage_state": _storage_states[page.base]} if page.base in _storage_states else {}
    tab = new_tab(**options)
    tab.open(page.base if options else page.url, "harbour")
    _storage_states[page.base] = tab.page.context.storage_state()
    return tab


def open_folder(tab: Tab) -> Tab:
    """Expand the row `harbour`, which shows the files of the folder."""
    if not tab.row("guide.md").count():
        tab.choose("harbour")
    tab.row("guide.md").wait_for()
    return tab


def wait_for_facts(tab: Tab) -> str:
    """Wait until the resource has been read, and return the status that the panel shows."""
    status = tab.panel.locator(".facts [role=status]")
    return str(wait_until(lambda: (text := status.inner_text()) != "Reading …" and text, "the resource is read"))


# --- previews


def test_markdown_is_rendered_and_its_source_can_be_shown(tab: Tab) -> None:
    open_folder(tab).choose("guide.md")
    assert tab.panel.locator(".markdown h1").inner_text() == "Harbour guide"
    assert tab.panel.locator(".markdown td").all_inner_texts() == ["Whitby", "5.2"]
    tab.panel.get_by_role("button", name="Text").click()
    tab.panel.locator("pre").wait_for()
    assert tab.panel.locator("pre").inner_text().startswith("# Harbour guide")
    assert tab.script_errors == []


def test_text_is_shown_in_windows(tab: Tab) -> None:
    open_folder(tab).choose("log.txt")
    tab.panel.locator("pre").wait_for()
    assert "Lines 1 to 500 of 1,200" in tab.panel.inner_text()
    tab.panel.get_by_role("button", name="Next").click()
    tab.panel.get_by_text("Lines 501 to 1,000").wait_for()
    assert tab.panel.locator("pre").inner_text().startswith("line 501\n")
    tab.panel.get_by_role("button", name="Last").click()
    tab.panel.get_by_text("Lines 1,001 to 1,200").wait_for()
    assert tab.panel.locator("pre").inner_text().rstrip().endswith("line 1200")


def test_a_table_shows_its_header_and_200_rows_at_a_time(tab: Tab) -> None:
    open_folder(tab).choose("tides.csv")
    tab.panel.locator("table").wait_for()
    assert tab.panel.locator("th").all_inner_texts() == ["port", "height"]
    assert tab.panel.locator("tbody tr").count() == 200
    tab.panel.get_by_role("button", name="Last").click()
    tab.panel.get_by_text("Rows 401 to 450 of 450").wait_for()
    assert tab.panel.locator("tbody tr").last.inner_text().split() == ["Whitby", "449"]


def test_json_is_indented(tab: Tab) -> None:
    open_folder(tab).choose("berths.json")
    tab.panel.locator("pre").wait_for()
    assert '    {\n      "free": true\n    }' in tab.panel.locator("pre").inner_text()


def test_an_image_is_decoded_by_the_browser(tab: Tab) -> None:
    open_folder(tab).choose("chart.png")
    picture = tab.panel.locator("img")
    picture.wait_for()
    assert wait_until(lambda: picture.evaluate("i => i.naturalWidth"), "the picture is loaded") == 60


def test_sound_can_be_played(tab: Tab) -> None:
    open_folder(tab).choose("horn.wav")
    player = tab.panel.locator("audio")
    player.wait_for()
    assert wait_until(lambda: player.evaluate("a => a.duration || 0"), "the sound is loaded") == pytest.approx(
        0.1, abs=0.05
    )


def test_a_pdf_is_sent_unchanged(tab: Tab) -> None:
    open_folder(tab).choose("form.pdf")
    link = tab.panel.get_by_role("link", name="Open the PDF in a tab")
    link.wait_for()
    assert tab.panel.locator("iframe").get_attribute("src") == link.get_attribute("href")
    answer = tab.page.request.get(
        tab.page.url.rstrip("/") + str(link.get_attribute("href")), headers={"sec-fetch-site": "same-origin"}
    )
    assert (answer.body(), answer.headers["content-type"]) == (PDF, "application/pdf")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_html_is_shown_as_text(tab: Tab) -> None:
    open_folder(tab).choose("page.html")
    tab.panel.locator("pre").wait_for()
    assert "<h1>Shown</h1>" in tab.panel.locator("pre").inner_text()
    assert tab.panel.locator("iframe, h1:text('Shown')").count() == 0
    assert tab.page.title() != "1"


def test_bytes_are_shown_in_hexadecimal(tab: Tab) -> None:
    open_folder(tab).choose("raw.bin")
    tab.panel.locator("pre").wait_for()
    assert tab.panel.locator("pre").inner_text().startswith("00000000  00 01 02 03")


# --- tools and prompts


def choose_tool(tab: Tab, name: str) -> None:
    """Expand the tools of `server.py`, and choose one."""
    tools = tab.page.locator('[data-key^="tools"][data-key*="server-py"]')
    if not tools.count():
        tab.choose("server-py")
    if not tab.row(name).count():
        tools.click()
    tab.choose(name)


def test_the_form_of_a_tool_is_made_from_its_schema_and_progress_is_shown(
    tab: Tab, folder: Path, screenshots: Path
) -> None:
    choose_tool(tab, "sound")
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.get_by_text("Fill this in: it is required.").first.wait_for()
    tab.panel.get_by_label("place").select_option("mole")
    tab.panel.get_by_label("metres").fill("two")
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.get_by_text("Write a number, such as 2.5.").wait_for()
    tab.panel.get_by_label("metres").fill("2.5")
    tab.panel.get_by_label("times").fill("9")
    tab.panel.get_by_label("dry_run").check()
    tab.panel.get_by_label("remarks").fill("muddy\ndeep")
    tab.panel.get_by_label("extra").fill('{"knots": 3}')
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.locator("progress").wait_for()
    (folder / "seen").touch()
    tab.panel.locator(".result pre").wait_for()
    text = tab.panel.locator(".result pre").inner_text()
    assert text == "mole: 3.5 m, 9 times, ['muddy', 'deep'], {'knots': 3}, True"
    tab.page.screenshot(path=screenshots / "browse_tool.png", scale="css")
    assert tab.script_errors == []


def test_an_elicitation_is_shown_and_answered_in_a_form(tab: Tab) -> None:
    choose_tool(tab, "moor")
    tab.panel.get_by_label("vessel").fill("Mary")
    tab.panel.get_by_role("button", name="Call").click()
    question = tab.panel.locator(".question")
    question.get_by_text("Where shall Mary moor?").wait_for()
    question.get_by_label("number").fill("7")
    question.get_by_role("button", name="Answer").click()
    tab.panel.locator(".result pre").wait_for()
    assert tab.panel.locator(".result pre").inner_text() == "Mary at berth 7"


def test_the_error_of_a_tool_is_shown(tab: Tab) -> None:
    choose_tool(tab, "sink")
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.get_by_text(re.compile("The tool failed")).wait_for()


def test_a_result_without_text_is_shown_as_json(tab: Tab) -> None:
    """A bug: it was shown as Python writes it."""
    choose_tool(tab, "berths")
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.locator(".result pre").wait_for()
    assert json.loads(tab.panel.locator(".result pre").inner_text()) == {"quay": [1, None], "open": True}


def test_a_prompt_is_filled_in(tab: Tab) -> None:
    choose_tool(tab, "sound")
    tab.row("Prompts").last.click()
    tab.choose("plan")
    tab.panel.get_by_label("vessel").fill("Mary")
    tab.panel.get_by_role("button", name="Fill in").click()
    tab.panel.locator(".result pre").wait_for()
    assert tab.panel.locator(".result pre").inner_text() == "Plan a trip of Mary for today."


def test_a_template_opens_the_resource_of_its_variables(tab: Tab) -> None:
    choose_tool(tab, "sound")
    row = tab.page.locator(".row-template", has_text="port").first
    row.click()
    tab.panel.get_by_label("port").fill("whitby")
    tab.panel.get_by_role("button", name="Open").click()
    tab.panel.get_by_text("The tide at whitby is 3.2 m.").wait_for()


def test_the_costs_of_instructions_and_tools_are_shown(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Costs").click()
    tab.panel.get_by_role("heading", name="Cost in tokens").wait_for()
    rows = [row.split("\t") for row in tab.panel.locator("tbody tr").all_inner_texts()]
    instructions = next(row for row in rows if row[1] == "instructions" and row[0] == "server-py")
    assert instructions[3] == "10"  # 40 characters
    assert {"sound", "moor", "sink"} <= {row[2] for row in rows if row[0] == "server-py"}


# --- live updates, search and keyboard


def test_a_change_of_the_shown_file_becomes_visible(tab: Tab, folder: Path) -> None:
    file = folder / "harbour" / "live.txt"
    file.write_text("low water")
    open_folder(tab)
    tab.row("live.txt").wait_for()
    tab.choose("live.txt")
    tab.panel.get_by_text("low water").wait_for()
    started_at = time.monotonic()
    file.write_text("high water")
    # If the watch of the file has not begun yet, the page reads the file again when it begins.
    tab.panel.get_by_text("high water").wait_for(timeout=40_000)
    print(f"visible after {(time.monotonic() - started_at) * 1000:.0f} ms")
    metres = count(1)

    def change() -> bool:
        file.write_text(f"high water at {next(metres)} m")
        tab.page.wait_for_timeout(300)
        return "since it was opened" in wait_for_facts(tab)

    wait_until(change, "the change is reported")
    tab.panel.get_by_text(file.read_text()).wait_for(timeout=40_000)


def test_new_and_changed_files_get_badges(tab: Tab, folder: Path) -> None:
    open_folder(tab)
    (folder / "harbour" / "arrival.txt").write_text("new")
    row = tab.row("arrival.txt")
    row.wait_for(timeout=40_000)
    assert row.locator(".badge").inner_text() == "new"
    berths = tab.row("berths.json").locator(".badge")
    versions = count(1)

    def change() -> int:
        (folder / "harbour" / "berths.json").write_text(json.dumps({"berths": [1, 2], "version": next(versions)}))
        tab.page.wait_for_timeout(300)
        return int(berths.count())

    wait_until(
        change, "the changed file has a badge"
    )  # a change is not reported before the watch of the rows has begun
    assert berths.inner_text() == "changed"


def test_search_finds_names_and_optionally_contents(tab: Tab) -> None:
    open_folder(tab)
    tab.page.keyboard.press("/")
    tab.page.keyboard.type("tides")
    tab.page.get_by_text(re.compile("^[0-9]+ found")).wait_for()
    assert any("tides.csv" in row for row in tab.rows())
    tab.page.locator("#search").fill("bollard")
    tab.page.get_by_text("0 found").wait_for()
    tab.page.get_by_label("Contents too").check()
    wait_until(lambda: any("note.txt" in row for row in tab.rows()), "note.txt is found")
    if tab.page.evaluate("document.activeElement.id") == "search":
        tab.page.keyboard.press("Escape")
    tab.page.locator("#search").fill("")
    tab.row("guide.md").wait_for()


def test_the_tree_is_operated_by_keyboard(tab: Tab) -> None:
    open_folder(tab)
    tab.row("harbour").first.focus()

    def focused() -> str:
        return str(tab.page.evaluate("document.activeElement.querySelector('.name')?.textContent"))

    tab.page.keyboard.press("End")
    wait_until(lambda: focused() != "harbour", "the focus moves")
    tab.page.keyboard.press("Home")
    wait_until(lambda: focused() == "harbour", "the focus returns")
    names = tab.rows()
    for name in names[1 : names.index("guide.md") + 1]:
        tab.page.keyboard.press("ArrowDown")
        wait_until(lambda name=name: focused() == name, f"the focus is on {name}")
    tab.page.keyboard.press("Enter")
    tab.panel.locator(".markdown").wait_for()
    assert tab.row("guide.md").get_attribute("aria-selected") == "true"
    tab.page.keyboard.press("ArrowLeft")  # moves to the folder
    tab.page.keyboard.press("ArrowLeft")  # closes it
    tab.row("guide.md").wait_for(state="detached")
    tab.page.keyboard.press("ArrowRight")
    tab.row("guide.md").wait_for()
    assert tab.script_errors == []


# --- appearance


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_accessibility_violations(page: RunningPage, tab: Tab, scheme: str, screenshots: Path) -> None:
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        absent("axe-core (pip install axe-playwright-python)")
    tab.page.emulate_media(color_scheme=scheme)
    open_folder(tab).choose("guide.md")
    tab.panel.locator(".markdown").wait_for()
    found = list(find_violations(Axe(), tab))
    tab.page.screenshot(path=screenshots / f"browse_{scheme}.png", scale="css")
    choose_tool(tab, "sound")
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.get_by_text("Fill this in: it is required.").first.wait_for()
    found += find_violations(Axe(), tab)
    tab.choose("tides.csv")
    tab.panel.locator("table").wait_for()
    found += find_violations(Axe(), tab)
    tab.page.get_by_role("button", name="Costs").click()
    tab.panel.get_by_role("heading", name="Cost in tokens").wait_for()
    found += find_violations(Axe(), tab)
    assert found == []
    background = tab.page.evaluate("getComputedStyle(document.querySelector('.q-page')).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}[scheme]


def find_violations(axe: Any, tab: Tab) -> list[str]:
    result = axe.run(tab.page)
    assert result.response["passes"]
    return [
        f"{violation['id']}: {violation['help']}: {violation['nodes'][0]['html'][:200]} "
        f"({violation['nodes'][0]['failureSummary'][:300]})"
        for violation in result.response["violations"]
    ]


def test_the_page_loads_nothing_from_other_origins(tab: Tab) -> None:
    open_folder(tab).choose("guide.md")
    tab.panel.locator(".markdown").wait_for()
    assert tab.foreign_requests == []
    assert tab.script_errors == []
