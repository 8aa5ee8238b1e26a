"""`serve --browse` with a policy: each visitor sees their own part, and an administrator what others see."""

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

from tests.web.conftest import RunningPage, Tab, serving, wait_until
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
    def create(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "wharfinger", "token", "create", "-q", "tokens.json", *words],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    return {"ann": create("--sub", "ann"), "bob": create("--sub", "bob", "--group", "crew")}


@pytest.fixture(scope="module")
def page(folder: Path, tokens: dict[str, str]) -> Generator[RunningPage]:
    words = ("serve", "--http", "127.0.0.1:0", "--browse", "--tokens", "tokens.json", "--policy", "policy.toml")
    with serving(*words, "--audit", "audit.jsonl", "docs", cwd=folder) as running:
        yield running


def signed_in(new_tab: NewTab, page: RunningPage, token: str) -> Tab:
    tab = new_tab()
    tab.page.goto(page.base)
    tab.problems.clear()  # the browser reports the 401 of the form as an error
    tab.page.get_by_label("Token for this server").fill(token)
    tab.page.get_by_role("button", name="Sign in").click()
    tab.page.locator(".row-server").wait_for()
    return tab


def uris_on_page(tab: Tab) -> set[str]:
    """Open every folder, and return the URIs of all resources in the tree."""
    # Tools may be there before the list of resources; the key of a folder of resources has its URI.
    tab.page.locator('[data-key*="file:"]').first.wait_for()
    for _ in range(20):
        closed = tab.page.locator('.row-folder[aria-expanded="false"]')
        if not closed.count():
            break
        before = tab.page.locator("[role=treeitem]").count()
        closed.first.click()
        wait_until(lambda before=before: tab.page.locator("[role=treeitem]").count() > before, "it does not open")
    keys = tab.page.locator("[role=treeitem]").evaluate_all("rows => rows.map(row => row.dataset.key)")
    return {key.split("\n")[2] for key in keys if key.startswith(("resource\n", "tool\n"))}


def own_lists(page: RunningPage, token: str) -> set[str]:
    """Return what the principal's own client lists over HTTP: the URIs of files, and the names of tools."""

    async def lists() -> set[str]:
        async with Client(page.base + "mcp", headers={"Authorization": f"Bearer {token}"}) as client:
            resources = [one.uri for one in await client.list_resources() if one.mime_type != "inode/directory"]
            tools = [one.name for one in await client.list_tools()] if client.capabilities.tools else []
        return {*resources, *tools}

    with ThreadPoolExecutor(1) as thread:  # playwright runs a loop in this one
        return thread.submit(asyncio.run, lists()).result()


def test_a_visitor_sees_what_their_own_client_lists(page: RunningPage, tokens: dict[str, str], new_tab: NewTab) -> None:
    tab = signed_in(new_tab, page, tokens["bob"])
    expected = own_lists(page, tokens["bob"])
    assert "file:///docs/crew/crew.txt" in expected and "file:///docs/cargo/cargo.txt" not in expected
    assert uris_on_page(tab) == expected
    for name in ("Activity", "View as …"):
        assert tab.page.get_by_role("button", name=name).count() == 0


def test_an_administrator_sees_as_another_principal_and_the_record_names_both(
    page: RunningPage, tokens: dict[str, str], new_tab: NewTab, folder: Path
) -> None:
    tab = signed_in(new_tab, page, tokens["ann"])
    assert "file:///docs/cargo/cargo.txt" in uris_on_page(tab)
    tab.page.get_by_role("button", name="View as …").click()
    tab.panel.get_by_label("Subject").fill("bob")
    tab.panel.get_by_label("Groups").fill("crew")
    tab.panel.get_by_role("button", name="Show").click()
    tab.page.get_by_text("As bob").wait_for()
    assert uris_on_page(tab) == own_lists(page, tokens["bob"])
    tab.page.locator('[data-key$="crew.txt"]').click()
    tab.panel.get_by_text("crew text").wait_for()
    lines = recorded(folder)
    read = [one for one in lines if one.get("target") == "file:///docs/crew/crew.txt" and one.get("inspector")]
    assert [(one["subject"], one["inspector"], one["action"], one["outcome"]) for one in read] == [
        ("bob", "ann", "read", "allowed")
    ]
    tab.page.locator(".row-tool").first.click()
    tab.panel.get_by_text("nothing can be called here").wait_for()
    assert tab.panel.get_by_role("button", name="Call").count() == 0


def recorded(folder: Path) -> list[dict[str, Any]]:
    """Wait for the last line of the record, and return all lines."""
    path = folder / "audit.jsonl"
    wait_until(lambda: '"inspector":"ann"' in path.read_text() and "crew.txt" in path.read_text(), "no record")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_administrator_sees_who_watches_what_and_the_last_requests(
    page: RunningPage, tokens: dict[str, str], new_tab: NewTab
) -> None:
    watched = "file:///docs/public/public.txt"
    tab = signed_in(new_tab, page, tokens["ann"])
    process = subprocess.Popen(
        [sys.executable, "-m", "wharfinger", "watch", "--token-env", "BOB", page.base + "mcp", watched],
        env={**os.environ, "BOB": tokens["bob"]}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        process.stderr.readline()  # it watches now
        tab.page.get_by_role("button", name="Activity").click()
        tab.panel.get_by_role("heading", name="Watched now").wait_for()
        rows = tab.panel.locator("tbody tr").all_inner_texts()
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()
        assert process.stdout is not None
        process.stdout.close()
    assert any(row.split("\t")[:2] == [watched, "bob"] for row in rows)
    assert any("server/discover" in row and "bob" in row for row in rows), rows
