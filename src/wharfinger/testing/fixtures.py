"""The pytest fixture `client`: a test that uses it runs once for each revision of the protocol."""

from __future__ import annotations

from typing import Unpack, cast

import pytest

from wharfinger.client import Client, ClientOptions
from wharfinger.client.connect import Target
from wharfinger.protocol.revisions import SUPPORTED
from wharfinger.testing.client_answers import Answers, Script

__all__ = ["REVISIONS", "ClientFactory", "client"]

REVISIONS = tuple(sorted(SUPPORTED))
"""The five revisions, oldest first."""


class ClientFactory:
    """Makes clients of one revision."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        """The revision of this run of the test."""

    def __call__(self, target: Target, *, answers: Answers | None = None, **options: Unpack[ClientOptions]) -> Client:
        """Make a client, which `async with` opens: `async with client(server) as opened:`.

        Args:
            target: The first argument of `Client`.
            answers: Answers to the questions of the server, as for `Script`.
            options: Options of `Client`; the default of `revision` is the revision of this run.
        """
        handlers = {} if answers is None else Script(answers).handlers
        client_options = cast("ClientOptions", {"revision": self.revision, **handlers, **options})
        return Client(target, **client_options)


@pytest.fixture(params=REVISIONS)
def client(request: pytest.FixtureRequest) -> ClientFactory:
    """A factory of clients; the test runs once for each of the five revisions."""
    return ClientFactory(request.param)
