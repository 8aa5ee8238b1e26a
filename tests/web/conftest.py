"""A browser, and servers with a web page in their own processes, as users start them."""

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
WAIT_MILLISECONDS = 15_000
"""The longest wait for an element. The machine may be busy."""


@pytest.fixture(scope="module")
def browser() -> Generator[Any]:
    """Start headless Chromium. It ends with the module, because playwright runs an event loop in this thread."""
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
def run_page(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Generator[RunningPage]:
    """Run `wharfinger ARGUMENTS`, and wait for the URL of its page."""
    if find_spec("nicegui") is None:
        absent("nicegui (pip install wharfinger[browse])")
    stderr_file = cwd / f"stderr-{time.monotonic_ns()}"
    with open(stderr_file, "w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "wharfinger", *arguments],
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
            match = re.search(r"page\s+(http://\S+)", line)
            if match:
                url = match[1]
                break
        assert url, stderr_file.read_text()
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
        self.script_errors: list[str] = []
        self.dialogs: list[str] = []
        self.foreign_requests: list[str] = []
        page.set_default_timeout(WAIT_MILLISECONDS)
        page.on("pageerror", lambda error: self.script_errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.script_errors.append(message.text))
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
                or self.foreign_requests.append(request.url)
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
        """The main panel, which shows the row that was clicked."""
        return self.page.locator(".main")

    def rows(self) -> list[str]:
        """Return the names of all rows."""
        return [str(text) for text in self.page.locator("[role=treeitem] .name").all_inner_texts()]


@pytest.fixture
def new_tab(browser: Any) -> Generator[Callable[..., Tab]]:
    """Return a function that opens a tab in a new browser context."""
    contexts: list[Any] = []

    def open_tab(**options: Any) -> Tab:
        context = browser.new_context(viewport={"width": 1200, "height": 760}, **options)
        contexts.append(context)
        return Tab(context.new_page())

    yield open_tab
    for context in contexts:
        context.close()
