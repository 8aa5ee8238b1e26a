"""The rows of the manifest of requirements, and short names for their tests."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Row", "client_suite", "must", "should", "suite", "transcripts"]


class Row(NamedTuple):
    """One requirement of the specification on a server or a client, in our words."""

    id: str
    """A section of the digest of requirements and a number in it: `2.14-3`, or `C2.14-3` for a client."""
    level: Literal["MUST", "SHOULD"]
    source: str
    """The revisions and the page that require it."""
    text: str
    tests: tuple[str, ...]
    """The tests of the requirement, as `file::name` below `tests/`, with the parameter's id if not all of them test it."""
    followed: str = "yes"
    """Whether a SHOULD is followed: `yes`, or `no: …` or `partly: …` with the reason."""


def must(id: str, source: str, text: str, *tests: str) -> Row:
    """Return a row for a MUST or MUST NOT."""
    return Row(id, "MUST", source, text, tests)


def should(id: str, source: str, text: str, followed: str, *tests: str) -> Row:
    """Return a row for a SHOULD or SHOULD NOT, with whether it is followed."""
    return Row(id, "SHOULD", source, text, tests, followed)


def transcripts(family: str, *revisions: str) -> tuple[str, ...]:
    """Return the tests of a family of transcripts in these revisions."""
    return tuple(
        f"transcripts/test_replay.py::test_in_process_server_answers_as_recorded[{revision}-{family}]"
        for revision in revisions
    )


def suite(scenario: str, *revisions: str) -> tuple[str, ...]:
    """Return the tests of a scenario of the official suite in these revisions."""
    return tuple(f"conformance/test_suite.py::test_scenario[{revision}-{scenario}]" for revision in revisions)


def client_suite(scenario: str, *revisions: str) -> tuple[str, ...]:
    """Return the tests of a scenario of the official suite for clients in these revisions."""
    return tuple(f"conformance/test_client_suite.py::test_scenario[{revision}-{scenario}]" for revision in revisions)
