"""How tables and keys are written in URIs and read back, and which URIs are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.sources.sql_database.row_text import unique_names
from wharfinger.sources.sql_database.sql_uris import SqlUris, join_key, quote_part, split_key
from wharfinger.sources.sql_database.sqlite import read_value, write_value
from wharfinger.sources.windows.window import split_query

names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
keys = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20), min_size=1, max_size=4
)


@given(names, names, keys)
def test_names_and_keys_survive_a_uri(schema: str, table: str, parts: list[str]) -> None:
    """With schemas and without, in a path and in a query."""
    key = tuple(parts)
    for uris, wanted in ((SqlUris("sqlite://shop", "main"), "main"), (SqlUris("postgres://host/shop", None), schema)):
        uri = f"{uris.of_rows(wanted, table)}/{quote_part(join_key(key))}"
        assert uri.isascii()
        target = uris.read(uri)
        assert (target.kind, target.schema, target.table, target.key) == ("row", wanted, table, key)
        assert uris.read(uris.of_table(wanted, table)).table == table
        target = uris.read(uris.of_rows(wanted, table, "limit=5"))
        assert (target.kind, target.query) == ("rows", "limit=5")


@given(keys)
def test_a_key_survives_being_one_text(parts: list[str]) -> None:
    """Commas, tildes and empty parts, too; and no two keys are the same text."""
    assert split_key(join_key(tuple(parts))) == tuple(parts)


@given(st.text(max_size=30))
def test_any_text_is_a_key_or_none(text: str) -> None:
    """And a valid one is written as it was read."""
    try:
        key = split_key(text)
    except ValueError:
        return
    assert join_key(key) == text


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.binary()))
def test_values_of_sqlite_survive_being_text(value: object) -> None:
    """17 and '17' are two keys."""
    if isinstance(value, str) and any(
        0xD800 <= ord(character) < 0xDC80 or 0xDCFF < ord(character) < 0xE000 for character in value
    ):
        return  # no bytes are read as such a text
    text = write_value(value)
    assert text is not None
    found = read_value(text)
    if isinstance(value, str) and text.startswith("t'"):
        assert isinstance(found, bytes)
        found = found.decode("utf-8", "surrogateescape")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "rest",
    [
        "/",
        "//",
        "//a",
        "/a/b",
        "/a/rows/1/2/3",
        "/%zz",
        "/%",
        "/a%00b",
        "/a/",
        "/a/rows/",
        "/a#b",
        "/%c3%28",
        "/a/rows/~",
        "/a" * 20_000,
    ],
)
def test_an_invalid_table_uri_is_not_found(rest: str) -> None:
    """With the same error as for a missing one."""
    uris = SqlUris("sqlite://shop", "main")
    if rest == "/":
        assert uris.read(uris.top + rest).kind == "database"
        return
    with pytest.raises(ResourceNotFound):
        uris.read(uris.top + rest)


def test_only_rows_have_windows() -> None:
    """A definition is never cut."""
    with pytest.raises(InvalidArgument):
        SqlUris("sqlite://shop", "main").read("sqlite://shop/a?limit=5")
    assert split_query("sqlite://shop/a/rows?limit=5")[1] == {"limit": "5"}


def test_names_of_columns_become_different() -> None:
    """Whatever the names are."""
    assert unique_names(["a", "a", "a_2", "a"]) == ["a", "a_3", "a_2", "a_4"]
    assert unique_names(["", ""]) == ["", "_2"]
