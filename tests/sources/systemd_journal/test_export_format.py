"""The Journal Export Format: any fields survive, and any bytes end without an error."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sources.systemd_journal.conftest import export_entry
from wharfinger.sources.systemd_journal import export_format
from wharfinger.sources.systemd_journal.entry_text import all_fields
from wharfinger.sources.systemd_journal.export_format import read_entries

FIELDS = st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True), st.binary(max_size=80), min_size=1)


@given(st.lists(FIELDS, max_size=5))
def test_what_is_written_is_read(entries: list[dict[str, bytes]]) -> None:
    data = b"".join([export_entry(dict(fields)) for fields in entries])
    assert [entry.fields for entry in read_entries(io.BytesIO(data))] == entries


@given(st.binary(max_size=500))
def test_any_bytes_end_without_an_error(data: bytes) -> None:
    list(read_entries(io.BytesIO(b"A=1\n\n" + data)))


@given(st.lists(FIELDS, min_size=1, max_size=3), st.integers(1, 400))
def test_an_entry_that_is_cut_is_left_out(entries: list[dict[str, bytes]], cut: int) -> None:
    data = b"".join([export_entry(dict(fields)) for fields in entries])
    found = [entry.fields for entry in read_entries(io.BytesIO(data[: max(0, len(data) - cut)]))]
    assert found == entries[: len(found)] and len(found) < len(entries)


def test_only_the_first_value_and_so_many_fields_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_format, "MAX_FIELDS", 2)
    (entry,) = read_entries(io.BytesIO(b"A=1\nA=22\nB=3\nC=444\n\n"))
    assert entry.fields == {"A": b"1", "B": b"3"}
    assert (entry.size, entry.left_out) == (7, 5)


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("cut", [2, 7])
def test_no_part_of_a_secret_at_the_end_of_a_cut_value_is_shown(
    monkeypatch: pytest.MonkeyPatch, cut: int, end: str
) -> None:
    """A bug: the password in a URL is recognised by the `@` after it, which was cut off."""
    before = "ships " * 6_000
    url = f"{before}https://ada:hunter2@quay.example/{end}"
    monkeypatch.setattr(export_format, "MAX_FIELD_BYTES", url.index("hunter2") + cut)
    (entry,) = read_entries(io.BytesIO(export_entry({"A": url})))
    assert entry.fields["A"] == f"{before}https://ada:".encode()
    assert entry.left_out == len(url) - len(entry.fields["A"])
    assert b"hu" not in all_fields(entry, True)


def test_the_values_of_one_entry_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_format, "MAX_ENTRY_BYTES", 1_000)
    monkeypatch.setattr(export_format, "SHORT_VALUE_BYTES", 10)
    data = export_entry({"A": "a" * 1_000, "B": "b" * 20, "_SYSTEMD_UNIT": "a.service", "C": "\n" * 20})
    first, second = read_entries(io.BytesIO(data + export_entry({"B": "b" * 20, "N" * 65: "long"})))
    assert first.fields == {
        "A": b"a" * 1_000, "B": b"b" * 10, "_SYSTEMD_UNIT": b"a.service", "C": b"\n" * 10,
    }  # fmt: skip
    assert first.left_out == 20
    assert second.fields == {"B": b"b" * 20} and second.left_out == 4
