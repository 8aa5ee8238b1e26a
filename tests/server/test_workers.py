"""Several processes that serve one application must share the key of what they seal."""

from __future__ import annotations

import sys

import pytest

from wharfinger import Server
from wharfinger.server.workers import workers

STARTED: list[tuple[list[str], dict[str, str], int]] = [
    (["server.py"], {}, 1),
    (["server.py", "--workers", "4"], {}, 1),
    (["server.py"], {"WEB_CONCURRENCY": "3"}, 3),
    (["server.py"], {"WEB_CONCURRENCY": "many"}, 1),
    (["/bin/uvicorn", "app:app", "--workers", "2"], {}, 2),
    (["/lib/uvicorn/__main__.py", "app:app", "--workers=2"], {}, 2),
    (["/bin/gunicorn", "-w", "5", "app:app"], {}, 5),
    (["/bin/gunicorn", "-w5", "app:app"], {}, 5),
    (["/bin/gunicorn", "app:app"], {"GUNICORN_CMD_ARGS": "--workers=6"}, 6),
    (["/bin/uvicorn", "app:app"], {}, 1),
    ([], {}, 1),
]


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WEB_CONCURRENCY", "GUNICORN_CMD_ARGS", "WHARFINGER_SECRET"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("arguments", "environment", "number"), STARTED)
def test_the_number_of_workers_is_found(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], number: int
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert workers() == number


def test_two_workers_without_a_secret_are_an_error_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "2")
    with pytest.raises(RuntimeError, match="set WHARFINGER_SECRET to the same long random text"):
        Server("s").asgi()
    Server("s", secret="shared").asgi()
    monkeypatch.setenv("WHARFINGER_SECRET", "shared")
    Server("s").asgi()


def test_one_worker_needs_no_secret() -> None:
    Server("s").asgi()
