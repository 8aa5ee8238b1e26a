"""Fixtures of pytest: a test that uses `client` runs once for each revision; needs no plugin, and no settings."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.client import Client
from wharfinger.client.connect import Target
from wharfinger.protocol.revisions import SUPPORTED
from wharfinger.testing.client_answers import Answers, Script

__all__ = ["REVISIONS", "Clients", "client"]

REVISIONS = tuple(sorted(SUPPORTED))
"""The five revisions, oldest first."""


class Clients:
    """Makes clients of one revision."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        """The revision that this run of the test is for."""

    def __call__(
        self, target: Target, *, revision: str | None = None, answers: Answers | None = None, **options: Any
    ) -> Client:
        """A client that is not open yet: `async with client(server) as opened`.

        `revision` is another one than this run's; `answers` are those of a `Script`; `options` are those of `Client`.
        """
        handlers = {} if answers is None else Script(answers).handlers
        return Client(target, revision=revision or self.revision, **handlers, **options)


@pytest.fixture(params=REVISIONS)
def client(request: pytest.FixtureRequest) -> Clients:
    """Makes clients: one run of the test for each of the five revisions."""
    return Clients(request.param)
