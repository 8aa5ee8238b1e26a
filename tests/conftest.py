"""Fixtures for all tests: the folders of the project, and tests that need a missing program."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent


CI = os.environ.get("CI") == "true"

CACHE = tempfile.mkdtemp(prefix="wharfinger-cache-")  # a server keeps its search index there, and not in the user's
os.environ["XDG_CACHE_HOME"] = CACHE
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)


def examples(number: int) -> int:
    """The number of examples for a property: this many in CI, a third elsewhere, with other examples each time."""
    return number if CI else number // 3


settings.register_profile("wharfinger", max_examples=examples(100), deadline=None)  # a busy machine is not a failure
settings.load_profile("wharfinger")


def absent(what: str) -> None:
    """Skip the running test because `what` is missing; in CI (`CI=true`) nothing may be missing, and it fails."""
    if CI:
        pytest.fail(f"{what}: absent, and in CI nothing may be")
    pytest.skip(f"{what}: absent")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(autouse=True)
def _servers_unknown() -> None:
    """Ports are reused, so clear what was remembered about the server behind one in another test."""
    opening = sys.modules.get("wharfinger.client.connect")
    if opening is not None:
        opening.REVISION_CACHE.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test logged printable: reports travel between processes, and hostile input is not always UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
