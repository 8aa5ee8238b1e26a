"""Chooses the kind of answer for a URI."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.sources.git_repository.answer_blame import BlameAnswer
from wharfinger.sources.git_repository.answer_changes import ChangesAnswer
from wharfinger.sources.git_repository.answer_commit import CommitAnswer
from wharfinger.sources.git_repository.answer_diff import DiffAnswer
from wharfinger.sources.git_repository.answer_grep import GrepAnswer
from wharfinger.sources.git_repository.answer_log import LogAnswer
from wharfinger.sources.git_repository.answer_top import TopAnswer
from wharfinger.sources.git_repository.answer_tree import TreeAnswer
from wharfinger.sources.git_repository.answers import GitAnswer, Repository
from wharfinger.sources.git_repository.references import References

__all__ = ["answer_for"]

_ANSWERS: Mapping[str, type[GitAnswer]] = {
    "top": TopAnswer,
    "tree": TreeAnswer,
    "commit": CommitAnswer,
    "diff": DiffAnswer,
    "log": LogAnswer,
    "blame": BlameAnswer,
    "changes": ChangesAnswer,
    "grep": GrepAnswer,
}


def answer_for(repository: Repository, references: References, uri: str) -> GitAnswer:
    """Return the answer for a URI. Nothing is read until its `load` is called.

    Raises:
        ResourceNotFound: the URI cannot name anything in this repository.
        InvalidArgument: its query cannot be read.
    """
    address = repository.uris.parse(uri)
    return _ANSWERS[address.kind](repository, references, address, uri)
