"""Every transcript is replayed to an in-process server, and some to a real process. The answers match to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.families import FAMILIES
from tests.transcripts.transcript import FOLDER, Blanks, connected, parse, replay, spawned
from wharfinger.protocol.revisions import REVISIONS

FILES = sorted(FOLDER.glob("*/*.txt"))
NAMES = [f"{file.parent.name}-{file.stem}" for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=NAMES)
async def test_in_process_server_answers_as_recorded(file: Path) -> None:
    async with connected() as connection:
        await replay(parse(file.read_bytes()), connection)


@pytest.mark.parametrize("family", ["tools", "input_requests"])
@pytest.mark.parametrize("revision", REVISIONS)
async def test_server_process_answers_as_recorded(revision: str, family: str) -> None:
    async with spawned() as connection:
        await replay(parse((FOLDER / revision / f"{family}.txt").read_bytes()), connection)


def test_the_transcripts_are_those_of_every_family_and_revision() -> None:
    assert {(file.parent.name, file.stem) for file in FILES} == FAMILIES.keys()


def test_blanks_get_their_value_at_the_first_use() -> None:
    blanks = Blanks()
    assert blanks.matches(b'{"state":"${a}","again":"${a}"}', b'{"state":"x1","again":"x1"}')
    assert blanks.fill(b'{"back":"${a}"}') == b'{"back":"x1"}'
    assert blanks.matches(b'"${a}"', b'"x1"')
    assert not blanks.matches(b'"${a}"', b'"x2"')
    assert not Blanks().matches(b'"${a}" "${a}"', b'"x1" "x2"')


@pytest.mark.parametrize("text", [b"{}", b">{}", b"<", b"! {}"])
def test_a_line_without_a_side_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse(text)
