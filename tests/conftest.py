"""Fixtures and settings of all tests: the folder of the project, a cache folder, and skips for missing programs."""

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

CACHE = tempfile.mkdtemp(prefix="wharfinger-cache-")  # servers of tests keep their search index here
os.environ["XDG_CACHE_HOME"] = CACHE
atexit.register(shutil.rmtree, CACHE, ignore_errors=True)


def examples(number: int) -> int:
    """Return the number of examples of a property test: this many in CI, and a third elsewhere."""
    return number if CI else number // 3


settings.register_profile("wharfinger", max_examples=examples(100), deadline=None)  # a busy machine is not a failure
settings.load_profile("wharfinger")


def absent(what: str) -> None:
    """Skip the running test because `what` is missing. In CI (`CI=true`), fail it."""
    if CI:
        pytest.fail(f"{what} is missing, and CI skips no tests")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(autouse=True)
def _forget_revisions() -> None:
    """Clear the cached revisions of servers, because tests reuse ports."""
    connect = sys.modules.get("wharfinger.client.connect")
    if connect is not None:
        connect.REVISION_CACHE.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape log output that is not UTF-8, because reports are sent between processes."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
