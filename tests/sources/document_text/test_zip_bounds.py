"""The bounds of archives hold at their values, and not one beyond."""

from __future__ import annotations

import zipfile

import pytest

from tests.sources.document_text.document_builders import zip_of
from wharfinger.sources.document_text.page_list import Refused
from wharfinger.sources.document_text.zip_bounds import (
    MAX_MEMBERS,
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    RATIO_APPLIES_ABOVE_BYTES,
    check_sizes,
    open_zip,
)

HALF = MAX_UNPACKED_BYTES // 2
SMALL = RATIO_APPLIES_ABOVE_BYTES


@pytest.mark.parametrize(
    ("within", "beyond", "reason"),
    [
        ([(1, 1)] * MAX_MEMBERS, [(1, 1)] * (MAX_MEMBERS + 1), "20,001 files"),
        ([(HALF, HALF)] * 2, [(HALF, HALF), (HALF + 1, HALF)], "at most 256 MiB"),
        ([(SMALL, 1)], [(SMALL + 1, 1)], "200 times"),
        ([(MAX_RATIO << 17, 1 << 17)], [((MAX_RATIO << 17) + 1, 1 << 17)], "200 times"),
    ],
    ids=["members", "total", "small files", "ratio"],
)
def test_a_bound_holds_at_its_value_and_not_beyond(
    within: list[tuple[int, int]], beyond: list[tuple[int, int]], reason: str
) -> None:
    check_sizes(within)
    with pytest.raises(Refused, match=reason):
        check_sizes(beyond)


def test_an_archive_that_states_a_smaller_size_gives_no_more() -> None:
    """A check of what is declared is enough, because no more than that is unpacked."""
    data = zip_of({"a": b" " * 100_000})
    declared = (100_000).to_bytes(4, "little")
    assert data.count(declared) == 2
    with open_zip(data.replace(declared, (10).to_bytes(4, "little"))) as archive, pytest.raises(zipfile.BadZipFile):
        archive.read("a")  # ten bytes have another checksum


def test_an_encrypted_member_is_refused() -> None:
    data = bytearray(zip_of({"a": b"text"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(Refused, match="encrypted"):
        open_zip(bytes(data))


def test_an_archive_within_the_bounds_is_opened() -> None:
    with open_zip(zip_of({"a": b"text"})) as archive:
        assert archive.read("a") == b"text"
