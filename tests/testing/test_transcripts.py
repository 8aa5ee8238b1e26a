"""A transcript survives a round trip, and is compared by what matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from wharfinger.testing import Mismatch, Transcript

SAID = '# connection 1\n> {"id":1,"method":"tools/list"}\n< {"id":1,"result":{"tools":[],"nextCursor":"x"}}\n'


def test_a_transcript_is_read_as_it_was_written(tmp_path: Path) -> None:
    transcript = Transcript.parse(SAID)
    assert str(transcript) == SAID
    transcript.save(tmp_path / "deeper" / "list.txt")
    assert str(Transcript.load(tmp_path / "deeper" / "list.txt")) == SAID
    assert list(transcript.messages(">")) == [{"id": 1, "method": "tools/list"}]
    assert len(list(transcript.messages())) == 2


def test_other_line_ends_are_part_of_a_message() -> None:
    transcript = Transcript.parse('> {"text":"a\u2028b\x85c"}\n')
    assert list(transcript.messages()) == [{"text": "a\u2028b\x85c"}]


def test_a_line_without_a_sender_is_not_a_transcript() -> None:
    with pytest.raises(ValueError, match="line 2"):
        Transcript.parse('> {}\n{"id": 1}\n')


@pytest.mark.parametrize(
    "other",
    [
        SAID.replace("# connection 1\n", ""),
        SAID.replace('"id":1,"method":"tools/list"', '"method":"tools/list","id":1'),
        SAID.replace('"x"', '"y"'),
    ],
)
def test_ignored_fields_make_no_difference(other: str) -> None:
    Transcript.parse(SAID).compare(Transcript.parse(other))


@pytest.mark.parametrize(
    ("other", "number"),
    [(SAID.replace("tools/list", "prompts/list"), 1), (SAID.replace("[]", "[1]"), 2), (SAID + SAID, 3), ("", 1)],
)
def test_the_first_message_that_differs_is_reported(other: str, number: int) -> None:
    with pytest.raises(Mismatch, match=f"Message {number} was"):
        Transcript.parse(SAID).compare(Transcript.parse(other))


def test_more_can_be_ignored() -> None:
    Transcript.parse(SAID).compare(Transcript.parse(SAID.replace("[]", "[1]")), ignore=["tools"])


def test_a_file_is_written_once_and_compared_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHARFINGER_RECORD", raising=False)
    path = tmp_path / "list.txt"
    Transcript.parse(SAID).check(path)
    Transcript.parse(SAID).check(path)
    changed = Transcript.parse(SAID.replace("[]", "[1]"))
    with pytest.raises(Mismatch, match="WHARFINGER_RECORD=1"):
        changed.check(path)
    monkeypatch.setenv("WHARFINGER_RECORD", "1")
    changed.check(path)
    assert str(Transcript.load(path)) == str(changed)
