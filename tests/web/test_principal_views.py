"""`serve --browse` with a policy: visitors see what they may read, and administrators can view the page as others."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.web.conftest import RunningPage, Tab, run_page
from wharfinger import Client

NewTab = Callable[..., Tab]

POLICY = """
[[allow]]
who = "sub:ann"
level = "admin"

[[allow]]
who = "group:crew"
do = ["read"]
what = ["file:///docs/public/**", "file:///docs/crew/**"]

[[allow]]
who = "group:crew"
do = ["call"]
what = ["tool:read_resource"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("principals")
    for name in ("public", "crew", "cargo"):
        (root / "docs" / name).mkdir(parents=True)
        (root / "docs" / name / f"{name}.txt").write_text(f"{name} text")
    (root / "policy.toml").write_text(POLICY)
    return root


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    def create(*arguments: str) -> str:
        completed = subprocess.run(
            [sys.executable, "-m", "wharfinger", "token", "create", "-q", "tokens.json", *arguments],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return completed.stdout.strip()

    return {"ann": create("--sub", "ann"), "bob": create("--sub", "bob", "--group", "crew")}


@pytest.fixture(scope="module")
def page(folder: Path, tokens: dict[str, str]) -> Generator[RunningPage]:
    arguments = ("serve", "--http", "127.0.0.1:0", "--browse", "--tokens", "tokens.json", "--policy", "policy.toml")
    with run_page(*arguments, "--audit", "audit.jsonl", "docs", cwd=folder) as running_page:
        yield running_page


def sign_in(new_tab: NewTab, page: RunningPage, token: str) -> Tab:
    tab = new_tab()
    tab.page.goto(page.base)
    tab.script_errors.clear()  # the browser reports the 401 of the form as an error
    tab.page.get_by_label("Token for this server").fill(token)
    tab.page.get_by_role("button", name="Sign in").click()
    tab.page.locator(".row-server").wait_for()
    return tab


def uris_on_page(tab: Tab) -> set[str]:
    """Open every folder, and return the URIs of all resources in the tree."""
    # Tools may appear before resources. Only the keys of resources contain a `file:` URI.
    tab.page.locator('[data-key*="file:"]').first.wait_for()
    for _ in range(20):
        closed = tab.page.locator('.row-folder[aria-expanded="false"]')
        if not closed.count():
            break
        before = tab.page.locator("[role=treeitem]").count()
        closed.first.click()
        wait_until(lambda before=before: tab.page.locator("[role=treeitem]").count() > before, "the folder opens")
    keys = tab.page.locator("[role=treeitem]").evaluate_all("rows => rows.map(row => row.dataset.key)")
    return {key.split("\n")[2] for key in keys if key.startswith(("resource\n", "tool\n"))}


def list_as_client(page: RunningPage, token: str) -> set[str]:
    """Return the URIs of files and the names of tools that a client of this principal lists over HTTP."""

    async def list_all() -> set[str]:
        async with Client(page.base + "mcp", headers={"Authorization": f"Bearer {token}"}) as client:
            resources = [
                resource.uri for resource in await client.list_resources() if resource.mime_type != "inode/directory"
            ]
            tools = [tool.name for tool in await client.list_tools()] if client.capabilities.tools else []
        return {*resources, *tools}

    with ThreadPoolExecutor(1) as thread:  # playwright runs an event loop in this thread
        return thread.submit(asyncio.run, list_all()).result()


def test_a_visitor_sees_what_their_mcp_client_lists(page: RunningPage, tokens: dict[str, str], new_tab: NewTab) -> None:
    tab = sign_in(new_tab, page, tokens["bob"])
    expected = list_as_client(page, tokens["bob"])
    assert "file:///docs/crew/crew.txt" in expected and "file:///docs/cargo/cargo.txt" not in expected
    wait_until(lambda: uris_on_page(tab) == expected, "the page shows what the client lists")
    for name in ("Activity", "View as …"):
        assert tab.page.get_by_role("button", name=name).count() == 0


def test_an_administrator_can_view_as_another_principal_and_the_audit_names_both(
    page: RunningPage, tokens: dict[str, str], new_tab: NewTab, folder: Path
) -> None:
    tab = sign_in(new_tab, page, tokens["ann"])
    wait_until(lambda: "file:///docs/cargo/cargo.txt" in uris_on_page(tab), "the administrator sees the cargo")
    tab.page.get_by_role("button", name="View as …").click()
    tab.panel.get_by_label("Subject").fill("bob")
    tab.panel.get_by_label("Groups").fill("crew")
    tab.panel.get_by_role("button", name="Show").click()
    tab.page.get_by_text("As bob").wait_for()
    expected = list_as_client(page, tokens["bob"])
    wait_until(lambda: uris_on_page(tab) == expected, "the page shows what bob's client lists")
    tab.page.locator('[data-key$="crew.txt"]').click()
    tab.panel.get_by_text("crew text").wait_for()
    lines = read_audit(folder)
    reads = [line for line in lines if line.get("target") == "file:///docs/crew/crew.txt" and line.get("inspector")]
    assert [(line["subject"], line["inspector"], line["action"], line["outcome"]) for line in reads] == [
        ("bob", "ann", "read", "allowed")
    ]
    tab.page.locator(".row-tool").first.click()
    tab.panel.get_by_text("tools cannot be called here").wait_for()
    assert tab.panel.get_by_role("button", name="Call").count() == 0


def read_audit(folder: Path) -> list[dict[str, Any]]:
    """Wait until the read as bob is in the audit file, and return all complete lines."""

    def complete_lines() -> list[str]:
        return (folder / "audit.jsonl").read_text().split("\n")[:-1]

    wait_until(
        lambda: any('"inspector":"ann"' in line and "crew.txt" in line for line in complete_lines()),
        "the read is recorded",
    )
    return [json.loads(line) for line in complete_lines()]


def test_an_administrator_sees_watches_and_the_last_requests(
    page: RunningPage, tokens: dict[str, str], new_tab: NewTab
) -> None:
    watched_uri = "file:///docs/public/public.txt"
    tab = sign_in(new_tab, page, tokens["ann"])
    process = subprocess.Popen(
        [sys.executable, "-m", "wharfinger", "watch", "--token-env", "BOB", page.base + "mcp", watched_uri],
        env={**os.environ, "BOB": tokens["bob"]}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        process.stderr.readline()  # the watch has started
        tab.page.get_by_role("button", name="Activity").click()
        tab.panel.get_by_role("heading", name="Watched now").wait_for()
        rows = tab.panel.locator("tbody tr").all_inner_texts()
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()
        assert process.stdout is not None
        process.stdout.close()
    assert any(row.split("\t")[:2] == [watched_uri, "bob"] for row in rows)
    assert any("server/discover" in row and "bob" in row for row in rows), rows
