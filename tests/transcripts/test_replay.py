"""Every transcript is replayed to a bare peer and to a real process, and the answers match to the byte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.transcripts.families import FAMILIES
from tests.transcripts.transcript import FOLDER, Said, connected, parse, replay, spawned
from wharfinger.protocol.revisions import REVISIONS

FILES = sorted(FOLDER.glob("*/*.txt"))
NAMES = [f"{file.parent.name}-{file.stem}" for file in FILES]


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_bare_peer_answers_as_written(file: Path) -> None:
    async def run() -> None:
        async with connected() as ear:
            await replay(parse(file.read_bytes()), ear)

    asyncio.run(run())


@pytest.mark.parametrize("family", ["tools", "asking"])
@pytest.mark.parametrize("revision", REVISIONS)
def test_process_answers_as_written(revision: str, family: str) -> None:
    async def run() -> None:
        async with spawned() as ear:
            await replay(parse((FOLDER / revision / f"{family}.txt").read_bytes()), ear)

    asyncio.run(run())


def test_every_family_of_every_revision_is_written_and_nothing_else() -> None:
    assert {(file.parent.name, file.stem) for file in FILES} == FAMILIES.keys()


def test_blanks_are_fixed_by_their_first_use() -> None:
    message = Said()
    assert message.fits(b'{"state":"${a}","again":"${a}"}', b'{"state":"x1","again":"x1"}')
    assert message.fill(b'{"back":"${a}"}') == b'{"back":"x1"}'
    assert message.fits(b'"${a}"', b'"x1"')
    assert not message.fits(b'"${a}"', b'"x2"')
    assert not Said().fits(b'"${a}" "${a}"', b'"x1" "x2"')


@pytest.mark.parametrize("text", [b"{}", b">{}", b"<", b"! {}"])
def test_a_line_without_a_side_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse(text)
