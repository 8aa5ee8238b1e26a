"""The banner that `serve` prints at a terminal: each of its commands is run, and each configuration is parsed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tests.cli.conftest import ENVIRONMENT, Terminal
from tests.waiting import wait_until
from wharfinger import Client
from wharfinger.cli.render.banner import (
    PublishedSource,
    ServerAddress,
    banner_text,
    make_banner,
    without_content,
)
from wharfinger.cli.render.start_page import PageItem, PageItems, start_page

LOG = "file:///charts/tides.log"


@pytest.fixture(scope="module")
def server_terminal(charts: Path) -> Iterator[Terminal]:
    """A server on its own terminal that has printed its banner."""
    for _ in range(5):
        terminal = Terminal("serve", "--http", "127.0.0.1:0", str(charts), cwd=charts.parent)
        terminal.wait_for("Claude Desktop")
        if "not counted yet" not in terminal.output:
            break
        terminal.close()  # on a busy machine the banner does not wait for the facts
    terminal.wait_for("See it live")
    terminal.wait_for(".log\n")
    yield terminal
    terminal.close()


@pytest.fixture(scope="module")
def lines(server_terminal: Terminal) -> list[str]:
    """The lines of the banner."""
    return server_terminal.output.split("\n")[:7]


@pytest.fixture(scope="module")
def url(lines: list[str]) -> str:
    """The address that the banner names."""
    return lines[1].split()[1]


def text_of(line: str) -> str:
    """Return the text of a row after its title."""
    return line[18:].split("    (")[0]


def resource_uris(url: str | list[str]) -> set[str]:
    """Return the URIs that a server lists."""

    async def work() -> set[str]:
        async with Client(url) as client:
            return {resource.uri async for resource in client.list_resources()}

    return asyncio.run(work())


def test_the_banner_has_the_documented_lines(lines: list[str], url: str, charts: Path) -> None:
    folder = re.escape(str(charts))
    expected = [
        rf"Publishing {folder}  4 files, \d+ B \(1 ignored by \.gitignore, 2 hidden\), watched by \w+.*",
        r"  MCP  (http://127\.0\.0\.1:\d+/mcp)    page  http://127\.0\.0\.1:\d+/    Ctrl-C stops",
        rf"  Claude Code     claude mcp add --transport http charts {url}",
        rf'  VS Code         \.vscode/mcp\.json {{"servers":{{"charts":{{"type":"http","url":"{url}"}}}}}}',
        rf'  Cursor, others  {{"mcpServers":{{"charts":{{"url":"{url}"}}}}}}',
        rf"  Claude Desktop  /\S+( -m wharfinger)? add claude-desktop {folder}    \(its file takes stdio only\)",
        rf"  See it live     /\S+( -m wharfinger)? watch {url} {LOG}",
    ]
    for pattern, line in zip(expected, lines, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.parametrize(
    ("url", "live", "titles"),
    [
        ("https://charts.example/mcp", LOG, ["Claude Code", "VS Code", "Cursor, others", "Claude Desktop"]),
        ("http://127.0.0.1:8000/mcp", "", ["Claude Code", "VS Code", "Cursor, others", "See it"]),
    ],
)
def test_the_banner_without_content_has_the_rows_that_name_no_published_data(
    url: str, live: str, titles: list[str]
) -> None:
    """A bug: the row that says how to add the URL to Claude Desktop was left out too."""
    address = ServerAddress(url, "/", issuers=("https://login.example",))
    sources = [PublishedSource("/home/ada/charts", "4 files")]
    banner = without_content(make_banner("charts", sources, address, ("wharfinger",), ("/home/ada/charts",), live))
    assert [row.title for row in banner.rows] == titles
    assert "/charts" not in banner_text(banner).replace(url, "")


def test_the_line_for_claude_code_is_a_command_with_a_working_url(lines: list[str]) -> None:
    words = shlex.split(text_of(lines[2]))
    assert words[:6] == ["claude", "mcp", "add", "--transport", "http", "charts"]
    assert LOG in resource_uris(words[6])


def test_the_line_for_vs_code_is_a_configuration_with_a_working_url(lines: list[str]) -> None:
    file, _, text = text_of(lines[3]).partition(" ")
    assert file == ".vscode/mcp.json"
    entry = json.loads(text)["servers"]["charts"]
    assert entry["type"] == "http"
    assert LOG in resource_uris(entry["url"])


def test_the_line_for_cursor_is_a_configuration_with_a_working_url(lines: list[str]) -> None:
    assert LOG in resource_uris(json.loads(text_of(lines[4]))["mcpServers"]["charts"]["url"])


def test_the_line_for_claude_desktop_adds_a_server_that_works(lines: list[str], tmp_path: Path) -> None:
    result = subprocess.run(
        text_of(lines[5]), shell=True, env={**ENVIRONMENT, "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
    (file,) = (path for path in tmp_path.rglob("claude_desktop_config.json"))
    entry = json.loads(file.read_text())["mcpServers"]["charts"]
    assert LOG in resource_uris([entry["command"], *entry["args"]])


def test_the_watch_command_and_the_server_report_a_change(
    server_terminal: Terminal, lines: list[str], charts: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    watcher = start(command=shlex.split(text_of(lines[6])))
    assert watcher.stderr is not None
    assert watcher.stdout is not None
    assert watcher.stderr.readline() == f"Watching {LOG}: Ctrl-C stops.\n"
    with (charts / "tides.log").open("a") as log:
        log.write("high\n")
    assert re.fullmatch(rf"\d\d:\d\d:\d\d changed {LOG}\n", watcher.stdout.readline())
    assert re.search(
        rf"^\d\d:\d\d:\d\d changed {LOG}  notified 1 watcher$",
        server_terminal.wait_for("notified 1 watcher"),
        re.MULTILINE,
    )


def test_each_read_and_client_is_logged_in_a_line(server_terminal: Terminal, url: str) -> None:
    async def work() -> None:
        async with Client(url) as client:
            await client.read_resource("file:///charts/notes.md")

    asyncio.run(work())
    server_terminal.wait_until(lambda: bool(re.search(r"notes\.md.*\n", server_terminal.output)), "a line for the read")
    assert re.search(
        r"^\d\d:\d\d:\d\d read    file:///charts/notes\.md  8 B  [\d.]+ m?s  wharfinger \S+$",
        server_terminal.output,
        re.MULTILINE,
    )
    assert re.search(r"^\d\d:\d\d:\d\d client  wharfinger \S+  2026-07-28$", server_terminal.output, re.MULTILINE)


@pytest.mark.parametrize("path", ["/", "/mcp"])
def test_the_page_shows_the_lines_of_the_banner(lines: list[str], url: str, path: str) -> None:
    request = urllib.request.Request(url.removesuffix("/mcp") + path, headers={"Accept": "text/html,*/*"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        text = answer.read().decode()
    assert "<script" not in text
    page_text = unescape(text)
    for line in lines[2:]:
        assert text_of(line) in page_text
    assert url in page_text
    assert lines[0].partition("  ")[2] in page_text


def get(url: str, token: str = "") -> str:
    """Load a page as a browser does."""
    headers = {"Accept": "text/html,*/*"} | ({"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        text: str = answer.read().decode()
        return text


def test_the_page_lists_resources_with_the_command_that_reads_them(url: str, charts: Path) -> None:
    text = unescape(get(url.removesuffix("/mcp") + "/"))
    assert re.search(r"<summary><a [^>]*>notes\.md</a> <small>text/markdown, 8 B</small></summary>", text)
    command = re.search(r"<code>([^<]* read [^<]*file:///charts/notes\.md)</code>", text)
    assert command is not None
    result = subprocess.run(command[1], shell=True, env=ENVIRONMENT, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "# Notes\n")
    (charts / "new.txt").write_text("x")
    try:
        # the page caches its list for a second
        wait_until(lambda: "new.txt" in get(url.removesuffix("/mcp") + "/"), "the new file is on the page")
    finally:
        (charts / "new.txt").unlink()


def open_link(link: str, site: str | None = "same-origin", method: str = "GET") -> tuple[int, Any, bytes]:
    """Open a link that is on a site of this relation. The site None stands for a client without Fetch Metadata."""
    headers = {} if site is None else {"Sec-Fetch-Site": site}
    try:
        with urllib.request.urlopen(urllib.request.Request(link, headers=headers, method=method)) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_the_page_of_a_resource_shows_its_content_in_a_sandbox(url: str, charts: Path) -> None:
    page_url = url.removesuffix("/mcp") + "/"
    names = {"a b&c.html": b"<script>1</script>", "dot.png": b"\x89PNG\r\n\x1a\n\0", "odd.bin": b"\0\xff\1"}
    for name, data in names.items():
        (charts / name).write_bytes(data)
    try:
        for name, kind in (
            ("a%20b%26c.html", "text/plain; charset=utf-8"),
            ("dot.png", "image/png"),
            ("odd.bin", "application/octet-stream"),
        ):
            uri = quote(f"file:///charts/{name}", safe="")
            status, headers, body = open_link(f"{page_url}read?uri={uri}")
            assert (status, headers["content-type"], body) == (200, kind, names[unquote(name)])
            assert headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in headers["content-security-policy"]
            assert headers["cross-origin-resource-policy"] == "same-origin"
    finally:
        for name in names:
            (charts / name).unlink()
    link = re.search(r'<a href="(/read[^"]*)">notes\.md<', get(page_url))
    assert link is not None
    link_url = page_url.removesuffix("/") + link[1]
    assert open_link(link_url, "none")[2] == b"# Notes\n"
    assert open_link(link_url, method="HEAD")[::2] == (200, b"")
    assert open_link(link_url, method="POST")[0] == 405


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", None])
def test_links_from_other_sites_are_refused(url: str, site: str | None) -> None:
    """Images, forms and navigations on any web page send GET requests without an Origin."""
    status, _, body = open_link(url.removesuffix("/mcp") + "/read?uri=file%3A%2F%2F%2Fcharts%2Fnotes.md", site)
    assert status == 403
    assert b"Notes" not in body


@pytest.mark.parametrize(
    ("query", "status"),
    [("uri=file:///charts/none.md", 404), ("uri=file:///charts/..%2F..%2Fetc%2Fpasswd", 404), ("uri=x", 404),
     ("", 400), ("uri=", 400), ("uri=a:&uri=b:", 400), ("url=a:", 400)],
)  # fmt: skip
def test_a_link_to_a_missing_resource_is_refused(url: str, query: str, status: int) -> None:
    actual, _, body = open_link(url.removesuffix("/mcp") + f"/read?{query}")
    assert actual == status, body


def test_the_complete_command_on_the_page_works(url: str) -> None:
    text = unescape(get(url.removesuffix("/mcp") + "/"))
    command = re.search(r"<code>([^<]* complete [^<]*)</code>", text)
    assert command is not None
    result = subprocess.run(command[1], shell=True, env=ENVIRONMENT, capture_output=True, text=True)
    assert result.returncode == 0
    assert "notes.md" in result.stdout.split()


def test_changes_are_reported_after_the_page_was_opened(url: str, charts: Path) -> None:
    note = charts / "opened.md"
    note.write_text("fog")
    get(url.removesuffix("/mcp") + "/")

    async def work() -> None:
        async with Client(url) as client, client.watch("file:///charts/opened.md") as changes:
            note.write_text("clear")
            change = await asyncio.wait_for(anext(changes), 20)
            assert change.uri == "file:///charts/opened.md"

    try:
        asyncio.run(work())
    finally:
        note.unlink()


MANY_RESOURCES_SERVER = """\
from wharfinger import Server

server = Server("many")
for number in range(143):
    server.resource(f"many://{number}")(lambda: "x")


@server.resource("many://{name}/log", title="<b>\u202egol\u2066")
def log(name: str) -> str:
    return name
"""


def test_the_page_needs_the_token_and_shows_the_first_50_items(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "many.py").write_text(MANY_RESOURCES_SERVER)
    token = "0123456789abcdef-token"
    server = start("run", "--http", "127.0.0.1:0", "--token-env", "T", "many.py", env={"T": token})
    assert server.stdout is not None
    banner = server.stdout.readline() + server.stdout.readline()
    page_url = re.search(r"page  (http://\S+/)", banner)
    assert page_url is not None, banner
    text = get(page_url[1], token)
    assert text.count("<summary>") == 51
    assert "and 93 more:" in text
    assert "many://49<" in text
    assert "many://50<" not in text
    assert "&lt;b&gt;\\u202egol\\u2066" in text
    assert token not in text
    assert "/read?" not in text  # a link carries no token
    with pytest.raises(urllib.error.HTTPError, match="401"):
        get(page_url[1])
    owner_request = urllib.request.Request(
        f"{page_url[1]}read?uri=many://1", headers={"Authorization": f"Bearer {token}", "Sec-Fetch-Site": "none"}
    )
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(owner_request)
    with pytest.raises(urllib.error.HTTPError, match=r"40[0-9]"):
        urllib.request.urlopen(urllib.request.Request(page_url[1], headers={"Host": "evil.test"}))


def test_hostile_names_are_escaped_on_the_page() -> None:
    """Anyone who can write to a folder chooses its names. Control characters and direction marks are escaped."""
    hostile = "file:///<script>alert(1)</script>\"'&\x1b[2J\u202e\u2066\u061c\x00"
    banner = make_banner("charts", [], ServerAddress("http://h/mcp", "http://h/"), ("/bin/w",), (), "")
    text = start_page(
        banner,
        PageItems(
            (PageItem(hostile, hostile + "x" * 100_000, hostile, hostile),),
            (PageItem(hostile, hostile),),
            "and <i> more",
        ),
    )
    assert not re.search("<script|<i>|[\x00\x1b\u061c\u202e\u2066]", text)
    assert "&lt;script&gt;" in text
    assert len(text) < 10_000


def test_ctrl_c_stops_the_server_without_a_traceback(terminal: Callable[..., Terminal], charts: Path) -> None:
    session = terminal("serve", str(charts))
    session.wait_for("Ctrl-C stops")
    session.wait_for(".log\n")
    session.press("\x03")
    assert session.wait_for_exit() == 130
    assert "Traceback" not in session.output


def test_names_that_are_markup_or_shell_are_quoted() -> None:
    """The names of folders and files may be hostile."""
    hostile = "/tmp/<b>&'$(x) \x1b[2J"
    banner = make_banner(
        "charts",
        [PublishedSource(hostile, "1 file")],
        ServerAddress("http://127.0.0.1:1/mcp", "http://127.0.0.1:1/", "TOKEN"),
        ("/bin/w",),
        (hostile,),
        "",
    )
    assert "<b>" not in start_page(banner)
    assert "\x1b" not in start_page(banner) + banner_text(banner)
    assert shlex.split(banner.rows[3].text) == ["/bin/w", "add", "claude-desktop", hostile]


def test_the_variable_of_the_token_is_named_and_its_value_never_shown() -> None:
    address = ServerAddress("http://h/mcp", "http://h/", "CHARTS_TOKEN")
    banner = make_banner("charts", [], address, ("/bin/w",), ("/charts",), LOG)
    claude, code, cursor, _, live = (row.text for row in banner.rows)
    assert claude.endswith(' --header "Authorization: Bearer $CHARTS_TOKEN"')
    reference = {"headers": {"Authorization": "Bearer ${env:CHARTS_TOKEN}"}}
    assert json.loads(code.partition(" ")[2])["servers"]["charts"] == {
        "type": "http",
        "url": "http://h/mcp",
        **reference,
    }
    assert json.loads(cursor)["mcpServers"]["charts"] == {"url": "http://h/mcp", **reference}
    assert shlex.split(live) == ["/bin/w", "watch", "--token-env", "CHARTS_TOKEN", "http://h/mcp", LOG]


@pytest.mark.parametrize("tokens", ["", "/srv/tokens.json"])
def test_hosts_that_sign_in_get_a_hint_and_no_header(tokens: str) -> None:
    url = "https://docs.example/mcp"
    token_env = "WHARFINGER_TOKEN" if tokens else ""
    address = ServerAddress(url, "https://docs.example/", token_env, ("https://id.example",), tokens)
    banner = make_banner("docs", [], address, ("/bin/w",), ("/docs",), LOG)
    claude, code, cursor, desktop, live = banner.rows
    assert (claude.text, claude.remark) == (
        f"claude mcp add --transport http docs {url}",
        "(then type /mcp to sign in)",
    )
    assert json.loads(code.text.partition(" ")[2]) == {"servers": {"docs": {"type": "http", "url": url}}}
    assert json.loads(cursor.text) == {"mcpServers": {"docs": {"url": url}}}
    assert (desktop.text, "Connectors" in desktop.remark) == (url, True)
    assert live.text == f"/bin/w auth login {url} && /bin/w watch {url} {LOG}"
    text = banner_text(banner)
    assert "Hosts sign in at https://id.example when they first connect." in text
    assert ("/bin/w token create /srv/tokens.json --sub NAME" in text) == bool(tokens)
    assert "Bearer $" not in text
    assert "/read?" not in start_page(banner)


def test_a_local_stdio_host_needs_no_sign_in() -> None:
    address = ServerAddress("http://127.0.0.1:1/mcp", "http://127.0.0.1:1/", "", ("https://id.example",))
    row = make_banner("docs", [], address, ("/bin/w",), ("/docs",), LOG).rows[3]
    assert shlex.split(row.text) == ["/bin/w", "add", "claude-desktop", "/docs"]


def test_the_banner_has_the_command_that_creates_a_token() -> None:
    address = ServerAddress("http://h/mcp", "http://h/", "WHARFINGER_TOKEN", (), "/srv/my tokens.json")
    banner = make_banner("charts", [], address, ("/bin/w",), ("/charts",), LOG)
    assert banner.rows[0].text.endswith('--header "Authorization: Bearer $WHARFINGER_TOKEN"')
    expected = "Each user's host sends a token. To make one: /bin/w token create '/srv/my tokens.json' --sub NAME"
    assert expected in banner_text(banner)


def test_the_executable_in_the_banner_exists(lines: list[str]) -> None:
    for line in lines[5:]:
        assert os.access(shlex.split(text_of(line))[0], os.X_OK)
