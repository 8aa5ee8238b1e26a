"""One row of the manifest of requirements, and short names for the tests that rows name."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Row", "client_suite", "must", "should", "suite", "transcripts"]


class Row(NamedTuple):
    """One requirement of the specification on a server or a client, in our words."""

    id: str
    """Section of the digest of requirements and a number in it: `2.14-3`; of a client `C2.14-3`."""
    level: Literal["MUST", "SHOULD"]
    source: str
    """The revisions that say so, and on which page."""
    text: str
    shown: tuple[str, ...]
    """Tests that show it, as `file::name` below `tests/`, with the parameter's id where only some of them do."""
    kept: str = "yes"
    """Of a SHOULD: `yes`, `no: …` or `partly: …` with the reason."""


def must(id: str, source: str, text: str, *shown: str) -> Row:
    """A MUST or MUST NOT."""
    return Row(id, "MUST", source, text, shown)


def should(id: str, source: str, text: str, kept: str, *shown: str) -> Row:
    """A SHOULD or SHOULD NOT, and whether we follow it."""
    return Row(id, "SHOULD", source, text, shown, kept)


def transcripts(family: str, *revisions: str) -> tuple[str, ...]:
    """The transcripts of a family, in these revisions."""
    return tuple(
        f"transcripts/test_replay.py::test_bare_peer_answers_as_written[{revision}-{family}]" for revision in revisions
    )


def suite(scenario: str, *revisions: str) -> tuple[str, ...]:
    """A scenario of the official suite, in these revisions."""
    return tuple(f"conformance/test_suite.py::test_scenario[{revision}-{scenario}]" for revision in revisions)


def client_suite(scenario: str, *revisions: str) -> tuple[str, ...]:
    """A scenario of the official suite for clients, in these revisions."""
    return tuple(f"conformance/test_client_suite.py::test_scenario[{revision}-{scenario}]" for revision in revisions)
