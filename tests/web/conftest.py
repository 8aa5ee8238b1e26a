"""A browser, and servers with their page as their users start them: in processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import absent

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
START_SECONDS = 40
WAIT_MILLISECONDS = 15_000
"""Milliseconds that a test waits for what has to appear; the machine may be busy."""


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    """Headless Chromium; not for the session, because playwright runs an event loop in this thread until it ends."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("playwright (pip install playwright)")
    if CHROMIUM is None:
        absent("chromium (apt install chromium)")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class RunningPage:
    """A process that serves the page."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        """The page's address, with the token if there is one."""
        self.base = url.partition("?")[0]


@contextmanager
def serving(*words: str, cwd: Path, env: dict[str, str] | None = None) -> Generator[RunningPage]:
    """Run `wharfinger WORDS`, and wait for the URL of its page."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    errors = cwd / f"stderr-{time.monotonic_ns()}"
    with open(errors, "w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "wharfinger", *words],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            found = re.search(r"page\s+(http://\S+)", line)
            if found:
                url = found[1]
                break
        assert url, errors.read_text()
        yield RunningPage(process, url)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()


class Tab:
    """A tab with the page. It records errors of scripts, dialogs, and requests to other origins."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.dialogs: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(WAIT_MILLISECONDS)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def open(self, url: str, row: str) -> Tab:
        """Open the page, and wait for a row of the tree."""
        base = url.partition("?")[0]
        self.page.on(
            "request",
            lambda request: (
                request.url.startswith((base, "data:", "blob:", "about:", "chrome-extension:"))
                or self.foreign.append(request.url)
            ),
        )
        self.page.goto(url)
        self.row(row).first.wait_for()
        return self

    def row(self, name: str) -> Any:
        """Return the rows of the tree with this name."""
        return self.page.locator("[role=treeitem]").filter(
            has=self.page.locator(".name", has_text=re.compile(f"^{re.escape(name)}$"))
        )

    def choose(self, name: str) -> None:
        """Click on a row."""
        self.row(name).first.click()

    @property
    def panel(self) -> Any:
        """The main panel, which shows the chosen row."""
        return self.page.locator(".main")

    def rows(self) -> list[str]:
        """Return the names of all rows."""
        return [str(text) for text in self.page.locator("[role=treeitem] .name").all_inner_texts()]


@pytest.fixture
def new_tab(browser: Any) -> Generator[Callable[..., Tab]]:
    """Opens tabs, each in a browser context of its own."""
    contexts: list[Any] = []

    def new(**options: Any) -> Tab:
        context = browser.new_context(viewport={"width": 1200, "height": 760}, **options)
        contexts.append(context)
        return Tab(context.new_page())

    yield new
    for context in contexts:
        context.close()


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 15.0) -> Any:
    """Wait for something that no event reports, and return it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(what)
