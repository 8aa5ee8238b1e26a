"""Transcripts: they are saved and loaded unchanged, and compared without ignored fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.testing import Mismatch, Transcript

TEXT = '# connection 1\n> {"id":1,"method":"tools/list"}\n< {"id":1,"result":{"tools":[],"nextCursor":"x"}}\n'


def test_a_saved_transcript_is_loaded_unchanged(tmp_path: Path) -> None:
    transcript = Transcript.parse(TEXT)
    assert str(transcript) == TEXT
    transcript.save(tmp_path / "deeper" / "list.txt")
    assert str(Transcript.load(tmp_path / "deeper" / "list.txt")) == TEXT
    assert list(transcript.messages(">")) == [{"id": 1, "method": "tools/list"}]
    assert len(list(transcript.messages())) == 2


def test_only_a_line_feed_ends_a_message() -> None:
    transcript = Transcript.parse('> {"text":"a\u2028b\x85c"}\n')
    assert list(transcript.messages()) == [{"text": "a\u2028b\x85c"}]


def test_a_line_without_a_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        Transcript.parse('> {}\n{"id": 1}\n')


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace("# connection 1\n", ""),
        TEXT.replace('"id":1,"method":"tools/list"', '"method":"tools/list","id":1'),
        TEXT.replace('"x"', '"y"'),
    ],
)
def test_comments_key_order_and_ignored_fields_are_not_compared(other: str) -> None:
    Transcript.parse(TEXT).compare(Transcript.parse(other))


@pytest.mark.parametrize(
    ("other", "number"),
    [(TEXT.replace("tools/list", "prompts/list"), 1), (TEXT.replace("[]", "[1]"), 2), (TEXT + TEXT, 3), ("", 1)],
)
def test_the_first_different_message_is_reported(other: str, number: int) -> None:
    with pytest.raises(Mismatch, match=f"Message {number} was"):
        Transcript.parse(TEXT).compare(Transcript.parse(other))


def test_additional_fields_can_be_ignored() -> None:
    Transcript.parse(TEXT).compare(Transcript.parse(TEXT.replace("[]", "[1]")), ignore=["tools"])


def test_a_file_is_written_once_and_compared_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHARFINGER_RECORD", raising=False)
    path = tmp_path / "list.txt"
    Transcript.parse(TEXT).check(path)
    Transcript.parse(TEXT).check(path)
    changed = Transcript.parse(TEXT.replace("[]", "[1]"))
    with pytest.raises(Mismatch, match="WHARFINGER_RECORD=1"):
        changed.check(path)
    monkeypatch.setenv("WHARFINGER_RECORD", "1")
    changed.check(path)
    assert str(Transcript.load(path)) == str(changed)


def test_the_messages_of_a_batch_are_yielded_one_by_one() -> None:
    """A bug: a batch raised an error, although 2025-03-26 has batches."""
    transcript = Transcript.parse('> [{"id":1,"method":"ping"},{"id":2,"method":"ping"}]\n< {"id":1,"result":{}}\n')
    assert [message["id"] for message in transcript.messages()] == [1, 2, 1]


def test_a_line_that_is_not_json_is_compared_as_it_is() -> None:
    """A bug: it raised an error of the decoder, which did not say which line it was."""
    printed = Transcript.parse(f"{TEXT}< Starting server\n")
    printed.compare(printed)
    with pytest.raises(Mismatch, match="Message 3 was\n  nothing\nand is now\n  < Starting server"):
        Transcript.parse(TEXT).compare(printed)
