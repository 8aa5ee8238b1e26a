"""Hostile servers cannot take over the page with scripts, direction marks, false MIME types or 10 MB of text."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.waiting import wait_until
from tests.web.conftest import RunningPage, Tab, run_page

SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>{{constructor.constructor('alert(3)')()}}${alert(4)}`"
SERVER = f"""
from wharfinger import Server, types as t

SCRIPT = {SCRIPT!r}
server = Server("hostile", instructions=SCRIPT)
BIDI = "report-\\u202efdp.exe\\u202c\\u2066\\u200b\\x1b[31m"


@server.resource("evil://one", name=SCRIPT, title=SCRIPT, description=SCRIPT, mime_type="text/plain")
def one() -> str:
    return SCRIPT


@server.resource("evil://bidi", name=BIDI, title=BIDI, mime_type="text/plain")
def bidi() -> str:
    return "level \\u202e= drowssap\\u202c end"


@server.resource("evil://markdown", name="markdown", mime_type="text/markdown")
def markdown() -> str:
    return (
        SCRIPT + "\\n\\n[a](javascript:alert(5)) [b](data:text/html,<script>alert(6)</script>) "
        "![c](http://evil.test/track.png) <iframe src=javascript:alert(7)></iframe> <a href=x onclick=alert(8)>d</a>"
        "\\n\\n[ok](https://example.test/)"
    )


@server.resource("evil://page", name="page", mime_type="text/html")
def page() -> str:
    return (
        "<meta http-equiv=refresh content='0;url=http://evil.test/'><base href=http://evil.test/>"
        "<script>alert(9); parent.location = 'http://evil.test/'; fetch('/')</script>"
        "<form action=/sign-out method=post><button autofocus>go</button></form>"
        "<iframe src=/></iframe><img src=http://evil.test/x.png><p id=here>Still here</p>"
    )


@server.resource("evil://svg", name="svg", mime_type="image/svg+xml")
def svg() -> str:
    return (
        "<svg xmlns='http://www.w3.org/2000/svg' width='10' height='10' onload='alert(10)'><script>alert(11)</script>"
        "<image href='http://evil.test/y.png'/></svg>"
    )


SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(20)'><script>alert(21)</script></svg>"
HTML = b"<!doctype html><script>alert(22)</script><img src=http://evil.test/z.png>"
PDF = b"%PDF-1.7\\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.alert(23))>>>>endobj"
MISLABELLED = {{
    "svg-as-png": ("image/png", SVG), "html-as-jpeg": ("image/jpeg", HTML), "pdf-as-png": ("image/png", PDF),
    "html-as-pdf": ("application/pdf", HTML), "html-as-film": ("video/mp4", HTML), "svg-as-sound": ("audio/ogg", SVG),
    "png-as-gif": ("image/gif", b"\\x89PNG\\r\\n\\x1a\\n" + HTML), "xhtml": ("application/xhtml+xml", HTML),
    "html-as-text": ("text/plain", HTML), "html-as-markdown-blob": ("text/markdown", HTML),
    "html-as-csv-blob": ("text/csv", HTML), "polyglot": ("image/gif", b"GIF89a/*" + HTML + b"*/=1;"),
}}



def return_content(content):
    return lambda: t.ReadResourceResult(contents=[content])


for name, (declared, data) in MISLABELLED.items():
    blob = t.ResourceContents(uri=f"evil://{{name}}", mime_type=declared, blob=data)
    server.resources.add(f"evil://{{name}}", return_content(blob), name=name)


@server.resource("evil://large", name="large", mime_type="text/plain")
def large() -> str:
    return "x" * 10_000_000 + "\\nend"


@server.resource("evil://type", name="type", mime_type="text/html\\r\\nset-cookie: a=b")
def kind() -> str:
    return "<script>alert(12)</script>"


@server.resource("evil://table", name="table", mime_type="text/csv")
def table() -> str:
    return SCRIPT + "\\n" + ",".join(["=1+1"] * 1000) + "\\n"


@server.tool(name="tool", title=SCRIPT, description=SCRIPT)
def tool() -> str:
    return SCRIPT


for number in range(50):
    server.resources.add(f"evil://{{'d/' * number}}{{'n' * 900}}{{number}}", lambda: "", name="n" * 10_000)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningPage]:
    root = tmp_path_factory.mktemp("hostile")
    (root / "server.py").write_text(SERVER)
    with run_page("browse", "--no-open", "--port", "0", "server.py", cwd=root) as running_page:
        yield running_page


@pytest.fixture(scope="module")
def tab(page: RunningPage, browser: object) -> Generator[Tab]:
    """Open one tab for all tests."""
    context = browser.new_context()  # type: ignore[attr-defined]
    tab = Tab(context.new_page())
    tab.open(page.url, "server-py")
    tab.page.locator(".row-resource").first.wait_for()
    yield tab
    context.close()


def choose(tab: Tab, uri: str) -> None:
    tab.page.locator(f'[data-key$="{uri}"]').click()
    tab.panel.locator(".uri", has_text=uri).wait_for()
    status = tab.panel.locator(".facts [role=status]")
    wait_until(lambda: status.inner_text() != "Reading …", "the resource is read")


def assert_unharmed(tab: Tab) -> None:
    """Check that no script ran, that nothing was loaded from other origins, and that the page is still open."""
    assert tab.dialogs == []
    assert tab.foreign_requests == []
    assert tab.page.url.startswith("http://127.0.0.1")
    assert tab.page.locator("[role=tree]").count() == 1


def test_scripts_in_names_and_texts_are_shown_as_text(tab: Tab) -> None:
    choose(tab, "evil://one")
    tab.panel.locator("pre").wait_for()
    assert tab.panel.locator("pre").inner_text() == SCRIPT
    tab.page.wait_for_timeout(300)
    assert_unharmed(tab)
    assert tab.page.locator("[role=tree] img, [role=tree] script, .main img, .main script").count() == 0


def test_direction_marks_in_names_are_escaped(tab: Tab) -> None:
    title = "report-\\u202efdp.exe\\u202c\\u2066\\u200b\\x1b[31m"
    tab.page.locator("#search").fill("report")
    row = tab.page.locator(".row .name", has_text="report-")
    row.wait_for()
    assert row.inner_text() == title
    tab.page.locator("#search").fill("")
    tab.page.locator('[data-key$="evil://bidi"]').wait_for()
    choose(tab, "evil://bidi")
    tab.panel.locator("pre").wait_for()
    assert tab.panel.locator("pre").evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    assert_unharmed(tab)


def test_markdown_has_no_html_no_scripts_and_no_remote_images(tab: Tab) -> None:
    choose(tab, "evil://markdown")
    tab.panel.locator(".markdown").wait_for()
    links = tab.panel.locator(".markdown a[href]")
    assert links.all_inner_texts() == ["ok"]
    assert links.get_attribute("rel") == "noopener noreferrer nofollow"
    assert tab.panel.locator(".markdown :is(script, iframe, img[src], [onclick], [onerror])").count() == 0
    assert_unharmed(tab)


@pytest.mark.parametrize("name", ["page", "svg", "xhtml", "html-as-text", "html-as-markdown-blob", "html-as-csv-blob"])
def test_markup_of_any_mime_type_is_shown_as_text(tab: Tab, name: str) -> None:
    choose(tab, f"evil://{name}")
    tab.panel.locator("pre.text, .markdown, table").first.wait_for()
    tab.page.wait_for_timeout(300)
    assert tab.panel.locator(".preview :is(iframe, img[src], object, embed, svg, script, form)").count() == 0
    assert_unharmed(tab)


@pytest.mark.parametrize(
    "name", ["svg-as-png", "html-as-jpeg", "pdf-as-png", "html-as-pdf", "html-as-film", "svg-as-sound", "png-as-gif"]
)
def test_bytes_without_the_signature_of_their_type_are_shown_in_hexadecimal(tab: Tab, name: str) -> None:
    choose(tab, f"evil://{name}")
    tab.panel.locator("pre").wait_for()
    assert tab.panel.locator("pre").inner_text().startswith("00000000  ")
    assert tab.panel.locator(".preview :is(iframe, img, audio, video)").count() == 0
    assert_unharmed(tab)


def test_a_polyglot_is_served_only_as_the_image_that_it_declares(tab: Tab) -> None:
    """The URL of its bytes, opened in a tab, is an image for the browser, and not HTML."""
    choose(tab, "evil://polyglot")
    picture = tab.panel.locator("img.picture")
    picture.wait_for()
    url = tab.page.url.rstrip("/") + str(picture.get_attribute("src"))
    answer = tab.page.request.get(url, headers={"sec-fetch-site": "same-origin"})
    assert answer.headers["content-type"] == "image/gif"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert b"<script>" in answer.body()
    assert_unharmed(tab)


def test_ten_megabytes_on_one_line_are_shown_in_windows(tab: Tab) -> None:
    choose(tab, "evil://large")
    text = tab.panel.locator("pre")
    text.wait_for()
    assert len(text.inner_text()) == 64 * 1024
    tab.panel.get_by_role("button", name="Last").click()
    wait_until(lambda: text.inner_text().endswith("end"), "the last window is shown")
    assert_unharmed(tab)


def test_a_mime_type_with_line_breaks_sets_no_header(tab: Tab) -> None:
    choose(tab, "evil://type")
    tab.page.wait_for_timeout(300)
    assert "a" not in [cookie["name"] for cookie in tab.page.context.cookies()]
    assert_unharmed(tab)


def test_a_table_shows_50_columns_and_cells_as_text(tab: Tab) -> None:
    choose(tab, "evil://table")
    tab.panel.locator("table").wait_for()
    assert tab.panel.locator("tbody tr").first.locator("td").count() == 50
    assert_unharmed(tab)


def test_the_result_of_a_hostile_tool_is_shown_as_text(tab: Tab) -> None:
    tab.choose("Tools")
    tab.page.locator(".row-tool").click()
    tab.panel.get_by_role("button", name="Call").click()
    tab.panel.locator(".result pre").wait_for()
    assert tab.panel.locator(".result pre").inner_text() == SCRIPT
    assert_unharmed(tab)


def test_long_names_are_truncated(tab: Tab) -> None:
    rows = tab.rows()
    assert max(map(len, rows)) <= 300
    assert any(row.endswith("…") for row in rows), rows
    assert_unharmed(tab)
