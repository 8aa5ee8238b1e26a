"""Several processes that serve one application must share the key that seals cursors and states."""

from __future__ import annotations

import pytest

from wharfinger import Server


@pytest.fixture(autouse=True)
def no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEB_CONCURRENCY", "WHARFINGER_SECRET"):
        monkeypatch.delenv(name, raising=False)


def test_two_workers_without_a_secret_are_an_error_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "2")
    with pytest.raises(RuntimeError, match=r"2 workers .*: set WHARFINGER_SECRET to the same long random text"):
        Server("s").asgi()


def test_two_workers_with_a_secret_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "2")
    Server("s", secret="shared").asgi()
    monkeypatch.setenv("WHARFINGER_SECRET", "shared")
    Server("s").asgi()


@pytest.mark.parametrize("workers", [None, "", "1", "many", "-2"])
def test_one_worker_needs_no_secret(monkeypatch: pytest.MonkeyPatch, workers: str | None) -> None:
    if workers is not None:
        monkeypatch.setenv("WEB_CONCURRENCY", workers)
    Server("s").asgi()
